"""TensorBoard: event files below a folder, one run for each job (`FOLDER/PROJECT/JOB`).

An event holds all values of a step, so a step is there completely or not at all. Existing files are never written to: after a restart a new
file continues, and readers treat it as the same run.
"""

import io
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue] - protobuf makes it
from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue] - protobuf makes it
from tensorboard.summary.writer.record_writer import RecordWriter

from gangline.core.errors import Unreachable, UserError
from gangline.core.runs.metrics import Measured
from gangline.ports.tracker import Ending, TrackedPicture, TrackedRun

VERSION = "brain.Event:2"
logging.getLogger("tensorboard").setLevel(logging.ERROR)


@dataclass(slots=True)
class _Run:
    folder: Path
    shown: set[tuple[str, int]]
    file: Path | None = None


class TensorBoard:
    name = "tensorboard"

    def __init__(self, folder: Path, umask: int | None = None) -> None:
        """Create the folder. Other programs, perhaps as other users, read it: `umask` decides who may. Raises `UserError`."""
        self._folder = folder
        self._umask = umask
        try:
            self._make(folder)
        except OSError as error:
            raise UserError(
                f"{folder} cannot be created: {error.strerror}", hint="choose another folder with GANGLINE_TENSORBOARD"
            ) from None
        self._runs: dict[str, _Run] = {}

    def open(self, run: TrackedRun, told: int) -> int:
        folder = self._folder / run.project / run.id
        held, shown = told, set[tuple[str, int]]()
        try:
            self._make(folder)
            for event in read_events(folder):
                scalars = [value for value in event.summary.value if value.HasField("simple_value")]
                held = max(held, event.step) if scalars else held
                shown |= {(value.tag, event.step) for value in event.summary.value if value.HasField("image")}
            self._runs[run.id] = _Run(folder, shown)
        except OSError as error:
            raise _away(error) from None
        return held

    def write(self, run: str, points: Sequence[Measured], pictures: Sequence[TrackedPicture]) -> None:
        at = self._runs[run]
        new = [picture for picture in pictures if (_tag(picture), picture.step) not in at.shown]
        told = [*map(_scalars, points), *(event for picture in new for event in _images(picture))]
        if not told:
            return
        try:
            if at.file is None:
                at.file = _begin(at.folder)
                self._open_up(at.file, 0o666)
            _append(at.file, told)
        except OSError as error:
            raise _away(error) from None
        at.shown |= {(_tag(picture), picture.step) for picture in new}

    def end(self, run: str, ending: Ending) -> None:
        """Forget the run; TensorBoard's format has no end marker."""
        del self._runs[run]

    def close(self) -> None:
        self._runs.clear()

    def _make(self, folder: Path) -> None:
        for each in reversed((folder, *folder.parents)):
            if not each.exists():
                each.mkdir(exist_ok=True)
                self._open_up(each, 0o777)

    def _open_up(self, path: Path, mode: int) -> None:
        if self._umask is not None:
            path.chmod(mode & ~self._umask)


def read_events(folder: Path) -> Iterator[Event]:
    """Yield the events of all files of a run, each up to the point where it breaks off."""
    for path in sorted(folder.glob("*tfevents*")):
        if path.stat().st_size:
            yield from LegacyEventFileLoader(str(path)).Load()


def _begin(folder: Path) -> Path:
    """Create a new file whose name sorts after all others."""
    while True:
        now_ms = time.time_ns() // 1_000_000
        path = folder / f"events.out.tfevents.{now_ms:014d}.gangline"
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        try:
            _append(path, [Event(wall_time=now_ms / 1000, file_version=VERSION)])
        except OSError:
            path.unlink()
            raise
        return path


def _append(path: Path, told: Sequence[Event]) -> None:
    """Append the events; they are on the disk when this returns."""
    with path.open("ab") as file:
        writer = RecordWriter(file)
        for event in told:
            writer.write(event.SerializeToString())
        writer.flush()
        os.fsync(file.fileno())


def _scalars(point: Measured) -> Event:
    values = [Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
    return Event(wall_time=point.at_ms / 1000, step=point.step, summary=Summary(value=values))


def _images(picture: TrackedPicture) -> list[Event]:
    """Return one event, or none if the image cannot be read."""
    try:
        with Image.open(io.BytesIO(picture.content)) as opened:
            width, height = opened.size
    except (OSError, Image.DecompressionBombError):
        return []
    image = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=picture.content)
    value = Summary.Value(tag=_tag(picture), image=image)
    return [Event(wall_time=time.time(), step=picture.step, summary=Summary(value=[value]))]


def _tag(picture: TrackedPicture) -> str:
    """Return the same tag for images of the same prompt and seed after different steps."""
    return "/".join(part for part in picture.path.split("/") if not part.startswith("step-"))


def _away(error: OSError) -> Unreachable:
    return Unreachable(f"the folder for TensorBoard cannot be written: {error.strerror or error}")
