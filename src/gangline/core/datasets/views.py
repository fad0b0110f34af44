"""The answers of the API about data sets, and about many files at once."""

from dataclasses import dataclass
from typing import Literal

from gangline.core.datasets.findings import DatasetFindings
from gangline.core.datasets.roles import FileRole
from gangline.core.files import Grant, Sha256
from gangline.core.words import counted, listed

NAMED_MAX = 3
VersionState = Literal["checking", "ready", "refused"]
NOTHING_CHECKS = "this server checks no data sets"
"""Why a version is not checked: whoever waits for it would wait for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingBlob:
    """A file that is not stored, and the requests that upload it."""

    sha256: Sha256
    grant: Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingBlobsView:
    """`missing` are the files that are not stored; the other ones are, and are recorded."""

    missing: tuple[MissingBlob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetVersionView:
    """A version of a data set. `digest` is the hash of its manifest; `because` says why it is refused, or how far its check is.

    `findings` are None before the check has ended, and in lists. `jobs` counts the jobs that named it. `made` is true in the answer to the
    request that made it, and false where the newest version has the same content. `began_from` is in the answer to a request that changed
    a version: the number of that one; `left_out` are those of newer versions, which are not in it.
    """

    name: str
    number: int
    digest: str
    state: VersionState
    because: str
    photos: int
    captions: int
    masks: int
    bytes: int
    jobs: int = 0
    made_ms: int
    checked_ms: int | None = None
    findings: DatasetFindings | None = None
    made: bool = False
    began_from: int | None = None
    left_out: tuple[int, ...] = ()

    @property
    def reference(self) -> str:
        """How a job names this version."""
        return f"{self.name}@{self.number}"

    @property
    def left_out_in_words(self) -> str:
        """A sentence about the newer versions that are not in one that was made from an older one; "" if there are none."""
        if not self.left_out:
            return ""
        more = len(self.left_out) - NAMED_MAX
        named = [f"{self.name}@{number}" for number in self.left_out[-NAMED_MAX:]]
        listing = listed([*named, counted(more, "older version")] if more > 0 else named)
        are = "is" if len(self.left_out) == 1 else "are"
        return f"{self.reference} begins from {self.name}@{self.began_from}; {listing} {are} not in it"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetView:
    """A data set with its newest version. `jobs` counts the jobs that named any of its versions that are there."""

    name: str
    made_ms: int
    jobs: int
    newest: DatasetVersionView


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFileView:
    """A file of a version, with a signed URL to download it. Of captions, `format` is empty and the numbers are 0, as before a check."""

    path: str
    bytes: int
    sha256: str
    role: FileRole
    url: str
    format: str = ""
    width: int = 0
    height: int = 0
    sharpness: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRemovalView:
    """What is removed: versions by their numbers, contents that nothing else uses, and those that other versions or jobs keep.

    `jobs` are the first hundred of those that have ended and named one of the versions, and `jobs_count` is how many there are.
    """

    name: str
    versions: tuple[int, ...]
    jobs: tuple[str, ...]
    jobs_count: int
    files: int
    bytes: int
    kept_files: int
    kept_bytes: int
