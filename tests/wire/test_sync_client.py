"""The synchronous client is made of the asynchronous one, and nobody changes it by hand."""

import pytest

from tests.wire.sync_client import BY_HAND, MADE, SOURCE, made, synchronous


def test_the_synchronous_client_is_what_the_asynchronous_one_makes() -> None:
    found = {path.name: path.read_text() for path in MADE.glob("*.py") if path.name not in BY_HAND}
    assert found == made(), "make it again: python -m tests.wire.sync_client"


def test_both_clients_have_the_same_files() -> None:
    assert {path.name for path in MADE.glob("*.py")} == {path.name for path in SOURCE.glob("*.py")} > BY_HAND


@pytest.mark.parametrize(
    ("asynchronous", "expected"),
    [
        ("async def f() -> AsyncIterator[int]:\n    yield await g()\n", "def f() -> Iterator[int]:\n    yield g()\n"),
        ("async with aclosing(it) as each:\n    pass\n", "with closing(it) as each:\n    pass\n"),
        ("found = [one async for one in self.list()]  # await\n", "found = [one for one in self.list()]  # await\n"),
        ('"""Await nothing: async is a word here."""\n', '"""Await nothing: async is a word here."""\n'),
        ("from gangline.wire.aio.http import AsyncHttp\n", "from gangline.wire.client.http import Http\n"),
        ("await async_sleep(1)\nasynchronous = Asynchronous\n", "sleep(1)\nasynchronous = Asynchronous\n"),
    ],
)
def test_words_that_make_code_asynchronous_go_and_texts_stay(asynchronous: str, expected: str) -> None:
    assert synchronous(asynchronous) == expected
