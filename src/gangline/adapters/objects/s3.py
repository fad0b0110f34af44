"""An object store in an S3 bucket: nodes and users reach it by signed URLs, this server with the credentials.

obstore moves the bytes that the server itself reads and writes. Multipart uploads, attestations and everything that is signed for others
are requests of `s3_wire`; `s3_abilities` says which of them this store can be trusted with.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import S3Store

from gangline.adapters.objects.s3_abilities import ALGORITHM, CHECKSUM, CREATE_ONLY, MODE, Abilities, completion
from gangline.adapters.objects.s3_wire import S3Bucket, Wire, frozen, parse_xml
from gangline.core.errors import BadInput, NotFound, Unreachable
from gangline.core.files import PART_BYTES, Signed, is_safe_path
from gangline.ports.objects import Stat, UploadPart

if TYPE_CHECKING:
    from obstore.store import S3Credential

T = TypeVar("T")

CHUNK = 4 << 20
REQUESTS_MAX = 8
ASK_AGAIN = timedelta(minutes=5, seconds=5)
"""obstore asks for new credentials when less than five minutes are left, so these make it ask after five seconds."""
GONE, TAKEN = 404, 412
NOT_SO = 400
"""The store found other parts than this server declared."""


class S3Objects:
    def __init__(self, wire: Wire, abilities: Abilities) -> None:
        self._wire = wire
        self._able = abilities
        self._store = _open(wire.bucket)

    @property
    def creates_only(self) -> bool:
        return self._able.create_only

    def at_once(self, asks: Iterable[Callable[[], T]]) -> list[T]:
        with ThreadPoolExecutor(REQUESTS_MAX, thread_name_prefix="s3") as beside:
            return list(beside.map(lambda ask: ask(), asks))

    def in_parts(self, bytes: int) -> bool:
        return bytes > PART_BYTES or not self._able.create_only

    def sign_put(self, key: str, *, bytes: int, sha256: str, now_ms: int, seconds: float) -> Signed:
        headers = self._exactly(UploadPart(bytes, sha256)) | (CREATE_ONLY if self._able.create_only else {})
        url = self._wire.sign("PUT", _safe(key), now_ms=now_ms, seconds=seconds, headers=headers)
        return Signed(url=url, headers=headers)

    def sign_get(self, key: str, *, now_ms: int, seconds: float) -> Signed:
        return Signed(url=self._wire.sign("GET", _safe(key), now_ms=now_ms, seconds=seconds))

    def sign_part(self, key: str, upload: str, number: int, part: UploadPart, *, now_ms: int, seconds: float) -> Signed:
        headers = self._exactly(part)
        query = {"partNumber": str(number), "uploadId": upload}
        url = self._wire.sign("PUT", _safe(key), now_ms=now_ms, seconds=seconds, headers=headers, query=query)
        return Signed(url=url, headers=headers)

    def begin(self, key: str) -> str:
        headers = ALGORITHM if self._able.checks else {}
        answer = self._wire.ask("POST", _safe(key), query={"uploads": ""}, headers=headers)
        upload = parse_xml(answer).findtext("{*}UploadId")
        if not upload:
            raise Unreachable(f"the object store at {self._wire.place} did not begin an upload")
        return upload

    def put_part(self, key: str, upload: str, number: int, content: bytes) -> None:
        part = UploadPart(len(content), hashlib.sha256(content).hexdigest())
        query = {"partNumber": str(number), "uploadId": upload}
        answer = self._wire.ask(
            "PUT", _safe(key), query=query, headers=self._exactly(part), content=content, expected=(GONE,)
        )
        if answer.status_code == GONE:
            raise NotFound(f"there is no upload {upload} of {key}")

    def parts(self, key: str, upload: str) -> dict[int, UploadPart] | None:
        listed = self._parts(key, upload)
        return None if listed is None else {number: part for number, (part, _) in listed.items()}

    def complete(self, key: str, upload: str, parts: Sequence[UploadPart]) -> None:
        here = self._parts(key, upload) or {}
        declared = dict(enumerate(parts, 1))
        if not all(number in here and here[number][0].is_as(part) for number, part in declared.items()):
            return
        if not self._able.completes_once and self.stat(key):
            return
        checks = self._able.checks
        body = completion(
            [(number, here[number][1], _base64(part) if checks else None) for number, part in declared.items()]
        )
        answer = self._wire.ask(
            "POST",
            key,
            query={"uploadId": upload},
            headers=CREATE_ONLY if self._able.completes_once else {},
            content=body,
            expected=(NOT_SO, GONE, TAKEN),
        )
        if answer.is_success and parse_xml(answer).tag.endswith("Error"):
            raise Unreachable(f"the object store at {self._wire.place} did not complete an upload")

    def abort(self, key: str, upload: str) -> None:
        self._wire.ask("DELETE", _safe(key), query={"uploadId": upload}, expected=(GONE,))

    def uploads(self, key: str) -> list[str]:
        name, found, after = self._wire.name(_safe(key)), list[str](), dict[str, str]()
        while True:
            page = parse_xml(self._wire.ask("GET", query={"uploads": "", "prefix": name} | after))
            for upload in page.iterfind("{*}Upload"):
                if upload.findtext("{*}Key") == name:
                    found.append(upload.findtext("{*}UploadId") or "")
            if page.findtext("{*}IsTruncated") != "true":
                return found
            after = {
                "key-marker": page.findtext("{*}NextKeyMarker") or "",
                "upload-id-marker": page.findtext("{*}NextUploadIdMarker") or "",
            }

    def list(self, prefix: str) -> Iterator[str]:
        return (key for key, _ in self.sizes(prefix))

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        with self._reached(prefix):
            for page in obstore.list(self._store, _safe(prefix) if prefix else None):
                yield from ((str(found["path"]), found["size"]) for found in page)

    def stat(self, key: str) -> Stat | None:
        answer = self._wire.ask("HEAD", _safe(key), headers=MODE if self._able.attests else {}, expected=(GONE,))
        if answer.status_code == GONE:
            return None
        attested = answer.headers.get(CHECKSUM, "") if self._able.attests else ""
        return Stat(bytes=int(answer.headers.get("content-length", 0)), sha256=_hexadecimal(attested) or None)

    def write(self, key: str, content: bytes) -> None:
        mode = "create" if self._able.create_only else "overwrite"
        try:
            with self._reached(key):
                obstore.put(self._store, _safe(key), content, mode=mode, use_multipart=False)
        except BadInput:
            if self.read(key) != content:
                raise

    def read(self, key: str) -> bytes:
        with self._reached(key):
            return bytes(obstore.get(self._store, _safe(key)).bytes())

    def chunks(self, key: str) -> Iterator[bytes]:
        with self._reached(key):
            for chunk in obstore.get(self._store, _safe(key)).stream(min_chunk_size=CHUNK):
                yield bytes(chunk)

    def read_back(self, key: str) -> str:
        hashed = hashlib.sha256()
        with self._reached(key):
            for chunk in obstore.get(self._store, _safe(key)).stream(min_chunk_size=CHUNK):
                hashed.update(chunk)
        return hashed.hexdigest()

    def delete(self, keys: Sequence[str]) -> None:
        if keys:
            with self._reached(keys[0]):
                obstore.delete(self._store, [_safe(key) for key in keys])

    def _exactly(self, part: UploadPart) -> dict[str, str]:
        """Return headers that bind a request to these bytes, as far as the store checks them."""
        return {"Content-Length": str(part.bytes)} | ({CHECKSUM: _base64(part)} if self._able.checks else {})

    def _parts(self, key: str, upload: str) -> dict[int, tuple[UploadPart, str]] | None:
        """Return the parts of an open upload with their ETags; None if there is no such upload."""
        found, after = dict[int, tuple[UploadPart, str]](), "0"
        while True:
            query = {"uploadId": upload, "part-number-marker": after}
            answer = self._wire.ask("GET", _safe(key), query=query, expected=(GONE,))
            if answer.status_code == GONE:
                return None
            page = parse_xml(answer)
            for part in page.iterfind("{*}Part"):
                sha256 = _hexadecimal(part.findtext("{*}ChecksumSHA256") or "")
                here = UploadPart(int(part.findtext("{*}Size") or 0), sha256 or None)
                found[int(part.findtext("{*}PartNumber") or 0)] = here, part.findtext("{*}ETag") or ""
            if page.findtext("{*}IsTruncated") != "true":
                return found
            after = page.findtext("{*}NextPartNumberMarker") or ""

    @contextmanager
    def _reached(self, key: str) -> Iterator[None]:
        """Translate obstore's errors, whose messages contain requests and answers."""
        try:
            yield
        except (NotFoundError, FileNotFoundError):
            raise NotFound(f"there is no object {key}") from None
        except (AlreadyExistsError, PreconditionError):
            raise BadInput(f"{key} already has other content") from None
        except BaseError as error:
            raise Unreachable(
                f"a request to the object store at {self._wire.place} failed ({type(error).__name__})"
            ) from None


