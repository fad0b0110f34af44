"""Which kind of source lies at a place."""

from dataclasses import dataclass
from pathlib import Path

from gangline.core.errors import BadInput
from gangline.core.words import counted
from gangline.data.place import Entry, Place
from gangline.data.sources.folder import about_images, folder_source, is_image, says_something
from gangline.data.sources.item import Source
from gangline.data.sources.tables import TABLES, table_source
from gangline.data.sources.tars import TARS, Members, tar_source

KINDS = ("folder", "tars", "tables")
CALLED = {"folder": "a folder of images", "tars": "webdataset tars", "tables": "a table"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What the user says of the source; what is empty is found. `uncaptioned`: no caption is needed."""

    kind: str = ""
    captions: tuple[str, ...] = ()
    image: str = ""
    url: str = ""
    image_member: str = ""
    caption_member: str = ""
    uncaptioned: bool = False


def find_source(place: Place, hints: Hints = Hints()) -> tuple[Source, list[Entry]]:
    """The source, and the files that it was found to be. Raises `BadInput` where nothing there can be one."""
    place, entries = _listed(place)
    endings = {"tars": TARS, "tables": TABLES}
    found = {kind: [entry for entry in entries if entry.name.lower().endswith(ends)] for kind, ends in endings.items()}
    found["folder"] = [entry for entry in entries if is_image(entry)]
    if found["folder"]:  # a table of metadata is about them, and img2dataset's 00000.parquet about those in 00000/
        folders = {entry.name.partition("/")[0] for entry in found["folder"] if "/" in entry.name}
        found["tables"] = [
            entry
            for entry in found["tables"]
            if not says_something(entry) and entry.name.rpartition(".")[0] not in folders
        ]
    kind = hints.kind or next((kind for kind in ("tars", "tables", "folder") if found[kind]), "")
    if not kind or not found[kind]:
        what = {
            "folder": "images",
            "tars": "tars",
            "tables": "Parquet or Arrow files",
            "": "images, tars, Parquet or Arrow files",
        }
        seen = f": it has {counted(len(entries), 'file')}, such as {entries[0].name}" if entries else ""
        raise BadInput(
            f"{place.uri} holds no {what[kind]}{seen}",
            hint="give a folder of images, or one with .tar or .parquet files",
        )
    _check_hints(place, kind, hints)
    if kind == "tars":
        members = Members(hints.image_member, hints.caption_member)
        return tar_source(place, found[kind], hints.captions, members), found[kind]
    if kind == "tables":
        source = table_source(
            place, found[kind], hints.captions, image=hints.image, url=hints.url, uncaptioned=hints.uncaptioned
        )
        return source, found[kind]
    told = about_images(entries)
    return folder_source(place, told, hints.captions), told


def _check_hints(place: Place, kind: str, hints: Hints) -> None:
    """Raises `BadInput` where something is named that a source of this kind does not have."""
    of_tables = "a column of a table", "tables", (("--image-column", hints.image), ("--url-column", hints.url))
    of_tars = (
        "files of webdataset tars",
        "tars",
        (("--image-member", hints.image_member), ("--caption-member", hints.caption_member)),
    )
    for what, owner, options in (of_tables, of_tars):
        given = [option for option, name in options if name]
        if given and kind != owner:
            raise BadInput(
                f"{given[0]} names {what}, but {place.uri} is {CALLED[kind]}",
                hint=f"leave {given[0]} out, or say --from {owner}",
            )


def _listed(place: Place) -> tuple[Place, list[Entry]]:
    """A single file is a folder with that file alone."""
    path = Path(place.uri)
    single = place.uri.lower().endswith((*TARS, *TABLES)) and (place.is_remote or path.is_file())
    if not single:
        if not place.is_remote and path.is_file():
            raise BadInput(
                f"{place.uri} is a file that is neither tar nor table",
                hint="give a folder of images, or a .tar, .parquet or .arrow file",
            )
        if not place.is_remote and not path.is_dir():
            raise BadInput(f"there is no folder {place.uri}", hint="give the path of a folder, or s3://BUCKET/PREFIX")
        return place, place.entries(links=True)
    folder = Place(place.uri.rpartition("/")[0], place.options)
    return folder, [entry for entry in folder.entries() if entry.name == place.name]
