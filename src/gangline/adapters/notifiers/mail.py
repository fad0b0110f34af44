"""Send mail through the operator's mail server (SMTP), by asyncio.

The connection is encrypted and the server's certificate verified before a login or a mail is sent, unless the operator chose `none`.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import cast
from weakref import WeakKeyDictionary

from aiosmtplib import (
    SMTP,
    SMTPAuthenticationError,
    SMTPDataError,
    SMTPException,
    SMTPRecipientsRefused,
    SMTPResponseException,
)

from gangline.core.display import printable
from gangline.core.notices.mail import mail_of
from gangline.core.notices.message import NoticeMessage
from gangline.core.server.mail import MailSettings
from gangline.ports.notices.notices import NoticeAnswer
from gangline.tls import trusted

log = logging.getLogger("gangline.notices")

AT_ONCE = 4
"""The most mails that an event loop sends at the same time; others wait."""
QUIT_S = 1.0
"""How long a mail server that has taken a mail may take to end the connection."""
REPLY_SHOWN_MAX = 200
_LATER = range(400, 500)


class _Connection(SMTP):
    """A connection that is cut whenever it ends, whoever ends it.

    The mail was taken before, or is sent again. An orderly end of TLS would wait for the mail server, with nobody to wait for it.
    """

    def close(self) -> None:
        if self.transport is not None:
            cast("asyncio.WriteTransport", self.transport).abort()  # uvloop's are instances of no class of asyncio
        super().close()


class Mailer:
    """Sends mail as the settings say, which name a mail server. Event loops of several threads may use one."""

    def __init__(
        self, settings: MailSettings, now_ms: Callable[[], int], tls: Callable[[], ssl.SSLContext] = trusted
    ) -> None:
        self._settings, self._now_ms, self._tls = settings, now_ms, tls
        self._free = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()

    @property
    def interval_min_s(self) -> float:
        return self._settings.interval_min_s

    def why_refused(self, to: str) -> str:
        return self._settings.why_refused(to)

    async def mail(self, to: str, message: NoticeMessage, message_id: str) -> NoticeAnswer:
        refused = self.why_refused(to)
        if refused:  # also where the operator has named the domains after the endpoint was added
            return NoticeAnswer(outcome="refused", because=refused)
        of, free = self._settings, self._free.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))
        try:
            async with asyncio.timeout(of.answer_s / 2):
                await free.acquire()
        except TimeoutError:
            return NoticeAnswer(outcome="untried", because="too many mails are being sent", ours=True)
        try:  # one limit for all: with one for each answer, a server that sends a byte now and then could hold a place for ever
            async with asyncio.timeout(of.answer_s):
                content = await asyncio.to_thread(self._content, to, message, message_id)
                return await self._send(to, content)
        except TimeoutError:
            return _again(f"the mail server {of.host} did not take the mail within {of.answer_s:g} s")
        finally:
            free.release()

    def _content(self, to: str, message: NoticeMessage, message_id: str) -> bytes:
        """Return the mail. Encoding a picture takes long enough to hold up an event loop."""
        return mail_of(
            message, sender=self._settings.sender, to=to, message_id=message_id, at_ms=self._now_ms()
        ).as_bytes()

    async def _send(self, to: str, content: bytes) -> NoticeAnswer:
        """Send a mail. Raise `TimeoutError` at the time limit."""
        of = self._settings
        smtp = _Connection(
            hostname=of.host,
            port=of.port_used,
            username=of.user or None,
            password=of.password or None,
            local_hostname=of.sender.rpartition("@")[2],
            timeout=None,
            use_tls=of.security == "tls",
            start_tls=of.security == "starttls",
            tls_context=None if of.security == "none" else self._tls(),
        )
        try:
            await smtp.connect()
            await smtp.sendmail(of.sender, [to], content)
            await _quit(smtp)
        except Exception as error:
            return self._what_failed(error, to)
        finally:
            smtp.close()
        return NoticeAnswer(outcome="delivered", because="the mail server took it")

    def _what_failed(self, error: Exception, to: str) -> NoticeAnswer:
        server = f"the mail server {self._settings.host}"
        match error:
            case SMTPRecipientsRefused():
                refusal = error.recipients[0]
                return _answer(refusal.code, "the mail server refuses the address", _shown(refusal.message, to))
            case SMTPDataError():
                return _answer(error.code, "the mail server refuses the mail", _shown(error.message, to))
            case SMTPAuthenticationError():
                return _again(f"the mail server refuses the login of this server: {_shown(error.message, to)}")
            case SMTPResponseException():
                return _again(f"the mail server answered {error.code}: {_shown(error.message, to)}")
            case (
                OSError() | UnicodeError()
            ):  # the second of a name that cannot be one; also those of aiosmtplib, whose cause is the one that says what happened
                cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
                if isinstance(cause, ssl.SSLError):
                    return _again(f"{server} cannot be trusted: {_shown(cause.reason or str(cause), to)}")
                return _again(f"{server} cannot be reached ({type(cause).__name__})")
            case SMTPException():
                return _again(f"{server} lacks something: {_shown(error.message, to)}")
            case _:
                log.error("a mail could not be sent", exc_info=error)
                return _again("an error occurred in this server, and its log says why")


async def _quit(smtp: SMTP) -> None:
    """Say goodbye to a mail server that has taken the mail: nothing counts any more."""
    try:
        async with asyncio.timeout(QUIT_S):
            await smtp.quit()
    except (SMTPException, OSError):  # TimeoutError is one
        log.debug("the connection to a mail server did not end properly", exc_info=True)


def _answer(code: int, what: str, reply: str) -> NoticeAnswer:
    """Return what came of a refusal: codes from 400 on are for the moment, those from 500 on for good (RFC 5321, 4.2.1)."""
    because = f"{what}: {code} {reply}"
    return NoticeAnswer(outcome="again" if code in _LATER else "refused", because=because)


def _again(because: str) -> NoticeAnswer:
    """Return that the mail server could not be used, whoever the mail was for."""
    return NoticeAnswer(outcome="again", because=because, ours=True)


def _shown(reply: str, to: str) -> str:
    """Return what a mail server said, without the address, which not everybody who reads the log may see."""
    return printable(" ".join(reply.replace(to, "the address").split()))[:REPLY_SHOWN_MAX]
