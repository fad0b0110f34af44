"""The page's style sheets: a screen loads the one that all share and its own, so that what one screen says of itself reaches no other."""

import re
from collections.abc import Callable

from gangline.web.frame.assets import assets
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


ALSO = {"/jobs/{job}/diff": "job", "/jobs/{job}/events": "job", "/experiments": "experiments"}
"""Further screens, and whose sheet they have."""


def shown(page: Service, browser: Browser, address: str) -> str:
    """Return the page at an address, in which `{job}` and `{experiment}` stand for new ones."""
    job = page.submit() if "{job}" in address else ""
    experiment = submit(page)["id"] if "{experiment}" in address else ""
    answer = browser.get(address.format(job=job, experiment=experiment))
    assert answer.status_code == 200
    return answer.text


def test_a_screen_loads_what_all_share_and_its_own_sheet_alone(
    page: Service, signed_in: Callable[[str], Browser]
) -> None:
    browser, loaded = signed_in("operator"), set[str]()
    for address, name in ({at: name for name, at in OWN.items()} | ALSO).items():
        first, *own = sheets(shown(page, browser, address))
        others = {f"screens/{each}.css" for each, of in TOGETHER.items() if name in of}
        assert first == "page.css" and {f"screens/{name}.css"} <= set(own) <= {f"screens/{name}.css"} | others, address
        loaded |= set(own)
    assert loaded == {path for path in assets() if path.startswith("screens/")}


def sheets(html: str) -> list[str]:
    """Return the style sheets that a page loads, without those of the plot."""
    found = re.findall(r'<link rel="stylesheet" href="/assets/[0-9a-f]+/([^"]+)"', html)
    return [each for each in found if not each.startswith("vendor/")]
