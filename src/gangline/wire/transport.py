"""Diagnose why a server cannot be reached, or why something else answers: one message for each fault of the transport."""

import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from gangline.core.errors import GanglineError, Unreachable, UserError

NO_SUCH_SERVER = "start one with `gangline up`, or name another with --server or GANGLINE_SERVER"
LIKE_THIS = "write it as http://HOST:PORT, or https://HOST"
TLS_HINT = (
    "to trust the certificate of your own authority, set SSL_CERT_FILE to its file; `gangline docs tls` has the details"
)


def not_an_address(server: str, why: object = "") -> Unreachable:
    if not why and "://" not in server and not server.endswith(":"):
        return Unreachable(
            f"{server} lacks http:// or https://",
            hint=f"write http://{server}, or https://{server} if it uses TLS",
        )
    return Unreachable(f"{server} is not an address" + f": {why}" * bool(why), hint=LIKE_THIS)


def not_reached(server: str, error: httpx.HTTPError) -> Unreachable:
    """Return the diagnosis of a transport error. It never has the request's headers, which have the key."""
    if isinstance(error, httpx.UnsupportedProtocol) or not urlsplit(server).hostname:
        return not_an_address(server)
    if isinstance(error, httpx.LocalProtocolError):  # the error's own text may have the key
        return Unreachable(f"no request was sent to {server}: HTTP does not allow it", hint="check the key")
    tls = next((cause for cause in causes(error) if isinstance(cause, ssl.SSLError)), None)
    if tls is not None:
        return _tls(server, tls)
    proxy = proxy_for(server)
    if isinstance(error, httpx.ProxyError) or (proxy and isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)):
        host = urlsplit(server).hostname
        return Unreachable(
            f"{server} cannot be reached through the proxy {proxy or 'that is set'} ({_why(error)})",
            hint=f"the proxy comes from the environment; set NO_PROXY={host} to connect without it",
        )
    return _direct(server, error)


def _direct(server: str, error: httpx.HTTPError) -> Unreachable:
    parts = urlsplit(server)
    why = _why(error)
    if isinstance(error, httpx.ConnectTimeout):
        return Unreachable(
            f"{server} does not answer: no connection in time", hint="check host and port; a firewall may be in between"
        )
    if isinstance(error, httpx.TimeoutException):
        return Unreachable(f"{server} did not answer in time", hint="it may be busy; see its log")
    if "Name or service not known" in why or "name resolution" in why or "nodename nor servname" in why:
        return Unreachable(
            f"there is no host {parts.hostname}: {why}", hint="check its name, and this machine's network"
        )
    if isinstance(error, httpx.ReadError | httpx.RemoteProtocolError | httpx.WriteError):
        hint = "see its log, or that of the proxy in front of it"
        if parts.scheme == "http":
            hint = f"if it uses TLS, its address is https://{parts.netloc}{parts.path}"
        return Unreachable(f"{server} closed the connection without an answer", hint=hint)
    return Unreachable(f"there is no Gangline server at {server} ({why})", hint=NO_SUCH_SERVER)


def _tls(server: str, error: ssl.SSLError) -> Unreachable:
    plain = server.replace("https://", "http://", 1)
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unreachable(f"the certificate of {server} is not trusted: {error.verify_message}", hint=TLS_HINT)
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"):
        return Unreachable(f"{server} does not use TLS", hint=f"try {plain}")
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return Unreachable(f"a TLS connection to {server} failed: {reason}", hint=TLS_HINT)


def no_client(server: str, error: Exception) -> UserError:
    """Return why no request can be sent at all: the environment names a proxy or certificates that cannot be used."""
    if isinstance(error, ImportError):
        return UserError(
            f"{server} cannot be reached: the environment sets a SOCKS proxy, which needs a package",
            hint="pip install socksio",
        )
    return UserError(
        f"{server} cannot be reached: the certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read ({error})",
        hint="set it to a PEM file that exists, or unset it",
    )


def not_ours(server: str, answer: httpx.Response) -> GanglineError:
    """Return the diagnosis of an answer that no Gangline server gives: another program answers, or a proxy in front of it."""
    status = answer.status_code
    if answer.is_redirect:
        there = answer.headers.get("location", "elsewhere")
        return UserError(f"{server} redirects to {there}", hint="use that address, without /v1 and what follows it")
    if status == 400 and "HTTPS" in answer.text[:2000]:
        return Unreachable(f"{server} uses TLS", hint=f"try {server.replace('http://', 'https://', 1)}")
    if status == 413:
        return UserError(
            f"{server} refuses a request of this size",
            hint="if a proxy is in front of it, raise the proxy's limit (nginx: client_max_body_size)",
        )
    if status >= 500:
        return Unreachable(f"{server} failed (HTTP {status})", hint="see its log, or that of the proxy in front of it")
    return UserError(
        f"{server} answers, but not as a Gangline server does (HTTP {status})",
        hint="check the path of the address: it must be what comes before /v1",
    )


def proxy_for(server: str) -> str:
    """Return the proxy that the environment names for this address, without its password; "" if there is none."""
    parts = urlsplit(server)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return ""
    proxies = getproxies()
    found = urlsplit(proxies.get(parts.scheme) or proxies.get("all") or "")
    return f"{found.scheme}://{found.hostname}:{found.port}" if found.hostname else ""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _why(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    return "connection refused" if "refused" in str(error) else str(error) or type(error).__name__
