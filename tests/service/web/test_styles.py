"""The page's style sheets: a screen loads the one that all share and its own, so that what one screen says of itself reaches no other."""

import re
from collections.abc import Callable

from gangline.web.frame.assets import assets
from tests.browser.screens import SCREENS
from tests.service.conftest import Service
from tests.service.experiments.at_work import submit
from tests.service.web.conftest import Browser

OWN = {
    "jobs": "/",
    "job": "/jobs/{job}",
    "pictures": "/jobs/{job}/pictures",
    "new": "/new",
    "experiments": "/experiments/{experiment}",
    "fleet": "/fleet",
    "queue": "/queue",
    "cost": "/cost",
    "keys": "/keys",
    "notices": "/notices",
}
"""A screen for each sheet in screens/ that is of one screen alone."""
TOGETHER = {"plan": {"job", "new"}}
"""Sheets of several screens, and of which."""


def test_a_screen_loads_what_all_share_and_its_own_sheet_alone(
    page: Service, signed_in: Callable[[str], Browser]
) -> None:
    browser, job, experiment = signed_in("operator"), page.submit(), submit(page)["id"]
    loaded = {name: sheets(browser.get(at.format(job=job, experiment=experiment)).text) for name, at in OWN.items()}
    for name, found in loaded.items():
        others = {f"screens/{each}.css" for each, of in TOGETHER.items() if name in of}
        assert found[0] == "page.css" and set(found[1:]) == {f"screens/{name}.css"} | others, name
    assert {path for path in assets() if path.startswith("screens/")} == {
        each for of in loaded.values() for each in of[1:]
    }


def test_no_screen_has_the_sheets_of_two(page: Service, signed_in: Callable[[str], Browser]) -> None:
    browser, job = signed_in("operator"), page.submit()
    for name, at in SCREENS.items():
        found = sheets(browser.get(at.format(job=job)).text)
        assert len([each for each in found[1:] if each.removeprefix("screens/")[:-4] not in TOGETHER]) <= 1, name


def sheets(html: str) -> list[str]:
    """Return the style sheets that a page loads, without those of the plot."""
    found = re.findall(r'<link rel="stylesheet" href="/assets/[0-9a-f]+/([^"]+)"', html)
    return [each for each in found if not each.startswith("vendor/")]
