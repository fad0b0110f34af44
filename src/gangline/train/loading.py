"""Libraries loaded without the garbage collector, which would look again and again through all that they define and find nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Import what a trainer needs in here. What is loaded stays, so that later collections do not look through it either."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
