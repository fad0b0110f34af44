"""Notices lead the server to public addresses alone, whatever names and redirects say, and no receiver holds it up."""

import asyncio
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

import pytest
import trustme
import uvloop

from gangline.adapters.notifiers.poster import ANSWER_BYTES_MAX, CHECKS_MAX, LOOKUPS_MAX, GuardedPoster
from gangline.core.places.urls import parse_networks
from gangline.ports.notices.notices import NoticeAnswer, NoticeRequest

LOOPBACK = parse_networks(["127.0.0.0/8"])
OK = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


class Receiver:
    """Answers each connection by `answer`, which gets it after its request was read."""

    def __init__(self, answer: bytes | Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> None:
        self.heard = list[bytes]()
        self._answer, self._tls = answer, tls
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        try:
            with connection if self._tls is None else self._tls.wrap_socket(connection, server_side=True) as found:
                heard = b""
                while not heard.endswith(b"!"):
                    heard += found.recv(65536)
                self.heard.append(heard)
                if isinstance(self._answer, bytes):
                    found.sendall(self._answer)
                else:
                    self._answer(found)
        except OSError:
            pass  # the other side has left, or wants no such connection


@contextmanager
def receiving(answer: bytes | Callable[[socket.socket], None], **more: ssl.SSLContext) -> Iterator[Receiver]:
    receiver = Receiver(answer, **more)
    try:
        yield receiver
    finally:
        receiver.socket.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving(OK) as found:
        yield found


def post(poster: GuardedPoster, url: str, body: bytes = b"{}!") -> NoticeAnswer:
    headers = (("content-type", "application/json"), ("webhook-id", "msg_1"))
    return asyncio.run(poster.post(NoticeRequest(url=url, headers=headers, body=body)))


def answering(*answers: list[str]) -> Callable[[str, int], list[str]]:
    """A resolver that answers differently each time; the last answer stays."""
    left = list(answers)
    return lambda host, port: left.pop(0) if len(left) > 1 else left[0]


def test_a_receiver_on_a_network_that_the_operator_opened_gets_the_request(receiver: Receiver) -> None:
    answer = post(GuardedPoster(LOOPBACK), f"http://127.0.0.1:{receiver.port}/hook?a=b")
    assert answer == NoticeAnswer(outcome="delivered", because="127.0.0.1 answered 204")
    head, _, body = receiver.heard[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /hook?a=b HTTP/1.1" and body == b"{}!"
    assert {f"host: 127.0.0.1:{receiver.port}", "content-length: 3", "webhook-id: msg_1", "connection: close"} <= {
        *lines
    }


def test_a_test_message_goes_out_from_the_event_loop_of_the_server(receiver: Receiver) -> None:
    request = NoticeRequest(url=f"http://127.0.0.1:{receiver.port}/", headers=(), body=b"!")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(GuardedPoster(LOOPBACK).post(request)).outcome == "delivered"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0"])  # noqa: S104
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_without_that_no_byte_is_sent_there(receiver: Receiver, host: str, scheme: str) -> None:
    poster = GuardedPoster()
    answer = post(poster, f"{scheme}://{host}:{receiver.port}/")
    assert "its address is" in answer.because and "networks" in answer.because
    assert answer.outcome == ("again" if host == "localhost" else "refused")
    assert "its address is" in asyncio.run(poster.why_refused(f"{scheme}://{host}:{receiver.port}/"))
    assert receiver.heard == []


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "fd00:ec2::254", "10.0.0.1", "64:ff9b::a9fe:a9fe"])
def test_a_name_of_the_metadata_service_leads_nowhere(receiver: Receiver, address: str) -> None:
    poster = GuardedPoster(resolve=answering([address]))
    for name in ("metadata.google.internal", "dogs.example"):
        assert "its address is" in post(poster, f"https://{name}:{receiver.port}/").because
    assert receiver.heard == []


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(receiver: Receiver) -> None:
    """A name whose first answer is harmless and whose next is not: nothing is resolved again between check and connection."""
    poster = GuardedPoster(parse_networks(["127.0.0.2/32"]), resolve=answering(["127.0.0.2"], ["127.0.0.1"]))
    url = f"http://dogs.example:{receiver.port}/"
    assert post(poster, url).because == "dogs.example cannot be reached: connection refused"
    assert "loopback" in post(poster, url).because
    assert receiver.heard == []


def test_of_several_addresses_the_next_is_tried_where_one_does_not_accept(receiver: Receiver) -> None:
    poster = GuardedPoster(LOOPBACK, resolve=answering(["127.0.0.2", "127.0.0.1"]))
    assert post(poster, f"http://dogs.example:{receiver.port}/").outcome == "delivered"


def test_a_public_address_is_sent_nothing_without_tls() -> None:
    poster = GuardedPoster(LOOPBACK, resolve=answering(["8.8.8.8", "127.0.0.1"]))
    assert post(poster, "http://dogs.example/").because == "http://dogs.example/ is not an https:// URL"


