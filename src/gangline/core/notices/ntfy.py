"""Write a message in the form of ntfy, a server of push notifications (https://docs.ntfy.sh/publish/). It formats no text that it is sent
like this; what is not ASCII stands in headers as RFC 2047 says."""

import base64

from gangline.core.display import printable
from gangline.core.notices.chat import safe_file_name
from gangline.core.notices.message import NoticeMessage, NoticeRequest

URGENT, NORMAL = "4", "3"
BODY_BYTES_MAX = 3500
"""A server makes an attachment of a text that has more than 4,096 bytes."""
WORD_BYTES_MAX = 45
"""So that an encoded word has at most 75 characters, as RFC 2047 says."""


def ntfy_request(url: str, message: NoticeMessage) -> NoticeRequest:
    """Return the request that publishes a message to a topic. A picture is its attachment, and the text then stands in a header."""
    text = _cut("\n".join(map(printable, _lines(message))), BODY_BYTES_MAX)
    headers = [("Title", encoded(printable(message.title))), ("Priority", URGENT if message.urgent else NORMAL)]
    if message.urgent:
        headers.append(("Tags", "warning"))
    if message.picture is None:
        headers.append(("Content-Type", "text/plain; charset=utf-8"))
        return NoticeRequest(url=url, headers=tuple(headers), body=text.encode())
    picture = message.picture
    # ntfy reads the two characters \n as the end of a line there; a header cannot have one.
    headers += [("Message", encoded(text.replace("\n", "\\n"))), ("Filename", safe_file_name(picture))]
    headers.append(("Content-Type", picture.media_type))
    return NoticeRequest(url=url, headers=tuple(headers), body=picture.content)


def encoded(text: str) -> str:
    """Return a header's value in ASCII: the text itself, or as encoded words (RFC 2047).

    >>> encoded("Timber is ready"), encoded("Käse")
    ('Timber is ready', '=?UTF-8?B?S8Okc2U=?=')
    """
    if text.isascii() and text.isprintable() and "=?" not in text and text == text.strip():
        return text
    words, word = list[bytes](), b""
    for character in text:
        more = character.encode()
        if len(word) + len(more) > WORD_BYTES_MAX:
            words.append(word)
            word = b""
        word += more
    return " ".join(f"=?UTF-8?B?{base64.b64encode(each).decode()}?=" for each in (*words, word))


def _lines(message: NoticeMessage) -> list[str]:
    return [line for line in (*message.lines, message.command) if line] or [message.title]


def _cut(text: str, most: int) -> str:
    """Return a text of at most this many bytes, and a mark where it was cut."""
    found = text.encode()
    return text if len(found) <= most else found[:most].decode(errors="ignore") + "…"
