"""How a trainer's libraries are loaded."""

import gc

import pytest

from gangline.train.loading import loading


def test_libraries_load_without_the_collector_and_are_never_looked_through_again() -> None:
    before = gc.get_freeze_count()
    with loading():
        assert not gc.isenabled()
        loaded = [[] for _ in range(10)]
    assert gc.isenabled() and gc.get_freeze_count() >= before + len(loaded)


def test_a_library_that_does_not_load_leaves_the_collector_on() -> None:
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()
