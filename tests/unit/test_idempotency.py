"""Idempotency keys as the draft writes them, and as they were written before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.errors import BadInput
from gangline.core.server.idempotency import KEY_MAX, parse_key, request_fingerprint, write_key

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=KEY_MAX)


@given(PRINTABLE)
def test_a_key_is_read_as_it_was_written(key: str) -> None:
    assert parse_key(write_key(key)) == key
    assert write_key(key).startswith('"')


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ('"8e03978e-40d5-43e8-bc93-6894a57f9324"', "8e03978e-40d5-43e8-bc93-6894a57f9324"),
        ("8e03978e", "8e03978e"),
        ('"a\\"b\\\\c"', 'a"b\\c'),
        ('"a"; expires=1', "a"),
        ("night/1", "night/1"),
    ],
)
def test_a_key_is_in_quotes_or_bare(header: str, key: str) -> None:
    assert parse_key(header) == key


@pytest.mark.parametrize(
    "header", ['"', '"a', '"a"b"', '"\\a"', "", " ", '""', "x" * (KEY_MAX + 1), '"' + "x" * (KEY_MAX + 1) + '"']
)
def test_what_is_no_key_is_refused_with_a_sentence(header: str) -> None:
    with pytest.raises(BadInput, match="Idempotency-Key") as refused:
        parse_key(header)
    assert refused.value.hint


def test_a_key_of_other_letters_is_sent_bare_as_before() -> None:
    assert write_key("schlüssel") == "schlüssel" and parse_key("schlüssel") == "schlüssel"


def test_json_that_means_the_same_is_the_same_request() -> None:
    one = request_fingerprint("/v1/jobs", "", b'{"a": 1, "b": [2]}')
    assert one == request_fingerprint("/v1/jobs", "", b'{"b":[2],"a":1}')
    others = [
        ("/v1/other", "", b'{"a":1,"b":[2]}'),
        ("/v1/jobs", "x=1", b'{"a":1,"b":[2]}'),
        ("/v1/jobs", "", b'{"a":2,"b":[2]}'),
    ]
    assert len({one, *(request_fingerprint(*other) for other in others)}) == 4


@given(st.binary(max_size=50))
def test_any_body_has_a_fingerprint(body: bytes) -> None:
    assert len(request_fingerprint("/", "", body)) == 64


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a": NaN}', b'"\\ud800"', b"\xff"])
def test_so_has_one_that_no_json_means(body: bytes) -> None:
    assert request_fingerprint("/", "", body) == request_fingerprint("/", "", body)
