"""A file that is fetched for somebody, within what it may take."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

from gangline.core.errors import BadInput, Unreachable
from gangline.ports.places.fetcher import Check

ASK_S = 1.0


class Watch:
    """The time that one file may take, and who is asked each second whether it is still wanted."""

    def __init__(self, seconds: float, check: Check) -> None:
        self._check = check
        self._asked_s = monotonic()
        self._ends_s = self._asked_s + seconds

    @property
    def left_s(self) -> float:
        return self._ends_s - monotonic()

    def ask(self) -> None:
        """Raises what ends the fetch."""
        now_s = monotonic()
        if now_s - self._asked_s >= ASK_S:
            self._asked_s = now_s
            self._check()


def save_chunks(
    chunks: Iterable[bytes], to: Path, *, shown: str, told: int | None, bytes_max: int, watch: Watch
) -> int:
    """Write the chunks of what is `shown` to users as that; return their length in bytes. `told` is what its sender says of it.

    Raises `BadInput` for what is longer than it may be, `Unreachable` for what takes longer, or has no room here."""
    too_long = BadInput(f"{shown} is longer than {bytes_max / 1e6:,.0f} MB", hint="make it smaller")
    size, most = 0, bytes_max if told is None else told
    if most > bytes_max:
        raise too_long
    left = shutil.disk_usage(to.parent).free
    if left < most:
        raise Unreachable(
            f"this server has no room for {shown}: {left / 1e9:,.1f} GB of its disk are left, and it may have {most / 1e9:,.1f} GB"
        )
    with to.open("wb") as out:
        for chunk in chunks:
            size += len(chunk)
            if size > bytes_max:
                raise too_long
            if watch.left_s < 0:
                raise Unreachable(f"{shown} did not come within the time for one file")
            watch.ask()
            out.write(chunk)
    return size
