"""A bucket that an operator named as a source: read and written by obstore, with that source's credentials and no others."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import (
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from gangline.adapters.places.saving import Watch, save_chunks
from gangline.core.errors import BadInput, Unreachable
from gangline.ports.places.fetcher import Check

if TYPE_CHECKING:
    from obstore import GetResult

CHUNK, PART = 64 << 10, 16 << 20
"""Between two chunks of a download the server asks whether the object is still wanted, so `CHUNK` is small. Both are in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketKey:
    """The credentials of a bucket; with empty ones requests are not signed."""

    access: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    region: str = "us-east-1"
    endpoint: str = ""


class SourceBucket:
    def __init__(self, name: str, key: BucketKey) -> None:
        self._name = name
        endpoint = key.endpoint.rstrip("/")
        signed: dict[str, Any] = (
            {"credential_provider": lambda: _credential(key)} if key.access else {"skip_signature": True}
        )
        self._store = S3Store(
            name,
            region=key.region,
            endpoint=endpoint or f"https://{name}.s3.{key.region}.amazonaws.com",
            virtual_hosted_style_request=not endpoint,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "timeout": timedelta(seconds=60),
                "connect_timeout": timedelta(seconds=5),
            },
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=20)},
            **signed,
        )

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield the keys below a folder, with their lengths in bytes."""
        with self._reached(prefix):
            for page in obstore.list(self._store, prefix.rstrip("/")):
                yield from ((str(found["path"]), int(found["size"])) for found in page)

    def fetch(self, key: str, to: Path, *, bytes_max: int, seconds: float, check: Check) -> int:
        """Download an object to `to`; return its length in bytes."""
        shown, watch = f"s3://{self._name}/{key}", Watch(seconds, check)
        with self._reached(key):
            found = obstore.get(self._store, key)
            size = found.meta["size"]
            return save_chunks(self._chunks(key, found), to, shown=shown, told=size, bytes_max=bytes_max, watch=watch)

    def _chunks(self, key: str, found: "GetResult") -> Iterator[bytes]:
        """Yield all bytes of one version of an object. Each request has a timeout, so a long object over a slow link takes several
        requests, each of which resumes where the last one ended."""
        came, version = 0, found.meta["e_tag"]
        while True:
            before = came
            try:
                for chunk in found.stream(min_chunk_size=CHUNK):
                    came += len(chunk)
                    yield chunk
            except BaseError:
                if came == before:
                    raise
                found = obstore.get(self._store, key, options={"range": {"offset": came}, "if_match": version})
            else:
                return

    def put(self, key: str, content: Iterable[bytes]) -> None:
        """Upload an object, in parts if it is long. It overwrites what the key held."""
        with self._reached(key):
            obstore.put(self._store, key, iter(content), chunk_size=PART)

    @contextmanager
    def _reached(self, key: str) -> Iterator[None]:
        """Translate obstore's errors, whose messages contain requests and credentials."""
        shown = f"s3://{self._name}/{key}"
        try:
            yield
        except (NotFoundError, FileNotFoundError):
            raise BadInput(f"there is nothing at {shown}", hint="is its name right?") from None
        except (PermissionDeniedError, UnauthenticatedError):
            raise BadInput(
                f"the key of this source may not open {shown}",
                hint="ask the operator of this server to check the key",
            ) from None
        except PreconditionError:
            raise Unreachable(f"{shown} was changed while it was fetched") from None
        except BaseError as error:
            raise Unreachable(f"{shown} cannot be reached ({type(error).__name__})") from None


def _credential(key: BucketKey) -> Any:
    return {"access_key_id": key.access, "secret_access_key": key.secret, "token": None, "expires_at": None}
