"""Unpack zips that strangers may have packed: no file lands outside the folder, sizes are bounded, and links are refused."""

import stat
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from gangline.core.datasets.roles import COUNTED
from gangline.core.display import printable
from gangline.core.errors import BadInput
from gangline.core.files import UNPLACEABLE, both_file_and_folder, is_safe_path

CHUNK = 1 << 20
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst")
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Other compressions need additional libraries, and expand further."""
OF_SYSTEMS = ("__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini")
ENCRYPTED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipBounds:
    """Limits of what a zip may hold when it is unpacked."""

    files_max: int = 20_000
    file_bytes_max: int = 200_000_000
    bytes_max: int = 20_000_000_000


DEPTH_MAX = 16
"""Photos are at the top or one folder below. Folders take space on a disk as files do, but do not count as files."""


def unpack_zip(path: Path, folder: Path, bounds: ZipBounds) -> ZipBounds:
    """Unpack a zip of photos into `folder`, without a single folder that holds everything. Return the bounds that are left.

    Raise `BadInput` if it cannot be unpacked, or exceeds the bounds.
    """
    try:
        with zipfile.ZipFile(path) as packed:
            wanted = _wanted(packed, path.name, bounds)
            left = bounds.bytes_max
            for name, member in wanted.items():
                left -= _unpack_one(packed, member, folder / name, min(left, bounds.file_bytes_max), path.name)
            return replace(bounds, files_max=bounds.files_max - len(wanted), bytes_max=left)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, ValueError) as error:
        raise BadInput(
            f"{path.name} cannot be unpacked: {printable(str(error))}", hint="pack the photos again"
        ) from None
    except OSError as error:
        if error.errno not in UNPLACEABLE:
            raise
        raise BadInput(
            f"{path.name} has names that cannot exist together in a folder", hint="rename the files"
        ) from None


def _wanted(packed: zipfile.ZipFile, name: str, bounds: ZipBounds) -> dict[str, zipfile.ZipInfo]:
    """Return the files to unpack by their names in the folder. The central directory is checked before a byte is unpacked."""
    members = [each for each in packed.infolist() if not each.is_dir() and not _is_of_a_system(each.filename)]
    if not members:
        raise BadInput(f"{name} holds no files", hint="pack photos into it")
    if len(members) > bounds.files_max:
        raise BadInput(f"{name} holds {len(members):,} files, more than {bounds.files_max:,}", hint="pack fewer")
    for member in members:
        _check(member, name)
    if (total := sum(each.file_size for each in members)) > bounds.bytes_max:
        raise BadInput(
            f"{name} unpacks to {total / 1e9:,.1f} GB, more than {bounds.bytes_max / 1e9:,.1f} GB", hint="pack fewer"
        )
    found = dict(zip(_below_the_one_folder([each.filename for each in members]), members, strict=True))
    twice = [each for each, count in Counter(each.filename for each in members).items() if count > 1]
    clash = f"{printable(twice[0])} is in it twice" if twice else both_file_and_folder(found)
    if clash:
        raise BadInput(f"{name} cannot be unpacked: {clash}", hint="rename the files")
    return found


def _check(member: zipfile.ZipInfo, name: str) -> None:
    inner = member.filename
    kind, shown = stat.S_IFMT(member.external_attr >> 16), printable(inner)
    if not is_safe_path(inner):
        raise BadInput(
            f"{name} holds {shown}, a name that leads out of it or is not possible on every system", hint="rename it"
        )
    if inner.count("/") > DEPTH_MAX:
        raise BadInput(f"{name} has folders that are nested more than {DEPTH_MAX} deep", hint="pack only the photos")
    if kind not in (0, stat.S_IFREG):
        raise BadInput(f"{name} holds {shown}, which is not a regular file", hint="pack the file itself")
    if member.flag_bits & ENCRYPTED:
        raise BadInput(f"{name} is encrypted", hint="pack it without a password")
    if PurePosixPath(inner).suffix.lower() in ARCHIVES:
        raise BadInput(f"{name} holds another archive, {shown}", hint="pack the photos themselves")
    if member.compress_type not in PACKED:
        raise BadInput(
            f"{name} has a compression that is not supported",
            hint="pack it with `zip`, or with the tool of your system",
        )


def _is_of_a_system(inner: str) -> bool:
    parts = inner.split("/")
    return parts[0] in OF_SYSTEMS or parts[-1] in OF_SYSTEMS or parts[-1].startswith("._")


def _below_the_one_folder(names: list[str]) -> list[str]:
    """Return the names without a single folder that holds all of them, unless it states repeats, `10_sks dog`."""
    while all("/" in name for name in names) and len(first := {name.partition("/")[0] for name in names}) == 1:
        if COUNTED.fullmatch(next(iter(first))):
            break
        names = [name.partition("/")[2] for name in names]
    return names


def _unpack_one(packed: zipfile.ZipFile, member: zipfile.ZipInfo, to: Path, bytes_max: int, name: str) -> int:
    """Unpack one file and return its size. It is counted, because the zip's own statement of it may be false."""
    to.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with packed.open(member) as content, to.open("xb") as out:
        while chunk := content.read(CHUNK):
            size += len(chunk)
            if size > bytes_max:
                shown = printable(member.filename)
                raise BadInput(f"{shown} of {name} unpacks to more than {bytes_max / 1e6:,.0f} MB", hint="leave it out")
            out.write(chunk)
    return size
