"""The runs of one command below one prefix of an object store, and the checkpoints from which each may resume.

    claims/000002.json                       a run's number, claimed once: a greater one overtakes it
    runs/000002/begun.json                   where it resumed from, written before its command starts
    runs/000002/checkpoints/000007.json      a checkpoint: its manifest, written last
    runs/000002/checkpoints/000007/…         its files, except those whose bytes were uploaded with an earlier checkpoint
    runs/000002/output/…  output-2/…         the results: files beside checkpoints, and the second version of those that have one
    runs/000002/output-records/000001.json   the results that were uploaded together, with SHA-256s
    runs/000002/log/…  ended.json

A run's name begins with its number. On a store without conditional writes a random suffix follows, so that two runs never write the
same name. All of this is pure.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gangline.core.command.candidate import ROOT, title_of
from gangline.core.command.version import STATE
from gangline.core.errors import Damaged
from gangline.core.files import File, is_safe_path, is_sha256
from gangline.core.runs.contract import Manifest, parse_manifest

CLAIMS, RUNS, CHECKPOINTS = "claims", "runs", "checkpoints"
BEGUN, ENDED = "begun.json", "ended.json"
OUTPUT, OUTPUT_RECORDS = "output", "output-records"
OUTPUT_VERSION = re.compile(rf"{OUTPUT}(?:-([2-9]|[1-9]\d+))?")
PROBES = "probes"
DIGITS = 6
RUN = re.compile(r"\d{6,}(-[0-9a-f]{8})?")
JSON = ".json"


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """The checkpoint of a run with this number, from 1."""

    run: str
    number: int

    @property
    def key(self) -> str:
        return f"{RUNS}/{self.run}/{CHECKPOINTS}/{self.number:0{DIGITS}d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run whose command was started. `origin` is the newest checkpoint in the store from which it may resume. It may have resumed from a
    newer one on its own disk: it `continues` the work of that run, which was `continued_ms` old at that point."""

    run: str
    origin: Ref | None
    continues: str = ""
    continued_ms: int = 0
    at_ms: int = 0
    command: tuple[str, ...] = ()
    usd_per_hour: float | None = None

    def to_json(self) -> dict[str, Any]:
        origin = None if self.origin is None else {"run": self.origin.run, "number": self.origin.number}
        return {
            "run": self.run,
            "origin": origin,
            "continues": self.continues,
            "continued_ms": self.continued_ms,
            "at_ms": self.at_ms,
            "command": list(self.command),
            "usd_per_hour": self.usd_per_hour,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedCheckpoint:
    """A checkpoint in the store. `name` is the script's name for it; the paths of its files begin with that, unless it is `ROOT`. It was
    complete `after_ms` milliseconds after its run began. `step` is None if unknown; `written_ns` are the modification times of its files
    (Unix). `elsewhere` maps files to the keys of equal bytes that its run had uploaded before, with another checkpoint or under another
    name: they are stored once."""

    ref: Ref
    name: str
    manifest: Manifest
    after_ms: int
    step: int | None = None
    written_ns: Mapping[str, int] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return title_of(self.name, [file.path for file in self.manifest.files])

    def key_of(self, path: str) -> str:
        return self.elsewhere.get(path) or f"{self.ref.key}/{path}"

    @property
    def keys(self) -> dict[str, str]:
        """Return the key at which the bytes of each SHA-256 are stored."""
        return {file.sha256: self.key_of(file.path) for file in self.manifest.files}

    @property
    def state(self) -> frozenset[str]:
        """Return the SHA-256s of the training state: equal under another name means the same state."""
        files = self.manifest.files
        return frozenset(file.sha256 for file in files if STATE.fullmatch(file.path)) or frozenset(self.keys)

    @property
    def sent_bytes(self) -> int:
        """Return how many of its bytes were uploaded for it."""
        return sum(file.bytes for file in self.manifest.files if file.path not in self.elsewhere)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.manifest.files)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "after_ms": self.after_ms,
            "step": self.step,
            "written_ns": dict(self.written_ns),
            "elsewhere": dict(self.elsewhere),
            "manifest": self.manifest.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """A version, from 1, of a file that a run's script left beside its checkpoints. `file` is None if it has no record."""

    run: str
    path: str
    version: int
    file: File | None = None

    @property
    def key(self) -> str:
        return f"{output_of(self.run)}{f'-{self.version}' if self.version > 1 else ''}/{self.path}"


