"""Run W&B's library in a separate process: each line of JSON is a request, and a line answers. It ends with its standard input.

A point is a row whose `_step` is the job's step. W&B drops a row whose step is not greater than its last one, so a step that is reported
twice is stored once.
"""

import json
import os
import shutil
import struct
import sys
import tempfile
import zlib
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wandb
from wandb.errors import CommError
from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue] - protobuf makes it

MAGIC = b":W&B\xe1\xbe\x00"
BLOCK = 32_768
HEADER = struct.Struct("<IHB")
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


class Runs:
    def __init__(self) -> None:
        self._open: dict[str, wandb.Run] = {}

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        act = {"open": self.open, "write": self.write, "end": self.end}[asked.pop("ask")]
        try:
            return act(**asked) or {}
        except (CommError, TimeoutError, ConnectionError) as error:
            return {"away": _sentence(error)}
        except Exception as error:
            return {"refused": _sentence(error)}

    def open(self, run: dict[str, Any], project: str, folder: str, told: int) -> dict[str, Any]:
        before = self._open.pop(run["id"], None)
        if before is not None:
            before.finish()
        opened = wandb.init(
            **run,
            project=project,
            dir=folder,
            resume="allow",
            reinit="create_new",
            allow_val_change=True,
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                save_code=False,
                silent=True,
                init_timeout=90,
                finish_timeout=240,
                finish_timeout_raises=True,
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_disable_stats=True,
            ),
        )
        self._open[run["id"]] = opened
        if opened.offline:
            return {"held": max(told, _held_offline(Path(folder), run["id"]))}
        return {"held": opened.starting_step - 1 if opened.resumed else 0}

    def write(self, run: str, points: list[dict[str, Any]], pictures: list[dict[str, Any]]) -> None:
        """Log the points; images go into the row of the last point, or without points into a row after all others."""
        opened = self._open[run]
        with tempfile.TemporaryDirectory() as folder:
            shown = {_panel(picture["path"]): _image(picture, Path(folder)) for picture in pictures}
            rows = [(point["step"], point["values"] | {"_timestamp": point["at_ms"] / 1000}) for point in points]
            for step, row in rows[:-1]:
                opened.log(row, step=step, commit=True)
            if rows:
                opened.log(rows[-1][1] | shown, step=rows[-1][0], commit=True)
            elif shown:
                opened.log(shown, commit=True)

    def end(self, run: str, summary: dict[str, Any], exit_code: int) -> None:
        opened = self._open.pop(run)
        opened.summary.update(summary)
        opened.finish(exit_code=exit_code)
        if not opened.offline:
            shutil.rmtree(opened.settings.sync_dir, ignore_errors=True)  # W&B has uploaded it

    def close(self) -> None:
        """Leave runs unfinished: whoever opens a run again resumes it. Unsent data is on the disk, or is sent again."""
        wandb.teardown()


def _panel(path: str) -> str:
    """Return the same panel for images of the same prompt and seed after different steps."""
    return "/".join(part for part in path.split("/") if not part.startswith("step-"))


def _image(picture: dict[str, Any], folder: Path) -> wandb.Image:
    path = Path(tempfile.mkdtemp(dir=folder)) / Path(picture["path"]).name
    path.write_bytes(b64decode(picture["content"]))
    return wandb.Image(str(path), caption=f"step {picture['step']}")


def _held_offline(folder: Path, run: str) -> int:
    """Return the last step of a run in the files of all its offline sessions. W&B numbers the folders of those that begin in the same
    second."""
    files = (folder / "wandb").glob(f"offline-run-*-{run}*/run-{run}.wandb")
    return max((_step(record) for path in files for record in records(path) if record.HasField("history")), default=0)


def _step(record: Record) -> int:
    return next(int(item.value_json) for item in record.history.item if "_step" in (item.key, *item.nested_key))


def records(path: Path) -> Iterator[Record]:
    """Yield the records of a W&B file (a LevelDB log), up to the point where it breaks off."""
    content, place, whole = path.read_bytes(), len(MAGIC), b""
    while place + HEADER.size <= len(content):
        left = BLOCK - place % BLOCK
        if left < HEADER.size:
            place += left
            continue
        crc, length, kind = HEADER.unpack_from(content, place)
        piece = content[place + HEADER.size : place + HEADER.size + length]
        if kind not in (FULL, FIRST, MIDDLE, LAST) or zlib.crc32(bytes([kind]) + piece) != crc:
            return
        place += HEADER.size + length
        whole = piece if kind in (FULL, FIRST) else whole + piece
        if kind in (FULL, LAST):
            yield Record.FromString(whole)


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the library prints must not mix with answers
    runs = Runs()
    for line in sys.stdin:
        answers.write(json.dumps(runs.answer(json.loads(line))) + "\n")
    runs.close()


if __name__ == "__main__":
    main()
