"""Optional work beside the steps, such as preview pictures: if memory does not suffice for it, training continues without it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gangline.train.run.memory import is_out_of_memory


@contextmanager
def left_out_without_memory(what: str) -> Iterator[None]:
    """Skip the rest of this context if memory runs out, and say so in the job's log. Other errors are raised."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        print(f"{what} skipped: memory ran out", file=sys.stderr)  # noqa: T201 - the job's log
