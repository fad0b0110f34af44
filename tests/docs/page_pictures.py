"""Take the pictures of docs/page.md from a replay of a simulated fleet: `python -m tests.docs.page_pictures [NAME…]` writes them again.

It needs Chromium, and playwright, which is in the extra `dev`.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from shutil import which
from typing import Any

import httpx
from PIL import Image

from gangline.api.serve import ApiServer, listen
from gangline.sim.replay.app import COOKIE, Replay
from gangline.sim.replay.recording import Recording
from gangline.sim.scenario import parse_scenario
from gangline.sim.simulation import Simulation
from tests.conftest import ROOT

FOLDER = ROOT / "docs" / "page"
BYTES_MAX = 120_000
COLOURS = 256
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
SETTLED_MS = 1_500
"""Until scripts have drawn what they ask for after the page was loaded."""
SCENARIO = """
title = "Forty jobs of two teams on up to twelve nodes"
[fleet]
nodes_max = 12
start_s = 60
[[machines]]
count = 14
gpu = "RTX 4090"
price_usd_per_hour = 0.36
seconds_per_step = 0.8
spread = 0.2
interruptions_per_hour = 1.5
[[machines]]
count = 6
gpu = "RTX 3090"
price_usd_per_hour = 0.22
seconds_per_step = 1.4
spread = 0.2
interruptions_per_hour = 0.8
[[jobs]]
count = 26
steps = 800
sample_every_steps = 100
sample_result = true
[[jobs]]
count = 6
at_s = 600
steps = 1200
sample_every_steps = 200
[[jobs]]
count = 8
project = "portraits"
at_s = 300
steps = 600
sample_every_steps = 200
[[faults]]
kind = "reclaim"
at_s = 900
share = 0.5
"""


@dataclass(frozen=True, slots=True)
class PagePicture:
    """A picture of the screen at `address`, `at` a share of the scenario's time. It is scrolled to the element `to`, and shows the slider
    if `slider`. `{job}` is the job that was interrupted most often, `{node}` the node on which it ended."""

    name: str
    address: str
    at: float = 0.5
    width: int = 1280
    height: int = 800
    theme: str = "light"
    to: str = ""
    slider: bool = False


PICTURES = (
    PagePicture("jobs", "/"),
    PagePicture("jobs-dark", "/?state=running", theme="dark"),
    PagePicture("jobs-phone", "/", width=390, height=780, theme="dark"),
    PagePicture("job", "/jobs/{job}", at=1),
    PagePicture("job-phone", "/jobs/{job}", width=390, height=780),
    PagePicture("charts", "/jobs/{job}", at=1, to="#charts"),
    PagePicture("pictures", "/jobs/{job}/pictures", at=1),
    PagePicture("fleet", "/fleet"),
    PagePicture("node", "/fleet/{node}"),
    PagePicture("queue", "/queue", at=0.25),
    PagePicture("cost", "/cost", at=1, theme="dark"),
    PagePicture("replay", "/jobs/{job}", at=0.3, slider=True),
)


def take_pictures(names: list[str]) -> None:
    """Write the pictures of these names, or all of them. What the page does not have is said, and left out."""
    from playwright.sync_api import sync_playwright  # not in what the tests need

    with served() as url, sync_playwright() as playwright:
        found = ids(url)
        moments = httpx.get(f"{url}/replay").json()
        browser = playwright.chromium.launch(executable_path=next(filter(None, map(which, CHROMIUM))), args=SWITCHES)
        for picture in PICTURES:
            if not names or picture.name in names:
                ms = round(moments["start_ms"] + picture.at * (moments["end_ms"] - moments["start_ms"]))
                _write(picture, _taken(browser, url, picture, picture.address.format(**found), ms))
        browser.close()


@contextmanager
def served(scenario: str = SCENARIO) -> Iterator[str]:
    """Play a scenario, and serve its replay."""
    simulation = Simulation(parse_scenario(scenario, "page_pictures"), 0)
    recording = Recording(simulation.world, simulation.store)
    simulation.after_event = recording.look
    simulation.run()
    recording.finish()
    listening = listen("127.0.0.1", 0)
    server = ApiServer(Replay(simulation, recording))
    answering = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    answering.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        answering.join()


def ids(url: str) -> dict[str, str]:
    """Return what stands for the names in addresses."""
    jobs = httpx.get(f"{url}/v1/jobs").json()["jobs"]
    job = max(jobs, key=lambda each: each["interruptions"])["id"]
    return {"job": job, "node": httpx.get(f"{url}/v1/jobs/{job}").json()["attempts"][-1]["node"]}


def _taken(browser: Any, url: str, picture: PagePicture, address: str, ms: int) -> bytes | None:
    size = {"width": picture.width, "height": picture.height}
    context = browser.new_context(viewport=size, color_scheme=picture.theme, timezone_id="UTC", locale="en-GB")
    context.add_cookies([{"name": COOKIE, "value": str(ms), "url": url}])
    page = context.new_page()
    answer = page.goto(url + address, wait_until="networkidle")
    if not answer.ok:
        return None
    page.wait_for_timeout(SETTLED_MS)
    if not picture.slider:
        page.evaluate("document.getElementById('replay').hidden = true")
    if picture.to:
        page.locator(picture.to).evaluate("element => element.scrollIntoView({ block: 'start' })")
        page.wait_for_timeout(SETTLED_MS)
    taken = page.screenshot()
    context.close()
    return taken


def _write(picture: PagePicture, taken: bytes | None) -> None:
    if taken is None:
        print(f"{picture.name}: the page has no screen at {picture.address}")
        return
    content = BytesIO()
    with Image.open(BytesIO(taken)) as shown:
        shown.convert("RGB").quantize(COLOURS).save(content, "PNG", optimize=True)
    assert len(content.getvalue()) <= BYTES_MAX, f"{picture.name} has {len(content.getvalue()):,} bytes"
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{picture.name}.png").write_bytes(content.getvalue())
    print(f"{picture.name}: {len(content.getvalue()):,} bytes")


if __name__ == "__main__":
    take_pictures(sys.argv[1:])
