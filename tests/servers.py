"""Servers of others that tests start: a real S3 store on this machine, with a key that it insists on."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import uvicorn
from botocore.credentials import Credentials
from fastapi import FastAPI, Request, Response

from gangline.adapters.objects.s3_abilities import CHECKSUM
from gangline.adapters.objects.s3_wire import S3Bucket, Wire
from gangline.core.errors import Unreachable

BUCKET, ACCESS_KEY, SECRET_KEY = "gangline", "gangline-test", "the-secret-of-the-test"
READER, READER_KEY = "gangline-reader", "the-secret-of-who-may-only-read"
START_S_MAX = 60
GRPC = 10_000
"""weed listens on each of its ports plus this, too."""

UNDERSTOOD = frozenset({"if-none-match", CHECKSUM, "x-amz-checksum-mode", "x-amz-checksum-algorithm"})
TOLD = {"etag", "content-length", "content-type", "last-modified", "date"}


@contextmanager
def s3_server(folder: Path, name: str = BUCKET) -> Iterator[S3Bucket]:
    """SeaweedFS with one bucket, of this name, until the context ends; then its process has ended too."""
    identities = [
        _identity(ACCESS_KEY, SECRET_KEY, "Admin", "Read", "Write", "List", "Tagging"),
        _identity(READER, READER_KEY, "Read", "List"),
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    ports = dict(zip(("master", "volume", "filer", "s3", "admin"), _free_ports(5), strict=True))
    command = [
        str(Path(sys.executable).parent / "weed"),
        "-logdir=" + str(folder),
        "mini",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-s3.config={folder / 's3.json'}",
        f"-bucket={name}",
        "-s3.autoCreateBucket=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.iam=false",
        "-s3.cacheCapacityMB=0",
        "-webdav=false",
        "-admin.ui=false",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        *(f"-{name}.port={port}" for name, port in ports.items()),
    ]
    endpoint = f"http://127.0.0.1:{ports['s3']}"
    bucket = S3Bucket(name=name, endpoint=endpoint, credentials=Credentials(ACCESS_KEY, SECRET_KEY))
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        _wait_for(bucket, server, folder / "log")
        yield bucket
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _identity(access_key: str, secret_key: str, *actions: str) -> dict[str, object]:
    credentials = [{"accessKey": access_key, "secretKey": secret_key}]
    return {"name": access_key, "credentials": credentials, "actions": actions}


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        if port < 65_536 - GRPC and port not in found and _is_free(port + GRPC):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _wait_for(bucket: S3Bucket, server: subprocess.Popen[bytes], log: Path) -> None:
    """Until it knows the bucket, and refuses who comes without the key."""
    until_s = time.monotonic() + START_S_MAX
    while time.monotonic() < until_s:
        with suppress(Unreachable):
            if Wire(bucket).send("GET", query={"list-type": "2"}).is_success:
                assert httpx.get(bucket.url).status_code == 403
                return
        with suppress(subprocess.TimeoutExpired):
            server.wait(0.1)
            break
    raise AssertionError(f"weed did not start: {log.read_text()[-2000:]}")


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The URL of an application on this machine, until the context ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    # Without it each answer of two parts takes 40 ms: asyncio sets it for sockets of a known protocol alone, and this one's is 0.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@dataclass
class Lesser:
    """A store before the real one that drops what it `ignores` of each request, and `attests` what it likes of any object.
    It looks at no signature, that of the real one is made anew; of the access keys only at whether they are `known`, where any are."""

    bucket: S3Bucket
    ignores: frozenset[str] = frozenset()
    attests: str | None = None
    known: set[str] = field(default_factory=set)

    async def forward(self, request: Request) -> Response:
        if self.known and _access_key(request) not in self.known:
            return Response("<Error><Code>ExpiredToken</Code></Error>", 400)
        query = {name: value for name, value in request.query_params.items() if not name.startswith("X-Amz-")}
        headers = {name: value for name, value in request.headers.items() if name in UNDERSTOOD - self.ignores}
        key = request.url.path.removeprefix(f"/{self.bucket.name}").strip("/")
        answer = await asyncio.to_thread(
            Wire(self.bucket).send, request.method, key, query=query, headers=headers, content=await request.body()
        )
        told = {name: value for name, value in answer.headers.items() if name.startswith("x-amz-") or name in TOLD}
        if request.method == "HEAD" and self.attests is not None:
            told[CHECKSUM] = self.attests
        return Response(answer.content, answer.status_code, told)


def _access_key(request: Request) -> str:
    signed = request.query_params.get("X-Amz-Credential") or request.headers.get("authorization", "").partition("=")[2]
    return signed.split("/")[0]


@contextmanager
def before(lesser: Lesser) -> Iterator[S3Bucket]:
    """The bucket, seen through it."""
    app = FastAPI()
    app.add_route("/{path:path}", lesser.forward, methods=["GET", "HEAD", "PUT", "POST", "DELETE"])
    with served(app) as url:
        yield replace(lesser.bucket, endpoint=url)
