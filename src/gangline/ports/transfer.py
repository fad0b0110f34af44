"""Move bytes between a node and the object store in the background."""

from pathlib import Path
from typing import Protocol, TypeVar

from gangline.core.files import File, Grant, Signed
from gangline.core.models.bases import ModelRole
from gangline.ports.server import Upload

T_co = TypeVar("T_co", covariant=True)


class Task(Protocol[T_co]):
    """A task in the background. `error` is None until it has failed, then one of `Damaged`, `Denied`, `Unreachable`, …"""

    @property
    def done(self) -> bool:
        """Return whether it has ended, successfully or not."""
        ...

    @property
    def error(self) -> Exception | None: ...

    @property
    def result(self) -> T_co:
        """The result of a task that succeeded."""
        ...


class Transfer(Protocol):
    """Uploads and downloads. A task retries temporary failures a few times.

    A task that failed may be started again, and continues from the bytes that are there.
    """

    def describe(self, file: File, source: Path) -> Task[Upload]:
        """Return what the server needs to know of a file to upload. The task fails with `Damaged` if the file's bytes have changed."""
        ...

    def upload(self, grant: Grant, file: File, source: Path) -> Task[None]: ...

    def download(self, signed: Signed, file: File, to: Path, *, durable: bool) -> Task[None]:
        """Download to `to`, completely and with the right SHA-256, or not at all. The task fails with `Damaged` if the bytes differ.

        A `durable` file also survives a crash of the machine.
        """
        ...

    def stop(self) -> None:
        """Stop all uploads and downloads; their tasks fail. Tasks that are started later are not affected."""
        ...

    @property
    def idle(self) -> bool:
        """Return whether no upload and no download is running, so that no file is read or written any more."""
        ...


class NodeTransfer(Transfer, Protocol):
    """The transfers of a node of the service, which also downloads models from the hub."""

    def apart(self) -> "NodeTransfer":
        """Return another one for one attempt: neither stops the other's transfers or waits for them."""
        ...

    def list_hub(self, repo: str, commit: str, role: ModelRole) -> Task[tuple[File, ...]]:
        """List the files of a model on the hub that a run needs."""
        ...

    def download_from_hub(self, repo: str, commit: str, file: File, to: Path) -> Task[None]:
        """Download one of these files as `download` does; it is durable."""
        ...
