"""Salad's public API over HTTP: one request each, and one sentence for whatever goes wrong."""

import json
import re
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from gangline.core.display import printable
from gangline.core.errors import BadInput, Denied, GanglineError, NotFound, TooMany, Unreachable
from gangline.core.parsing import adapter, in_words
from gangline.tls import trusted

PATIENCE_MS = 5_000
"""How long no request is sent after a 429 that does not say how long."""
PATIENCE_MAX_MS = 120_000
BYTES_MAX = 64_000_000
DETAIL_MAX = 300
KEY_HINT = "check the pool's secret, and that its account is a member of the organization"
NAMES_HINT = "check the pool's settings organization and project"

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class SaladAnswer:
    status: int
    body: bytes
    is_json: bool

    @property
    def detail(self) -> str:
        """Return what the problem details (RFC 9457) of a refusal say."""
        try:
            problem = json.loads(self.body)
        except ValueError:
            return ""
        said = [problem.get(name) for name in ("title", "detail")] if isinstance(problem, dict) else []
        said += (
            list(problem["errors"].values())
            if isinstance(problem, dict) and isinstance(problem.get("errors"), dict)
            else []
        )
        words = ": ".join(dict.fromkeys(" ".join(str(each).split()).rstrip(".") for each in said if each))
        return printable(words)[:DETAIL_MAX]


class SaladWire:
    """Sends requests with `key` to `endpoint`. `clock` returns the time in milliseconds."""

    def __init__(self, endpoint: str, key: str, timeout_s: float, clock: Callable[[], int]) -> None:
        if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).hostname:
            raise BadInput(
                f"{endpoint} is no address of Salad's API", hint="write it like https://api.salad.com/api/public"
            )
        if not re.fullmatch(r"[!-~]+", key):
            raise BadInput("the key of Salad is empty, or has characters that HTTP does not allow", hint=KEY_HINT)
        self._host = urlsplit(endpoint).hostname
        self._clock = clock
        self._sent_ms: deque[int] = deque()
        self._rests_until_ms: int | None = None
        self._client = httpx.Client(
            base_url=endpoint.rstrip("/"),
            headers={"Salad-Api-Key": key, "Accept": "application/json", "User-Agent": "gangline"},
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 10)),
            verify=trusted(),
        )

    def sent_last_minute(self) -> int:
        # A clock that was set back makes requests of the future, which would count for long.
        while self._sent_ms and not 0 <= self._clock() - self._sent_ms[0] < 60_000:
            self._sent_ms.popleft()
        return len(self._sent_ms)

    def ask(self, kind: type[Parsed], method: str, path: str, body: Any = None) -> Parsed:
        """Send a request and parse its answer as `kind`."""
        return self.parse(kind, self.send(method, path, body), path)

    def parse(self, kind: type[Parsed], answer: SaladAnswer, path: str) -> Parsed:
        """Parse an answer. One that is cut off or misses a field is `Unreachable`: a part of a list must not pass for the list."""
        from pydantic import ValidationError

        try:
            return adapter(kind).validate_json(answer.body)
        except ValidationError as error:
            told = in_words(error.errors(), "the answer")[:DETAIL_MAX]
            raise Unreachable(f"Salad's answer to {_last(path)} cannot be read: {printable(told)}") from None

    def send(self, method: str, path: str, body: Any = None, *, allowed: Collection[int] = ()) -> SaladAnswer:
        """Send one request. Return its answer if it succeeded, or if its status is one of `allowed` and it is the API's own."""
        self._rest()
        self._sent_ms.append(self._clock())
        try:
            answer, limit = self._exchange(method, path, body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(f"Salad ({self._host}) does not answer: {_why(error)}") from None
        if answer.status == 429:
            self._rests_until_ms = self._clock() + limit
            self._rest()
        if answer.status < 300 or (answer.status in allowed and (answer.is_json or not answer.body)):
            return answer
        raise _refusal(answer, path)

    def _rest(self) -> None:
        """After a 429 ask nothing until Salad's time is over: each request in between would count, too."""
        if self._rests_until_ms is None:
            return
        left_ms = self._rests_until_ms - self._clock()
        if 0 < left_ms <= PATIENCE_MAX_MS:
            raise TooMany("Salad allows no more requests for the moment", wait_s=left_ms / 1000)
        self._rests_until_ms = None

    def _exchange(self, method: str, path: str, body: Any) -> tuple[SaladAnswer, int]:
        with self._client.stream(method, path, json=body) as answer:
            parts, size = list[bytes](), 0
            for part in answer.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > BYTES_MAX:
                    raise Unreachable(f"Salad's answer to {_last(path)} has more than {BYTES_MAX // 1_000_000} MB")
        is_json = "json" in answer.headers.get("content-type", "")
        return SaladAnswer(answer.status_code, b"".join(parts), is_json), _retry_after_ms(answer)


def _refusal(answer: SaladAnswer, path: str) -> GanglineError:
    status, what = answer.status, _last(path)
    detail = f": {answer.detail}" if answer.is_json and answer.detail else ""
    if status == 401 or (status == 403 and (answer.is_json or not answer.body)):
        return Denied(f"Salad refuses the key (HTTP {status}){detail}", hint=KEY_HINT)
    if status >= 500:
        return Unreachable(f"Salad failed at {what} (HTTP {status}){detail}")
    if not answer.is_json:
        return Unreachable(
            f"a web page answers {what} (HTTP {status}) in place of Salad's API",
            hint="a proxy or firewall may be in between",
        )
    if status == 404:
        return NotFound(f"Salad has nothing at {printable(path)}{detail}", hint=NAMES_HINT)
    return BadInput(f"Salad refuses {what} (HTTP {status}){detail}")


def _last(path: str) -> str:
    """Return the part of a path that says what is asked for."""
    return path.rsplit("/", 1)[-1]


def _retry_after_ms(answer: httpx.Response) -> int:
    """Return the time of a Retry-After header, which may be seconds or a date."""
    given = answer.headers.get("retry-after", "")
    try:
        if given.isdecimal():
            seconds = int(given[:9])
        else:
            at = parsedate_to_datetime(given)
            seconds = (at - datetime.now(at.tzinfo)).total_seconds()
        return min(PATIENCE_MAX_MS, max(1000, round(seconds * 1000)))
    except (ValueError, TypeError):
        return PATIENCE_MS


def _why(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(error, httpx.ReadError | httpx.RemoteProtocolError | httpx.WriteError):
        return "the connection was closed without a whole answer"
    return printable(str(error)) or type(error).__name__
