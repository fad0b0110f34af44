"""URLs that users give lead the server to public addresses alone, whatever names and redirects say."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic

import httpcore
import httpx
import pytest
import trustme
from httpcore._backends.sync import SyncStream

from gangline.adapters.places.saving import Watch, save_chunks
from gangline.adapters.places.web import Web, _Timed
from gangline.core.errors import BadInput, GanglineError, Unreachable
from gangline.core.places.urls import parse_networks

LOOPBACK = parse_networks(["127.0.0.0/8"])
PICTURE = b"\x89PNG of a dog" * 1000


def go_on() -> None:
    """It is still wanted."""


class Site(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        name, _, rest = self.path.partition("?")[0].strip("/").partition("/")
        if name == "redirect":
            self.send_response(302)
            self.send_header("Location", rest)
            self.end_headers()
        elif name == "status":
            self.send_response(int(rest))
            self.end_headers()
        else:
            self.send_response(200)
            if name == "packed":
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(PICTURE) + (1 if name == "short" else 0)))
            self.end_headers()
            self.wfile.write(PICTURE)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Serving:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Site,), {"asked": self.asked}))
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def port(self) -> int:
        return self.server.server_address[1]


@pytest.fixture
def site() -> Iterator[Serving]:
    serving = Serving()
    yield serving
    serving.server.shutdown()
    serving.server.server_close()


def answering(*answers: list[str]) -> Callable[[str, int], list[str]]:
    """A resolver that answers differently each time; the last answer stays."""
    left = list(answers)
    return lambda host, port: left.pop(0) if len(left) > 1 else left[0]


def fetch(web: Web, url: str, to: Path, bytes_max: int = 10**6) -> int:
    return web.fetch(url, to / "got", bytes_max=bytes_max, seconds=20, check=go_on)


def test_what_lies_on_a_network_that_the_operator_opened_is_fetched(site: Serving, tmp_path: Path) -> None:
    assert fetch(Web(LOOPBACK), f"http://127.0.0.1:{site.port}/dog.png", tmp_path) == len(PICTURE)
    assert (tmp_path / "got").read_bytes() == PICTURE


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0"])  # noqa: S104
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_without_that_no_byte_is_sent_there(site: Serving, tmp_path: Path, host: str, scheme: str) -> None:
    with pytest.raises(BadInput, match=r"may not be fetched from: its address is (loopback|unspecified)"):
        fetch(Web(), f"{scheme}://{host}:{site.port}/dog.png", tmp_path)
    assert site.asked == []


def test_a_name_that_resolves_to_a_private_address_is_refused(site: Serving, tmp_path: Path) -> None:
    for address in ("127.0.0.1", "169.254.169.254", "10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"):
        with pytest.raises(BadInput, match=r"dogs\.example may not be fetched from: its address is"):
            fetch(Web(resolve=answering([address])), f"https://dogs.example:{site.port}/dog.png", tmp_path)
    assert site.asked == []


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(site: Serving, tmp_path: Path) -> None:
    """A name whose first answer is harmless and whose next is not: nothing is resolved again between the check and the connection."""
    resolve = answering(["127.0.0.2"], ["127.0.0.2"], ["127.0.0.1"])
    with pytest.raises(Unreachable):  # nobody listens at the address that was checked
        fetch(Web(parse_networks(["127.0.0.2/32"]), resolve), f"http://dogs.example:{site.port}/dog.png", tmp_path)
    assert site.asked == []
    with pytest.raises(BadInput, match="loopback"):
        fetch(Web(parse_networks(["127.0.0.2/32"]), resolve), f"http://dogs.example:{site.port}/dog.png", tmp_path)
    assert site.asked == []


def test_of_several_addresses_a_checked_one_is_taken(site: Serving, tmp_path: Path) -> None:
    resolve = answering(["10.0.0.1", "127.0.0.1"])
    with pytest.raises(BadInput, match="not an https"):  # http is for open networks, and one of these is none
        fetch(
            Web(parse_networks(["127.0.0.2/32"]), answering(["8.8.8.8"])), f"http://dogs.example:{site.port}/", tmp_path
        )
    assert fetch(Web(LOOPBACK, resolve), f"http://dogs.example:{site.port}/dog.png", tmp_path) == len(PICTURE)


def test_a_redirect_leads_where_a_url_may_lead_and_nowhere_else(site: Serving, tmp_path: Path) -> None:
    web = Web(LOOPBACK, lambda host, port: ["127.0.0.1"] if host == "127.0.0.1" else ["10.0.0.1"])
    here = f"http://127.0.0.1:{site.port}"
    assert fetch(web, f"{here}/redirect/{here}/redirect//dog.png", tmp_path) == len(PICTURE)
    for to in ("https://inside.example/", "https://[::ffff:10.0.0.1]/", "http://2130706433/", "file:///etc/passwd"):
        with pytest.raises(BadInput):
            fetch(web, f"{here}/redirect/{to}", tmp_path)


def test_redirects_in_a_circle_end(site: Serving, tmp_path: Path) -> None:
    class Circle(Site):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", self.path)
            self.end_headers()

    site.server.RequestHandlerClass = Circle
    with pytest.raises(BadInput, match="redirects more than 5 times"):
        fetch(Web(LOOPBACK), f"http://127.0.0.1:{site.port}/round", tmp_path)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("status/404", BadInput),
        ("status/403", BadInput),
        ("status/503", Unreachable),
        ("status/429", Unreachable),
        ("packed/a", BadInput),
        ("short/a", Unreachable),
    ],
)
def test_what_asking_again_may_mend_is_told_from_what_it_does_not(
    site: Serving, tmp_path: Path, path: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        fetch(Web(LOOPBACK), f"http://127.0.0.1:{site.port}/{path}?key=secret", tmp_path)
    assert "secret" not in str(raised.value)


def test_what_says_that_it_is_too_long_is_not_read(site: Serving, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is larger than 0 MB"):
        fetch(Web(LOOPBACK), f"http://127.0.0.1:{site.port}/dog.png", tmp_path, bytes_max=len(PICTURE) - 1)
    assert not (tmp_path / "got").exists()


def test_what_does_not_say_how_long_it_is_is_not_read_past_what_it_may_have(tmp_path: Path) -> None:
    read: list[bytes] = []
    chunks = (read.append(b"x" * 10) or b"x" * 10 for _ in range(100))
    with pytest.raises(BadInput, match="is larger than"):
        save_chunks(chunks, tmp_path / "got", shown="it", told=None, bytes_max=25, watch=Watch(60, go_on))
    assert len(read) == 3


def test_a_proxy_of_the_environment_is_not_asked(
    site: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{site.port}")
    with pytest.raises(BadInput, match="private"):
        fetch(Web(resolve=answering(["10.0.0.1"])), "https://dogs.example/dog.png", tmp_path)
    assert site.asked == []


def test_a_connection_whose_time_is_over_before_it_is_secured_is_closed() -> None:
    here, there = socket.socketpair()
    with there:
        timed = _Timed(SyncStream(here), Watch(0, go_on))
        with pytest.raises(httpcore.ReadTimeout):
            timed.start_tls(httpx.create_ssl_context())
        assert here.fileno() == -1


class Canceled(GanglineError):
    pass


def cancel() -> None:
    raise Canceled("nobody wants it any more")


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun"])
def test_what_nobody_wants_any_more_is_left_though_its_server_says_nothing(sent: bytes, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/a.png"
        ended = threading.Event()

        def stall() -> None:
            with listening.accept()[0] as talking:
                talking.sendall(sent)
                ended.wait(30)

        stalling = threading.Thread(target=stall, daemon=True)
        stalling.start()
        begun_s = monotonic()
        with pytest.raises(Canceled):
            Web(LOOPBACK).fetch(url, tmp_path / "got", bytes_max=10**6, seconds=60, check=cancel)
        assert monotonic() - begun_s < 10
        ended.set()
        stalling.join(10)


def test_a_server_that_pauses_behind_tls_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that is broken off each second, to ask, loses nothing."""
    monkeypatch.setattr("gangline.adapters.places.web.ASK_S", 0.01)
    authority = trustme.CA()
    serving, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("dogs.example").configure_cert(serving)
    authority.configure_trust(trusting)

    def dawdle(listening: socket.socket) -> None:
        with serving.wrap_socket(listening.accept()[0], server_side=True) as talking:
            talking.recv(10_000)
            content = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PICTURE) + PICTURE
            for begin in range(0, len(content), 3000):
                talking.sendall(content[begin : begin + 3000])
                threading.Event().wait(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        dawdling = threading.Thread(target=dawdle, args=(listening,), daemon=True)
        dawdling.start()
        web = Web(LOOPBACK, answering(["127.0.0.1"]), trusting)
        url = f"https://dogs.example:{listening.getsockname()[1]}/dog.png"
        assert fetch(web, url, tmp_path) == len(PICTURE)
        dawdling.join(10)
    assert (tmp_path / "got").read_bytes() == PICTURE


DRIPS = {
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
    "interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "extensions of chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1", b";a=b"),
}


@pytest.mark.parametrize("what", DRIPS)
def test_a_server_that_sends_a_little_now_and_then_holds_nobody_past_the_time(what: str, tmp_path: Path) -> None:
    first, again = DRIPS[what]
    ended = threading.Event()

    def drip(listening: socket.socket) -> None:
        talking = listening.accept()[0]
        with talking, suppress(OSError):
            talking.sendall(first)
            while not ended.wait(0.02):
                talking.sendall(again)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        dripping = threading.Thread(target=drip, args=(listening,), daemon=True)
        dripping.start()
        begun_s = monotonic()
        with pytest.raises(Unreachable, match="cannot be fetched"):
            Web(LOOPBACK).fetch(
                f"http://127.0.0.1:{listening.getsockname()[1]}/a.png",
                tmp_path / "got",
                bytes_max=10**6,
                seconds=0.5,
                check=go_on,
            )
        assert 0.4 < monotonic() - begun_s < 10
        ended.set()
        dripping.join(10)


def test_a_broken_redirect_says_nothing_of_a_key_in_it(site: Serving, tmp_path: Path) -> None:
    for to in ("ftp://user:hush@host/a", "https://user:hush@host/a", "https://hush@/a"):
        with pytest.raises(BadInput) as told:
            fetch(Web(LOOPBACK), f"http://127.0.0.1:{site.port}/redirect/{to}", tmp_path)
        assert "hush" not in str(told.value)
