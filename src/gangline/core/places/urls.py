"""One guard for every address that a user gives to the server: which URLs it may ask, and which machines it may connect to.

A name says nothing: what it resolves to is looked at, and that very address is connected to (`adapters/places/web.py`), for the first
request and for each redirect. An IPv6 address that stands for an IPv4 address (mapped, 6to4, NAT64) is judged by both.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, quote, urlsplit

from gangline.core.display import is_text, printable
from gangline.core.errors import BadInput

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

URL_MAX = 2000
SHOWN_MAX = 200
PORTS = {"http": 80, "https": 443}
NOT_IN_URLS = re.compile(r"[\s\\\x00-\x20\x7f]")
HOST = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*", re.I
)
NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+", re.I)

# IANA's registries of special-purpose addresses (RFC 6890), and multicast. Python's own `is_global` differs between versions.
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
    """Networks as an operator writes them, `10.1.0.0/16`. Raises `ValueError`."""
    return tuple(ip_network(text) for text in texts)


def why_refused(address: str, allowed: Sequence[IPNetwork] = ()) -> str:
    """Return what kind of address it is that the server must not connect to: `loopback`; empty where it may."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return "not an IP address"
    if is_allowed(address, allowed):
        return ""
    return next((words for each in (found, *_inside(found)) if (words := _special(each))), "")


def is_allowed(address: str, allowed: Sequence[IPNetwork]) -> bool:
    """Whether the operator opened the network that it lies in. One that stands for an IPv4 address counts as that."""
    found = ip_address(address.partition("%")[0])
    meant = found.ipv4_mapped if isinstance(found, IPv6Address) and found.ipv4_mapped else found
    return any(meant.version == network.version and meant in network for network in allowed)


def _special(address: IPAddress) -> str:
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return ""  # judged by what it stands for
    return next((words for network, words in NETWORKS if address.version == network.version and address in network), "")


def _inside(address: IPAddress) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address leads to."""
    if not isinstance(address, IPv6Address):
        return []
    nat64 = IPv4Address(int(address) & 0xFFFFFFFF) if address in NAT64 else None
    return [each for each in (address.ipv4_mapped, address.sixtofour, nat64) if each is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """A URL that may be asked, as far as its text says. `text` has no fragment, `target` is its path and query in ASCII."""

    text: str
    scheme: str
    host: str
    port: int
    target: str

    @property
    def shown(self) -> str:
        """For people. Without its query, which may be the key that opens it."""
        return _shown(self.text)

    @property
    def authority(self) -> str:
        """As it stands in a Host header (RFC 9110, 7.2): an IPv6 address in brackets, the port where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def is_plain(self) -> bool:
        """Whether what is sent and answered can be read and changed on the way."""
        return self.scheme == "http"


def check_url(text: str) -> Url:
    """Raise `BadInput` for what is no plain https or http URL: a key in it, a host that is a number in disguise, odd characters."""
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
    """For people, whatever it is: without a query, a fragment and what stands before an @, which may be the key that opens it."""
    plain = re.split(r"[?#]", text, maxsplit=1)[0]
    return printable(re.sub(r"^([^/]*)//[^/]*@", r"\1//", plain))[:SHOWN_MAX]


def _host(parts: SplitResult, shown: str) -> str:
    """In ASCII. An address is written in full: `127.1`, `0x7f000001` and `2130706433` are loopback for a resolver."""
    host = (parts.hostname or "").removesuffix(".")
    if ":" in host:  # urlsplit has taken the brackets away
        if "%" in host or why_refused(host) == "not an IP address":
            raise BadInput(f"{shown} has no host that can be asked", hint="give an https:// URL with a name")
        return host
    try:
        host = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        host = ""
    if not HOST.fullmatch(host):
        raise BadInput(f"{shown} has no host that can be asked", hint="give an https:// URL with a name")
    if NUMBER.fullmatch(host.rpartition(".")[2]) and why_refused(host) == "not an IP address":
        raise BadInput(f"{shown} has a number for its host", hint="write the address as four numbers, or give a name")
    return host.lower()
