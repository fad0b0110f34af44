"""Write a caption for each photo of a job. A photo is a step: an interrupted job resumes after the photos of its newest checkpoint."""

import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from PIL import Image

from gangline.core.errors import Damaged
from gangline.core.runs.contract import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STOPPED, Failure, Manifest, checkpoint_name
from gangline.core.specs.caption import RESULT_FILE, CaptionSpec, caption_hash
from gangline.data.images.captions import CHARACTERS_MAX
from gangline.data.images.pixels import read_photo
from gangline.posix import flush
from gangline.train.checkpoints.manifest import check_file, newest_first, read_manifest, write_manifest
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.digest import hashed_file

WRITTEN = "captions.json"
"""The file of a checkpoint: the captions so far by the paths of their photos."""


class CaptionWriter(Protocol):
    """What writes captions. `write` returns the caption of a photo in RGB, without the prefix; it may be empty."""

    def write(self, photo: Image.Image) -> str: ...


def write_captions(run: RunDirectory, orders: Orders) -> int:
    """Write all captions and return the exit code."""
    run.report_phase("preparing")
    spec = run.read_task()
    assert isinstance(spec, CaptionSpec), "the agent starts this for captions"
    run.steps = spec.steps
    written = resume_captions(run, spec)
    run.step = len(written)
    writer = make_writer(run.inputs / "base", spec)
    run.report_phase("training")
    run.restart_meter()
    for file in spec.photos[len(written) :]:
        if run.is_to_finish:
            break
        with ends_in(run, spec.photo_s, file.path):
            text = writer.write(read_photo(run.inputs / "photos" / file.path))
        written[file.path] = (spec.prefix + text)[:CHARACTERS_MAX]
        run.report_step(len(written), {}, steps_since=1)
        stop = orders.stop  # read once: an order that comes now stops after the next photo, which is then saved
        if stop or orders.save:
            orders.save = False
            save_captions(run, spec, written)
        if stop and len(written) < spec.steps:
            return EXIT_STOPPED
    run.report_phase("saving")
    lines = caption_lines(written)
    run.write_output(len(lines), lambda: write_lines(run.output, lines))
    return EXIT_DONE


def make_writer(folder: Path, spec: CaptionSpec) -> CaptionWriter:
    """Load the model. Raise `BadInput` if it cannot be loaded."""
    if spec.writer == "tagger":
        from gangline.train.caption.tagger import Tagger

        return Tagger(folder, spec)
    from gangline.train.caption.captioner import Captioner

    return Captioner(folder, spec)


@contextmanager
def ends_in(run: RunDirectory, seconds: float, photo: str) -> Iterator[None]:
    """End the process, with a failure report, if what is inside takes longer: a thread of a library cannot be interrupted otherwise."""

    def end() -> None:
        run.report_failure(Failure(kind="bad data", because=f"the model took longer than {seconds:g} s for {photo}"))
        os._exit(EXIT_BAD_INPUT)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def caption_lines(written: dict[str, str]) -> bytes:
    """Return the captions as JSON lines: one file, because a job may have more photos than a result may have files."""
    each = ({"photo": photo, "caption": caption} for photo, caption in written.items())
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in each).encode()


def write_lines(output: Path, lines: bytes) -> None:
    """Write the file of the result."""
    output.mkdir(parents=True, exist_ok=True)
    (output / RESULT_FILE).write_bytes(lines)


def save_captions(run: RunDirectory, spec: CaptionSpec, written: dict[str, str]) -> None:
    """Save what is written in a checkpoint; its manifest is written last."""
    run.report_phase("saving")
    target = run.checkpoints / checkpoint_name(len(written))
    if target.exists():  # an earlier save that no manifest completed
        shutil.rmtree(target)
    target.mkdir(parents=True)
    (target / WRITTEN).write_text(json.dumps(written, ensure_ascii=False), encoding="utf-8")
    flush(target / WRITTEN)
    files = (hashed_file(target / WRITTEN, WRITTEN),)
    write_manifest(
        target, Manifest(step=len(written), spec_hash=caption_hash(spec), fingerprint={}, exact=False, files=files)
    )
    run.report_phase("training")
    run.restart_meter()


def resume_captions(run: RunDirectory, spec: CaptionSpec) -> dict[str, str]:
    """Return the captions of the newest valid checkpoint, of the first photos in their order; none without one."""
    for folder in newest_first(run.resumable):
        try:
            return _read_captions(folder, spec)
        except Damaged as error:
            run.log(f"checkpoint {folder.name} is rejected: {error.message}")
    return {}


def _read_captions(folder: Path, spec: CaptionSpec) -> dict[str, str]:
    manifest = read_manifest(folder)
    if manifest.spec_hash != caption_hash(spec):
        raise Damaged("it belongs to another job's spec")
    for file in manifest.files:
        check_file(folder / file.path, file)
    try:
        written = json.loads((folder / WRITTEN).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Damaged(f"its captions cannot be read: {error}") from None
    first = [file.path for file in spec.photos[: manifest.step]]
    if (
        not isinstance(written, dict)
        or list(written) != first
        or not all(isinstance(text, str) for text in written.values())
    ):
        raise Damaged("its captions are not those of the first photos")
    return written
