"""Send Standard Webhooks over HTTP from a separate thread: signed if there is a secret, and retried. No caller ever waits for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from secrets import token_hex
from threading import Condition, Thread
from time import monotonic
from typing import Any

import httpx
from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from gangline.core.command.webhook import GONE, again_s, payload
from gangline.tls import trusted

TIMEOUT = httpx.Timeout(15, connect=5)


@dataclass(slots=True)
class _Message:
    id: str
    body: str
    tries: int = 0
    due_s: float = 0.0


class Webhooks:
    """A webhook receiver. `secret` has the form of Standard Webhooks, `whsec_…`; anything else raises ValueError. `say` receives a warning
    at the first failed delivery."""

    def __init__(self, url: str, secret: str, now_ms: Callable[[], int], say: Callable[[str], None]) -> None:
        self._url = url
        try:
            self._signer = Webhook(secret) if secret else None
        except EmptyWebhookSecretError:
            raise ValueError(secret) from None
        self._now_ms = now_ms
        self._say = say
        self._client = httpx.Client(verify=trusted(), timeout=TIMEOUT)
        self._waiting: list[_Message] = []
        self._changed = Condition()
        self._until_s: float | None = None
        self._warned = False
        self._unwanted = False
        self._thread = Thread(target=self._deliver, daemon=True)
        self._thread.start()

    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        with self._changed:
            if self._unwanted:
                return
            self._waiting.append(_Message(f"msg_{token_hex(12)}", payload(kind, self._now_ms(), data)))
            self._changed.notify_all()

    def close(self, seconds: float) -> int:
        """Try each waiting message at once, for at most `seconds`; return how many remain undelivered."""
        with self._changed:
            self._until_s = monotonic() + seconds
            for message in self._waiting:
                message.due_s = 0.0
            self._changed.notify_all()
        self._thread.join(seconds)
        return len(self._waiting)

    def _deliver(self) -> None:
        while (message := self._next()) is not None:
            answered = self._post(message)
            with self._changed:
                if answered == GONE:
                    self._unwanted = True
                    self._waiting.clear()
                    return
                if answered is not None and 200 <= answered < 300:
                    self._waiting.remove(message)
                    continue
                message.tries += 1
                message.due_s = monotonic() + again_s(message.tries)
            if not self._warned:
                answer = "does not answer" if answered is None else f"answered {answered}"
                self._say(f"the webhook {answer}; the message will be sent again")
            self._warned = True

    def _next(self) -> _Message | None:
        """Wait for the next message that is due and return it; None when there is nothing more to try."""
        with self._changed:
            while True:
                message = min(self._waiting, key=lambda each: each.due_s, default=None)
                now_s = monotonic()
                if self._until_s is not None and (message is None or max(now_s, message.due_s) > self._until_s):
                    return None
                if message is not None and message.due_s <= now_s:
                    return message
                self._changed.wait(None if message is None else message.due_s - now_s)

    def _post(self, message: _Message) -> int | None:
        """Return the status of the answer; None if there is none."""
        at = datetime.now(UTC)
        headers = {
            "content-type": "application/json",
            "webhook-id": message.id,
            "webhook-timestamp": str(int(at.timestamp())),
        }
        if self._signer:
            headers["webhook-signature"] = self._signer.sign(message.id, at, message.body)
        try:
            return self._client.post(self._url, content=message.body.encode(), headers=headers).status_code
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError):  # UnicodeError comes from the URL
            return None
