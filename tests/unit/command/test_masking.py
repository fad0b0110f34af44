"""Secrets are masked in what a command prints, however it comes in pieces, and nothing else is changed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.command.masking import MASK, Masking

TEXTS = st.text("abc\n", min_size=8, max_size=12)


def shown(masking: Masking, *pieces: bytes) -> bytes:
    return b"".join(map(masking.feed, pieces)) + masking.rest()


@given(st.lists(TEXTS, max_size=3), st.lists(st.text("abc\nd", max_size=9), max_size=8), st.data())
def test_in_pieces_it_masks_what_it_masks_in_the_whole(
    secrets: list[str], pieces: list[str], data: st.DataObject
) -> None:
    for secret in secrets:
        pieces.insert(data.draw(st.integers(0, len(pieces))), secret[: data.draw(st.integers(0, len(secret)))])
    values = {part for secret in secrets for part in (secret, *secret.splitlines()) if len(part) >= 8}
    whole = "".join(pieces)
    longest_first = "|".join(re.escape(value) for value in sorted(values, key=len, reverse=True))
    expected = re.sub(longest_first, MASK.decode(), whole) if values else whole
    assert shown(Masking(secrets), *(piece.encode() for piece in pieces)) == expected.encode()


def test_a_secret_that_comes_byte_by_byte_is_masked() -> None:
    masking = Masking(["hf_abcdefgh"])
    text = b"token=hf_abcdefgh, and hf_abcdefgX"
    assert shown(masking, *(bytes([byte]) for byte in text)) == b"token=***, and hf_abcdefgX"


def test_what_may_be_a_secret_is_held_back_and_the_rest_is_not() -> None:
    masking = Masking(["hf_abcdefgh"])
    assert masking.feed(b"step 1\nhf_abc") == b"step 1\n"
    assert masking.feed(b" is none\n") == b"hf_abc is none\n"


def test_each_long_line_of_a_secret_is_masked_by_itself() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADAN\nab\n-----END KEY-----"
    assert shown(Masking([key]), b"line MIIEvQIBADAN and ab\n") == b"line *** and ab\n"


@pytest.mark.parametrize("text", [b"", b"nothing to hide", "bytes that are no text: \xff".encode("latin1")])
def test_without_secrets_nothing_changes(text: bytes) -> None:
    masking = Masking([])
    assert masking.feed(text) == text
    assert masking.rest() == b""
