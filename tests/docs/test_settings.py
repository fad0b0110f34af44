"""Pages have every setting as the specs declare it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.tables_of_settings import PAGES, written


@pytest.mark.parametrize(("page", "tables"), PAGES.items(), ids=[page.name for page in PAGES])
def test_a_page_has_every_setting_with_its_default_and_its_sentence(page: Path, tables: Callable[[], str]) -> None:
    assert tables() in page.read_text()
    assert written(page.read_text(), tables()) == page.read_text()