@pytest.mark.parametrize("url", ["http://2130706433/", "ftp://a.example/", "https://a@b.example/", "x", "https://a b/"])
def test_what_is_no_url_is_refused(url: str) -> None:
    answer = post(GuardedPoster(LOOPBACK), url)
    assert answer.outcome == "refused" and answer.because == asyncio.run(GuardedPoster().why_refused(url))


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    there = b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n" % receiver.port
    with receiving(there) as first:
        answer = post(GuardedPoster(LOOPBACK), f"http://127.0.0.1:{first.port}/")
    assert (answer.outcome, answer.because) == ("again", "127.0.0.1 answered 307, and redirects are not followed")
    assert receiver.heard == []


@pytest.mark.parametrize(
    ("status", "outcome"), [(200, "delivered"), (202, "delivered"), (410, "gone"), (404, "again"), (500, "again")]
)
def test_the_status_says_what_came_of_it(status: int, outcome: str) -> None:
    with receiving(b"HTTP/1.1 %d X\r\nContent-Length: 9\r\n\r\n\x1b[31mdog!" % status) as receiver:
        answer = post(GuardedPoster(LOOPBACK), f"http://127.0.0.1:{receiver.port}/")
    words = f"127.0.0.1 answered {status}" + ("" if status < 300 else r": \x1b[31mdog!")
    assert (answer.outcome, answer.because) == (outcome, words)


@pytest.mark.parametrize(("told", "seconds"), [("120", 120.0), ("soon", None), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0)])
def test_a_receiver_may_ask_to_wait(told: str, seconds: float | None) -> None:
    with receiving(b"HTTP/1.1 429 X\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n" % told.encode()) as receiver:
        answer = post(GuardedPoster(LOOPBACK), f"http://127.0.0.1:{receiver.port}/")
    assert (answer.outcome, answer.retry_after_s) == ("again", seconds)


