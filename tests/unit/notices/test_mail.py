"""A mail says what the message says, in text and in HTML, and no name in it adds a header, a recipient or markup."""

import re
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangline.core.display import printable
from gangline.core.notices.mail import mail_of
from gangline.core.notices.message import NoticeMessage, NoticePicture
from gangline.core.server.mail import why_no_mail_address

SENDER, TO = "gangline@example.org", "someone@example.com"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
HOSTILE = "x\r\nBcc: everybody@example.com\r\n\r\n<script>alert(1)</script> <img src=x onerror=y> \u202egpj.exe"
TEXTS = st.one_of(st.text(max_size=200), st.text("<>&\"'\r\n:@ab \u202e\u2028", max_size=60))
HEADERS = ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type"]


def sent(message: NoticeMessage, message_id: str = "msg_1") -> EmailMessage:
    """The mail as its receiver reads it from the bytes."""
    mail = mail_of(message, sender=SENDER, to=TO, message_id=message_id, at_ms=1_700_000_000_000)
    content = mail.as_bytes()
    assert content.isascii() and all(len(line) <= 998 for line in content.split(b"\r\n"))
    read = message_from_bytes(content, policy=default)
    assert isinstance(read, EmailMessage)
    return read


def body_of(mail: EmailMessage, kind: str) -> str:
    part = mail.get_body((kind,))
    assert part is not None
    return part.get_content().replace("\r\n", "\n")


class Tags(HTMLParser):
    """What a browser makes of a page: its tags with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.text = list[str](), ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(" ".join([tag, *(f"{name}={value}" for name, value in attrs)]))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_mail_is_a_text_and_a_page_that_say_the_same() -> None:
    message = NoticeMessage(title="Timber is ready", lines=("It took 12 min.",), command="gangline artifacts job-1")
    mail = sent(message)
    assert mail["From"] == "Gangline <gangline@example.org>" and mail["To"] == TO and mail["Subject"] == message.title
    assert mail["Auto-Submitted"] == "auto-generated"
    assert body_of(mail, "plain") == "Timber is ready\n\nIt took 12 min.\n\ngangline artifacts job-1\n"
    page = Tags(body_of(mail, "html"))
    assert page.text.split() == body_of(mail, "plain").split()
    assert page.tags == ["html dir=ltr", "meta charset=utf-8", "body", "h2", "p", "pre"]


def test_a_mail_that_is_sent_again_has_the_same_id_and_no_other_mail_has_it() -> None:
    message = NoticeMessage(title="Timber is ready", lines=())
    ids = [sent(message, each)["Message-ID"] for each in ("msg_1", "msg_1", "msg_2")]
    assert ids[0] == ids[1] != ids[2]


def test_the_id_of_a_mail_from_a_long_domain_stays_one() -> None:
    for domain in (f"{'a' * 60}.{'b' * 60}.example", f"{'a' * 63}"):
        mail = mail_of(
            NoticeMessage(title="t", lines=()), sender=f"g@{domain}", to=TO, message_id="msg_1", at_ms=1_700_000_000_000
        )
        assert re.search(rb"^Message-ID: <[0-9a-f]{24}@[a-z.]{1,36}>\r$", mail.as_bytes(), re.MULTILINE)


def test_the_picture_is_in_the_mail_and_stands_in_the_page() -> None:
    mail = sent(NoticeMessage(title="t", lines=(), picture=NoticePicture(name='g"\r\n.png', content=PNG)))
    [picture] = [part for part in mail.walk() if part.get_content_maintype() == "image"]
    assert (picture.get_content_type(), picture.get_content()) == ("image/png", PNG)
    assert (picture["Content-ID"], picture.get_filename()) == ("<picture>", "g-.png")
    assert picture.get_content_disposition() == "inline"
    assert '<img src="cid:picture"' in body_of(mail, "html")


def test_what_needs_somebody_is_important() -> None:
    assert sent(NoticeMessage(title="t", lines=(), urgent=True))["Importance"] == "high"
    assert sent(NoticeMessage(title="t", lines=()))["Importance"] is None


@given(TEXTS, TEXTS, TEXTS)
@example(HOSTILE, HOSTILE, HOSTILE)
@example("000000000" + "\u0800" * 10 + " \xa1 \xa1", "", "")
@example("=?utf-8?q?Bcc?= " + "a" * 190, "", "")
def test_no_name_adds_a_header_or_markup(title: str, line: str, message_id: str) -> None:
    message = NoticeMessage(title=title, lines=(line,), command="gangline jobs ls")
    mail = sent(message, message_id)
    assert sorted(mail.keys()) == sorted(HEADERS)
    assert mail["To"] == TO and re.fullmatch(r"<[0-9a-f]{24}@example\.org>", mail["Message-ID"])
    assert " ".join(mail["Subject"].split()) == " ".join(printable(title).split())
    page = Tags(body_of(mail, "html"))
    assert page.tags in (
        ["html dir=ltr", "meta charset=utf-8", "body", "h2", "p", "pre"],
        ["html dir=ltr", "meta charset=utf-8", "body", "h2", "p", "p", "pre"],
    )
    assert printable(line) in page.text
    assert printable(line) in body_of(mail, "plain") or not line


@pytest.mark.parametrize("address", ["a@b.example", "first.last+tag@mail.example.org", "root@localhost"])
def test_an_address_of_one_mailbox_is_taken(address: str) -> None:
    assert why_no_mail_address(address) == ""


@pytest.mark.parametrize(
    "address",
    [
        "",
        "a",
        "a@",
        "@b.example",
        "a@b@c",
        "a b@c.example",
        "a@b.example\n",
        "a@b.example\r\nBcc: c@d.example",
        "a@b.example, c@d.example",
        "Some One <a@b.example>",
        '"a b"@c.example',
        "a@[127.0.0.1]",
        "a@-b.example",
        "a..b@c.example",
        "ä@b.example",
        "a@bücher.example",
        "a@b.example\u202e",
        f"{'a' * 65}@b.example",
        f"a@{'b.' * 130}example",
    ],
)
def test_what_is_no_address_of_one_mailbox_is_refused(address: str) -> None:
    assert why_no_mail_address(address)
