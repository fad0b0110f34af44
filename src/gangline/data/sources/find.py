"""Find out which kind of source is at a place."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gangline.core.errors import BadInput
from gangline.core.words import counted
from gangline.data.place import DataPlace, Entry
from gangline.data.sources.folder import about_images, folder_source, is_image, says_something
from gangline.data.sources.item import Source
from gangline.data.sources.lines import LINES
from gangline.data.sources.mds import mds_files
from gangline.data.sources.tables import TABLES, NamedColumns, table_source
from gangline.data.sources.tars import TARS, Members, tar_source

ENDINGS = {"tars": TARS, "tables": TABLES, "lines": LINES}
FROM = {"tables": ("tables", "lines")}
CALLED = {
    "folder": "a folder of images",
    "tars": "webdataset tars",
    "tables": "a table",
    "lines": "a table",
    "mds": "MDS of MosaicML",
}
SOUGHT = {
    "": "images, tars, tables or MDS",
    "folder": "images",
    "tars": "tars",
    "tables": "Parquet, Arrow, CSV, TSV or JSON files",
    "mds": "index.json with .mds files",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """The user's options for the source; empty ones are detected. `uncaptioned` means that no caption is needed."""

    kind: str = ""
    captions: tuple[str, ...] = ()
    image: str = ""
    url: str = ""
    image_member: str = ""
    caption_member: str = ""
    uncaptioned: bool = False


def find_source(place: DataPlace, hints: Hints = Hints()) -> tuple[Source, list[Entry]]:
    """Return the source and its files. Raise `BadInput` if nothing there can be a source."""
    place, entries = _listed(place)
    found = _found(entries)
    wanted = FROM.get(hints.kind, (hints.kind,)) if hints.kind else ("mds", "tars", "tables", "folder", "lines")
    kind = next((kind for kind in wanted if found[kind]), "")
    if not kind:
        seen = f": it has {counted(len(entries), 'file')}, such as {entries[0].name}" if entries else ""
        raise BadInput(
            f"{place.uri} holds no {SOUGHT[hints.kind]}{seen}",
            hint="give a folder of images, or one with tars, tables or MDS",
        )
    _check_hints(place, kind, hints)
    if kind == "tars":
        members = Members(hints.image_member, hints.caption_member)
        return tar_source(place, found[kind], hints.captions, members), found[kind]
    if kind != "folder":
        files = _of_one_kind(place, found[kind]) if kind == "lines" else found[kind]
        given = NamedColumns(captions=hints.captions, image=hints.image, url=hints.url, uncaptioned=hints.uncaptioned)
        return table_source(place, kind, files, given), files
    told = about_images(entries)
    read = {entry.name for entry in told}
    passed_over = [
        entry.name for entry in found["lines"] if entry.name not in read and not entry.name.endswith(".json")
    ]
    return folder_source(place, told, hints.captions, passed_over), told


def _found(entries: list[Entry]) -> dict[str, list[Entry]]:
    """Return the files of each kind of source."""
    found = {kind: [one for one in entries if one.name.lower().endswith(ends)] for kind, ends in ENDINGS.items()}
    found |= {"folder": [entry for entry in entries if is_image(entry)], "mds": mds_files(entries)}
    if found["folder"]:  # tables of metadata describe the images, as img2dataset's 00000.parquet describes 00000/
        folders = {entry.name.partition("/")[0] for entry in found["folder"] if "/" in entry.name}
        found["tables"] = [
            entry
            for entry in found["tables"]
            if not says_something(entry) and entry.name.rpartition(".")[0] not in folders
        ]
    return found


def _of_one_kind(place: DataPlace, entries: list[Entry]) -> list[Entry]:
    """Return the tables of one kind; a .json beside others describes them. Raise `BadInput` if there are several kinds: they may be copies
    of the same table."""
    of_kind: dict[str, list[Entry]] = {}
    for entry in entries:
        of_kind.setdefault(PurePosixPath(entry.name).suffix.lower(), []).append(entry)
    if len(of_kind) > 1:
        of_kind.pop(".json", None)
    if len(of_kind) > 1:
        raise BadInput(
            f"{place.uri} has tables of several kinds: {', '.join(of_kind)}",
            hint="give one of its files, or move the others away",
        )
    return next(iter(of_kind.values()))


def _check_hints(place: DataPlace, kind: str, hints: Hints) -> None:
    """Raise `BadInput` if an option names something that a source of this kind does not have."""
    of_tables = (("--image-column", hints.image), ("--url-column", hints.url))
    of_tars = (("--image-member", hints.image_member), ("--caption-member", hints.caption_member))
    for what, owners, options in (
        ("a column of a table", ("tables", "lines", "mds"), of_tables),
        ("files of webdataset tars", ("tars",), of_tars),
    ):
        given = [option for option, name in options if name]
        if given and kind not in owners:
            raise BadInput(
                f"{given[0]} names {what}, but {place.uri} is {CALLED[kind]}",
                hint=f"omit {given[0]}, or give --from {owners[0]}",
            )


def _listed(place: DataPlace) -> tuple[DataPlace, list[Entry]]:
    """Return the place and its files. A single file counts as a folder with only that file."""
    path = Path(place.uri)
    single = place.uri.lower().endswith((*TARS, *TABLES, *LINES)) and (place.is_remote or path.is_file())
    if not single:
        if not place.is_remote and path.is_file():
            raise BadInput(
                f"{place.uri} is neither a tar nor a table",
                hint="give a folder of images, or a .tar, .parquet, .arrow, .csv, .tsv, .json or .jsonl file",
            )
        if not place.is_remote and not path.is_dir():
            raise BadInput(f"there is no folder {place.uri}", hint="give the path of a folder, or s3://BUCKET/PREFIX")
        return place, place.entries(links=True)
    folder = DataPlace(place.uri.rpartition("/")[0], place.options)
    entry = folder.entry(place.name)
    return folder, [entry] if entry else []
