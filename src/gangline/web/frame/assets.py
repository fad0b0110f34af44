"""The style sheets, the scripts and the pictures of the page: read once, compressed once, and kept by browsers for good.

Their addresses have a hash of all of them, so that a page never runs with a script of another version; scripts import each other by
relative addresses.
"""

import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request, Response

from gangline.core.errors import NotFound

MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}
HTMX = ("vendor/htmx-4.0.1.min.js", "vendor/hx-sse-4.0.1.min.js")
KEPT = "public, max-age=31536000, immutable"
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    compressed: bytes
    media_type: str


@cache
def assets() -> dict[str, Asset]:
    """Return the files by their path below `static`."""
    found = {path: each.read_bytes() for path, each in _walk("", files("gangline.web") / "static")}
    # In one file: htmx begins in the task after its own, whether or not its extensions have arrived by then.
    found["htmx.js"] = b"\n".join(found.pop(path) for path in HTMX)
    return {path: _asset(path, found[path]) for path in sorted(found)}


@cache
def assets_digest() -> str:
    digest = sha256()
    for path, asset in assets().items():
        digest.update(f"{path}\n{len(asset.content)}\n".encode() + asset.content)
    return digest.hexdigest()[:16]


def asset_address(path: str) -> str:
    """Return the address of a file. It is an error of ours if there is none."""
    assert path in assets(), path
    return f"/assets/{assets_digest()}/{path}"


@router.get("/assets/{digest}/{path:path}")
async def show_asset(request: Request, digest: str, path: str) -> Response:
    """Return a file of the page. Needs no key."""
    found = assets().get(path)
    if found is None or digest != assets_digest():
        raise NotFound(f"there is no file {path} of this version of the page", hint="load the page again")
    headers = {"Cache-Control": KEPT, "Vary": "Accept-Encoding", "X-Content-Type-Options": "nosniff"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(found.compressed, headers=headers, media_type=found.media_type)
    return Response(found.content, headers=headers, media_type=found.media_type)


def _walk(above: str, folder: Traversable) -> list[tuple[str, Traversable]]:
    found = list[tuple[str, Traversable]]()
    for each in folder.iterdir():
        if each.is_dir():
            found += _walk(f"{above}{each.name}/", each)
        elif each.name.rpartition(".")[2] in MEDIA_TYPES:
            found.append((above + each.name, each))
    return found


def _asset(path: str, content: bytes) -> Asset:
    return Asset(content, gzip.compress(content, mtime=0), MEDIA_TYPES[path.rpartition(".")[2]])
