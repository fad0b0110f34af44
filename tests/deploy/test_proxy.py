"""Everything goes through the proxy of `deploy/Caddyfile` to a server whose address has a path: the page, the command line, workers,
streams that are sent on at once, and uploads that nobody holds in memory."""

import hashlib
import json
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import httpx
import pytest

from gangline.core.files import PART_BYTES, absolute_url
from gangline.tls import trusted
from tests.browser.chromium import CHROMIUM, SWITCHES
from tests.conftest import BASE, SUBJECT
from tests.deploy.proxied import PATH, Proxied, ending, peak_bytes
from tests.servers import ACCESS_KEY, SECRET_KEY, s3_server
from tests.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed")
TRAIN = ("--base", str(BASE), "--prompt", "sks cat face", "--steps", "2", "--resolution", "64", "--no-sample-result")
UPLOAD_BYTES = 320 * 2**20
GROWTH_MAX = 64 * 2**20
"""Measured with 320 MiB: Caddy 2 MB, the server 20 MB."""
AT_ONCE_S = 5.0
SLOW_S, SLOW_PIECES = 80, 20
BATCH = 400


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    found = Proxied(tmp_path_factory.mktemp("proxied"))
    with (
        pytest.MonkeyPatch.context() as environment,
        ending(found.start_caddy()) as found.caddy,
        ending(found.start_server()) as found.server,
    ):
        environment.setenv("SSL_CERT_FILE", str(found.authority))
        yield found


def submit(proxied: Proxied) -> str:
    """By the command line, which uploads the photos and the base first."""
    process = proxied.program(
        "train", str(SUBJECT), *TRAIN, "--detach", GANGLINE_SERVER=proxied.url, GANGLINE_TOKEN=proxied.token
    )
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, (proxied.folder / "gangline.log").read_text()[-2000:]
    return said.strip()


@pytest.fixture(scope="module")
def job(proxied: Proxied) -> str:
    return submit(proxied)


def test_a_job_is_submitted_and_each_of_its_events_arrives_at_once(proxied: Proxied, job: str) -> None:
    with proxied.client() as client, httpx.Client(verify=trusted(), timeout=20) as http:
        stream = f"{proxied.url}/v1/jobs/{job}/events/stream"
        with http.stream("GET", stream, headers={"Authorization": f"Bearer {proxied.token}"}) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.iter_lines()
            first = next(line for line in lines if line.startswith("data:"))
            assert "submitted" in first
            sent_s = time.monotonic()
            client.jobs.pause(job)
            found = next(line for line in lines if line.startswith("data:") and "pause" in line)
            assert time.monotonic() - sent_s < AT_ONCE_S
            assert json.loads(found.removeprefix("data:"))
        client.jobs.cancel(job)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium-headless-shell is not installed")
