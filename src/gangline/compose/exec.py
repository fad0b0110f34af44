"""The composition root of `gangline exec`: a command, a folder of checkpoints, and a bucket or a folder for them."""

import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from gangline.compose.buckets import data_place, open_bucket, open_bucket_to_read, with_key
from gangline.compose.notices import check_notice, make_notice
from gangline.compose.settings import needing, strip_secrets
from gangline.core.command.surroundings import one_of_several, unsupported_system
from gangline.core.errors import UserError
from gangline.core.runs.in_memory import SHARED_MEMORY

if TYPE_CHECKING:
    from gangline.core.command.layout import Rules
    from gangline.exec.fetch import Fetched
    from gangline.exec.in_memory import ExecInMemory
    from gangline.exec.plan import ExecPlan
    from gangline.exec.prefix.listing import Listing
    from gangline.exec.prefix.removal import Removal
    from gangline.exec.run import Exec
    from gangline.exec.run_prefix import RunPrefix
    from gangline.ports.notifier import Notifier
    from gangline.ports.objects import Objects
    from gangline.ports.transfer import Transfer


class Shown(Protocol):
    """Where a program's output and our own words go."""

    def show(self, stream: int, content: bytes) -> None: ...

    def say(self, text: str) -> None: ...

    def status(self, text: str) -> None: ...


def make_exec(
    plan: "ExecPlan",
    *,
    checkpoints: Path,
    to: str,
    data: list[tuple[str, Path]],
    results: tuple[Path, ...],
    webhook: str,
    notice: str,
    in_memory: bool,
    terminal: "Callable[[Path, bool], Shown]",
) -> "Exec | ExecInMemory":
    """Make a run of the command. `terminal` receives the file that keeps what it shows, and whether the terminal is a dumb one.
    Raises `UserError` for whatever can be seen to be wrong before anything is touched."""
    _check_surroundings()
    host = socket.gethostname()
    rng = Random(f"{host} {os.getpid()}")  # noqa: S311 - jitter, not a secret
    with needing("exec"):
        from gangline.adapters.host.script.command import KeptCommand, find_program
        from gangline.adapters.host.script.folder_in_memory import LocalFolderInMemory
        from gangline.adapters.host.script.results import LocalResults
        from gangline.adapters.host.script.workspace import LocalWorkspace
        from gangline.exec.data import download_data
        from gangline.exec.in_memory import ExecInMemory
        from gangline.exec.plan import Tools
        from gangline.exec.run import Exec
        from gangline.exec.run_prefix import RunPrefix
        from gangline.posix import adopt_orphans

        objects, transfer, address = _prefix_at(to, rng)
    find_program(plan.command[0])
    _check_places(checkpoints, to, results)
    with needing("exec"):
        places = [(with_key(data_place(address)), folder) for address, folder in data]
    check_notice(notice)
    prefix = RunPrefix(objects=objects, transfer=transfer, address=address, rng=rng, now_ms=_now_ms)

    def tools_for(root: Path) -> Tools:
        workspace = LocalWorkspace(root, plan.rules)
        shown = terminal(workspace.log, os.environ.get("TERM", "dumb") == "dumb")

        def download(stopped: Callable[[], bool]) -> int:
            return sum(
                download_data(place, folder, workspace.state / "data.json", shown.say, stopped)
                for place, folder in places
            )

        return Tools(
            prefix=prefix,
            workspace=workspace,
            files=LocalResults(workspace.root, workspace.state, plan.rules, results, workspace.is_written),
            start=KeptCommand,
            notifier=_make_notifier(webhook, shown.say),
            notice=make_notice(notice, shown.say),
            download=download,
            show=shown.show,
            log=workspace.log,
            say=shown.say,
            status=shown.status,
            host=host,
            environment=os.environ,
            now_s=time.monotonic,
            now_ms=_now_ms,
        )

    adopt_orphans()
    tmpfs = Path(os.environ.get("GANGLINE_TMPFS") or SHARED_MEMORY).absolute()
    folder = LocalFolderInMemory(tmpfs, checkpoints)
    if in_memory:
        return ExecInMemory(plan, prefix, folder, tools_for)
    folder.move_to_disk()  # what an earlier run with --in-memory left
    return Exec(plan, tools_for(checkpoints))


def make_fetch(address: str, folder: Path, say: Callable[[str], None]) -> "Callable[..., Fetched]":
    """Make what downloads results. It needs a key that may list and read. Raises `UserError` where there is no such store."""
    prefix = _prefix_to_look_at(address, say)
    from gangline.exec.fetch import Fetch

    def fetch(*, run: int | None, checkpoint: bool) -> "Fetched":
        try:
            return Fetch(prefix, folder, say)(run=run, checkpoint=checkpoint)
        finally:
            prefix.transfer.stop()  # Ctrl-C does not wait for what is under way

    return fetch


def make_listing(address: str, say: Callable[[str], None]) -> "Listing":
    """List what lies below a prefix. Raises `UserError` where there is no such store, or nothing in it."""
    prefix = _prefix_to_look_at(address, say)
    from gangline.exec.prefix.listing import list_prefix

    return list_prefix(prefix, _now_ms())


