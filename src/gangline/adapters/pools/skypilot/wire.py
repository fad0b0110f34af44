"""SkyPilot's API over HTTP: one request each, and one sentence for whatever goes wrong.

Most requests are answered with the id of a request that the server carries out by itself; `/api/get` waits for its end.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from gangline.adapters.pools.skypilot.answers import SAID_MAX, ApiFailure, ApiRequest, FailedRequest, sentence
from gangline.adapters.pools.skypilot.request import asked
from gangline.core.display import printable
from gangline.core.errors import BadInput, Denied, GanglineError, NotFound, TooMany, Unreachable
from gangline.core.parsing import adapter, in_words
from gangline.tls import trusted

API_VERSION, VERSION = 62, "0.14.1"
"""The version of SkyPilot's API for which this driver was made, and the release that has it."""
VERSION_HEADERS = {"X-SkyPilot-API-Version": str(API_VERSION), "X-SkyPilot-Version": VERSION}
BYTES_MAX = 64_000_000
BUSY_S = 5.0
AUTH_HINT = "the pool's secret is a service account's token, or USER:PASSWORD, as SkyPilot's server wants it"
SERVER_HINT = "check endpoint in [providers.skypilot] of this server's settings"

Returned = TypeVar("Returned")


class SkyPilotFailure(Unreachable):
    """SkyPilot has carried a request out, and it failed. `type` is the class of its exception."""

    def __init__(self, what: str, failure: ApiFailure) -> None:
        super().__init__(
            f"SkyPilot failed at {what}: {sentence(failure.message) or failure.type or 'it does not say why'}"
        )
        self.type = failure.type
        self.said = sentence(failure.message) or failure.type


@dataclass(frozen=True, slots=True)
class SkyPilotAnswer:
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def is_json(self) -> bool:
        return "json" in self.headers.get("content-type", "")

    @property
    def detail(self) -> str:
        """Return what a refusal says."""
        try:
            said = json.loads(self.body)
        except ValueError:
            return ""
        found = (
            next((said[name] for name in ("detail", "message", "error") if said.get(name)), "")
            if isinstance(said, dict)
            else ""
        )
        return sentence(found if isinstance(found, str) else json.dumps(found))


