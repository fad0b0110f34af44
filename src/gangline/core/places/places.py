"""Parse the addresses of a user's photos and of the target for results, and find the operator's source that covers one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from gangline.core.display import has_words, is_printable, printable
from gangline.core.errors import BadInput
from gangline.core.files import FORBIDDEN, last_bytes
from gangline.core.places.urls import check_url

PLACES_MAX = 1000
CAPTION_MAX = 2000
SHOWN_MAX = 100
STEM_BYTES_MAX = 200
"""The maximum length of a photo's stem: a number, a suffix and `.partial` must fit into its file name, too."""
ADDRESS_MAX = 1000
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}")
PICTURES = (
    ".jpg",
    ".jpeg",
    ".jfif",
    ".png",
    ".apng",
    ".webp",
    ".avif",
    ".bmp",
    ".tif",
    ".tiff",
    ".gif",
    ".heic",
    ".heif",
)
ZIP = ".zip"
FORMS = (
    'the name of a data set, "s3://BUCKET/FOLDER/", "s3://BUCKET/PHOTOS.zip", "https://HOST/PHOTOS.zip", or a list of https:// URLs, '
    'each as a text or as {"url": "…", "caption": "…"}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoPlace:
    """An address that a user gave; with a caption if it is the address of one photo."""

    address: str
    caption: str = ""

    @property
    def is_folder(self) -> bool:
        return self.address.startswith("s3://") and self.address.endswith("/")

    @property
    def is_zip(self) -> bool:
        """Return whether the address looks like that of a zip; its content may still differ."""
        return not self.is_folder and _path(self.address).lower().endswith(ZIP)

    @property
    def shown(self) -> str:
        return self.address if self.address.startswith("s3://") else check_url(self.address).shown


def names_places(given: object) -> bool:
    """Return whether `photos` of a submission gives addresses rather than uploaded files."""
    return isinstance(given, str) or _is_object(given) or (isinstance(given, list) and any(map(_is_place, given)))


def parse_places(given: object) -> tuple[PhotoPlace, ...]:
    """Return the addresses of `photos`. Raises `BadInput` with the valid forms."""
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise BadInput("photos: the list is empty", hint=FORMS)
    if len(listed) > PLACES_MAX:
        raise BadInput(f"photos: more than {PLACES_MAX:,} URLs in one list", hint="put the photos into one zip")
    found = tuple(map(_place, listed))
    alone = next((place for place in found if place.is_folder or place.is_zip), None)
    if alone and len(found) > 1:
        raise BadInput(
            f"photos: {alone.shown} holds many photos, so it must be the only address",
            hint="put all photos into one folder or zip",
        )
    if alone and alone.caption:
        raise BadInput(
            f"photos: a caption describes one photo, and {alone.shown} holds many",
            hint="put captions beside the photos, as .txt files or metadata.jsonl",
        )
    return found


def _is_place(given: object) -> bool:
    return isinstance(given, str) or _is_object(given)


def _is_object(given: object) -> bool:
    return isinstance(given, dict) and "url" in given


def _place(given: object) -> PhotoPlace:
    if isinstance(given, str):
        return PhotoPlace(address=_address(given))
    if not isinstance(given, dict) or not isinstance(url := given.get("url"), str):
        raise BadInput("photos: one of the entries is not an address", hint=FORMS)
    unknown = sorted(str(name) for name in given.keys() - {"url", "caption"})
    caption = given.get("caption", "")
    if unknown:
        raise BadInput(f"photos: a URL has no field {printable(unknown[0])[:SHOWN_MAX]}", hint=FORMS)
    if not isinstance(caption, str) or len(caption) > CAPTION_MAX or (caption and not has_words(caption)):
        raise BadInput(f"photos: a caption is a text of at most {CAPTION_MAX:,} characters on one line")
    return PhotoPlace(address=_address(url), caption=caption.strip())


def _address(text: str) -> str:
    if not text.startswith("s3://"):
        if "://" not in text or not text.startswith(("http:", "https:")):
            raise BadInput(
                f"photos: {printable(text)[:SHOWN_MAX]!r} is not an address that this server can fetch from", hint=FORMS
            )
        return check_url(text).text
    text = text if text.endswith("/") or PurePosixPath(text).suffix else f"{text}/"
    check_bucket(text)
    if not _path(text).strip("/"):
        raise BadInput(f"photos: {text} is a whole bucket", hint="name a folder of it, as s3://BUCKET/FOLDER/")
    return text


def check_bucket(address: str) -> None:
    """Raise `BadInput` unless the address is a plain s3:// address."""
    bucket, _, key = address.removeprefix("s3://").partition("/")
    good = (
        address.startswith("s3://") and BUCKET.fullmatch(bucket) and len(address) <= ADDRESS_MAX and is_printable(key)
    )
    if not good or "//" in key or {".", ".."} & set(key.split("/")) or "?" in key or "#" in key:
        raise BadInput(
            f"{printable(address)[:SHOWN_MAX]} is not a place in a bucket", hint="write it as s3://BUCKET/FOLDER/"
        )


def _path(address: str) -> str:
    return urlsplit(address).path


def file_names(places: Sequence[PhotoPlace]) -> list[str]:
    """Return a file name for each photo, derived from its address.

    Their stems differ, too, as the caption of a photo is a file with the photo's stem.
    """
    seen, found = set[str](), list[str]()
    for number, place in enumerate(places, start=1):
        name = FORBIDDEN.sub("", unquote(_path(place.address).rstrip("/").rpartition("/")[2], errors="replace")).lstrip(
            "."
        )
        path = PurePosixPath(printable(name).replace("\\", "") or "photo")
        ending = path.suffix if path.suffix.lower() in (*PICTURES, ZIP) else ""
        whole = path.name.removesuffix(ending) if ending else path.name.replace(".", "-")
        stem = last_bytes(whole, STEM_BYTES_MAX).strip(" .") or "photo"
        same, plain = number, stem
        while stem.lower() in seen:
            stem, same = f"{plain}-{same}", same + 1
        seen.add(stem.lower())
        found.append(stem + ending.lower())
    return found


# Sources

Use = Literal["read", "deliver"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoSource:
    """A place that the operator lets `projects` use: a prefix of a bucket, or an organisation or a repository of the hub."""

    name: str
    place: str
    projects: tuple[str, ...]
    deliver: bool = False

    def covers(self, address: str, project: str) -> bool:
        prefix = self.place if self.place.endswith("/") else f"{self.place}/"
        return (project in self.projects or "*" in self.projects) and f"{address}/".startswith(prefix)


def source_of(address: str, project: str, sources: Mapping[str, PhotoSource], use: Use) -> PhotoSource:
    """Return the source with the longest place that covers the address. Raises `BadInput` if none does."""
    covering = [source for source in sources.values() if source.covers(address, project)]
    fitting = [source for source in covering if use == "read" or source.deliver]
    if not fitting:
        what = "results may not be delivered to" if covering else f"the project {project} has no source for"
        setting = (
            "deliver = true in its source" if covering else "a [sources.NAME] that covers it and names the project"
        )
        raise BadInput(f"{what} {address}", hint=f"the operator of this server adds {setting}, in gangline.toml")
    return max(fitting, key=lambda source: len(source.place))


# Where results go


def why_no_target(address: str) -> str:
    """Return what is wrong with an address for results, or an empty string."""
    if address.startswith("hf://"):
        repo = address.removeprefix("hf://").rstrip("/")
        good = REPO.fullmatch(repo) and ".." not in repo and "--" not in repo
        return "" if good else "is not a repository of the hub: write hf://ORGANISATION/NAME"
    try:
        check_bucket(address)
    except BadInput:
        return "is not a place for results: write s3://BUCKET/FOLDER/ or hf://ORGANISATION/NAME"
    return "" if _path(address).strip("/") else "is a whole bucket: name a folder of it, as s3://BUCKET/FOLDER/"


def places_to_json(places: Sequence[PhotoPlace]) -> list[dict[str, Any]]:
    return [{"url": place.address} | ({"caption": place.caption} if place.caption else {}) for place in places]


def without_keys(photos: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a spec's photos that are not fetched yet, safe to show with the job: a URL's query, which may be a secret, is removed."""
    return [each | {"url": _without_query(each["url"])} if _is_object(each) else each for each in photos]


def _without_query(address: str) -> str:
    before, mark, _ = address.partition("?")
    return f"{before}?…" if mark and not address.startswith("s3://") else address
