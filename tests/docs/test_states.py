"""docs/contributing/states.md draws the states as the core declares them."""

from tests.docs.diagrams_of_states import PAGE, with_diagrams


def test_the_page_has_the_diagrams_of_the_tables() -> None:
    page = PAGE.read_text()
    assert with_diagrams(page) == page
