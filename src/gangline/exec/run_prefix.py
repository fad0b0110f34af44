"""Read and write what the runs of one command keep in an object store (gangline.core.command.lineage): claims, checkpoints, logs, results.

Every call blocks until it is done, so call it from a thread that may wait. The rules of `lineage` decide; this module knows no command, no
workspace and no signal.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from secrets import token_hex
from threading import Event
from time import monotonic
from types import MappingProxyType
from typing import Any, TypeVar

from gangline.core.command.lineage import (
    BEGUN,
    CHECKPOINTS,
    CLAIMS,
    ENDED,
    JSON,
    OUTPUT_RECORDS,
    RUNS,
    Begun,
    CommittedCheckpoint,
    Ref,
    ResultFile,
    is_key_of_exec,
    is_run,
    next_run,
    parse_begun,
    parse_committed,
    parse_result,
)
from gangline.core.errors import BadInput, Damaged, NotFound, Unreachable, UserError
from gangline.core.files import PART_BYTES, File, Grant, Signed
from gangline.core.jobs.retry import retry_s
from gangline.core.runs.contract import Manifest
from gangline.ports.objects import Objects
from gangline.ports.server import Upload
from gangline.ports.transfer import Task, Transfer
from gangline.ports.workspace import Taken
from gangline.service.content.parts import attested, declared, in_parts, single_upload
from gangline.worker.edges import Activity, Clock
from gangline.worker.move import Move, move_all

T = TypeVar("T")

URL_S = 3600.0
TRIES_MAX = 3
NAP_S = 0.02
LOOK_S = 0.2
CLAIM_TRIES_MAX = 100
TRIES_SILENT = 3
LOGS = "log"
LOG_DIGITS = 12


class Abandoned(Exception):
    """Raised when `give_up_s` has passed: nobody waits for the store any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixContent:
    """The content of a prefix. `runs` are all runs that left anything; `loose` are folders of checkpoints whose upload never finished.
    `lasted_ms` is the time from a run's beginning to its last sign of life. `results` come from their keys alone: sizes and hashes are in
    the `records`, which are listed by key."""

    runs: list[str] = field(default_factory=list)
    begun: dict[str, Begun] = field(default_factory=dict)
    refs: list[Ref] = field(default_factory=list)
    loose: list[Ref] = field(default_factory=list)
    lasted_ms: dict[str, int] = field(default_factory=dict)
    results: list[ResultFile] = field(default_factory=list)
    records: list[str] = field(default_factory=list)


