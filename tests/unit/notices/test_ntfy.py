"""What a phone shows through ntfy is what the message says, and no name in it makes a header."""

import doctest
from email.header import decode_header, make_header

import httpx
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.display import printable
from gangline.core.notices import ntfy
from gangline.core.notices.message import NoticeMessage, NoticePicture, NoticeRequest
from gangline.core.notices.ntfy import BODY_BYTES_MAX, encoded, ntfy_request

URL = "https://ntfy.example/sleds"
GRID = NoticePicture(name="grid.png", content=b"\x89PNG")


def sent(request: NoticeRequest) -> httpx.Request:
    return httpx.Request("POST", request.url, headers=list(request.headers), content=request.body)


def test_a_message_is_a_title_a_text_and_a_priority() -> None:
    message = NoticeMessage(title="Timber is ready", lines=("It took 12 min.",), command="gangline artifacts job-1")
    request = ntfy_request(URL, message)
    assert request.body.decode() == "It took 12 min.\ngangline artifacts job-1"
    assert dict(request.headers) == {
        "Title": "Timber is ready",
        "Priority": "3",
        "Content-Type": "text/plain; charset=utf-8",
    }


def test_what_needs_somebody_has_a_higher_priority_and_a_warning() -> None:
    headers = dict(ntfy_request(URL, NoticeMessage(title="Timber failed", lines=(), urgent=True)).headers)
    assert (headers["Priority"], headers["Tags"]) == ("4", "warning")


def test_a_picture_is_attached_and_the_text_stands_in_a_header() -> None:
    request = ntfy_request(URL, NoticeMessage(title="Käse is ready", lines=("One.", "Two."), picture=GRID))
    headers = dict(request.headers)
    assert request.body == GRID.content and headers["Content-Type"] == "image/png" and headers["Filename"] == "grid.png"
    assert headers["Message"] == "One.\\nTwo."
    assert str(make_header(decode_header(headers["Title"]))) == "Käse is ready"


@given(st.text(max_size=300), st.text(max_size=300), st.booleans())
def test_no_name_makes_a_header_or_a_control_character(title: str, line: str, pictured: bool) -> None:
    message = NoticeMessage(title=title, lines=(line,), picture=GRID if pictured else None)
    request = ntfy_request(URL, message)
    for _, value in request.headers:
        assert value.isascii() and value.isprintable()
        assert all(len(word) <= 75 for word in value.split() if word.startswith("=?"))
    assert len(sent(request).headers) == len(request.headers) + 2, "Host and Content-Length are added, no other"
    assert str(make_header(decode_header(dict(request.headers)["Title"]))) == printable(title)


@given(st.text(max_size=300))
def test_an_encoded_header_is_decoded_to_the_same_text(text: str) -> None:
    assert str(make_header(decode_header(encoded(printable(text))))) == printable(text)


def test_a_long_text_stays_a_text() -> None:
    body = ntfy_request(URL, NoticeMessage(title="t", lines=("ü" * 5000,))).body
    assert BODY_BYTES_MAX - 2 <= len(body) <= BODY_BYTES_MAX + 3 and body.decode().endswith("ü…")


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(ntfy).failed == 0
