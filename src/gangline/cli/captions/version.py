"""The captions of a version of a data set: other ones make a new version."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gangline.cli.output import say
from gangline.core.datasets.roles import BESIDE
from gangline.core.datasets.views import DatasetFileView, DatasetVersionView
from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.runs.kept import StoredFileView
from gangline.data.images.captions import read_captions
from gangline.data.images.sidecars import sidecar_files

if TYPE_CHECKING:
    from gangline.compose.client import Client
    from gangline.wire.transfers import ProgressCallback


class DatasetPhotos:
    """The photos of a version, by their paths in it."""

    def __init__(self, client: "Client", version: DatasetVersionView) -> None:
        self._client = client
        self._version = version
        files = list(client.datasets.files(version.name, version.number))
        self._photos = {file.path: file for file in files if file.role == "photo"}
        self._captions = {file.path: file for file in files if file.role == "caption"}
        self.paths = list(self._photos)

    @property
    def place(self) -> str:
        return self._version.reference

    def read(self) -> dict[str, str]:
        """Return the caption of each photo; empty for one that has none."""
        with TemporaryDirectory(prefix="gangline-") as at:
            self._client.files.download_all([_stored(file) for file in self._captions.values()], Path(at))
            found = read_captions(Path(at), self.paths, "", say)
        return {photo: found[photo].text for photo in self.paths}

    def inputs(self, wanted: list[str], progress: "ProgressCallback") -> tuple[File, ...]:
        """Return photos as a spec names them: they are stored."""
        found = [self._photos[photo] for photo in wanted]
        return tuple(File(path=file.path, bytes=file.bytes, sha256=file.sha256) for file in found)

    def put(self, captions: Mapping[str, str]) -> str:
        """Make a version with these captions, and return its name. An empty one removes the photo's file. Raise `BadInput`."""
        beside = [path for path in self._captions if PurePosixPath(path).suffix.lower() in BESIDE]
        own = sidecar_files(self.paths, beside)
        names = {photo: own.get(photo) or str(PurePosixPath(photo).with_suffix(".txt")) for photo in captions}
        with TemporaryDirectory(prefix="gangline-") as at:
            local = {
                names[photo]: Path(at) / f"{number}.txt" for number, photo in enumerate(captions) if captions[photo]
            }
            for photo, caption in captions.items():
                if caption:
                    local[names[photo]].write_text(caption + "\n")
            files = self._client.datasets.upload(local).files if local else ()
        removed = [names[photo] for photo, caption in captions.items() if not caption and photo in own]
        version = self._version
        made = self._client.datasets.change(version.name, version.number, put=files, remove=removed)
        if made.left_out:
            say(made.left_out_in_words)
        checked = self._client.datasets.wait(made.name, made.number)
        if checked.state != "ready":
            raise BadInput(f"{checked.reference} is {checked.state}: {checked.because}")
        return checked.reference


def _stored(file: DatasetFileView) -> StoredFileView:
    return StoredFileView(path=file.path, bytes=file.bytes, sha256=file.sha256, url=file.url)
