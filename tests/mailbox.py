"""A mail server on loopback (aiosmtpd) that keeps the mails it takes, or does what a bad one does."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from threading import Thread
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


@dataclass
class Mailbox:
    """`refusals` are answers by the command that they refuse. `asked` are the recipients in order, `logins` the names and passwords."""

    port: int = 0
    refusals: dict[str, str] = field(default_factory=dict)
    password: str = ""
    envelopes: list[Envelope] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)

    @property
    def mails(self) -> list[EmailMessage]:
        mails = [message_from_bytes(_content(each), policy=default) for each in self.envelopes]
        return [mail for mail in mails if isinstance(mail, EmailMessage)]

    async def handle_RCPT(self, _: SMTP, __: Session, envelope: Envelope, address: str, options: list[str]) -> str:
        self.asked.append(address)
        if "RCPT" in self.refusals:
            return self.refusals["RCPT"]
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, _: Session, envelope: Envelope) -> str:
        if "DATA" in self.refusals:
            return self.refusals["DATA"]
        self.envelopes.append(envelope)
        assert server.transport is not None
        self.encrypted.append(server.transport.get_extra_info("ssl_object") is not None)
        return "250 OK"

    def let_in(self, _: SMTP, __: Session, ___: Envelope, ____: str, login: Any) -> AuthResult:
        assert isinstance(login, LoginPassword)
        name, password = login.login.decode(), login.password.decode()
        self.logins.append((name, password))
        return AuthResult(success=password == self.password, handled=False)


def _content(envelope: Envelope) -> bytes:
    assert isinstance(envelope.content, bytes)
    return envelope.content


@contextmanager
def mailbox(tls: ssl.SSLContext | None = None, *, starts_tls: bool = True, password: str = "") -> Iterator[Mailbox]:
    """Serve a mailbox, encrypted from the beginning or, with `starts_tls`, after STARTTLS; with a password it asks for a login."""
    box, loop = Mailbox(password=password), asyncio.new_event_loop()

    def session() -> SMTP:
        return SMTP(
            box,
            hostname="mail.example",
            loop=loop,
            tls_context=tls if starts_tls else None,
            require_starttls=tls is not None and starts_tls,
            authenticator=box.let_in if password else None,
            auth_required=bool(password),
            auth_require_tls=starts_tls,
        )

    with _served(loop, session, None if starts_tls else tls) as box.port:
        yield box


@contextmanager
def _served(loop: asyncio.AbstractEventLoop, protocol: Any, tls: ssl.SSLContext | None) -> Iterator[int]:
    server = loop.run_until_complete(loop.create_server(protocol, "127.0.0.1", 0, ssl=tls))
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(_ended(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _ended(server: asyncio.Server) -> None:
    server.close()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
