"""Uploads and downloads of both clients: how far they are, what is there already, and what a canceled one leaves."""

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from gangline import AsyncClient, Client
from gangline.core.files import PART_BYTES, File
from gangline.core.views import ArtifactView
from gangline.types import TransferProgress
from tests.servers import served as served_by
from tests.service.conftest import OPERATOR, Service
from tests.service.served import Served
from tests.service.test_rules import succeed

on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
Upload = Callable[..., tuple[File, ...]]


@pytest.fixture(params=["sync", "async"])
def upload(request: pytest.FixtureRequest, served: Served) -> Upload:
    """`files.upload` of either client."""

    async def uploading(*given: Any, **options: Any) -> tuple[File, ...]:
        async with AsyncClient(served.url, OPERATOR) as client:
            return await client.files.upload(*given, **options)

    if request.param == "sync":
        return Client(served.url, OPERATOR).files.upload
    return lambda *given, **options: asyncio.run(uploading(*given, **options))


def files(folder: Path, *sizes: int) -> list[Path]:
    paths = [folder / f"{number}.bin" for number in range(len(sizes))]
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        path.write_bytes(bytes([number + 1]) * size)
    return paths


@on_sqlite
def test_an_upload_says_how_far_it_is_part_by_part(service: Service, upload: Upload, tmp_path: Path) -> None:
    paths, seen = files(tmp_path, 10, 2 * PART_BYTES + 5, 0), list[TransferProgress]()
    sent = upload(paths, tmp_path, progress=seen.append)
    assert [file.path for file in sent] == ["0.bin", "1.bin", "2.bin"]
    total = 2 * PART_BYTES + 15
    assert {one.bytes_total for one in seen} == {total} and seen[-1].bytes_done == total
    assert [one.bytes_done for one in seen] == sorted(one.bytes_done for one in seen)
    large = [one.file_bytes_done for one in seen if one.path == "1.bin"]
    assert large[0] == 0 and large[-1] == 2 * PART_BYTES + 5 and len(large) == 4, "its beginning and its three parts"


@on_sqlite
def test_what_is_stored_already_counts_at_once(service: Service, upload: Upload, tmp_path: Path) -> None:
    paths = files(tmp_path, 10, PART_BYTES + 1)
    upload(paths, tmp_path)
    seen: list[TransferProgress] = []
    upload(paths, tmp_path, progress=seen.append)
    assert [(one.path, one.file_bytes_done) for one in seen] == [("0.bin", 10), ("1.bin", PART_BYTES + 1)]
    assert str(seen[-1]) == "1.bin: 16.8 of 16.8 MB"


@on_sqlite
def test_results_are_downloaded_once(service: Service, served: Served, tmp_path: Path) -> None:
    job, node, folder = service.submit(), service.join(), tmp_path / "results"
    succeed(service, node, service.claim(node).hold)
    seen: list[TransferProgress] = []
    with Client(served.url, OPERATOR) as client:
        (path,) = client.artifacts.download(job, folder, progress=seen.append)
        content, changed_ns = path.read_bytes(), path.stat().st_mtime_ns
        client.artifacts.download(job, folder, progress=seen.append)
        assert path.stat().st_mtime_ns == changed_ns
        path.write_bytes(content[::-1])
        client.artifacts.download(job, folder)
    assert path.read_bytes() == content
    assert [one.file_bytes_done for one in seen] == [0, len(content), len(content)]
    assert list(folder.iterdir()) == [path]


@pytest.fixture
def slow() -> Iterator[tuple[str, threading.Event, threading.Event]]:
    """A server that sends a part of a file, and the rest never: its URL, whether somebody reads, and whether they went."""
    app, reads, gone = FastAPI(), threading.Event(), threading.Event()

    @app.get("/file")
    async def send() -> StreamingResponse:
        async def content() -> Any:
            try:
                yield b"x" * 100
                reads.set()
                await asyncio.sleep(60)
            finally:
                gone.set()

        return StreamingResponse(content())

    with served_by(app) as url:
        yield f"{url}/file", reads, gone


def test_a_canceled_download_closes_its_connection_and_leaves_no_file(
    slow: tuple[str, threading.Event, threading.Event], tmp_path: Path
) -> None:
    url, reads, gone = slow
    artifact = ArtifactView(path="a/weights.safetensors", bytes=1000, sha256="0" * 64, url=url)

    async def look() -> None:
        async with AsyncClient(url.removesuffix("/file"), OPERATOR) as client:
            task = asyncio.create_task(client.files.download(artifact, tmp_path))
            await asyncio.to_thread(reads.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(gone.wait, 20)

    asyncio.run(look())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_downloads_to_one_path_at_the_same_time_do_not_mix_their_bytes(tmp_path: Path) -> None:
    app, goes_on, begun = FastAPI(), threading.Event(), threading.Barrier(2)

    @app.get("/{letter}")
    async def send(letter: str) -> StreamingResponse:
        async def content() -> Any:
            yield letter.encode() * 100
            await asyncio.to_thread(goes_on.wait, 20)
            yield letter.encode() * 100

        return StreamingResponse(content())

    def begins(_: TransferProgress) -> None:
        if not goes_on.is_set():
            begun.wait(20)
            goes_on.set()

    def artifact(letter: str) -> ArtifactView:
        sha256 = hashlib.sha256(letter.encode() * 200).hexdigest()
        return ArtifactView(path="weights.safetensors", bytes=200, sha256=sha256, url=f"/{letter}")

    with served_by(app) as url, Client(url, OPERATOR) as client, ThreadPoolExecutor() as threads:
        begun_at = [threads.submit(client.files.download, artifact(each), tmp_path, progress=begins) for each in "ab"]
        (path, same) = [download.result(20) for download in begun_at]
    assert path == same and path.read_bytes() in (b"a" * 200, b"b" * 200)
    assert list(tmp_path.iterdir()) == [path]


@on_sqlite
def test_an_event_loop_runs_on_while_files_are_hashed_and_sent(served: Served, tmp_path: Path) -> None:
    (path,) = files(tmp_path, 8 * PART_BYTES)
    longest_s = [0.0]

    async def watch() -> None:
        last_s = time.monotonic()
        while True:
            await asyncio.sleep(0.001)
            now_s = time.monotonic()
            longest_s[0], last_s = max(longest_s[0], now_s - last_s), now_s

    async def look() -> float:
        async with AsyncClient(served.url, OPERATOR) as client:
            watching = asyncio.create_task(watch())
            began_s = time.monotonic()
            await client.files.upload([path], tmp_path)
            watching.cancel()
            return time.monotonic() - began_s

    took_s = asyncio.run(look())
    assert longest_s[0] < took_s / 2, "hashing alone takes as long, in one piece"