def _open(bucket: S3Bucket) -> S3Store:
    """Open the bucket. The credentials come from a function, so that no environment variable mixes with them."""
    return S3Store(
        bucket.name,
        prefix=bucket.prefix or None,
        region=bucket.region,
        endpoint=bucket.endpoint or bucket.url,
        virtual_hosted_style_request=not bucket.endpoint,
        client_options={"allow_http": True, "timeout": timedelta(seconds=30), "connect_timeout": timedelta(seconds=5)},
        retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=20)},
        credential_provider=lambda: _for_obstore(bucket),
    )


def _for_obstore(bucket: S3Bucket) -> "S3Credential":
    """Return the current credentials with a short life, so that obstore asks again: botocore decides when they are renewed."""
    key = frozen(bucket)
    return {
        "access_key_id": key.access_key,
        "secret_access_key": key.secret_key,
        "token": key.token,
        "expires_at": datetime.now(UTC) + ASK_AGAIN,
    }


def _safe(key: str) -> str:
    if not is_safe_path(key):
        raise NotFound(f"{key!r} is not a valid key")
    return key


def _base64(part: UploadPart) -> str:
    return base64.b64encode(bytes.fromhex(part.sha256 or "")).decode()


def _hexadecimal(attested: str) -> str:
    """Return a SHA-256 in hexadecimal, keeping the suffix `-N` of a hash over the hashes of N parts."""
    digest, dash, parts = attested.partition("-")
    try:
        return base64.b64decode(digest).hex() + dash + parts
    except ValueError:
        return attested  # it matches no hash, as it is no base64
