"""List the runs and checkpoints below a prefix, for people and programs."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from gangline.core.command.alive import is_alive
from gangline.core.command.lineage import (
    CommittedCheckpoint,
    Ref,
    ResultFile,
    history,
    newest_begun,
    newest_results,
    run_number,
)
from gangline.core.errors import NotFound
from gangline.exec.kept import find_record
from gangline.exec.outputs import results_of
from gangline.exec.run_prefix import PrefixContent, RunPrefix

RunState = Literal["alive", "ended", "vanished", "never began"]
T = TypeVar("T")
K = TypeVar("K")

AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run. `state` is `vanished` if no record says how it ended; `because` and `exit_code` come from that record. `step` is the step of
    its newest checkpoint in the store; `bytes` counts its checkpoints and results."""

    run: int
    host: str | None
    began_ms: int | None
    state: RunState
    because: str
    exit_code: int | None
    seconds: float
    step: int | None
    checkpoints: int
    results: int
    bytes: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """A checkpoint. `bytes` is the size of its download, `sent_bytes` what it adds to the store beyond the checkpoints before it. `next`
    marks the one that the next start resumes from, unless it is damaged. `damaged`: its record cannot be read."""

    run: int
    number: int
    name: str | None
    step: int | None
    bytes: int
    sent_bytes: int
    written_ms: int | None
    next: bool
    damaged: bool
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The content of a prefix. `rows` and `checkpoints` are newest first; `names` are the full names of the runs in `rows`, in the same
    order."""

    found: PrefixContent
    rows: list[RunRow]
    checkpoints: list[CheckpointRow]
    names: list[str]


def list_prefix(prefix: RunPrefix, now_ms: int) -> Listing:
    """List the prefix. Raises `NotFound` if no run has left anything, and `Unreachable`."""
    prefix.check()
    found, claims = prefix.find(), prefix.claims()
    names = sorted({*found.runs, *claims}, reverse=True)
    if not names:
        raise NotFound(
            f"{prefix.address} holds no run of `gangline exec`",
            hint="pass the address that --to had, e.g. s3://BUCKET/PREFIX",
        )
    ends = _each(names, prefix.end_of)
    claimed = _each(names, prefix.claim_of)
    records = _each(found.refs, lambda ref: find_record(prefix, ref))
    results = _each(names, lambda run: results_of(prefix, found, [run]))
    rows = [
        _row(
            run,
            found,
            claimed[run],
            ends[run],
            [records[ref] for ref in found.refs if ref.run == run],
            results[run],
            now_ms,
        )
        for run in names
    ]
    resumed = next(iter(history(found.begun, found.refs, last=newest_begun(found.begun))), None)
    checkpoints = [_checkpoint(ref, records[ref], found, resumed) for ref in reversed(found.refs)]
    return Listing(found=found, rows=rows, checkpoints=checkpoints, names=names)


def _row(
    run: str,
    found: PrefixContent,
    claim: dict[str, Any],
    end: dict[str, Any],
    records: list[CommittedCheckpoint | None],
    results: list[ResultFile],
    now_ms: int,
) -> RunRow:
    begun = found.begun.get(run)
    lasted_ms = max(found.lasted_ms.get(run, 0), _whole(end.get("after_ms")))
    claimed_ms, began_ms = _whole(claim.get("at_ms")), begun.at_ms if begun else None
    alive = is_alive(claimed_ms=claimed_ms, began_ms=began_ms, lasted_ms=lasted_ms, ended=bool(end), now_ms=now_ms)
    newest = next((each for each in reversed(records) if each), None)
    price = begun.usd_per_hour if begun else None
    code = end.get("code")
    return RunRow(
        run=run_number(run),
        host=str(claim["host"]) if claim.get("host") else None,
        began_ms=began_ms or claimed_ms or None,
        state="alive" if alive else "ended" if end else "vanished" if begun else "never began",
        because=str(end.get("because", "")),
        exit_code=code if isinstance(code, int) else None,
        seconds=lasted_ms / 1000,
        step=newest.step if newest else None,
        checkpoints=len(records),
        results=len(newest_results([run], results)),
        bytes=sum(each.sent_bytes for each in records if each) + sum(each.file.bytes for each in results if each.file),
        cost_usd=None if price is None else lasted_ms * price / 3_600_000,
    )


def _checkpoint(
    ref: Ref, committed: CommittedCheckpoint | None, found: PrefixContent, resumed: Ref | None
) -> CheckpointRow:
    began_ms = found.begun[ref.run].at_ms
    return CheckpointRow(
        run=run_number(ref.run),
        number=ref.number,
        name=committed.title if committed else None,
        step=committed.step if committed else None,
        bytes=committed.bytes if committed else 0,
        sent_bytes=committed.sent_bytes if committed else 0,
        written_ms=began_ms + committed.after_ms if committed and began_ms else None,
        next=ref == resumed,
        damaged=committed is None,
        key=ref.key,
    )


def _each(keys: Iterable[K], ask: Callable[[K], T]) -> dict[K, T]:
    """Ask for all keys concurrently, since each one is a request."""
    listed = list(keys)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return dict(zip(listed, threads.map(ask, listed), strict=True))


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
