"""Download a source's images in parallel, and yield them in the order in which they were requested.

A web server may be slow, wrong or gone: its failures never stop a conversion, but are counted. A failure of the user's own storage is an
error, not a missing image.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from time import monotonic

import httpx

from gangline.core.errors import BadInput
from gangline.data.place import DataPlace
from gangline.data.sources import BUCKET, Item
from gangline.tls import trusted

BYTES_MAX = 64 << 20
TIMEOUT = httpx.Timeout(20, connect=10)
TOTAL_S = 60.0
TRIES = 3
WAIT_S = 0.5
WAIT_S_MAX = 20.0
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
NO_ADDRESS = "not a web address"
NOT_FOR_TRAINING = frozenset({"noai", "noimageai", "noindex", "noimageindex"})
AGENT = "gangline (makes data sets for training; takes nothing that says noai or noimageai)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """How to download. `connections` is the number of parallel downloads in each process, `total_s` the time limit of an image with its
    retries.

    `buckets` has the storage options for buckets that a local table names; a table in a bucket uses the options of that bucket.
    """

    connections: int = 32
    tries: int = TRIES
    total_s: float = TOTAL_S
    wait_s: float = WAIT_S
    buckets: dict[str, str] = field(default_factory=dict, repr=False)


NO_FILE = FileNotFoundError, NotADirectoryError, IsADirectoryError


class FetchFailed(Exception):
    """Raised when an image cannot be downloaded; failures are counted by `because`."""

    def __init__(self, because: str, *, again: bool = False, after_s: float = 0.0) -> None:
        super().__init__(because)
        self.because = because
        self.again = again
        self.after_s = after_s


def fetched(items: Iterable[Item], place: DataPlace, how: Fetching) -> Iterator[Item]:
    """Yield each item with its image's bytes, or with its problem. At most twice `connections` are held at a time; closing waits for
    none."""
    limits = httpx.Limits(max_connections=how.connections)
    client = httpx.Client(
        verify=trusted(), timeout=TIMEOUT, limits=limits, follow_redirects=True, headers={"User-Agent": AGENT}
    )
    threads = ThreadPoolExecutor(how.connections, thread_name_prefix="fetch")
    waiting: deque[Item | Future[Item]] = deque()
    try:
        for item in items:
            asked = item.url or item.file
            waiting.append(threads.submit(_bring, item, place, client, how) if asked and not item.problem else item)
            if len(waiting) >= 2 * how.connections:
                yield _arrived(waiting.popleft())
        while waiting:
            yield _arrived(waiting.popleft())
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        client.close()


def _arrived(item: Item | Future[Item]) -> Item:
    return item.result() if isinstance(item, Future) else item


def _bring(item: Item, place: DataPlace, client: httpx.Client, how: Fetching) -> Item:
    if item.file.startswith(BUCKET):
        bucket, _, key = item.file.removeprefix(BUCKET).partition("/")
        options = place.options if place.is_remote else how.buckets
        return (
            _read(item, DataPlace(f"{BUCKET}{bucket}", options), key)
            if bucket and key
            else replace(item, problem=NO_ADDRESS)
        )
    if item.file:
        return _read(item, place, item.file)
    try:
        return replace(item, image=_ask(item.url, client, how))
    except FetchFailed as error:
        return replace(item, problem=error.because)


def _read(item: Item, place: DataPlace, name: str) -> Item:
    try:
        return replace(item, image=place.read(name))
    except BadInput as error:
        if isinstance(error.__cause__, NO_FILE):
            return replace(item, problem="the file is gone")
        raise


def _ask(url: str, client: httpx.Client, how: Fetching) -> bytes:
    """Return the content of a URL. Raise `FetchFailed` after as many tries as make sense."""
    until_s = monotonic() + how.total_s
    for number in range(1, how.tries + 1):
        try:
            return _once(url, client, until_s)
        except FetchFailed as error:
            wait_s = min(max(error.after_s, how.wait_s * 2 ** (number - 1)), WAIT_S_MAX)
            if not error.again or number == how.tries or monotonic() + wait_s > until_s:
                raise
            threading.Event().wait(wait_s)
    raise AssertionError("the last try returns or raises")


def _once(url: str, client: httpx.Client, until_s: float) -> bytes:
    try:
        with client.stream("GET", url) as answer:
            _check(answer)
            content = bytearray()
            for piece in answer.iter_bytes():
                content += piece
                if len(content) > BYTES_MAX:
                    raise FetchFailed("larger than an image should be")
                if monotonic() > until_s:
                    raise FetchFailed("too slow")
            return bytes(content)
    except httpx.TimeoutException:
        raise FetchFailed("no answer in time", again=True) from None
    except (httpx.UnsupportedProtocol, httpx.InvalidURL, ValueError):
        raise FetchFailed(NO_ADDRESS) from None
    except httpx.TooManyRedirects:
        raise FetchFailed("too many redirects") from None
    except httpx.RemoteProtocolError:
        raise FetchFailed("the answer ended early", again=True) from None
    except httpx.DecodingError:
        raise FetchFailed("the answer is damaged") from None
    except httpx.TransportError:
        raise FetchFailed("no connection", again=True) from None


def _check(answer: httpx.Response) -> None:
    if answer.status_code != httpx.codes.OK:
        after = answer.headers.get("Retry-After", "")
        wait_s = float(after) if after.isdigit() else 0.0
        raise FetchFailed(f"HTTP {answer.status_code}", again=answer.status_code in AGAIN, after_s=wait_s)
    said = answer.headers.get("X-Robots-Tag", "").lower()
    if NOT_FOR_TRAINING & {word.strip().rpartition(":")[2].strip() for word in said.split(",")}:
        raise FetchFailed("its site opts out of training")