class SkyPilotWire:
    """Sends requests to `endpoint` with `secret`: a token, USER:PASSWORD, or nothing for a server that lets in anybody."""

    def __init__(self, endpoint: str, secret: str, timeout_s: float) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(
                f"{printable(endpoint)} is no address of SkyPilot's API server",
                hint="write it like https://sky.example.org",
            )
        if parts.username or parts.password:
            raise BadInput("the address of SkyPilot's API server has a password in it", hint=AUTH_HINT)
        if not re.fullmatch(r"[!-~]*", secret):
            raise BadInput("the secret of SkyPilot has characters that HTTP does not allow", hint=AUTH_HINT)
        self._host = parts.hostname
        self._timeout_s = timeout_s
        self._timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, 10))
        self._client = httpx.Client(
            base_url=endpoint.rstrip("/"),
            headers={
                "Accept": "application/json",
                "User-Agent": "gangline",
                **VERSION_HEADERS,
                **_authorization(secret),
            },
            timeout=self._timeout,
            verify=trusted(),
        )

    def submit(self, what: str, **fields: Any) -> str:
        """Send a request and return its id. It is carried out later, whether or not this answer arrives."""
        answer = self.send("POST", f"/{what}", json=asked(**fields))
        request_id = answer.headers.get("x-skypilot-request-id", "")
        if not re.fullmatch(r"[A-Za-z0-9-]{1,100}", request_id):
            raise Unreachable(f"SkyPilot's answer to {what} has no request id", hint=SERVER_HINT)
        return request_id

    def ask(self, kind: type[Returned], what: str, **fields: Any) -> Returned:
        """Send a request, wait for its end, and parse what it returns. Raise `SkyPilotFailure` if it failed."""
        return self.result(kind, what, self.submit(what, **fields))

    def enabled_clouds(self) -> list[str]:
        answer = self.send("GET", "/enabled_clouds")
        return self.result(list[str], "enabled_clouds", answer.headers.get("x-skypilot-request-id", ""))

    def result(self, kind: type[Returned], what: str, request_id: str) -> Returned:
        """Return what a request returns when it ends. Raise `SkyPilotFailure` if it failed, and `Unreachable` if it takes too long."""
        found = self.outcome(what, request_id)
        if found is None:
            raise Unreachable(f"SkyPilot's server takes too long for {what}")
        return self._parse(kind, found.return_value.encode(), what)

    def outcome(self, what: str, request_id: str, *, wait_s: float | None = None) -> ApiRequest | None:
        """Wait for the end of a request. Return it, or None if it has not ended by then. Raise `SkyPilotFailure` if it failed."""
        timeout = self._timeout if wait_s is None else httpx.Timeout(self._timeout_s, read=wait_s)
        try:
            answer = self._exchange("GET", "/api/get", params={"request_id": request_id}, timeout=timeout)
        except httpx.ReadTimeout:
            return None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._away(error) from None
        if answer.status == 500 and answer.is_json:
            failed = self._parse(FailedRequest, answer.body, what).detail
            said = self._parse(ApiFailure | None, failed.error.encode(), what)  # pyright: ignore[reportArgumentType]
            raise SkyPilotFailure(what, said or ApiFailure())
        self._check(answer, "/api/get")
        return self._parse(ApiRequest, answer.body, what)

    def requests(self, **asked_for: Any) -> list[ApiRequest]:
        """Return requests as the server remembers them, without what they return; those that have not ended, unless `all_status`."""
        fields = ["request_id", "name", "status", "cluster_name", "created_at"]
        answer = self.send("GET", "/api/status", params={"fields": fields, **asked_for})
        return self._parse(list[ApiRequest], answer.body, "api/status")

    def send(self, method: str, path: str, **fields: Any) -> SkyPilotAnswer:
        """Send one request. Return its answer if it succeeded."""
        try:
            answer = self._exchange(method, path, **fields)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._away(error) from None
        self._check(answer, path)
        return answer

    def _check(self, answer: SkyPilotAnswer, path: str) -> None:
        if answer.status >= 300:
            raise self._refusal(answer, path)
        told = answer.headers.get("x-skypilot-api-version", "")
        if not told.isdecimal():
            raise Unreachable(f"what answers at {self._host} is no API server of SkyPilot", hint=SERVER_HINT)
        if _is_older(told):
            raise self._other_version(answer)

    def _refusal(self, answer: SkyPilotAnswer, path: str) -> GanglineError:
        status, what = answer.status, path.strip("/")
        detail = f": {answer.detail}" if answer.is_json and answer.detail else ""
        if answer.is_json and b"version_mismatch" in answer.body:
            return self._other_version(answer)
        if status in (401, 403) and (answer.is_json or status == 401):
            return Denied(f"SkyPilot's server refuses this (HTTP {status}){detail}", hint=AUTH_HINT)
        if status == 429:
            return TooMany(f"SkyPilot's server has too much to do{detail}", wait_s=BUSY_S)
        if status >= 500:
            return Unreachable(f"SkyPilot's server failed at {what} (HTTP {status}){detail}")
        if not answer.is_json:
            return Unreachable(
                f"a web page answers {what} (HTTP {status}) in place of SkyPilot's API",
                hint="a proxy or a page to sign in at may be in between",
            )
        if status == 404:
            return NotFound(f"SkyPilot's server has no such {what}{detail}")
        return BadInput(f"SkyPilot's server refuses {what} (HTTP {status}){detail}")

    def _other_version(self, answer: SkyPilotAnswer) -> GanglineError:
        told, release = (answer.headers.get(name, "?") for name in ("x-skypilot-api-version", "x-skypilot-version"))
        return Unreachable(
            f"SkyPilot's server at {self._host} has version {printable(told)} of its API ({printable(release)}), and this driver needs "
            f"{API_VERSION} ({VERSION})",
            hint="upgrade SkyPilot's server" if _is_older(told) else "upgrade Gangline",
        )

    def _away(self, error: Exception) -> Unreachable:
        return Unreachable(f"SkyPilot's server ({self._host}) does not answer: {_why(error)}")

    def _parse(self, kind: type[Returned], body: bytes, what: str) -> Returned:
        """Parse an answer. One that is cut off or misses a field is `Unreachable`: a part of a list must not pass for the list."""
        from pydantic import ValidationError

        try:
            return adapter(kind).validate_json(body)
        except ValidationError as error:
            told = in_words(error.errors(), "the answer")[:SAID_MAX]
            raise Unreachable(f"SkyPilot's answer to {what} cannot be read: {printable(told)}") from None

    def _exchange(self, method: str, path: str, **fields: Any) -> SkyPilotAnswer:
        with self._client.stream(method, path, **fields) as answer:
            parts, size = list[bytes](), 0
            for part in answer.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > BYTES_MAX:
                    raise Unreachable(
                        f"SkyPilot's answer to {path.strip('/')} has more than {BYTES_MAX // 1_000_000} MB"
                    )
        return SkyPilotAnswer(answer.status_code, b"".join(parts), answer.headers)


def _is_older(told: str) -> bool:
    return told.isdecimal() and int(told[:9]) < API_VERSION


def _authorization(secret: str) -> dict[str, str]:
    if not secret:
        return {}
    is_password = ":" in secret
    word = base64.b64encode(secret.encode()).decode() if is_password else secret
    return {"Authorization": f"{'Basic' if is_password else 'Bearer'} {word}"}


def _why(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(error, httpx.ReadError | httpx.RemoteProtocolError | httpx.WriteError):
        return "the connection was closed without a whole answer"
    return printable(str(error)) or type(error).__name__
