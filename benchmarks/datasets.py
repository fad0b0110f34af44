"""How fast photos become a data set: `python benchmarks/datasets.py [push] [kill] [blur] [--photos N] [--s3]`, all parts without one.

push  `gangline datasets push` of new photos to `gangline server`, beside bare PUTs of the same bytes to the same store, as many at a time;
      then the same push again, which sends nothing; and how fast the server checks them
kill  the same push is killed with SIGKILL when half of the photos have arrived, and repeated: how many bytes the server was sent twice,
      as it counts them itself
blur  the sharpness of the example photos, and of each when it is blurred: what `BLURRED_BELOW` lies between

The photos are noise, so no two are alike. Server and clients are processes of their own and share this machine's cores; with `--s3` the
bytes go to an S3 server instead of the server's folder.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # not this folder: `http` is a module of Python's too
# isort: split

import argparse
import hashlib
import io
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from urllib.parse import urljoin

import httpx
from benchmarks.http import Server, running
from PIL import Image, ImageFilter
from tests.inputs import SUBJECT
from tests.servers import ACCESS_KEY, SECRET_KEY, s3_server
from tests.service.conftest import OPERATOR, a_service
from tests.service.datasets.counting import Counting, Received
from tests.service.served import serving

from gangline.adapters.objects.local import LocalObjects
from gangline.api.app import make_app
from gangline.compose.client import Client
from gangline.core.datasets.findings import BLURRED_BELOW
from gangline.core.datasets.views import MissingBlobsView
from gangline.core.files import Signed
from gangline.data.images.sets.inspected import sharpness
from gangline.wire.client.datasets import BATCH, BATCHES_AT_ONCE
from gangline.wire.transfers import FILES_AT_ONCE

PHOTOS = 20_000
SIDE = 128
SIGNED = 2000
"""Requests that are signed at once: they expire within a minute and a half."""
AT_ONCE = BATCHES_AT_ONCE * FILES_AT_ONCE
PUSH = (sys.executable, "-m", "gangline.cli.main", "datasets", "push")


def make_photos(folder: Path, count: int) -> int:
    """Write distinct JPEGs of some kilobytes; return their bytes."""
    size = 0
    for number in range(count):
        out = io.BytesIO()
        Image.effect_noise((SIDE, SIDE), 90).save(out, "JPEG", quality=85)
        size += (folder / f"{number:06}.jpg").write_bytes(out.getvalue())
    return size


def environment(url: str, key: str, home: Path) -> dict[str, str]:
    return os.environ | {"GANGLINE_SERVER": url, "GANGLINE_TOKEN": key, "GANGLINE_HOME": str(home)}


def pushed(folder: Path, url: str, key: str) -> tuple[float, dict]:
    """Push a folder as a process; return the seconds from its start to its end, and what it says."""
    began_s = time.perf_counter()
    command = [*PUSH, str(folder), "--name", "photos", "--detach", "-o", "json"]
    answer = subprocess.run(command, env=environment(url, key, folder.parent), check=True, stdout=subprocess.PIPE)
    return time.perf_counter() - began_s, json.loads(answer.stdout)


def bare_puts(server: Server, folder: Path) -> tuple[float, float]:
    """Send the same bytes to the same store, under the keys of another project. Return the seconds without and with the signing of URLs."""
    operator = Client(server.url, server.user)
    operator.projects.add("bare")
    client = Client(server.url, server.user, "bare")
    contents = {hashlib.sha256(content := path.read_bytes()).hexdigest(): content for path in folder.iterdir()}
    put_s, began_s = 0.0, time.perf_counter()
    with httpx.Client(timeout=60) as store, ThreadPoolExecutor(AT_ONCE) as senders:
        for some in (list(contents)[start : start + SIGNED] for start in range(0, len(contents), SIGNED)):
            granted = _granted(client, {sha256: contents[sha256] for sha256 in some})

            def put(sha256: str, granted: dict[str, Signed] = granted) -> bool:
                url = urljoin(server.url, granted[sha256].url)
                return store.put(url, content=contents[sha256], headers=granted[sha256].headers).is_success

            signed_s = time.perf_counter()
            assert all(senders.map(put, some))
            put_s += time.perf_counter() - signed_s
    return put_s, time.perf_counter() - began_s


def _granted(client: Client, contents: dict[str, bytes]) -> dict[str, Signed]:
    found, wanted = dict[str, Signed](), list(contents)
    for start in range(0, len(wanted), BATCH):
        body = {"files": [{"sha256": each, "bytes": len(contents[each])} for each in wanted[start : start + BATCH]]}
        answer = client.datasets._http.read(MissingBlobsView, "POST", "/v1/blobs/missing", body)
        found |= {each.sha256: signed for each in answer.missing if (signed := each.grant.parts[0])}
    return found


def push(folder: Path, size: int, count: int, s3: bool) -> None:
    with ExitStack() as stack:
        kept = dict(os.environ)
        if s3:
            bucket = stack.enter_context(s3_server(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
            os.environ |= {
                "GANGLINE_OBJECTS": f"s3://{bucket.name}/benchmark",
                "AWS_ENDPOINT_URL": bucket.endpoint,
                "AWS_ACCESS_KEY_ID": ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            }
        stack.callback(lambda: (os.environ.clear(), os.environ.update(kept)))
        server = stack.enter_context(running(None))
        print(
            f"\npush: {count:,} photos, {size / 1e6:.0f} MB, to {'an S3 server' if s3 else 'the folder of the server'}"
        )
        put_s, with_signing_s = bare_puts(server, folder)
        show_rate(f"bare PUTs, {AT_ONCE} at a time", put_s, size, count)
        show_rate("and the signing of their URLs", with_signing_s, size, count)
        seconds, said = pushed(folder, server.url, server.user)
        assert said["sent"] == count
        show_rate("gangline datasets push", seconds, size, count)
        began_s = time.perf_counter()
        seconds, said = pushed(folder, server.url, server.user)
        assert (said["sent"], said["stored"]) == (0, count)
        show_rate("the same again, nothing is sent", seconds, size, count)
        client = Client(server.url, server.user)
        left = client.datasets.get("photos", 1).because
        found = client.datasets.wait("photos", 1)
        assert found.state == "ready", found.because
        print(f"{'the check':34} {left.split(' of ')[0]} of {count:,} when the push had ended; the rest in "
              f"{time.perf_counter() - began_s - seconds:.0f} s")  # fmt: skip


def show_rate(what: str, seconds: float, size: int, count: int) -> None:
    print(f"{what:34} {seconds:7.1f} s {count / seconds:7.0f} photos/s {size / seconds / 1e6:7.1f} MB/s", flush=True)


@contextmanager
def counting_server() -> Iterator[tuple[str, Received]]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with a_service(place, str(place / "db.sqlite"), LocalObjects(place / "store", "secret")) as service:
            received = Received()
            app = make_app(service.deployment, service.objects)  # type: ignore[arg-type]
            app.add_middleware(Counting, received=received)
            with serving(app) as at:
                yield at.url, received


def kill(folder: Path, size: int, count: int) -> None:
    with counting_server() as (url, received):
        command = [*PUSH, str(folder), "--name", "photos", "--detach", "-o", "json"]
        first = subprocess.Popen(command, env=environment(url, OPERATOR, folder.parent), stdout=subprocess.DEVNULL)
        while len(received.puts) < count // 2 and first.poll() is None:
            threading.Event().wait(0.01)
        first.send_signal(signal.SIGKILL)
        first.wait()
        before = len(received.puts)
        _, said = pushed(folder, url, OPERATOR)
        twice, cut = sum(received.twice.values()), sum(received.bodies.values()) - size
        print(f"\nkill: SIGKILL when {before:,} of {count:,} photos had arrived")
        print(f"the second push sent {said['sent']:,} and found {said['stored']:,} stored")
        print(f"of files that had arrived, {len(received.twice)} were sent again ({twice:,} bytes)")
        print(f"bytes that arrived beyond those of the photos, the list of files among them: {cut:,}")


def blur() -> None:
    print(f"\nblur: sharpness, at most 512 pixels; below {BLURRED_BELOW:g} counts as blurred")
    print(f"{'photo':24} {'as it is':>9} " + " ".join(f"{f'blur {radius} %':>9}" for radius in RADII))
    for path in sorted(SUBJECT.glob("*.*")):
        if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp"):
            image = Image.open(path).convert("RGB")
            pixels = [max(image.size) * radius / 100 for radius in RADII]
            blurred = [sharpness(image.filter(ImageFilter.GaussianBlur(radius))) for radius in pixels]
            print(f"{path.name:24} {sharpness(image):9.1f} " + " ".join(f"{value:9.1f}" for value in blurred))


RADII = (0.2, 0.5, 1.0)
"""Radii of a Gaussian blur, in percent of the longer side."""


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=["push", "kill", "blur", []])
    parser.add_argument("--photos", type=int, default=PHOTOS)
    parser.add_argument("--s3", action="store_true")
    wanted = parser.parse_args(arguments)
    parts = wanted.parts or ["push", "kill", "blur"]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "photos"
        folder.mkdir()
        size = make_photos(folder, wanted.photos) if {"push", "kill"} & set(parts) else 0
        if "push" in parts:
            push(folder, size, wanted.photos, wanted.s3)
        if "kill" in parts:
            kill(folder, size, wanted.photos)
    if "blur" in parts:
        blur()


if __name__ == "__main__":
    main(sys.argv[1:])
