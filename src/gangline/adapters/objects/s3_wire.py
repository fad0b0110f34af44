"""Send requests to an S3 bucket: signed by botocore, in the URL, and sent by httpx. No secret is ever in an error or a repr."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

import httpx
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError

from gangline.core.errors import Unreachable
from gangline.tls import trusted

TIMEOUT = httpx.Timeout(30, connect=5)
CONTROL_S = 60
BUSY = (408, 409, 425, 429)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Bucket:
    """A bucket and the credentials for it, which may renew themselves. Without an endpoint it is Amazon's."""

    name: str
    prefix: str = ""
    region: str = "us-east-1"
    endpoint: str = ""
    credentials: Credentials = field(repr=False)

    @property
    def url(self) -> str:
        """Return the bucket's URL: path-style with an endpoint, virtual-hosted at Amazon."""
        if self.endpoint:
            return f"{self.endpoint}/{self.name}"
        return f"https://{self.name}.s3.{self.region}.amazonaws.com"


def frozen(bucket: S3Bucket) -> ReadOnlyCredentials:
    """Return the current credentials. Raises `Unreachable` if their provider does not answer."""
    try:
        return bucket.credentials.get_frozen_credentials()
    except BotoCoreError as error:
        raise Unreachable(
            f"the credentials of the bucket {bucket.name} cannot be renewed ({type(error).__name__})",
            hint="check that the program, role or profile that provides them still answers",
        ) from None


class _SignedAt(S3SigV4QueryAuth):
    """Signs as of a given moment, not by the machine's clock."""

    def __init__(self, bucket: S3Bucket, now_ms: int, seconds: float) -> None:
        super().__init__(frozen(bucket), "s3", bucket.region, expires=math.ceil(seconds))
        self._now_ms = now_ms

    def _modify_request_before_signing(self, request: AWSRequest) -> None:
        request.context["timestamp"] = datetime.fromtimestamp(self._now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        super()._modify_request_before_signing(request)


class Wire:
    """A client for one bucket. Keys are those of the `objects` port, relative to the bucket's prefix."""

    def __init__(self, bucket: S3Bucket, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.bucket = bucket
        self.now_ms = now_ms
        self._client = httpx.Client(verify=trusted(), timeout=TIMEOUT)

    @property
    def place(self) -> str:
        """Return the store's host, for messages."""
        return urlsplit(self.bucket.url).netloc

    def name(self, key: str) -> str:
        """Return an object's key in the bucket; for an empty key, the prefix of all keys."""
        return f"{self.bucket.prefix}/{key}".strip("/")

    def sign(
        self,
        method: str,
        key: str,
        *,
        now_ms: int,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> str:
        path = quote(self.name(key), safe="/~") if key else ""
        asked = f"?{urlencode(query, quote_via=quote)}" if query else ""
        request = AWSRequest(method=method, url=f"{self.bucket.url}/{path}{asked}", headers=dict(headers or {}))
        _SignedAt(self.bucket, now_ms, seconds).add_auth(request)
        return str(request.url)

    def send(
        self,
        method: str,
        key: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        content: bytes = b"",
    ) -> httpx.Response:
        """Send a request and return any answer that the store gives below 500. Without a key it concerns the bucket. Raises `Unreachable`
        if the store is down, overloaded or does not answer."""
        url = self.sign(method, key, now_ms=self.now_ms(), seconds=CONTROL_S, headers=headers, query=query)
        try:
            answer = self._client.request(method, url, headers=dict(headers or {}), content=content)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(
                f"the object store at {self.place} does not answer ({type(error).__name__})",
                hint="check that it is running; AWS_ENDPOINT_URL has its address, unless it is Amazon's",
            ) from None
        if answer.status_code >= 500 or answer.status_code in BUSY:
            raise Unreachable(
                f"the object store at {self.place} answered {answer.status_code} {s3_error_code(answer)}".rstrip()
            )
        return answer

    def ask(
        self,
        method: str,
        key: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        content: bytes = b"",
        expected: tuple[int, ...] = (),
    ) -> httpx.Response:
        """Return an answer that is a success or `expected`. Raises `Unreachable` for all others: once an operator has repaired the cause, a
        retry succeeds."""
        answer = self.send(method, key, headers=headers, query=query, content=content)
        if answer.is_success or answer.status_code in expected:
            return answer
        refusal = f"{answer.status_code} {s3_error_code(answer)}".rstrip()
        raise Unreachable(
            f"the object store at {self.place} refuses a request ({refusal})",
            hint="check whether its key, its bucket or this machine's clock has changed since the start",
        )


def s3_error_code(answer: httpx.Response) -> str:
    """Return S3's error code; empty if there is none."""
    return parse_xml(answer).findtext("{*}Code") or parse_xml(answer).findtext("Code") or ""


def parse_xml(answer: httpx.Response) -> ElementTree.Element:
    """Parse the body; anything but XML becomes an empty element."""
    try:
        return ElementTree.fromstring(answer.content)  # noqa: S314 - of the operator's own object store
    except ElementTree.ParseError:
        return ElementTree.Element("none")
