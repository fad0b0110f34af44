"""A process that decodes photos: `python -m gangline.data.images.decoder`.

Standard input has a JSON line for each photo. The answer on standard output is a line, empty or with an error, then the bytes of each
view's pixels and of its mask. The process ends with its input, so it cannot outlive its parent, however that ended. It ignores signals that
are meant for the trainer.
"""

import json
import signal
import sys
from pathlib import Path
from typing import IO, Any

from gangline.core.errors import BadInput
from gangline.data.images.buckets import Size, View
from gangline.data.images.decoding import CHANNELS, Asked, DecodedView, decode_views

LEFT_TO_THE_TRAINER = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def main() -> None:
    for number in LEFT_TO_THE_TRAINER:
        signal.signal(number, signal.SIG_IGN)
    try:
        for line in sys.stdin.buffer:
            _answer(as_asked(json.loads(line)), sys.stdout.buffer)
    except BrokenPipeError:
        sys.stdout = None  # the reader is gone, and flushing at exit would fail again


def _answer(asked: Asked, to: IO[bytes]) -> None:
    try:
        seen = decode_views(asked)
    except BadInput as error:
        to.write(json.dumps({"message": error.message, "hint": error.hint}).encode() + b"\n")
    except MemoryError:
        to.write(json.dumps({"memory": True}).encode() + b"\n")
    else:
        to.write(b"\n")
        for each in seen:
            to.write(each.pixels.tobytes())
            to.write(b"" if each.mask is None else each.mask.tobytes())
    to.flush()


def write_question(asked: Asked, to: IO[bytes]) -> None:
    to.write(json.dumps(as_json(asked)).encode() + b"\n")
    to.flush()


def read_answer(asked: Asked, source: IO[bytes]) -> list[DecodedView]:
    """Return the decoded views. Raise `EOFError` if the process has ended, and `BadInput` or `MemoryError` as `decode_views` does."""
    line = source.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    if line != b"\n":
        told = json.loads(line)
        raise MemoryError if "memory" in told else BadInput(told["message"], hint=told["hint"])
    return [_seen(view, asked.mask is not None, source) for view in asked.views]


def _seen(view: View, masked: bool, source: IO[bytes]) -> DecodedView:
    sides = (view.target.height, view.target.width)
    return DecodedView(_array(source, (*sides, CHANNELS)), _array(source, sides) if masked else None)


def _array(source: IO[bytes], shape: tuple[int, ...]) -> Any:
    import numpy as np

    array = np.empty(shape, dtype=np.uint8)
    if source.readinto(memoryview(array).cast("B")) < array.nbytes:  # type: ignore[attr-defined] - a buffered reader has it
        raise EOFError
    return array


def as_json(asked: Asked) -> dict[str, Any]:
    return {
        "photo": str(asked.photo),
        "mask": str(asked.mask) if asked.mask else None,
        "views": [
            [*(_sides(view.original) + _sides(view.scaled) + _sides(view.target)), view.left, view.top, view.mirrored]
            for view in asked.views
        ],
    }


def as_asked(value: dict[str, Any]) -> Asked:
    return Asked(
        photo=Path(value["photo"]),
        mask=Path(value["mask"]) if value["mask"] else None,
        views=tuple(_view(*numbers) for numbers in value["views"]),
    )


def _sides(size: Size) -> list[int]:
    return [size.width, size.height]


def _view(*numbers: Any) -> View:
    *sizes, left, top, mirrored = numbers
    original, scaled, target = (
        Size(width=width, height=height) for width, height in zip(sizes[::2], sizes[1::2], strict=True)
    )
    return View(original=original, scaled=scaled, target=target, left=left, top=top, mirrored=mirrored)


if __name__ == "__main__":
    main()
