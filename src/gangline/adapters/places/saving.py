"""A file that is fetched for somebody, within what it may take."""

from collections.abc import Iterable
from pathlib import Path
from time import monotonic

from gangline.core.errors import BadInput, Unreachable


def save(chunks: Iterable[bytes], to: Path, *, shown: str, bytes_max: int, until_s: float) -> int:
    """Write the chunks of what is `shown` to users as that; return their length in bytes. `until_s` is by the clock of `monotonic`.

    Raises `BadInput` for what is longer, `Unreachable` for what takes longer."""
    size = 0
    with to.open("wb") as out:
        for chunk in chunks:
            size += len(chunk)
            if size > bytes_max:
                raise BadInput(f"{shown} is longer than {bytes_max / 1e6:,.0f} MB", hint="make it smaller")
            if monotonic() > until_s:
                raise Unreachable(f"{shown} did not come within the time for one file")
            out.write(chunk)
    return size