def test_the_page_works_below_the_path(proxied: Proxied, job: str) -> None:
    """In a browser: it signs in, follows the stream of its screen, and loads nothing from anywhere else."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=list(SWITCHES))
        look_around(proxied, job, browser)


def look_around(proxied: Proxied, job: str, browser: "Browser") -> None:
    from playwright.sync_api import expect

    from tests.browser.conftest import somebody

    person = somebody(browser, proxied.origin, ignore_https_errors=True)
    tab = person.tab().open(f"{PATH}/queue")
    page = tab.page
    page.wait_for_url(f"{proxied.url}/sign-in?next=%2Fqueue")
    page.get_by_label("Key").fill(proxied.token)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{proxied.url}/queue")
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.wait_for_url(f"{proxied.url}/")
    tab.live()
    with proxied.client() as client:
        new = client.jobs.submit(client.jobs.get(job).spec).summary.id
    row = page.locator(f"#{new}")
    expect(row).to_be_visible()  # by the stream
    row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#toasts")).to_contain_text("1 job paused")
    expect(row.locator(".state")).to_contain_text("paused")
    row.get_by_role("link").first.click()
    page.wait_for_url(f"{proxied.url}/jobs/{new}")
    tab.live()
    assert {each["path"] for each in person.context.cookies()} == {f"{PATH}/"}
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{proxied.url}/sign-in")
    assert tab.found_wrong() == []


def test_a_large_upload_passes_and_nobody_holds_it_in_memory(proxied: Proxied, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        for number in range(UPLOAD_BYTES // PART_BYTES):  # parts that differ, on a disk that has no room for them
            file.seek(number * PART_BYTES)
            file.write(number.to_bytes(4))
        file.truncate(UPLOAD_BYTES)
    before = [peak_bytes(each) for each in (proxied.caddy, proxied.server)]
    with proxied.client() as client:
        assert client.files.upload([large], tmp_path)[0].bytes == UPLOAD_BYTES
    grown = [peak_bytes(each) - was for each, was in zip((proxied.caddy, proxied.server), before, strict=True)]
    assert max(grown) < GROWTH_MAX, grown


@pytest.mark.nightly
def test_an_upload_over_a_slow_line_passes(proxied: Proxied) -> None:
    """One request that lasts longer than any connection may be idle, 75 s at the server."""
    content = b"of a slow line " * 2**16
    file = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content), "parts": []}

    def slowly() -> Iterator[bytes]:
        for at in range(0, len(content), len(content) // SLOW_PIECES):
            yield content[at : at + len(content) // SLOW_PIECES]
            Event().wait(SLOW_S / SLOW_PIECES)

    with httpx.Client(verify=trusted(), headers={"Authorization": f"Bearer {proxied.token}"}) as http:
        (part,) = http.post(f"{proxied.url}/v1/blobs", json=file).json()["grant"]["parts"]
        headers = {**part["headers"], "Content-Length": str(len(content))}
        began_s = time.monotonic()
        url = absolute_url(proxied.url, part["url"])
        assert httpx.put(url, content=slowly(), headers=headers, verify=trusted(), timeout=30).is_success
        assert time.monotonic() - began_s > SLOW_S
        assert http.post(f"{proxied.url}/v1/blobs", json=file).json()["present"]


@pytest.mark.nightly
def test_while_a_server_restarts_a_request_waits_for_it(proxied: Proxied) -> None:
    proxied.server.send_signal(signal.SIGTERM)
    proxied.server.communicate(timeout=60)
    answers = list[int]()
    stopped = proxied.server
    with httpx.Client(verify=trusted(), timeout=60) as http:
        asking = threading.Thread(target=lambda: answers.append(http.get(f"{proxied.url}/healthz").status_code))
        asking.start()
        proxied.server = proxied.start_server()
        asking.join()
    assert stopped.returncode == 0
    assert answers == [200]


@pytest.mark.nightly
def test_a_worker_joins_and_trains_by_the_address_with_the_path(proxied: Proxied, tmp_path: Path) -> None:
    job = submit(proxied)
    worker = proxied.program(
        "worker", "--home", str(tmp_path / "worker"), GANGLINE_SERVER=proxied.url, GANGLINE_TOKEN=proxied.join_token
    )
    with ending(worker), proxied.client() as client:
        until(lambda: client.jobs.get(job).summary.state not in ("queued", "running"))
        assert client.jobs.get(job).summary.state == "succeeded"
        paths = client.files.download_all([*client.artifacts.list(job)], tmp_path / "results")
    assert any(path.suffix == ".safetensors" for path in paths)


@pytest.mark.nightly
def test_files_in_a_bucket_go_through_the_proxy_too(tmp_path: Path) -> None:
    """Signed addresses of the bucket lead to Caddy, whose part for files sends them on with the host that was signed."""
    found = Proxied(tmp_path)
    (tmp_path / "s3").mkdir()
    keys = {"AWS_ENDPOINT_URL": found.origin, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    with (
        s3_server(tmp_path / "s3", "gangline-files") as bucket,
        pytest.MonkeyPatch.context() as environment,
        ending(found.start_caddy(FILES_UPSTREAM=bucket.endpoint.removeprefix("http://"))),
    ):
        environment.setenv("SSL_CERT_FILE", str(found.authority))
        with ending(found.start_server(GANGLINE_OBJECTS="s3://gangline-files", **keys)), found.client() as client:
            content = b"of a user" * 1000
            assert client.files.upload_content(content).sha256 == hashlib.sha256(content).hexdigest()
            assert client.jobs.get(submit(found)).summary.state == "queued"


def test_a_batch_that_is_answered_line_by_line_passes_whole(proxied: Proxied, job: str) -> None:
    with proxied.client() as client:
        spec = client.jobs.get(job).spec | {"prompt": "sks cat face, " * 40}
        answers = client.jobs.submit_batch([spec] * BATCH)
    assert len(answers) == BATCH
    assert all(each.job for each in answers), next(each for each in answers if not each.job)
