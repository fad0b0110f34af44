"""Which addresses a user's URL may lead the server to."""

import pytest

from gangline.core.errors import BadInput
from gangline.core.places.urls import check_url, parse_networks, why_refused


@pytest.mark.parametrize(
    "address",
    ["93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07::1", "::ffff:8.8.8.8", "2002:808:808::1", "64:ff9b::808:808"],
)
def test_a_public_address_may_be_connected_to(address: str) -> None:
    assert why_refused(address) == ""


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "unspecified"),  # noqa: S104
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("10.0.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("fd00::1", "private"),
        ("100.64.0.1", "shared by a provider's customers"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "reserved"),
        ("192.0.2.1", "for documentation"),
        ("198.18.0.1", "for benchmarks"),
        ("2001:db8::1", "for documentation"),
        ("2001::1", "reserved"),
        ("::127.0.0.1", "reserved"),
        ("64:ff9b:1::1", "reserved"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "link-local"),
        ("2002:7f00:1::", "loopback"),
        ("2002:a9fe:a9fe::", "link-local"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::a00:1", "private"),
        ("localhost", "not an IP address"),
    ],
)
def test_any_other_address_may_not(address: str, kind: str) -> None:
    assert why_refused(address) == kind


def test_an_operator_opens_a_network_and_no_other() -> None:
    allowed = parse_networks(["10.1.0.0/16", "127.0.0.0/8", "fd00:1::/32"])
    opened = ["10.1.2.3", "127.0.0.1", "::ffff:127.0.0.1", "fd00:1::5"]
    assert [why_refused(each, allowed) for each in opened] == [""] * 4
    assert why_refused("10.2.0.1", allowed) == "private"
    assert why_refused("2002:7f00:1::", allowed) == "loopback"  # by a way that nobody meant


@pytest.mark.parametrize(
    "url",
    [
        "http://2130706433/a.png",
        "http://0x7f000001/a.png",
        "http://0177.0.0.1/a.png",
        "http://127.1/a.png",
        "http://0x7f.0.0.1/a.png",
        "http://1.2.3/a.png",
        "http://a.b.256/",
        "https://user:secret@example.com/a.png",
        "https://example.com@127.0.0.1/",
        "https://exa mple.com/",
        "https://example.com\\@127.0.0.1/",
        "https://example.com\n.evil/",
        "https:///a.png",
        "https://[::1%25eth0]/",
        "https://[::1/",
        "https://example.com:99999/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "ftp://example.com/a.png",
        "//example.com/a.png",
        "https://" + "a" * 3000,
        "",
    ],
)
def test_a_url_in_disguise_is_refused(url: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_url(url)
    assert "secret" not in refused.value.message


def test_what_a_url_says_is_read_as_it_is_asked() -> None:
    found = check_url("https://Bücher.Example:8443/a%20b.png?x=1#y")
    assert (found.text, found.host, found.port) == (
        "https://Bücher.Example:8443/a%20b.png?x=1",
        "xn--bcher-kva.example",
        8443,
    )
    assert check_url("http://[::ffff:127.0.0.1]/").host == "::ffff:127.0.0.1"
    assert check_url("http://127.0.0.1/").port == 80


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("https://photos.example/a", "photos.example"),
        ("https://photos.example:8443/a", "photos.example:8443"),
        ("http://[2001:db8::1]/a", "[2001:db8::1]"),
        ("http://[2001:db8::1]:8080/a", "[2001:db8::1]:8080"),
    ],
)
def test_a_host_is_named_as_http_wants_it(url: str, authority: str) -> None:
    assert check_url(url).authority == authority


@pytest.mark.parametrize(
    "url",
    ["ftp://user:hush@host/a.png", "https://user:hush@host/", "https://host/a b?key=hush", "https://host/a b#hush"],
)
def test_what_is_refused_is_shown_without_what_may_be_a_key(url: str) -> None:
    with pytest.raises(BadInput) as told:
        check_url(url)
    assert "hush" not in f"{told.value.message} {told.value.hint}"
