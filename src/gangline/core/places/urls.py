"""Guard against server-side request forgery: decide which URLs of users the server may request, and which addresses it may connect to.

Host names prove nothing: the address that a name resolves to is checked, and the connection goes to that very address
(`adapters/places/web.py`), for the first request and for each redirect; a second lookup could give another address (DNS rebinding). An
IPv6 address that embeds an IPv4 address (mapped, 6to4, NAT64) must pass as both.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import unescape
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, quote, unquote, urlsplit

from gangline.core.display import is_text, printable
from gangline.core.errors import BadInput

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

URL_MAX = 2000
SHOWN_MAX = 200
HIDDEN_MIN = 6
"""A shorter part of a path or a query is a word such as `hooks`, and no secret."""
BEGUN_MIN = 3
"""The beginning of a hidden part, at the end of a text, is hidden too if it has this many characters."""
PORTS = {"http": 80, "https": 443}
NOT_IN_URLS = re.compile(r"[\s\\\x00-\x20\x7f]")
HOST = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*", re.I
)
NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+", re.I)

# These are IANA's registries of special-purpose addresses (RFC 6890), and multicast. Python's `is_global` differs between versions.
SPECIAL = {
    "unspecified": "0.0.0.0/8 ::/128",
    "private": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10",
    "shared by a provider's customers": "100.64.0.0/10",
    "loopback": "127.0.0.0/8 ::1/128",
    "link-local": "169.254.0.0/16 fe80::/10",
    "multicast": "224.0.0.0/4 ff00::/8",
    "reserved": "192.0.0.0/24 192.88.99.0/24 240.0.0.0/4 ::/96 ::ffff:0:0:0/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 5f00::/16",
    "for documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
    "for benchmarks": "198.18.0.0/15",
}
NETWORKS: tuple[tuple[IPNetwork, str], ...] = tuple(
    (ip_network(network), words) for words, networks in SPECIAL.items() for network in networks.split()
)
NAT64 = IPv6Network("64:ff9b::/96")


def parse_networks(texts: Iterable[str]) -> tuple[IPNetwork, ...]:
    """Parse networks in CIDR notation, such as `10.1.0.0/16`. Raises `ValueError`."""
    return tuple(ip_network(text) for text in texts)


def are_networks(texts: Iterable[str]) -> bool:
    """Return whether each text is a network in CIDR notation."""
    try:
        parse_networks(texts)
    except ValueError:
        return False
    return True


def why_refused(address: str, allowed: Sequence[IPNetwork] = ()) -> str:
    """Return the kind of an address that the server must not connect to, such as `loopback`; empty if it may connect."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return "not an IP address"
    if is_allowed(address, allowed):
        return ""
    return next((words for each in (found, *_inside(found)) if (words := _special(each))), "")


def is_allowed(address: str, allowed: Sequence[IPNetwork]) -> bool:
    """Return whether the address lies in a network that the operator allowed. An IPv4-mapped address counts as its IPv4 address."""
    found = ip_address(address.partition("%")[0])
    meant = found.ipv4_mapped if isinstance(found, IPv6Address) and found.ipv4_mapped else found
    return any(meant.version == network.version and meant in network for network in allowed)


def checked_addresses(
    found: Iterable[str], allowed: Sequence[IPNetwork], *, plain: bool = False
) -> tuple[list[str], str]:
    """Return those addresses of a host that the server may connect to, or the kind of the first one if it may connect to none, such as
    `loopback`. Without TLS (`plain`), all of them must lie in networks that the operator allowed; else the kind is `public`, as
    anybody on the way could read and change what is sent."""
    refused = {address: why_refused(address, allowed) for address in found}
    passed = [address for address, why in refused.items() if not why]
    if passed and plain and not all(is_allowed(address, allowed) for address in refused):
        return [], "public"
    return passed, "" if passed else next(iter(refused.values()), "none")


def _special(address: IPAddress) -> str:
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return ""  # the IPv4 address that it embeds is checked instead
    return next((words for network, words in NETWORKS if address.version == network.version and address in network), "")


