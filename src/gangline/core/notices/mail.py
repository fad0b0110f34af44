"""Write a message as a mail: text, and HTML with the picture in it. No name can add a header, a recipient or markup."""

import hashlib
from email.header import Header
from email.headerregistry import BaseHeader, HeaderRegistry, UnstructuredHeader
from email.message import EmailMessage
from email.policy import SMTP, Policy
from email.utils import formatdate
from html import escape
from typing import Any

from gangline.core.display import printable
from gangline.core.notices.chat import safe_file_name
from gangline.core.notices.message import NoticeMessage

WORD_MAX = 60
"""A longer word of a subject does not fit into a line, and is encoded in pieces."""


class _Subject(UnstructuredHeader, BaseHeader):
    """A subject that arrives as it is. By itself the email package decodes what looks like an encoded word (RFC 2047), and that of
    Python 3.11 loses spaces between those that it writes."""

    @classmethod
    def parse(cls, value: str, kwds: dict[str, Any]) -> None:
        super().parse("", kwds)
        kwds["decoded"] = value

    def fold(self, *, policy: Policy) -> str:
        plain = self.isascii() and "=?" not in self and all(len(word) <= WORD_MAX for word in self.split())
        header = Header(self, "us-ascii" if plain else "utf-8", policy.max_line_length, "Subject")
        return f"Subject: {header.encode(linesep=policy.linesep)}{policy.linesep}"


def _headers() -> HeaderRegistry:
    headers = HeaderRegistry()
    headers.map_to_type("subject", _Subject)
    return headers


HEADERS = SMTP.clone(cte_type="7bit", max_line_length=76, header_factory=_headers())
"""Every mail server takes lines of ASCII."""
PICTURE_ID = "picture"
DOMAIN_SHOWN_MAX = 36


def mail_of(message: NoticeMessage, *, sender: str, to: str, message_id: str, at_ms: int) -> EmailMessage:
    """Return the mail, dated `at_ms`. `core/server/mail.py` has checked the addresses. A mail that is sent again has the same
    `message_id`, by which mail programs show it once."""
    mail = EmailMessage(policy=HEADERS)
    mail["From"] = f"Gangline <{sender}>"
    mail["To"] = to
    mail["Subject"] = " ".join(printable(message.title).split())
    mail["Date"] = formatdate(at_ms / 1000)
    mail["Message-ID"] = _id_of(message_id, sender)
    mail["Auto-Submitted"] = "auto-generated"
    if message.urgent:
        mail["Importance"] = "high"
    mail.set_content("\n\n".join(map(printable, _parts(message))) + "\n", cte="quoted-printable")
    mail.add_alternative(_page(message), subtype="html", cte="quoted-printable")
    if message.picture is not None:
        kind, _, subtype = message.picture.media_type.partition("/")
        _, page = mail.iter_parts()
        assert isinstance(page, EmailMessage)
        page.add_related(
            message.picture.content,
            maintype=kind,
            subtype=subtype,
            cid=f"<{PICTURE_ID}>",
            filename=safe_file_name(message.picture),
            disposition="inline",
        )
    return mail


def _id_of(message_id: str, sender: str) -> str:
    """Return the Message-ID. It fits into one line: Python's email package encodes a longer one, and then it is none."""
    domain = sender.rpartition("@")[2]
    while len(domain) > DOMAIN_SHOWN_MAX and "." in domain:
        domain = domain.partition(".")[2]
    return f"<{hashlib.sha256(message_id.encode()).hexdigest()[:24]}@{domain[-DOMAIN_SHOWN_MAX:].lstrip('-')}>"


def _parts(message: NoticeMessage) -> list[str]:
    return [part for part in (message.title, *message.lines, message.command) if part]


def _page(message: NoticeMessage) -> str:
    """Return the message as HTML. Every text in it is escaped, and it names nothing that is not in the mail."""
    body = [f"<h2>{_text(message.title)}</h2>", *(f"<p>{_text(line)}</p>" for line in message.lines)]
    if message.command:
        body.append(f"<pre>{_text(message.command)}</pre>")
    if message.picture is not None:
        body.append(f'<p><img src="cid:{PICTURE_ID}" alt="sample pictures" style="max-width: 100%"></p>')
    inner = "\n".join(body)
    return f'<!doctype html>\n<html dir="ltr"><meta charset="utf-8"><body>\n{inner}\n</body></html>\n'


def _text(text: str) -> str:
    return escape(printable(text))
