"""The captions of a folder of photos, in the files beside them."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from gangline.cli.output import say
from gangline.core.datasets.roles import BESIDE
from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.data.images.captions import read_captions
from gangline.data.images.photos import find_photos
from gangline.data.images.sidecars import sidecar_files
from gangline.data.links import refuse_link_out

if TYPE_CHECKING:
    from gangline.compose.client import Client
    from gangline.wire.transfers import ProgressCallback


class PhotoFolder:
    """A folder of photos; `paths` are theirs below it, with `/`."""

    def __init__(self, client: "Client", folder: Path) -> None:
        self._client = client
        self.folder = folder
        self.paths = [path.relative_to(folder).as_posix() for path in find_photos(folder).photos]

    @property
    def place(self) -> str:
        return str(self.folder)

    def read(self) -> dict[str, str]:
        """Return the caption of each photo; empty for one that has none."""
        captions = read_captions(self.folder, self.paths, "", say)
        return {photo: captions[photo].text for photo in self.paths}

    def inputs(self, wanted: list[str], progress: "ProgressCallback") -> tuple[File, ...]:
        """Upload photos, and return them as a spec names them."""
        return self._client.files.upload([self.folder / photo for photo in wanted], self.folder, progress=progress)

    def put(self, captions: Mapping[str, str]) -> str:
        """Write captions beside their photos, and return the folder. An empty one deletes the photo's file.

        Raise `BadInput` if a file cannot be written.
        """
        beside = [
            path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.suffix.lower() in BESIDE
        ]
        own = sidecar_files(self.paths, beside)
        for photo, caption in captions.items():
            name = own.get(photo) or str(PurePosixPath(photo).with_suffix(".txt"))
            refuse_link_out(self.folder, name)
            self._write(self.folder / name, caption)
        self._name_others(captions)
        return self.place

    def _write(self, path: Path, caption: str) -> None:
        try:
            if not caption:
                path.unlink(missing_ok=True)
                return
            partial = path.with_name(f".{path.name}.partial")
            partial.write_text(caption + "\n")
            partial.replace(path)
        except OSError as error:
            raise BadInput(f"{path} cannot be written: {error.strerror}", hint="change its permissions") from None

    def _name_others(self, captions: Mapping[str, str]) -> None:
        """Say which photos still have a caption that stands elsewhere, such as in metadata.jsonl."""
        now = read_captions(self.folder, self.paths, "")
        others = [photo for photo, caption in captions.items() if not caption and now[photo].text]
        if others:
            say(
                f"note: {others[0]} keeps the caption that its folder's name or metadata.jsonl gives it ({len(others)} in all)"
            )
