"""The captions of a folder of photos, in the files beside them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.cli.jobs.plan.files import LocalFiles
from gangline.core.datasets.roles import BESIDE
from gangline.core.datasets.sidecars import own_files
from gangline.core.errors import BadInput
from gangline.core.parsing import to_json
from gangline.data.images.captions import read_stated
from gangline.data.images.photos import find_photos
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

    def stated(self, tell: Callable[[str], None]) -> dict[str, str]:
        """Return the captions of the photos for which a file or a line states one."""
        return read_stated(self.folder, self.paths, tell)

    def as_unsent(self, wanted: Sequence[str]) -> dict[str, Any]:
        """Return the fields of a spec that name photos, as long as they will be, before the photos are uploaded."""
        return {"photos": [to_json(file) for file in self._local(wanted).unsent()]}

    def sent(self, wanted: Sequence[str], progress: "ProgressCallback") -> dict[str, Any]:
        """Upload photos, and return the fields of a spec that name them."""
        local = self._local(wanted)
        sent = self._client.files.upload(local.paths, local.below, progress=progress)
        return {"photos": [to_json(file) for file in sent]}

    def _local(self, wanted: Sequence[str]) -> LocalFiles:
        return LocalFiles(self.folder, [self.folder / photo for photo in wanted])

    def put(self, captions: Mapping[str, str]) -> "PhotoFolder":
        """Write captions beside their photos. An empty one deletes the photo's own file. Raise `BadInput` if one cannot be written."""
        beside = [
            path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.suffix.lower() in BESIDE
        ]
        names = own_files(self.paths, beside)
        for photo, caption in captions.items():
            refuse_link_out(self.folder, names[photo])
            self._write(self.folder / names[photo], caption)
        return self

    def _write(self, path: Path, caption: str) -> None:
        try:
            if not caption:
                path.unlink(missing_ok=True)
                return
            partial = path.with_name(f".{path.name}.partial")
            partial.write_text(caption + "\n", encoding="utf-8")
            partial.replace(path)
        except OSError as error:
            raise BadInput(f"{path} cannot be written: {error.strerror}", hint="change its permissions") from None
