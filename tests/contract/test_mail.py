"""Mail goes through a real mail server, over a verified connection, once; what the server says decides whether it is tried again."""

import asyncio
import socket
import ssl
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest
import trustme
import uvloop

from gangline.adapters.notifiers.mail import AT_ONCE, Mailer
from gangline.core.errors import BadInput
from gangline.core.notices.message import NoticeMessage, NoticePicture
from gangline.core.server.mail import MailSettings
from gangline.core.server.settings import ServerSettings, merge_file
from gangline.ports.notices.notices import NoticeAnswer, NoticeMailer
from tests.mailbox import mailbox

TO, PASSWORD = "someone@example.com", "a password of a mail server"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 400
TIMBER = NoticeMessage(
    title="Timber is ready",
    lines=("It took 12 min on one machine and cost $0.42.",),
    command="gangline artifacts job-1 --to timber",
    picture=NoticePicture(name="grid.png", content=PNG),
)
LOGIN = {"user": "gangline", "password": PASSWORD}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def serving(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


@pytest.fixture(scope="module")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def settings(port: int, **changes: Any) -> MailSettings:
    return replace(MailSettings(host="localhost", sender="gangline@example.org", port=port, answer_s=20), **changes)


def mailing(of: MailSettings, tls: ssl.SSLContext) -> Mailer:
    return Mailer(of, lambda: 1_700_000_000_000, lambda: tls)


def send(of: MailSettings, tls: ssl.SSLContext, message: NoticeMessage = TIMBER, to: str = TO) -> NoticeAnswer:
    port: NoticeMailer = mailing(of, tls)
    return asyncio.run(port.mail(to, message, "msg_1"))


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_mail_arrives_over_tls_with_its_text_its_page_and_its_picture(
    security: Any, serving: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    with mailbox(serving, starts_tls=security == "starttls") as box:
        answer = send(settings(box.port, security=security), trusting)
    assert answer == NoticeAnswer(outcome="delivered", because="the mail server took it")
    [mail], [envelope] = box.mails, box.envelopes
    assert (envelope.mail_from, envelope.rcpt_tos, box.encrypted) == ("gangline@example.org", [TO], [True])
    assert (mail["Subject"], mail["To"], mail["From"]) == (TIMBER.title, TO, "Gangline <gangline@example.org>")
    plain, page = mail.get_body(("plain",)), mail.get_body(("html",))
    assert plain is not None and page is not None
    assert TIMBER.lines[0] in plain.get_content() and "<pre>gangline artifacts" in page.get_content()
    [picture] = [part for part in mail.walk() if part.get_content_type() == "image/png"]
    assert picture.get_content() == PNG


def test_a_mail_that_is_sent_again_has_the_same_id(serving: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
    with mailbox(serving) as box:
        mailer = mailing(settings(box.port), trusting)

        async def twice() -> None:
            await asyncio.gather(*(mailer.mail(TO, TIMBER, "msg_1") for _ in range(2)))

        asyncio.run(twice())
    assert len({mail["Message-ID"] for mail in box.mails}) == 1 and len(box.mails) == 2


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_test_message_goes_out_from_the_event_loop_of_the_server(
    security: Any, serving: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    with mailbox(serving, starts_tls=security == "starttls") as box:
        mailer = mailing(settings(box.port, security=security), trusting)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert runner.run(mailer.mail(TO, TIMBER, "msg_1")).outcome == "delivered"
    assert len(box.mails) == 1


def test_a_mail_server_that_never_ends_the_encrypted_connection_leaves_nothing_open(
    serving: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    ended = threading.Event()

    def never_end(listening: socket.socket) -> None:
        with serving.wrap_socket(listening.accept()[0], server_side=True) as talking:
            talking.sendall(b"220 mail.example\r\n")
            for line in talking.makefile("rb"):
                if line == b".\r\n" or line[:4].upper() in {b"EHLO", b"MAIL", b"RCPT"}:
                    talking.sendall(b"250 OK\r\n")
                elif line[:4] == b"DATA":
                    talking.sendall(b"354 go on\r\n")
                elif line[:4] == b"QUIT":
                    talking.sendall(b"221 bye\r\n")
                    break
            ended.wait(30)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving_it = threading.Thread(target=never_end, args=(listening,))
        serving_it.start()
        mailer = mailing(settings(listening.getsockname()[1], security="tls"), trusting)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                assert runner.run(mailer.mail(TO, TIMBER, "msg_1")).outcome == "delivered"
        finally:
            ended.set()
            serving_it.join(10)


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_it_logs_in_only_when_the_connection_is_encrypted(
    security: Any, serving: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    with mailbox(serving, starts_tls=security == "starttls", password=PASSWORD) as box:
        assert send(settings(box.port, security=security, **LOGIN), trusting).outcome == "delivered"
        assert box.logins == [("gangline", PASSWORD)]


def test_without_starttls_nothing_is_sent_and_no_login_is_tried(trusting: ssl.SSLContext) -> None:
    with mailbox(password=PASSWORD) as box:
        answer = send(settings(box.port, **LOGIN), trusting)
        assert (answer.outcome, box.logins, box.asked) == ("again", [], [])
    assert answer.because == (
        "the mail server localhost lacks something: SMTP STARTTLS extension not supported by server."
    )


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_mail_server_with_a_certificate_of_another_authority_gets_nothing(
    security: Any, serving: ssl.SSLContext
) -> None:
    with mailbox(serving, starts_tls=security == "starttls", password=PASSWORD) as box:
        answer = send(settings(box.port, security=security, **LOGIN), ssl.create_default_context())
        assert (answer.outcome, box.logins, box.asked) == ("again", [], [])
    assert "localhost cannot be trusted" in answer.because


def test_a_mail_server_with_the_certificate_of_another_host_gets_nothing(
    authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("elsewhere.example").configure_cert(context)
    with mailbox(context) as box:
        answer = send(settings(box.port), trusting)
        assert (answer.outcome, box.asked) == ("again", [])
    assert "localhost cannot be trusted" in answer.because


def test_the_mail_server_of_this_machine_needs_no_encryption(trusting: ssl.SSLContext) -> None:
    with mailbox() as box:
        assert send(settings(box.port, security="none"), trusting).outcome == "delivered"
        assert box.encrypted == [False]


@pytest.mark.parametrize(
    ("command", "reply", "outcome"),
    [
        ("RCPT", "550 no such user <someone@example.com>", "refused"),
        ("RCPT", "450 mailbox busy", "again"),
        ("DATA", "554 looks like spam", "refused"),
        ("DATA", "452 disk full", "again"),
    ],
)
def test_the_code_of_a_refusal_says_whether_the_mail_is_tried_again(
    command: str, reply: str, outcome: str, serving: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    with mailbox(serving) as box:
        box.refusals[command] = reply
        answer = send(settings(box.port), trusting)
    assert answer.outcome == outcome and box.mails == []
    assert reply.replace(TO, "the address") in answer.because and TO not in answer.because


def test_a_wrong_password_is_said_to_the_log_and_tried_again(serving: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
    with mailbox(serving, password="another") as box:
        answer = send(settings(box.port, **LOGIN), trusting)
        assert box.asked == []
    assert answer.outcome == "again" and answer.because.startswith("the mail server refuses the login of this server")
    assert PASSWORD not in answer.because


def test_where_no_mail_server_listens_the_mail_is_tried_again(trusting: ssl.SSLContext) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    answer = send(settings(port), trusting)
    assert answer.outcome == "again" and "cannot be reached (ConnectionRefusedError)" in answer.because


def test_a_mail_server_whose_name_cannot_be_one_is_said(trusting: ssl.SSLContext) -> None:
    answer = send(settings(25, host=f"{'a' * 70}.example"), trusting)
    assert answer.outcome == "again" and "cannot be reached (UnicodeError)" in answer.because


@pytest.mark.parametrize("drips", [False, True])
def test_a_mail_server_that_never_ends_its_answer_is_left_in_time(drips: bool, trusting: ssl.SSLContext) -> None:
    ended = threading.Event()

    def dawdle(listening: socket.socket) -> None:
        with listening.accept()[0] as talking:
            talking.sendall(b"220-mail.example\r\n")
            while not ended.wait(0.02):
                try:
                    if drips:
                        talking.sendall(b"220-more\r\n")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        dawdling = threading.Thread(target=dawdle, args=(listening,))
        dawdling.start()
        begun_s = monotonic()
        answer = send(settings(listening.getsockname()[1], answer_s=0.5), trusting)
        assert monotonic() - begun_s < 5
        ended.set()
        dawdling.join(10)
    assert answer == NoticeAnswer(
        outcome="again", because="the mail server localhost did not take the mail within 0.5 s", ours=True
    )


def test_many_mails_at_once_all_arrive_and_hold_up_no_event_loop(
    serving: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    with mailbox(serving) as box:
        mailer = mailing(settings(box.port), trusting)

        async def all_of_them() -> tuple[list[NoticeAnswer], float]:
            longest_s, done = 0.0, asyncio.Event()

            async def beat() -> None:
                nonlocal longest_s
                while not done.is_set():
                    begun_s = monotonic()
                    await asyncio.sleep(0.005)
                    longest_s = max(longest_s, monotonic() - begun_s)

            beating = asyncio.create_task(beat())
            answers = await asyncio.gather(*(mailer.mail(TO, TIMBER, f"msg_{number}") for number in range(20)))
            done.set()
            await beating
            return answers, longest_s

        answers, longest_s = asyncio.run(all_of_them())
    assert {answer.outcome for answer in answers} == {"delivered"} and len(box.mails) == 20
    assert longest_s < 1


def test_a_server_that_stops_does_not_wait_for_a_slow_mail_server(trusting: ssl.SSLContext) -> None:
    async def stopped() -> None:
        greeted, left = asyncio.Event(), asyncio.Event()

        async def dawdle(reading: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
            writing.write(b"220 mail.example\r\n")
            await reading.readline()
            greeted.set()
            with suppress(ConnectionError):
                await reading.read()
            writing.close()
            left.set()

        async with await asyncio.start_server(dawdle, "127.0.0.1", 0) as listening, asyncio.timeout(60):
            of = settings(listening.sockets[0].getsockname()[1], answer_s=300)
            sending = asyncio.create_task(mailing(of, trusting).mail(TO, TIMBER, "msg_1"))
            await greeted.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await left.wait()

    asyncio.run(stopped())


def test_mails_that_wait_for_a_slow_mail_server_in_vain_are_untried(trusting: ssl.SSLContext) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        mailer = mailing(settings(listening.getsockname()[1], answer_s=0.5), trusting)

        async def many() -> list[NoticeAnswer]:
            return await asyncio.gather(*(mailer.mail(TO, TIMBER, f"msg_{number}") for number in range(AT_ONCE + 3)))

        answers = Counter(answer.outcome for answer in asyncio.run(many()))
    assert answers == {"again": AT_ONCE, "untried": 3}


@pytest.mark.parametrize(
    ("to", "outcome"),
    [
        ("a@example.com", "delivered"),
        ("a@EXAMPLE.com", "delivered"),
        ("a@example.net", "refused"),
        ("a@sub.example.com", "refused"),
        ("a@badexample.com", "refused"),
    ],
)
def test_mail_goes_to_the_domains_that_the_operator_names_alone(
    to: str, outcome: str, serving: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    with mailbox(serving) as box:
        answer = send(settings(box.port, domains=("example.com", "example.org")), trusting, to=to)
        assert (answer.outcome, len(box.asked)) == (outcome, outcome == "delivered")
    if outcome == "refused":
        assert answer.because == "the operator of this server allows mail to example.com, example.org alone"


# ----------------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('host = "mail.example"', "mail needs a sender"),
        ('host = "m"\nsender = "not an address"', "is no address"),
        ('host = "m"\nsender = "a@b.example"\nuser = "u"', "need each other"),
        ('host = "m"\nsender = "a@b.example"\nuser = "u"\nsecurity = "none"', "needs an encrypted connection"),
        ('host = "m"\nsender = "a@b.example"\npassword = "secret"', "GANGLINE_MAIL_PASSWORD"),
        ('host = "m"\nsender = "a@b.example"\nsecurity = "ssl"', "security"),
        ('host = "m"\nsender = "a@b.example"\ndomains = ["@b.example"]', "is no domain"),
    ],
)
def test_wrong_settings_of_mail_are_refused_with_a_sentence(text: str, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        merge_file(ServerSettings, f"[mail]\n{text}\n", "gangline.toml")
    assert says in f"{refused.value.message} {refused.value.hint}"


def test_the_port_follows_from_the_security_unless_it_is_set() -> None:
    of = MailSettings(host="mail.example", sender="a@b.example")
    assert [replace(of, security=each).port_used for each in ("starttls", "tls", "none")] == [587, 465, 25]
    assert replace(of, port=2525).port_used == 2525