def test_an_interim_answer_is_none() -> None:
    with receiving(b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n") as receiver:
        assert "answered 500" in post(GuardedPoster(LOOPBACK), f"http://127.0.0.1:{receiver.port}/").because


def never(connection: socket.socket) -> None:
    connection.recv(1)


def drop_by_drop(connection: socket.socket) -> None:
    for _ in range(10_000):
        connection.sendall(b"H")
        if threading.Event().wait(0.05):
            return


def huge(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 500 X\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65536)


def many_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 X\r\n")
    while True:
        connection.sendall(b"a: " + b"b" * 1000 + b"\r\n")


@pytest.mark.parametrize(
    ("answer", "because"),
    [
        (never, "127.0.0.1 did not answer within 0.5 s"),
        (drop_by_drop, "127.0.0.1 did not answer within 0.5 s"),
        (huge, f"127.0.0.1 answered 500: {'x' * 160}"),
        (many_headers, "127.0.0.1 cannot be reached: its answer begins with too many headers"),
        (b"SSH-2.0-OpenSSH\r\n", "127.0.0.1 cannot be reached: its answer is incomplete, or not HTTP"),
        (b"", "127.0.0.1 cannot be reached: it closed the connection without an answer"),
        (b"HTTP/1.1 200", "127.0.0.1 cannot be reached: its answer is incomplete, or not HTTP"),
    ],
    ids=["never", "slowly", "hugely", "headers", "SSH", "nothing", "half"],
)
def test_an_endless_slow_or_huge_answer_ends_in_one_sentence(
    answer: bytes | Callable[[socket.socket], None], because: str
) -> None:
    began_s = monotonic()
    with receiving(answer) as receiver:
        found = post(GuardedPoster(LOOPBACK, answer_s=0.5), f"http://127.0.0.1:{receiver.port}/")
    assert (found.outcome, found.because) == ("again", because)
    assert monotonic() - began_s < 10
    assert ANSWER_BYTES_MAX < 100_000


def test_an_answer_whose_end_never_comes_counts_by_its_status() -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
        connection.recv(1)

    with receiving(answer) as receiver:
        assert post(GuardedPoster(LOOPBACK), f"http://127.0.0.1:{receiver.port}/").outcome == "delivered"


def test_a_name_that_is_never_resolved_holds_one_thread_and_nobody_else(receiver: Receiver) -> None:
    ends, asked = threading.Event(), list[str]()

    def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        if host == "dead.example":
            ends.wait(20)
        return ["127.0.0.1"]

    async def all_of_them() -> list[NoticeAnswer]:
        poster = GuardedPoster(LOOPBACK, answer_s=0.3, resolve=resolve)
        urls = [f"http://dead.example:{receiver.port}/"] * 9 + [f"http://good.example:{receiver.port}/"]
        return list(await asyncio.gather(*(poster.post(NoticeRequest(url=url, headers=(), body=b"!")) for url in urls)))

    answers = asyncio.run(all_of_them())
    ends.set()
    assert [answer.outcome for answer in answers] == ["again"] * 9 + ["delivered"]
    assert answers[0].because == "dead.example did not answer within 0.3 s"
    assert asked.count("dead.example") == 1


def test_a_name_without_an_address_is_said() -> None:
    poster = GuardedPoster(LOOPBACK, resolve=lambda host, port: [])
    assert post(poster, "https://nowhere.example/").because == "nowhere.example cannot be reached: it has no address"
    assert asyncio.run(poster.why_refused("https://nowhere.example/")) == ""


def test_the_certificate_must_be_of_the_host_that_the_url_names() -> None:
    authority = trustme.CA()
    serving, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("dogs.example").configure_cert(serving)
    authority.configure_trust(trusting)
    with receiving(OK, tls=serving) as receiver:
        poster = GuardedPoster(LOOPBACK, resolve=answering(["127.0.0.1"]), tls=trusting)
        assert post(poster, f"https://dogs.example:{receiver.port}/").outcome == "delivered"
        other = post(poster, f"https://cats.example:{receiver.port}/")
        assert "offers no secure connection" in other.because and "cats.example" in other.because
        unknown = GuardedPoster(LOOPBACK, resolve=answering(["127.0.0.1"]))
        assert "local issuer" in post(unknown, f"https://dogs.example:{receiver.port}/").because
    assert len(receiver.heard) == 1


def test_names_that_are_never_resolved_stop_their_own_project_alone_and_its_tries_do_not_count(
    receiver: Receiver,
) -> None:
    ends = threading.Event()

    def resolve(host: str, port: int) -> Sequence[str]:
        if host.startswith("dead"):
            ends.wait(20)
        return ["127.0.0.1"]

    async def all_of_them() -> tuple[list[NoticeAnswer], NoticeAnswer, str]:
        poster = GuardedPoster(LOOPBACK, answer_s=1, resolve=resolve)

        def sent(host: str, project: str) -> Coroutine[None, None, NoticeAnswer]:
            url = f"http://{host}.example:{receiver.port}/"
            return poster.post(NoticeRequest(url=url, headers=(), body=b"!", project=project))

        dead = [asyncio.create_task(sent(f"dead-{number}", "bad")) for number in range(LOOKUPS_MAX)]
        checks = [asyncio.create_task(poster.why_refused(f"http://dead-{n}.example/")) for n in range(CHECKS_MAX + 1)]
        await asyncio.sleep(0)
        good = await sent("good", "good")
        return [await each for each in dead], good, "".join([await each for each in checks])

    answers, good, refused = asyncio.run(all_of_them())
    ends.set()
    assert good.outcome == "delivered" and refused == ""
    outcomes = Counter((answer.outcome, answer.ours) for answer in answers)
    assert set(outcomes) == {("again", False), ("untried", True)} and 1 <= outcomes["again", False] < LOOKUPS_MAX / 2
    assert answers[-1].because == "the names of too many hosts are being looked up"


def test_a_status_that_came_counts_though_the_time_limit_passes_before_the_rest() -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
        connection.recv(1)

    with receiving(answer) as receiver:
        found = post(GuardedPoster(LOOPBACK, answer_s=0.3), f"http://127.0.0.1:{receiver.port}/")
    assert found == NoticeAnswer(outcome="delivered", because="127.0.0.1 answered 200")


SECRET = "T012345/B067890/s3cr3t-token"


@pytest.mark.parametrize(
    "said",
    [
        "Cannot POST /hooks/{secret}?sig=k3y-of-it",
        "Cannot POST &#x2F;hooks&#x2F;{html}?sig&#x3D;k3y-of-it",
        "Cannot POST &#47;hooks&#47;{html}",
        '{{"error": "unknown", "path": "\\/hooks\\/{json}"}}',
        "no route for %2Fhooks%2F{quoted}%3Fsig%3Dk3y-of-it",
        "the key K3Y-OF-IT is wrong",
        "no hook S3CR3T-TOKEN",
        "{filler} /hooks/{secret}?sig=k3y-of-it {filler} /hooks/{secret}",
    ],
)
def test_the_log_never_quotes_the_path_or_the_query_of_an_address(said: str) -> None:
    forms = {
        "secret": SECRET,
        "html": SECRET.replace("/", "&#x2F;"),
        "json": SECRET.replace("/", "\\/"),
        "quoted": SECRET.replace("/", "%2F"),
        "filler": "x" * 60,
    }
    for cut in range(0, 500, 7):
        body = (" " * cut + said.format(**forms)).encode() + b" " * 400
        answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        with receiving(answer) as receiver:
            url = f"http://127.0.0.1:{receiver.port}/hooks/{SECRET}?sig=k3y-of-it"
            because = post(GuardedPoster(LOOPBACK), url).because
        assert because.startswith("127.0.0.1 answered 404")
        for part in ("T0123", "B0678", "s3cr3", "k3y-o"):
            assert part not in because.lower() and part not in because, because


def test_what_else_a_receiver_says_stands_in_the_log() -> None:
    said = b"no /hooks for you: the channel is archived"
    answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(said) + said
    with receiving(answer) as receiver:
        because = post(GuardedPoster(LOOPBACK), f"http://127.0.0.1:{receiver.port}/hooks/{SECRET}").because
        assert because == f"127.0.0.1 answered 404: {said.decode()}"
        because = post(GuardedPoster(LOOPBACK), f"http://127.0.0.1:{receiver.port}/").because
    assert because == f"127.0.0.1 answered 404: {said.decode()}"
