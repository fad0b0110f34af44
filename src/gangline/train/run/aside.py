"""What is done beside the steps, to be looked at: where memory does not suffice for it, training does without."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gangline.train.run.memory import is_out_of_memory


@contextmanager
def left_out_without_memory(what: str) -> Iterator[None]:
    """Leave the rest of it where memory runs out, and say so in the job's log. Other errors are raised."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        print(f"{what} left out: memory ran out", file=sys.stderr)  # noqa: T201 - the job's log
