"""Save a file that is downloaded for a user, within limits of time and size."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

from gangline.core.errors import BadInput, Unreachable
from gangline.ports.places.fetcher import Check

ASK_S = 1.0


class Watch:
    """The time limit of one file, and the `check` that is called once a second: it raises when the file is no longer wanted."""

    def __init__(self, seconds: float, check: Check) -> None:
        self._check = check
        self._asked_s = monotonic()
        self._ends_s = self._asked_s + seconds

    @property
    def left_s(self) -> float:
        return self._ends_s - monotonic()

    def ask(self) -> None:
        """Call the check if a second has passed. Raises what it raises."""
        now_s = monotonic()
        if now_s - self._asked_s >= ASK_S:
            self._asked_s = now_s
            self._check()


def save_chunks(
    chunks: Iterable[bytes], to: Path, *, shown: str, told: int | None, bytes_max: int, watch: Watch
) -> int:
    """Write the chunks to `to`; return their length in bytes. `shown` is the name in messages, `told` the length that the sender announced.

    Raises `BadInput` if it is longer than `bytes_max`, `Unreachable` if it takes too long or the disk has no room.
    """
    too_long = BadInput(f"{shown} is larger than {bytes_max / 1e6:,.0f} MB", hint="make it smaller")
    size, most = 0, bytes_max if told is None else told
    if most > bytes_max:
        raise too_long
    left = shutil.disk_usage(to.parent).free
    if left < most:
        raise Unreachable(
            f"this server's disk has no room for {shown}: {left / 1e9:,.1f} GB are free, and it may take {most / 1e9:,.1f} GB"
        )
    with to.open("wb") as out:
        for chunk in chunks:
            size += len(chunk)
            if size > bytes_max:
                raise too_long
            if watch.left_s < 0:
                raise Unreachable(f"{shown} took longer than the time limit for one file")
            watch.ask()
            out.write(chunk)
    return size
