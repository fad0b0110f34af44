"""Bytes between a node and the object store, moved in the background."""

from pathlib import Path
from typing import Protocol, TypeVar

from gangline.core.files import File, Grant, Signed
from gangline.core.models.bases import ModelRole
from gangline.ports.server import Upload

T_co = TypeVar("T_co", covariant=True)


class Task(Protocol[T_co]):
    """Something that goes on by itself. `error` is None until it has failed, then one of `Damaged`, `Denied`, `Unreachable`, …"""

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        ...

    @property
    def error(self) -> Exception | None: ...

    @property
    def result(self) -> T_co:
        """Of a task that ended well."""
        ...


class Transfer(Protocol):
    """What fails for a while is tried again within a task, a few times. A task that failed may be started again, and goes on
    from what is there."""

    def describe(self, file: File, source: Path) -> Task[Upload]:
        """What the server needs to know of a file that is to go up. Fails with `Damaged` where its bytes are others by now."""
        ...

    def upload(self, grant: Grant, file: File, source: Path) -> Task[None]: ...

    def download(self, signed: Signed, file: File, to: Path, *, durable: bool) -> Task[None]:
        """Into `to`, whole and with the right SHA-256 or not at all; fails with `Damaged` where the bytes are others.
        What is `durable` outlives a crash of the machine too."""
        ...

    def stop(self) -> None:
        """Nothing of an upload or a download goes on; their tasks fail. Those that are started later are not meant."""
        ...

    @property
    def idle(self) -> bool:
        """Whether no upload and no download is under way: nothing is read or written any more."""
        ...


class NodeTransfer(Transfer, Protocol):
    """What a node of the service moves besides: models from the hub."""

    def list_hub(self, repo: str, commit: str, role: ModelRole) -> Task[tuple[File, ...]]:
        """The files of a model on the hub that a run needs."""
        ...

    def download_from_hub(self, repo: str, commit: str, file: File, to: Path) -> Task[None]:
        """As `download`, of one of them; it is durable."""
        ...
