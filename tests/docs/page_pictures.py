"""Take the pictures of docs/page.md from servers that do what it says: `python -m tests.docs.page_pictures [NAME…]` writes them again.

It needs Chromium, and playwright, which is in the extra `dev`.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal

import httpx
from PIL import Image

from gangline.sim.replay.app import COOKIE
from tests.browser.chromium import CHROMIUM, SWITCHES
from tests.conftest import ROOT
from tests.docs.page_servers import PHOTOS, a_team, draw_album, prepare_new_job, replay, run_experiment
from tests.service.conftest import OPERATOR

FOLDER = ROOT / "docs" / "page"
BYTES_MAX = 120_000
PHONE, TABLET = 390, 820
COLOURS = 256
SETTLED_MS = 1_500
"""Until scripts have drawn what they ask for after the page was loaded."""
ROUNDS = 4
"""Looks at photos, which are checked a step at a time."""


@dataclass(frozen=True, slots=True)
class PagePicture:
    """A picture of the screen at `address` of a server, `at` a share of the scenario's time if that is a replay. It is scrolled to the
    element `to`, and shows the slider if `slider`. `{job}` is the job that was interrupted most often."""

    name: str
    address: str
    at: float = 0.5
    width: int = 1280
    height: int = 800
    theme: str = "light"
    to: str = ""
    slider: bool = False
    of: Literal["replay", "new", "experiment", "album"] = "replay"


PICTURES = (
    PagePicture("jobs", "/"),
    PagePicture("jobs-phone", "/?state=running", width=PHONE, height=780, theme="dark"),
    PagePicture("new", "/new", of="new", height=1000),
    PagePicture("job", "/jobs/{job}", at=1),
    PagePicture("job-phone", "/jobs/{job}", width=PHONE, height=780),
    PagePicture("charts", "/jobs/{job}", at=1, to="#charts", theme="dark"),
    PagePicture("pictures", "/jobs/{job}/pictures", of="album", width=820, height=1010),
    PagePicture("experiment", "/experiments/{experiment}", of="experiment"),
    PagePicture("queue", "/queue", at=0.25, width=TABLET, height=700, theme="dark"),
    PagePicture("fleet", "/fleet"),
    PagePicture("cost", "/cost?days=1&by=job", at=1, theme="dark"),
    PagePicture("replay", "/jobs/{job}", at=0.3, slider=True),
)


def take_pictures(names: list[str]) -> None:
    """Write the pictures of these names, or all of them. What the page does not have is said, and left out."""
    from playwright.sync_api import sync_playwright  # not in what the tests need

    wanted = [picture for picture in PICTURES if not names or picture.name in names]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(SWITCHES))
        for of, take in TAKES.items():
            if chosen := [picture for picture in wanted if picture.of == of]:
                take(browser, chosen)
        browser.close()


def of_replay(browser: Any, pictures: list[PagePicture]) -> None:
    with replay() as url:
        found, moments = ids(url), httpx.get(f"{url}/replay").json()
        for picture in pictures:
            ms = round(moments["start_ms"] + picture.at * (moments["end_ms"] - moments["start_ms"]))
            with opened(browser, picture) as page:
                page.context.add_cookies([{"name": COOKIE, "value": str(ms), "url": url}])
                _write(picture, _taken(page, url + picture.address.format(**found), picture))


def of_new_job(browser: Any, pictures: list[PagePicture]) -> None:
    with a_team() as team:
        prepare_new_job(team.service)
        for picture in pictures:
            with opened(browser, picture, team.url) as page:
                page.goto(team.url + picture.address)
                page.locator("#files").set_input_files(sorted(PHOTOS.glob("*.png")))
                page.get_by_label("Prompt", exact=True).fill("a photo of sks cat")
                page.locator("input[name=preset][value=object]").check()
                for _ in range(ROUNDS):
                    team.check_photos()
                    page.wait_for_timeout(SETTLED_MS)
                _write(picture, _taken(page, "", picture))


def of_experiment(browser: Any, pictures: list[PagePicture]) -> None:
    with a_team() as team:
        experiment = run_experiment(team.service)
        for picture in pictures:
            with opened(browser, picture, team.url) as page:
                _write(picture, _taken(page, team.url + picture.address.format(experiment=experiment), picture))


def of_album(browser: Any, pictures: list[PagePicture]) -> None:
    with a_team() as team:
        job = draw_album(team.service)
        for picture in pictures:
            with opened(browser, picture, team.url) as page:
                _write(picture, _taken(page, team.url + picture.address.format(job=job), picture))


TAKES = {"replay": of_replay, "new": of_new_job, "experiment": of_experiment, "album": of_album}


@contextmanager
def opened(browser: Any, picture: PagePicture, signs_in_at: str = "") -> Iterator[Any]:
    """Open a page of its own, of somebody who has signed in at this server, if it is one that people sign in at."""
    size = {"width": picture.width, "height": picture.height}
    phone = {"is_mobile": True, "has_touch": True} if picture.width < TABLET else {}
    context = browser.new_context(viewport=size, color_scheme=picture.theme, timezone_id="UTC", locale="en-GB", **phone)
    if signs_in_at:
        assert context.request.post(f"{signs_in_at}/sign-in", form={"key": OPERATOR, "stay": "1"}).ok
    yield context.new_page()
    context.close()


def ids(url: str) -> dict[str, str]:
    """Return what stands for the names in addresses."""
    jobs = httpx.get(f"{url}/v1/jobs").json()["jobs"]
    job = max(jobs, key=lambda each: each["interruptions"])["id"]
    return {"job": job, "node": httpx.get(f"{url}/v1/jobs/{job}").json()["attempts"][-1]["node"]}


def _taken(page: Any, address: str, picture: PagePicture) -> bytes:
    """Take the picture of a page at an address ("": of where it is)."""
    if address:
        assert page.goto(address).ok, address
    page.wait_for_timeout(SETTLED_MS)
    page.evaluate("document.documentElement.style.scrollbarGutter = 'auto'")  # a picture has no scrollbar
    if not picture.slider:
        page.evaluate("document.getElementById('replay')?.setAttribute('hidden', '')")
    page.evaluate("scrollTo(0, 0)")
    if picture.to:
        page.locator(picture.to).evaluate("element => element.scrollIntoView({ block: 'start' })")
    page.wait_for_timeout(SETTLED_MS)
    return page.screenshot()


def _write(picture: PagePicture, taken: bytes) -> None:
    content = BytesIO()
    with Image.open(BytesIO(taken)) as shown:
        shown.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(content, "PNG", optimize=True)
    assert len(content.getvalue()) <= BYTES_MAX, f"{picture.name} has {len(content.getvalue()):,} bytes"
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{picture.name}.png").write_bytes(content.getvalue())
    print(f"{picture.name}: {len(content.getvalue()):,} bytes")


if __name__ == "__main__":
    take_pictures(sys.argv[1:])
