"""Import libraries without the garbage collector, which would scan all that they define repeatedly and free nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Import a trainer's libraries inside this context. At exit the imported objects are frozen, so that later collections skip them
    too."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
