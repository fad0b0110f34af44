"""Remember for the next process which version of each checkpoint in a script's folder was taken last.

Without this, a folder that was being overwritten in place when everything was killed would look complete.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock

from gangline.adapters.host.script.held import Version
from gangline.core.command.results import FileMark
from gangline.core.command.version import path_pattern

NAME = "versions.json"


class Versions:
    """The versions on record in `state`. Two threads may call it: the one that takes checkpoints and the one that describes them."""

    def __init__(self, state: Path) -> None:
        self._at = state / NAME
        self._lock = Lock()
        self._versions = _read(self._at)
        self._due = {path_pattern(name): each.kinds for name, each in self._versions.items()}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._versions)

    def of(self, name: str, here: Callable[[], dict[str, tuple[Path, FileMark]]]) -> Version | None:
        """Return the recorded version. On a copy of the disk all inodes differ: then files whose bytes are the same get the marks that they
        have `here`."""
        version = self._versions.get(name)
        if version is None:
            return None
        found = here()
        if any(found[path][1][0] == mark[0] for path, mark in version.marks.items() if path in found):
            return version
        same = {path: found[path][1] for path in version.marks if path in found and _is(*found[path], version, path)}
        return Version(version.marks | same, version.kinds, version.sha256s)

    def due(self, name: str) -> frozenset[str] | None:
        """Return the kinds of files that the last checkpoint with such a name wrote."""
        return self._due.get(path_pattern(name))

    def remember(
        self, name: str, marks: dict[str, FileMark], kinds: frozenset[str], still: Callable[[str], bool]
    ) -> None:
        """Record the version, and forget those whose checkpoint no longer exists."""
        with self._lock:
            self._versions[name] = Version(marks, kinds)
            self._due[path_pattern(name)] = kinds
            self._versions = {each: version for each, version in self._versions.items() if each == name or still(each)}
            self._write()

    def describe(self, name: str, marks: dict[str, FileMark], sha256s: dict[str, str]) -> None:
        """Add the hashes of the version with these marks, if it is still the last."""
        with self._lock:
            version = self._versions.get(name)
            if version is not None and version.marks == marks:
                version.sha256s = sha256s
                self._write()

    def _write(self) -> None:
        """Write the file. A full disk does not hold up the checkpoint: the next write tries again."""
        told = {
            name: {"marks": each.marks, "kinds": sorted(each.kinds), "sha256s": each.sha256s}
            for name, each in self._versions.items()
        }
        partial = self._at.with_name(f".{NAME}")
        with suppress(OSError):
            partial.write_text(json.dumps(told))
            partial.replace(self._at)


def _is(at: Path, mark: FileMark, version: Version, path: str) -> bool:
    if path not in version.sha256s or mark[1] != version.marks[path][1]:
        return False
    with suppress(OSError), at.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == version.sha256s[path]
    return False


def _read(at: Path) -> dict[str, Version]:
    try:
        found = json.loads(at.read_text())
        return {
            str(name): Version(
                {str(path): (int(mark[0]), int(mark[1]), int(mark[2])) for path, mark in each["marks"].items()},
                frozenset(map(str, each["kinds"])),
                {str(path): str(sha256) for path, sha256 in each["sha256s"].items()},
            )
            for name, each in found.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return {}
