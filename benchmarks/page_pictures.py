"""The grid of a job's pictures in a browser: `python benchmarks/page_pictures.py [PROMPTS] [STEPS]` (40 and 12 by default).

A server has a job with a picture of each prompt at each step. Chromium opens its screen, scrolls through all of it, opens a picture, goes
from one to the next, zooms, compares, and sees a step come in. Each line is one of these: how many tasks kept the browser's main thread
for more than 50 ms (the limit of the Long Tasks API), and the longest task; and the same of the processor's time that each task took, from
a trace of the browser, as other work on the machine lengthens tasks. Beside it stands a page of the same pictures without any script:
thumbnails alone. At the end: how long the server takes for the page, and how large it is.

It needs Playwright for Python and Chromium.
"""

import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import uvicorn
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from tests.browser.chromium import CHROMIUM, SWITCHES
from tests.service.conftest import OPERATOR, Service, a_service
from tests.service.jobs.test_samples import train
from tests.service.pictures.many import write_pictures
from tests.waiting import until

from gangline.adapters.objects.local import LocalObjects
from gangline.api.app import make_app
from gangline.core.server.limits import Limits
from gangline.web.page import add_page

PORT = 8787
ROUNDS = 10
LONG_MS = 50.0
SCROLL = """async () => {
  const frame = () => new Promise(requestAnimationFrame), box = document.getElementById("grid") ?? document.scrollingElement;
  for (let down = 0; down < box.scrollHeight; down += 300) { box.scrollTop = down; await frame(); await frame(); }
  for (let on = 0; on < box.scrollWidth; on += 300) { box.scrollLeft = on; await frame(); }
}"""


def plain_page(service: Service, job: str) -> HTMLResponse:
    rows = service.look(f"SELECT path, sha256 FROM artifact WHERE job = '{job}' ORDER BY path")
    images = "".join(
        f'<img src="/v1/jobs/{job}/pictures/{row["sha256"]}/thumbnail" width="128" height="128" loading="lazy">'
        for row in rows
    )
    return HTMLResponse(f"<!doctype html><title>plain</title>{images}")


def serve(service: Service, job: str, objects: LocalObjects) -> uvicorn.Server:
    app: FastAPI = make_app(service.deployment, objects)
    add_page(app, service.deployment, Limits())
    app.add_api_route("/plain", lambda: plain_page(service, job))
    server = uvicorn.Server(uvicorn.Config(app, port=PORT, log_level="warning"))
    threading.Thread(target=server.run, daemon=True).start()
    until(lambda: server.started)
    return server


class Watched:
    """A page whose tasks are traced between two looks."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self._trace()

    def after(self, called: str, wait_ms: int = 600) -> None:
        self.page.wait_for_timeout(wait_ms)
        events = json.loads(self.page.context.browser.stop_tracing())["traceEvents"]
        drawing = {(each["pid"], each["tid"]) for each in events if _name(each) == "CrRendererMain"}
        tasks = [each for each in events if each["ph"] == "X" and (each["pid"], each["tid"]) in drawing]
        figures = list[str]()
        for kind in ("dur", "tdur"):
            found = [each.get(kind, 0) / 1000 for each in tasks]
            figures.append(f"{sum(ms > LONG_MS for ms in found):6d} {max(found, default=0):8.0f}")
        print(f"{called:<44} {'  '.join(figures)}", flush=True)
        self._trace()

    def _trace(self) -> None:
        self.page.context.browser.start_tracing(page=self.page, categories=["toplevel"])


def _name(event: dict[str, Any]) -> str:
    return event["args"]["name"] if event["name"] == "thread_name" else ""


def bench(service: Service, job: str, prompts: int, steps: int, browser: Any) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    url = f"http://127.0.0.1:{PORT}"
    context.request.post(f"{url}/sign-in", form={"key": OPERATOR, "stay": "1"})
    print(f"{f'{prompts} prompts at {steps} steps':<44} {'> 50 ms':>6} {'longest':>7}  {'of the processor':>15}")
    page = context.new_page()
    seen = Watched(page)
    page.goto(f"{url}/plain")
    seen.after("the thumbnails alone: load")
    page.evaluate(SCROLL)
    seen.after("the thumbnails alone: scroll through all")
    page.goto(f"{url}/jobs/{job}/pictures")
    seen.after("load", 2000)
    page.evaluate(SCROLL)
    seen.after("scroll through all, down and across")
    page.evaluate("document.getElementById('grid').scrollTo(0, 0)")
    page.click("#grid a >> nth=3")
    seen.after("open a picture")
    for key in ["ArrowRight"] * 15 + ["ArrowDown"] * 6 + ["ArrowLeft"] * 10:
        page.keyboard.press(key)
        page.wait_for_timeout(60)
    seen.after("the arrow keys, 31 pictures")
    page.mouse.move(640, 450)
    for delta in [-120] * 8 + [120] * 12:
        page.mouse.wheel(0, delta)
        page.wait_for_timeout(20)
    seen.after("zoom in and out with the wheel")
    page.select_option("#against", "base")
    for _ in range(20):
        page.keyboard.press("Shift+ArrowRight")
    seen.after("compare with the base, move the slider")
    page.keyboard.press("Escape")
    seen.after("close")
    write_pictures(service, job, prompts=prompts, steps=[10_000], small=False)
    page.wait_for_selector("#step-step-10000")
    seen.after("a step comes in, live", 1500)


def answers(service: Service, job: str) -> None:
    session = service.http.post("/sign-in", data={"key": OPERATOR})
    took, size = list[float](), 0
    headers = {"Cookie": f"gangline={session.cookies.get('gangline')}", "Accept": "text/html"}
    for _ in range(ROUNDS):
        began = time.perf_counter()
        answer = service.http.get(f"/jobs/{job}/pictures", headers=headers)
        took.append((time.perf_counter() - began) * 1000)
        assert answer.status_code == 200, answer.text
        size = len(answer.content)
    print(f"the server's answer: {statistics.median(took):.0f} ms, {size / 1000:.0f} kB")


def main() -> None:
    from playwright.sync_api import sync_playwright

    prompts, steps = (int(text) for text in (*sys.argv[1:3], *("40", "12")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder:
        objects = LocalObjects(Path(folder) / "objects", "secret")
        with a_service(Path(folder), str(Path(folder) / "db.sqlite"), objects) as service:
            texts = tuple(f"a photo of sks dog, number {number}" for number in range(min(prompts, 32)))
            job = train(service, service.join(), steps=1200, sample_prompts=texts, sample_seeds=(1,)).job
            write_pictures(service, job, prompts=prompts, steps=[100 * number for number in range(steps)])
            server = serve(service, job, objects)
            add_page(service.app, service.deployment, Limits(), over_http=True)
            answers(service, job)
            with sync_playwright() as started:
                browser = started.chromium.launch(executable_path=CHROMIUM, args=list(SWITCHES))
                bench(service, job, prompts, steps, browser)
            server.should_exit = True


if __name__ == "__main__":
    main()
