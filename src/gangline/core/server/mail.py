"""Through which mail server notices are sent."""

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MaxLen

from gangline.core.parsing import Checked
from gangline.core.policy import STRICT, Exact, SettingOrigin
from gangline.core.server.programs import Port, Secret

MailSecurity = Literal["starttls", "tls", "none"]
MailText = Annotated[str, MaxLen(255), Exact()]
ADDRESS_MAX = 254
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_ADDRESS = re.compile(rf"{_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*")
PORTS: dict[MailSecurity, int] = {"starttls": 587, "tls": 465, "none": 25}


def why_no_mail_address(text: str) -> str:
    """Return why a text is not the address of one mailbox in ASCII, such as `someone@example.org`; empty if it is."""
    if len(text) > ADDRESS_MAX or len(text.partition("@")[0]) > 64:
        return "it is too long"
    if not text.isascii():
        return "it has letters outside ASCII"
    return "" if _ADDRESS.fullmatch(text) else "it does not look like someone@example.org"


def _why_no_sender(text: str) -> str:
    return f"is no address: {why}" if text and (why := why_no_mail_address(text)) else ""


def _why_no_domain(text: str) -> str:
    return "" if len(text) <= ADDRESS_MAX and _DOMAIN.fullmatch(text) else "is no domain, such as example.org"


MailDomain = Annotated[str, Checked(_why_no_domain)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MailSettings:
    """The mail server (SMTP) that sends notices. Without `host` nobody can ask for mail."""

    __pydantic_config__: ClassVar[Any] = STRICT
    host: Annotated[MailText, "The mail server has this name; without it, no mail is sent."] = ""
    port: Annotated[
        Port, "The mail server listens on this port; 0 takes 587 for `starttls`, 465 for `tls` and 25 for `none`."
    ] = 0
    security: Annotated[
        MailSecurity,
        "How the connection is encrypted: `starttls` after its beginning, `tls` from its beginning. `none` is for a mail "
        "server on this machine, without a login.",
    ] = "starttls"
    sender: Annotated[
        Annotated[str, Checked(_why_no_sender)], "Mail comes from this address; a mail server needs one."
    ] = ""
    user: Annotated[
        MailText, "The server logs in at the mail server with this name; without it, it does not log in."
    ] = ""
    password: Annotated[Secret, SettingOrigin("GANGLINE_MAIL_PASSWORD", secret=True), "The password of that user."] = (
        field(default="", repr=False)
    )
    answer_s: Annotated[
        Annotated[float, Gt(0), Le(300), Exact()],
        "A mail must be taken within this time, or it is tried again later.",
    ] = 30.0

    domains: Annotated[
        Annotated[tuple[MailDomain, ...], MaxLen(1000)],
        "Mail may go to addresses of exactly these domains, e.g. example.org; by default to all. Addresses are not confirmed, so on a "
        "server with users who are strangers to each other, name those of your users.",
    ] = ()
    interval_min_s: Annotated[
        Annotated[float, Ge(0), Le(86_400), Exact()],
        "An endpoint can ask for at most one mail in this time, and a project for one test message.",
    ] = 60.0

    def __post_init__(self) -> None:
        assert not self.host or self.sender, "mail needs a sender: set sender"
        assert not self.user or self.security != "none", "a login needs an encrypted connection: set security"
        assert bool(self.user) == bool(self.password), "user and password (GANGLINE_MAIL_PASSWORD) need each other"

    def why_refused(self, address: str) -> str:
        """Return why no mail may go to this address; empty if it may."""
        allowed = {domain.lower() for domain in self.domains}
        if not allowed or address.rpartition("@")[2].lower() in allowed:
            return ""
        return f"the operator of this server allows mail to {', '.join(self.domains)} alone"

    @property
    def port_used(self) -> int:
        return self.port or PORTS[self.security]
