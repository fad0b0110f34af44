"""What tests of data sets share."""

from collections.abc import Iterator

import pytest

from tests.data import made


@pytest.fixture
def web() -> Iterator[made.Web]:
    with made.web() as started:
        yield started
