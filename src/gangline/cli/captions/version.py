"""The captions of a version of a data set: other ones make a new version."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gangline.cli.output import say
from gangline.core.datasets.roles import BESIDE
from gangline.core.datasets.sidecars import own_files
from gangline.core.datasets.views import DatasetFileView, DatasetVersionView
from gangline.core.errors import BadInput
from gangline.core.runs.kept import StoredFileView
from gangline.data.images.captions import read_stated

if TYPE_CHECKING:
    from gangline.compose.client import Client
    from gangline.wire.transfers import ProgressCallback


class DatasetPhotos:
    """The photos of a version, by their paths in it."""

    def __init__(self, client: "Client", version: DatasetVersionView) -> None:
        self._client = client
        self._version = version
        files = list(client.datasets.files(version.name, version.number))
        self.paths = [file.path for file in files if file.role == "photo"]
        self._captions = {file.path: file for file in files if file.role == "caption"}

    @property
    def place(self) -> str:
        return self._version.reference

    def stated(self, tell: Callable[[str], None]) -> dict[str, str]:
        """Return the captions of the photos for which a file or a line states one."""
        with TemporaryDirectory(prefix="gangline-") as at:
            self._client.files.download_all([_stored(file) for file in self._captions.values()], Path(at))
            return read_stated(Path(at), self.paths, tell)

    def as_unsent(self, wanted: Sequence[str]) -> dict[str, Any]:
        """Return the fields of a spec that name photos of this version."""
        only = {} if len(wanted) == len(self.paths) else {"only": list(wanted)}
        return {"photos": self.place, **only}

    def sent(self, wanted: Sequence[str], progress: "ProgressCallback") -> dict[str, Any]:
        """Return the same: the photos are stored."""
        return self.as_unsent(wanted)

    def put(self, captions: Mapping[str, str]) -> "DatasetPhotos":
        """Make a version with these captions, and return its photos. An empty one removes the photo's own file. Raise `BadInput`."""
        beside = [path for path in self._captions if PurePosixPath(path).suffix.lower() in BESIDE]
        names = own_files(self.paths, beside)
        written = {names[photo]: caption for photo, caption in captions.items() if caption}
        removed = [names[photo] for photo, caption in captions.items() if not caption and names[photo] in beside]
        if not written and not removed:
            return self
        with TemporaryDirectory(prefix="gangline-") as at:
            local = {name: Path(at) / f"{number}.txt" for number, name in enumerate(written)}
            for name, path in local.items():
                path.write_text(written[name] + "\n", encoding="utf-8")
            files = self._client.datasets.upload(local).files if local else ()
        version = self._version
        made = self._client.datasets.change(version.name, version.number, put=files, remove=removed)
        if made.left_out:
            say(made.left_out_in_words)
        checked = self._client.datasets.wait(made.name, made.number)
        if checked.state != "ready":
            raise BadInput(f"{checked.reference} is {checked.state}: {checked.because}")
        return DatasetPhotos(self._client, checked)


def _stored(file: DatasetFileView) -> StoredFileView:
    return StoredFileView(path=file.path, bytes=file.bytes, sha256=file.sha256, url=file.url)
