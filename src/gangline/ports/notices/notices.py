"""Send a notice to an address that a user named."""

from dataclasses import dataclass
from typing import Protocol

from gangline.core.notices.message import NoticeMessage, NoticeRequest
from gangline.core.notices.retry import NoticeOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeAnswer:
    """What came of a try. `delivered`: the receiver took it. `again`: a later try may succeed. `gone`: the receiver wants no more
    (HTTP 410). `refused`: no later try will succeed, such as an address that may not be connected to. `untried`: this server has too
    much to do, so nothing was sent. `because` is a sentence for the delivery log, `retry_after_s` what the receiver asked to wait.
    `ours`: the cause is this server or its mail server, so it says nothing of the endpoint."""

    outcome: NoticeOutcome
    because: str
    retry_after_s: float | None = None
    ours: bool = False


class NoticePoster(Protocol):
    async def post(self, request: NoticeRequest) -> NoticeAnswer:
        """Send a request, within bounds of time and size, to a public address or one that the operator allows. It raises nothing."""
        ...

    async def why_refused(self, url: str) -> str:
        """Return why nothing may be sent to this URL, in a sentence; empty if it may be, or if its host has no address at the moment."""
        ...


class NoticeMailer(Protocol):
    @property
    def interval_min_s(self) -> float:
        """Return in which time an endpoint gets one mail at most, whatever its owner asks for."""
        ...

    def why_refused(self, to: str) -> str:
        """Return why no mail may go to this address, in a sentence; empty if it may."""
        ...

    async def mail(self, to: str, message: NoticeMessage, message_id: str) -> NoticeAnswer:
        """Send a mail; one that is sent again has the same `message_id`. It raises nothing."""
        ...