def output_of(run: str) -> str:
    return f"{RUNS}/{run}/{OUTPUT}"


def parse_result(key: str) -> ResultFile | None:
    """Return the result with this key; None if the key is of something else or names no safe path."""
    parts = key.split("/", 3)
    if len(parts) < 4 or parts[0] != RUNS or not is_safe_path(parts[3]):
        return None
    match = OUTPUT_VERSION.fullmatch(parts[2])
    return None if match is None else ResultFile(run=parts[1], path=parts[3], version=int(match[1] or 1))


def results_to_json(results: Iterable[ResultFile]) -> dict[str, Any]:
    """Return the record of those results that have a `file`."""
    rows = [(each.version, each.file) for each in results if each.file is not None]
    return {
        "files": [
            {"path": file.path, "version": version, "bytes": file.bytes, "sha256": file.sha256}
            for version, file in rows
        ]
    }


def parse_results(run: str, value: object) -> list[ResultFile]:
    """Parse a record of results. Raises `Damaged`."""
    try:
        assert isinstance(value, dict)
        return [_parse_result(run, row) for row in value["files"]]
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise Damaged(f"a record of results of run {run} is damaged ({type(error).__name__})") from None


def _parse_result(run: str, row: Mapping[str, Any]) -> ResultFile:
    file = File(path=str(row["path"]), bytes=int(row["bytes"]), sha256=str(row["sha256"]))
    assert is_safe_path(file.path) and is_sha256(file.sha256) and file.bytes >= 0
    return ResultFile(run=run, path=file.path, version=int(row["version"]), file=file)


def kin(begun: Mapping[str, Begun], last: str) -> list[str]:
    """Return the runs whose results belong together, newest first: `last` and the runs before it that descend from the same first run. That
    includes runs from which none resumed: their results are kept as they would be on one disk."""
    root = _root(begun, last)
    return sorted((run for run in {*begun, last} if run <= last and _root(begun, run) == root), reverse=True)


def _root(begun: Mapping[str, Begun], run: str) -> str:
    seen = {run}
    while run in begun and (before := _before(begun[run])) and before not in seen:
        seen.add(before)
        run = before
    return run


def _before(begun: Begun) -> str:
    return begun.continues or (begun.origin.run if begun.origin else "")


def newest_results(of: Iterable[str], results: Iterable[ResultFile]) -> dict[str, list[ResultFile]]:
    """Return the versions of each path, newest first; `of` are the runs, newest first. If a path is a file in one version and a folder in a
    newer one, or the reverse, the older one is dropped."""
    order = {run: number for number, run in enumerate(of)}
    found, folders = dict[str, list[ResultFile]](), set[str]()
    mine = [each for each in results if each.run in order]
    for each in sorted(mine, key=lambda each: (order[each.run], -each.version, each.path)):
        above = _folders_above(each.path)
        if each.path in found or not (each.path in folders or any(folder in found for folder in above)):
            found.setdefault(each.path, []).append(each)
            folders.update(above)
    return found


def _folders_above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def parse_begun(run: str, value: object) -> Begun:
    """Parse the record of a run's beginning. Raises `Damaged`."""
    try:
        assert isinstance(value, dict)
        origin = value["origin"]
        return Begun(
            run=run,
            origin=None if origin is None else Ref(str(origin["run"]), int(origin["number"])),
            continues=str(value["continues"]),
            continued_ms=int(value["continued_ms"]),
            at_ms=int(value["at_ms"]),
            command=tuple(str(word) for word in value["command"]),
            usd_per_hour=None if value["usd_per_hour"] is None else float(value["usd_per_hour"]),
        )
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise Damaged(f"the record of the start of run {run} is damaged ({type(error).__name__})") from None


