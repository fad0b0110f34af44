"""The server that commands of this machine would ask: its address, its certificate, its version, its clock, the key."""

import ssl
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from gangline.cli.client import is_on_this_machine
from gangline.cli.doctor.findings import Finding, FindingState, examined, note, ok, wrong
from gangline.compose.client import Client
from gangline.core.errors import Denied, GanglineError, Unreachable
from gangline.version import VERSION
from gangline.wire.client.http import Http

SKEW_S_NOTED = 10.0
"""Heartbeats come every ten seconds; whoever compares logs of both sees the difference from here on."""
SKEW_S_MAX = 300.0
"""Object stores refuse signed requests of a clock that is off by more than a quarter of an hour; certificates and keys end by the clock."""
CERTIFICATE_DAYS_MIN = 14


def check_server(address: str, key: str, project: str | None, *, named: bool) -> Iterator[Finding]:
    """Yield what is found at the address. `named`: the user named this server, so a missing one is wrong."""
    began_s = time.monotonic()
    try:
        with Http(address, "").stream("/healthz", "", httpx.Timeout(20, connect=5)) as answer:
            certificate = _certificate(answer)  # it is gone when the answer is read
            answer.read()
            took_s = time.monotonic() - began_s
            health = _health(answer, address)
    except GanglineError as error:
        says = error.message if named else f"no server is named, and {error.message}"
        yield Finding(
            about="server", state=FindingState.wrong if named else FindingState.note, says=says, hint=error.hint
        )
        return
    yield ok("server", f"{address} answers in {1000 * took_s:.0f} ms")
    yield _transport(address, certificate)
    yield _version(str(health["version"]))
    yield from _clock(answer)
    yield examined("key", lambda: _key(address, key, project))


def _health(answer: httpx.Response, address: str) -> dict[str, Any]:
    try:
        found = answer.json()
        return {"version": found["version"]}
    except (ValueError, KeyError, TypeError):
        raise Unreachable(f"{address} did not answer as a Gangline server does", hint="check the address") from None


def _certificate(answer: httpx.Response) -> dict[str, Any] | None:
    stream = answer.extensions.get("network_stream")
    found = stream.get_extra_info("ssl_object") if stream else None
    return found.getpeercert() if found is not None else None


def _transport(address: str, certificate: dict[str, Any] | None) -> Finding:
    if certificate is not None:
        left_days = (ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time()) / 86400
        says = f"the certificate is trusted and expires in {left_days:.0f} days"
        return ok("TLS", says) if left_days > CERTIFICATE_DAYS_MIN else wrong("TLS", says, "renew the certificate")
    if is_on_this_machine(address):
        return ok("TLS", "there is no TLS, and none is needed, because the server is on this machine")
    hint = "put the server behind TLS: `gangline docs tls`"
    return wrong("TLS", "there is no TLS, so keys, photos and weights cross the network unencrypted", hint)


def _version(theirs: str) -> Finding:
    if theirs == VERSION:
        return ok("version", f"the server and this machine have {theirs}")
    return note(
        "version",
        f"the server has {theirs}, this machine has {VERSION}",
        "both work together; upgrade the older one",
    )


def _clock(answer: httpx.Response) -> Iterator[Finding]:
    try:
        skew_s = time.time() - parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return
    says = f"this machine's clock is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the server's"
    if abs(skew_s) < SKEW_S_NOTED:
        yield ok("clock", "this machine's clock agrees with the server's within seconds")
    elif abs(skew_s) < SKEW_S_MAX:
        yield note("clock", says, "synchronise the clock by NTP")
    else:
        yield wrong("clock", says, "synchronise the clock by NTP, because signed URLs and certificates expire by it")


def _key(address: str, key: str, project: str | None) -> Finding:
    if not key:
        return wrong(
            "key",
            "there is no key",
            "set GANGLINE_TOKEN to a key, which an admin of your project makes with `gangline keys add`",
        )
    if key.startswith("gl_join_"):
        return ok("key", "this is a join token for `gangline worker`; the commands of users need a key")
    try:
        with Client(address, key, project) as client:
            found = client.projects.current()
    except Denied as error:
        return wrong("key", error.message, "check whether the key was revoked or belongs to another server")
    return ok("key", f"the key is valid for the project {found.project}")