def _inside(address: IPAddress) -> list[IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address embeds."""
    if not isinstance(address, IPv6Address):
        return []
    nat64 = IPv4Address(int(address) & 0xFFFFFFFF) if address in NAT64 else None
    return [each for each in (address.ipv4_mapped, address.sixtofour, nat64) if each is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """A URL whose text passed the checks. `text` has no fragment, `target` is its path and query in ASCII."""

    text: str
    scheme: str
    host: str
    port: int
    target: str

    @property
    def shown(self) -> str:
        """Return the URL for messages, without its query, which may be a secret."""
        return _shown(self.text)

    @property
    def authority(self) -> str:
        """Return the value of the Host header (RFC 9110, 7.2): IPv6 addresses in brackets, the port if it is not the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def is_plain(self) -> bool:
        """Return whether requests and answers are unencrypted, so that they can be read and changed on the way."""
        return self.scheme == "http"


def hide_target(url: Url, said: str) -> str:
    """Return what the host of a URL said, without the URL's path and query and the parts of both, which may be secrets: many servers quote
    the path in their errors, as it is or escaped (HTML, JSON, percent). The text may have been cut at any character.

    >>> hide_target(check_url("https://chat.example/hooks/s3cr3t"), "Cannot POST &#x2F;hooks&#x2F;s3cr3t, or /hooks/s3c")
    'Cannot POST …, or …'
    """
    path, _, query = url.target.partition("?")
    parts = (part for part in re.split(r"[/?&=;,:]", url.target) if len(part) >= HIDDEN_MIN)
    hidden = {each for part in (url.target, path, query, *parts) for each in (part, unquote(part)) if len(each) > 1}
    longest_first = sorted(hidden, key=lambda each: (-len(each), each))
    plain = unquote(unescape(said)).replace("\\/", "/")
    plain = re.sub("|".join(map(re.escape, longest_first)) or r"(?!)", "…", plain, flags=re.I)
    begun = max((_begun(each, plain) for each in longest_first), default=0)
    return f"{plain[:-begun]}…" if begun >= BEGUN_MIN else plain


def _begun(hidden: str, text: str) -> int:
    """Return how many characters at the end of a text are the beginning of a hidden part."""
    end, begins = text[-len(hidden) :].lower(), hidden.lower()
    return next((len(end) - start for start in range(len(end)) if begins.startswith(end[start:])), 0)


def check_url(text: str) -> Url:
    """Parse a plain https or http URL.

    Raises `BadInput` for others, and for credentials in the URL, numeric hosts in disguise and characters that no URL has.
    """
    shown = _shown(text)
    hint = "give an https:// URL"
    if len(text) > URL_MAX or NOT_IN_URLS.search(text) or not is_text(text):
        raise BadInput(
            f"{shown} is not a URL: it has blanks, control characters or a backslash, or is too long", hint=hint
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise BadInput(f"{shown} is not a URL", hint=hint) from None
    if parts.scheme not in PORTS:
        raise BadInput(f"{shown} is not an https:// URL", hint=hint)
    if "@" in parts.netloc:
        raise BadInput("a URL holds a user's name or password", hint="leave out what stands before the @")
    host = _host(parts, shown)
    target = (parts.path or "/") + f"?{parts.query}" * bool(parts.query)
    return Url(
        text=parts._replace(fragment="").geturl(),
        scheme=parts.scheme,
        host=host,
        port=port or PORTS[parts.scheme],
        target=quote(target, safe="/?:@!$&'()*+,;=-._~%[]"),
    )


def _shown(text: str) -> str:
    """Return any text for messages, without query, fragment and credentials before an @, which may be secrets."""
    plain = re.split(r"[?#]", text, maxsplit=1)[0]
    return printable(re.sub(r"^([^/]*)//[^/]*@", r"\1//", plain))[:SHOWN_MAX]


def _host(parts: SplitResult, shown: str) -> str:
    """Return the host in ASCII. IP addresses must be written in full: resolvers take `127.1`, `0x7f000001`, `2130706433` for loopback."""
    host = (parts.hostname or "").removesuffix(".")
    if ":" in host:  # urlsplit has taken the brackets away
        if "%" in host or why_refused(host) == "not an IP address":
            raise BadInput(f"{shown} has no valid host name", hint="give an https:// URL with a name")
        return host
    try:
        host = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        host = ""
    if not HOST.fullmatch(host):
        raise BadInput(f"{shown} has no valid host name", hint="give an https:// URL with a name")
    if NUMBER.fullmatch(host.rpartition(".")[2]) and why_refused(host) == "not an IP address":
        raise BadInput(f"{shown} has a number for its host", hint="write the address as four numbers, or give a name")
    return host.lower()