def parse_committed(ref: Ref, value: object) -> CommittedCheckpoint:
    """Parse the record of a checkpoint. Raises `Damaged`."""
    try:
        assert isinstance(value, dict) and "/" not in value["name"]
        assert value["name"] == ROOT or is_safe_path(value["name"])
        manifest = parse_manifest(value["manifest"])
        assert all(value["name"] in (ROOT, file.path.partition("/")[0]) for file in manifest.files)
        elsewhere = {str(path): str(key) for path, key in value.get("elsewhere", {}).items()}
        assert all(
            is_safe_path(key) and key.startswith(f"{RUNS}/{ref.run}/{CHECKPOINTS}/") for key in elsewhere.values()
        )
        step = value["step"]
        return CommittedCheckpoint(
            ref=ref,
            name=value["name"],
            manifest=manifest,
            after_ms=int(value["after_ms"]),
            step=None if step is None else int(step),
            written_ns={str(path): int(ns) for path, ns in value["written_ns"].items()},
            elsewhere=elsewhere,
        )
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise Damaged(f"the record of the checkpoint is damaged ({type(error).__name__})") from None


def next_run(taken: Iterable[str]) -> str:
    return f"{max((run_number(run) for run in taken), default=0) + 1:0{DIGITS}d}"


def is_run(name: str) -> bool:
    return RUN.fullmatch(name) is not None


def is_key_of_exec(key: str) -> bool:
    """Return whether `gangline exec` wrote this key below the prefix; its start-up probes count."""
    first, _, rest = key.partition("/")
    second = rest.partition("/")[0]
    return (
        first == PROBES or (first == CLAIMS and is_run(rest.removesuffix(JSON))) or (first == RUNS and is_run(second))
    )


def run_number(run: str) -> int:
    return int(run.partition("-")[0])


def overtaken_by(run: str, claims: Iterable[str]) -> str | None:
    """Return the newest run that claimed its number after this one, or None."""
    newest = max(claims, default=run)
    return newest if newest > run else None


def newest_begun(begun: Mapping[str, Begun], before: str | None = None) -> str | None:
    return max((run for run in begun if before is None or run < before), default=None)


def history(begun: Mapping[str, Begun], refs: Iterable[Ref], *, last: str | None) -> list[Ref]:
    """Return the checkpoints that led to the state of the run `last`, newest first: its own, then those of each earlier run up to the one
    from which the next resumed. What an overtaken run uploads after that is in no history."""
    known, found, until = sorted(refs, reverse=True), list[Ref](), None
    seen = set[str]()
    while last is not None and last not in seen:
        seen.add(last)
        found += [ref for ref in known if ref.run == last and (until is None or ref <= until)]
        until = begun[last].origin if last in begun else None
        last = until.run if until else None
    return found


def forgotten(
    of_history: list[Ref],
    refs: Iterable[Ref],
    pinned: frozenset[Ref],
    *,
    keep: int,
    state_of: Callable[[Ref], Hashable] = lambda ref: ref,
) -> list[Ref]:
    """Return the checkpoints to delete: all in `refs` except those of the newest `keep` states of the history and the pinned ones, each
    under all its names."""
    names = dict[Hashable, list[Ref]]()
    for ref in of_history:
        names.setdefault(state_of(ref), []).append(ref)
    kept = {ref for same in list(names.values())[:keep] for ref in same}
    kept |= {ref for same in names.values() if pinned & set(same) for ref in same}
    return sorted(ref for ref in refs if ref not in kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Totals over all runs. `lost_s` is work after the checkpoint from which the next run resumed. `cost_usd` is None if a run has no
    price."""

    runs: int
    seconds: float
    lost_s: float
    cost_usd: float | None


def account(begun: Mapping[str, Begun], lasted_ms: Mapping[str, int], *, now: str) -> Account:
    """Return the totals. `lasted_ms` is the time from each run's beginning to its last sign of life. The work of the run `now` is not lost
    yet."""
    lasted = {run: lasted_ms.get(run, 0) for run in begun}
    useful, run = {now: lasted.get(now, 0)}, now
    while run in begun and (before := begun[run].continues) and before not in useful:
        useful[before], run = begun[run].continued_ms, before
    prices = [each.usd_per_hour for each in begun.values()]
    costs = [lasted[run] * price / 3_600_000 for run, price in zip(begun, prices, strict=True) if price is not None]
    return Account(
        runs=len(begun),
        seconds=sum(lasted.values()) / 1000,
        lost_s=sum(max(0, lasted[run] - useful.get(run, 0)) for run in begun) / 1000,
        cost_usd=sum(costs) if len(costs) == len(prices) and prices else None,
    )