@dataclass
class RunPrefix:
    """The prefix of one command. `address` is its name in messages. After the moment `give_up_s` (time.monotonic), whoever waits for the
    store gets `Abandoned`; a signal handler may set it. `say` receives one line when the store does not answer."""

    objects: Objects
    transfer: Transfer
    address: str
    rng: Random
    now_ms: Callable[[], int]
    give_up_s: float = math.inf
    say: Callable[[str], None] | None = None
    _begun: dict[str, str] = field(default_factory=dict)
    _never: Event = field(default_factory=Event)

    def check(self) -> None:
        """Raise `UserError` if the prefix holds objects that `gangline exec` did not write."""
        foreign = next((key for key in self.objects.list("") if not is_key_of_exec(key)), None)
        if foreign is not None:
            raise UserError(
                f"{self.address} holds other files than those of `gangline exec`: {foreign}",
                hint="give each script its own, empty prefix in --to",
            )

    def claims(self) -> list[str]:
        return sorted(filter(is_run, (_stem(key) for key in self.objects.list(CLAIMS))))

    def claim(self, facts: Mapping[str, Any], known: Iterable[str] = ()) -> str:
        """Claim the next run number, which no other run ever gets. `known` are runs whose claims may be gone: a lifecycle rule of the
        bucket may have deleted them. Raises `Unreachable`.

        If the store has no conditional writes, two runs may pick the same number, so a random suffix keeps their names apart. A run that
        finds a claim greater than its own takes a greater one: of two runs that both continue, one always sees the other's claim.
        """
        for _ in range(CLAIM_TRIES_MAX):
            run = next_run([*self.claims(), *known])
            run = run if self.objects.creates_only else f"{run}-{token_hex(4)}"
            try:
                self.objects.write(f"{CLAIMS}/{run}{JSON}", _json({**facts, "run": run, "token": token_hex(8)}))
            except BadInput:
                continue
            if max(self.claims(), default="") == run:
                return run
        raise Unreachable(f"no run number could be claimed in {CLAIM_TRIES_MAX} tries")

    def find(self) -> PrefixContent:
        """List the prefix. A run whose record of its beginning is damaged or missing is assumed to have resumed from the newest checkpoint
        of all runs before it."""
        results, records = list[ResultFile](), list[str]()
        runs, begun, refs, loose, signs = set[str](), set[str](), set[Ref](), set[Ref](), defaultdict[str, int](int)
        for key in self.objects.list(RUNS):
            parts = key.split("/")
            runs.add(parts[1])
            match parts:
                case [_, run, name] if name == BEGUN:
                    begun.add(run)
                case [_, run, kind, name] if kind == CHECKPOINTS and name.endswith(JSON) and _stem(name).isdecimal():
                    refs.add(Ref(run, int(_stem(name))))
                case [_, run, kind, number, *_] if kind == CHECKPOINTS and number.isdecimal():
                    loose.add(Ref(run, int(number)))
                case [_, run, kind, name] if kind == LOGS and name.split(".")[0].isdecimal():
                    signs[run] = max(signs[run], int(name.split(".")[0]))
                case [_, _, kind, _] if kind == OUTPUT_RECORDS:
                    records.append(key)
                case _:
                    results += [result] if (result := parse_result(key)) else []
        known = {
            run: self._begun_of(run, refs)
            for run in sorted(begun | {ref.run for ref in refs} | {each.run for each in results})
        }
        for each in known.values():
            if each.continues:
                signs[each.continues] = max(signs[each.continues], each.continued_ms)
        for run in {ref.run for ref in refs}:
            with suppress(Damaged):
                signs[run] = max(signs[run], self.read(max(ref for ref in refs if ref.run == run)).after_ms)
        # A run without a log and without a readable checkpoint still has the time in its end record.
        signs |= {run: int(self.end_of(run).get("after_ms", 0)) for run in known.keys() - signs.keys()}
        return PrefixContent(
            runs=sorted(runs),
            begun=known,
            refs=sorted(refs),
            loose=sorted(loose - refs),
            lasted_ms=dict(signs),
            results=results,
            records=sorted(records),
        )

    def _begun_of(self, run: str, refs: Iterable[Ref]) -> Begun:
        try:
            return parse_begun(run, self.read_json(f"{RUNS}/{run}/{BEGUN}"))
        except Damaged:
            origin = max((ref for ref in refs if ref.run < run), default=None)
            claimed_ms = self.claim_of(run).get("at_ms")  # shortly before it began
            return Begun(run=run, origin=origin, at_ms=claimed_ms if isinstance(claimed_ms, int) else 0)

    def claim_of(self, run: str) -> dict[str, Any]:
        """Return what the run wrote when it claimed its number; empty if that cannot be read."""
        return self._read_if_intact(f"{CLAIMS}/{run}{JSON}")

    def read(self, ref: Ref) -> CommittedCheckpoint:
        """Return the record of a checkpoint. Raises `Damaged`."""
        return parse_committed(ref, self.read_json(f"{ref.key}{JSON}"))

    def end_of(self, run: str) -> dict[str, Any]:
        """Return what the run wrote when it ended; empty if it wrote nothing."""
        return self._read_if_intact(f"{RUNS}/{run}/{ENDED}")

    def _read_if_intact(self, key: str) -> dict[str, Any]:
        try:
            found = self.read_json(key)
        except Damaged:
            return {}
        return found if isinstance(found, dict) else {}

    def begin(self, begun: Begun) -> None:
        self.keep(f"{RUNS}/{begun.run}/{BEGUN}", begun.to_json())

    def end(self, run: str, facts: Mapping[str, Any]) -> None:
        self.keep(f"{RUNS}/{run}/{ENDED}", facts)

    def log(self, run: str, after_ms: int, content: bytes) -> None:
        self.objects.write(f"{RUNS}/{run}/{LOGS}/{after_ms:0{LOG_DIGITS}d}.txt", content)

    def commit(
        self,
        ref: Ref,
        taken: Taken,
        described: tuple[File, ...],
        after_ms: int,
        identity: str,
        keys: Mapping[str, str] = MappingProxyType({}),
    ) -> CommittedCheckpoint:
        """Upload all files until each is attested or read back, then write the record. `keys` maps the SHA-256s of bytes that are in the
        store already to their keys; those are not uploaded again. Raises `Damaged` if a file changed in the meantime, and `Abandoned`."""
        manifest = Manifest(step=taken.step or 0, spec_hash=identity, fingerprint={}, exact=False, files=described)
        committed = CommittedCheckpoint(
            ref=ref,
            name=taken.name,
            manifest=manifest,
            after_ms=after_ms,
            step=taken.step,
            written_ns=taken.written_ns,
            elsewhere={file.path: keys[file.sha256] for file in described if file.sha256 in keys},
        )
        sent = [file for file in described if file.path not in committed.elsewhere]
        self.put([Move(file, taken.files[file.path], committed.key_of(file.path)) for file in sent])
        self.keep(f"{ref.key}{JSON}", committed.to_json())
        return committed

    def put(self, moves: list[Move]) -> None:
        """Upload the files until the store has attested each one or it was read back. Raises `Damaged`, `Abandoned`."""
        uploads = {move: self._describe(move) for move in moves}

        def ask(now: list[Move]) -> Activity[tuple[Grant, ...]]:
            yield from ()
            return tuple(self.insist(partial(self._grant, move.name, uploads[move])) for move in now)

        def start(grant: Grant, move: Move) -> Task[None]:
            return self.transfer.upload(grant, uploads[move], move.local)

        waiting = list(uploads)
        for _ in range(TRIES_MAX):
            self._drive(partial(move_all, rng=self.rng, moves=waiting, ask=ask, start=start, tries_of_an_answer=1))
            waiting = [move for move in waiting if not self.insist(partial(self._stands, move.name, uploads[move]))]
            if not waiting:
                return
        raise Damaged(f"{waiting[0].file.path} does not arrive intact in the store")

    def get(self, committed: CommittedCheckpoint, to: Path) -> None:
        """Download each file of the checkpoint to its path below `to`. Raises the same errors as `fetch`."""
        self.fetch([Move(file, to / file.path, committed.key_of(file.path)) for file in committed.manifest.files])

    def fetch(self, moves: list[Move]) -> None:
        """Download the files. Raises `Damaged`, `NotFound`, `Abandoned`, and OSError if the disk is full."""

        def ask(now: list[Move]) -> Activity[tuple[Signed, ...]]:
            yield from ()
            return tuple(self.objects.sign_get(move.name, now_ms=self.now_ms(), seconds=URL_S) for move in now)

        def start(signed: Signed, move: Move) -> Task[None]:
            return self.transfer.download(signed, move.file, move.local, durable=True)

        self._drive(partial(move_all, rng=self.rng, moves=moves, ask=ask, start=start, tries_of_an_answer=1))

    def _describe(self, move: Move) -> Upload:
        if move.file.bytes <= PART_BYTES:
            return Upload(path=move.file.path, bytes=move.file.bytes, sha256=move.file.sha256)
        task = self.transfer.describe(move.file, move.local)
        while not task.done:
            self._nap(NAP_S)
        if task.error is not None:
            raise task.error
        return task.result

    def _grant(self, key: str, upload: Upload) -> Grant:
        now_ms = self.now_ms()
        if not self.objects.in_parts(upload.bytes):
            return single_upload(self.objects, key, upload, now_ms, URL_S)
        parts = declared(upload.bytes, upload.parts or (upload.sha256,))
        begun = self._begun.get(key)
        here = self.objects.parts(key, begun) if begun else None
        if begun is None or here is None:
            begun, here = self.objects.begin(key), {}
            self._begun[key] = begun
        return in_parts(self.objects, key, begun, here, parts, now_ms, URL_S)

    def _stands(self, key: str, upload: Upload) -> bool:
        parts = upload.parts or (upload.sha256,)
        if self.objects.in_parts(upload.bytes) and (begun := self._begun.pop(key, None)):
            self.objects.complete(key, begun, declared(upload.bytes, parts))
        try:
            return attested(self.objects, key, upload, upload.parts) or self.objects.read_back(key) == upload.sha256
        except (Damaged, NotFound):
            return False

    def keep(self, key: str, value: Mapping[str, Any]) -> None:
        """Write a record, and retry until the store has it."""
        self.insist(lambda: self.objects.write(key, _json(value)))

    def read_json(self, key: str) -> Any:
        """Return the parsed object. Raises `Damaged`, also if it does not exist."""
        try:
            return json.loads(self.objects.read(key))
        except (ValueError, RecursionError, NotFound):
            raise Damaged(f"{key} in {self.address} is damaged") from None

    def insist(self, ask: Callable[[], T]) -> T:
        """Call `ask` until the store answers. Raises `Abandoned` after `give_up_s`."""
        tries, said = 0, False
        while True:
            try:
                return ask()
            except Unreachable as error:
                if tries >= TRIES_SILENT and self.say and not said:
                    self.say(f"{error.message}; retrying until it answers, or until SIGTERM")
                    said = True
                self._nap(retry_s(tries, self.rng))
                tries += 1

    def _drive(self, begin: Callable[[Clock], Activity[T]]) -> T:
        clock = Clock(monotonic())
        activity = begin(clock)
        while True:
            clock.now_s = monotonic()
            try:
                until_s = next(activity)
            except StopIteration as ended:
                return ended.value
            self._nap(max(0.0, min(until_s - monotonic(), NAP_S)))

    def _nap(self, seconds: float) -> None:
        until_s = monotonic() + seconds
        while (now_s := monotonic()) < min(until_s, self.give_up_s):
            self._never.wait(min(until_s - now_s, LOOK_S))  # in slices: a signal may set `give_up_s`
        if now_s >= self.give_up_s:
            self.transfer.stop()
            raise Abandoned


def _stem(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(JSON)


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