def make_removal(
    address: str, say: Callable[[str], None], *, run: int | None, checkpoints: bool, force: bool
) -> "Removal":
    """Make what removes from a prefix: it says first what. It needs a key that may list, read and delete. Raises `UserError` as above."""
    prefix = _prefix_to_look_at(address, say)
    from gangline.exec.prefix.removal import Removal

    return Removal(prefix, _now_ms(), run=run, checkpoints=checkpoints, force=force)


def _prefix_to_look_at(address: str, say: Callable[[str], None]) -> "RunPrefix":
    """One in which no run begins."""
    if sys.platform == "win32":
        raise UserError("this needs Linux or macOS, and this is Windows", hint="run it in WSL 2")
    with needing("exec"):
        from gangline.adapters.objects.folder import FolderObjects, FolderTransfer
        from gangline.adapters.transfer.transfer import HttpTransfer
        from gangline.exec.run_prefix import RunPrefix
    rng = Random()  # noqa: S311 - jitter
    objects: Objects
    transfer: Transfer
    if "://" in address or address.startswith("s3:"):
        objects, transfer = open_bucket_to_read(address, "ADDRESS"), HttpTransfer("", rng)
    else:
        below = Path(address).expanduser().absolute()
        if not below.is_dir():
            raise UserError(
                f"there is no folder {below}", hint="pass the address that --to had, e.g. s3://BUCKET/PREFIX"
            )
        objects = FolderObjects(below)
        transfer = FolderTransfer(objects)
    return RunPrefix(objects=objects, transfer=transfer, address=address.rstrip("/"), rng=rng, now_ms=_now_ms, say=say)


def _check_surroundings() -> None:
    """Before anything is imported that another system has not."""
    if system := unsupported_system(sys.platform):
        raise UserError(
            f"gangline exec needs Linux, and this is {system}",
            hint="inotify, leases and subreapers are the Linux kernel's: run it in a container or a virtual machine"
            + (", or in WSL 2" if sys.platform == "win32" else ""),
        )
    if setting := one_of_several(os.environ):
        raise UserError(
            f"gangline exec must be started once, on one machine, but {setting} says that this is one of several: "
            "each would take over from the others",
            hint="run the launcher inside it (`gangline exec … -- torchrun …`), only on the first machine, with --checkpoints on a "
            f"disk that all machines share; if it is started only once after all, unset {setting.partition('=')[0]}",
        )


def _check_places(checkpoints: Path, to: str, results: tuple[Path, ...]) -> None:
    """Refuse places that lie in each other and results of one name, before anything is made there."""
    if "://" not in to:
        store, folder = Path(to).expanduser().resolve(), checkpoints.resolve()
        if store == folder or store in folder.parents or folder in store.parents:
            raise UserError(
                f"--to {to} and --checkpoints {checkpoints} must not contain each other",
                hint="choose a --to folder that is used for nothing else",
            )
    names = [path.resolve().name for path in results]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise UserError(
            f"two --results have the same name: {double}", hint="rename one, or name the folder that holds both"
        )
    missing = next((path for path in results if not path.resolve().name), None)
    if missing is not None:
        raise UserError(f"--results {missing} has no name", hint="name a file or a folder")


def exec_rules(layout: str, complete_when: str, step: str = "") -> "Rules":
    from gangline.core.command.layout import Rules
    from gangline.core.command.step import MARK
    from gangline.core.specs.command import is_pattern_below, is_step_pattern

    if not is_pattern_below(complete_when):
        raise UserError(
            f"--complete-when {complete_when} is not a pattern of paths relative to --checkpoints",
            hint="write it like 'step_*/done' or 'model_*.pt'; * does not match a slash",
        )
    if step and not is_step_pattern(step):
        raise UserError(
            f"--step {step} must contain {MARK} exactly once",
            hint="write it like 'run_{step}_*.pt'; * does not match a slash",
        )
    return Rules(layout=layout, complete_when=complete_when, step=step)  # type: ignore[arg-type]


def _prefix_at(to: str, rng: Random) -> "tuple[Objects, Transfer, str]":
    """Return a bucket or a folder, how files get there, and what people call it."""
    from gangline.adapters.objects.folder import FolderObjects, FolderTransfer
    from gangline.adapters.transfer.transfer import HttpTransfer
    from gangline.exec.plan import NICE

    if "://" in to or to.startswith("s3:"):
        return open_bucket(to, "--to"), HttpTransfer("", rng, nice=NICE), to.rstrip("/")
    folder = Path(to).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made: {error.strerror}",
            hint="give --to s3://BUCKET/PREFIX, or a folder on a persistent disk",
        ) from None
    objects = FolderObjects(folder)
    objects.sweep(time.time())
    return objects, FolderTransfer(objects, nice=NICE), str(folder)


def _make_notifier(url: str, say: Callable[[str], None]) -> "Notifier":
    from gangline.adapters.notifiers.nobody import Nobody

    if not url:
        return Nobody()
    with needing("exec"):
        from gangline.adapters.notifiers.webhook import Webhooks
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_address = False
    if not is_address:
        raise UserError(f"--webhook {url} is not a URL", hint="write it as https://HOST/PATH")
    strip_secrets("GANGLINE_WEBHOOK_SECRET")
    try:
        return Webhooks(url, os.environ.get("GANGLINE_WEBHOOK_SECRET", ""), _now_ms, say)
    except ValueError:
        raise UserError(
            "GANGLINE_WEBHOOK_SECRET is not the secret of a webhook",
            hint="it looks like whsec_ and base64, as `whsec_MfKQ9r8G…`",
        ) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
