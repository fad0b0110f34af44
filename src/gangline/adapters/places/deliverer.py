"""The `Deliverer` port: upload results to buckets and hub repositories that the operator named."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from gangline.core.errors import BadInput
from gangline.core.places.places import PhotoSource, source_of, why_no_target
from gangline.ports.places.deliverer import Outgoing


class WritableBucket(Protocol):
    def put(self, key: str, content: Iterable[bytes]) -> None: ...


class Repository(Protocol):
    def commit(self, files: Sequence[Outgoing]) -> None: ...


class PlacesDeliverer:
    def __init__(
        self,
        sources: Mapping[str, PhotoSource],
        open_bucket: Callable[[PhotoSource, str], WritableBucket],
        open_repository: Callable[[PhotoSource, str], Repository],
    ) -> None:
        self._sources, self._open_bucket, self._open_repository = sources, open_bucket, open_repository

    def check(self, project: str, address: str) -> None:
        why = why_no_target(address)
        if why:
            raise BadInput(f"deliver: {address} {why}")
        source_of(address, project, self._sources, "deliver")

    def put(self, project: str, address: str, files: Sequence[Outgoing]) -> Iterator[tuple[Outgoing, ...]]:
        source = source_of(address, project, self._sources, "deliver")
        if address.startswith("hf://"):
            self._open_repository(source, address.removeprefix("hf://").rstrip("/")).commit(files)
            yield tuple(files)
            return
        name, _, prefix = address.removeprefix("s3://").partition("/")
        bucket = self._open_bucket(source, name)
        for file in files:
            bucket.put(f"{prefix.rstrip('/')}/{file.path}", file.read())
            yield (file,)
