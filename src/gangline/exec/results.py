"""Upload results while a command runs: each file once it has settled, files that keep changing at intervals, and the rest at the end.
Checkpoints have priority."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, RLock

from gangline.core.command.lineage import Begun, ResultFile, kin, newest_results, output_of
from gangline.core.command.results import KnownFile, UploadPace, UploadWay, advice, goes_at_end, strangers, way_of
from gangline.core.errors import Damaged, GanglineError
from gangline.core.files import File
from gangline.exec.checkpoint_uploader import CheckpointUploader
from gangline.exec.error_reporter import ErrorReporter
from gangline.exec.outputs import delete_results, put_results
from gangline.exec.plan import NICE
from gangline.exec.run_prefix import Abandoned, PrefixContent, RunPrefix
from gangline.ports.results import ResultFiles, ScannedFile, Sent

WAIT_S = 0.2
AT_ONCE, BYTES_AT_ONCE = 16, 64 * 2**20
NAMED_MAX = 5
REPORT_EVERY_S = 60.0
"""Seconds between messages about uploaded files: a script may write images all the time."""
PUZZLED_S = 5.0
"""Seconds until the user is warned about a file that looks like training state but is part of no checkpoint."""


@dataclass(frozen=True, slots=True)
class _Due:
    path: str
    look: ScannedFile
    way: UploadWay


class ResultUploader:
    """Uploads the results of the run `begun`. `found` is what the store held when it began; `ours` says whether the files on this
    disk are newer than that. `count` is the number of files in the store, `bytes` what was uploaded. Unless it `yields`, it continues while
    a checkpoint is uploaded."""

    def __init__(
        self,
        files: ResultFiles,
        prefix: RunPrefix,
        uploader: CheckpointUploader,
        begun: Begun,
        found: PrefixContent,
        reporter: ErrorReporter,
        say: Callable[[str], None],
        now_s: Callable[[], float],
        *,
        ours: bool,
        pace: UploadPace = UploadPace(),  # noqa: B008 - it is frozen
        yields: bool = True,
    ) -> None:
        self.count = 0
        self.bytes = 0
        self.sending = ""
        self._files = files
        self._prefix = prefix
        self._uploader = uploader
        self._run = begun.run
        self._reporter = reporter
        self._say = say
        self._now_s = now_s
        self._pace = pace
        self._yields = yields
        self._lock = RLock()
        self._known: dict[str, KnownFile] = {}
        self._records: dict[int, set[str]] = {}
        self._recorded = 0
        self._stands: dict[str, tuple[ResultFile, int]] = {}
        self._failed: set[str] = set()
        self._ending = False
        self._arrived: list[str] = []
        self._reported_s: float | None = None
        self._wondered = False
        self._resumed = bool(begun.origin or begun.continues)
        self._pause_s = pace.scan_s
        of = kin({**found.begun, begun.run: begun}, begun.run)
        self.before = frozenset(newest_results(of, found.results))
        """Paths that earlier runs have uploaded."""
        self._begin(frozenset(of), ours=ours)

    def work(self, over: Event) -> None:
        os.nice(NICE)
        with suppress(Abandoned):
            while not over.wait(self._pause_s):
                self._reporter(lambda: self.look(over))

    def look(self, over: Event) -> None:
        """Upload what has settled, until it is `over`."""
        with self._lock:
            now_s = self._now_s()
            scanned = self._scan(now_s)
            due = self._due(scanned, now_s)
            self._wonder(scanned, now_s)
            self._pause_s = self._pace.pause_s(self._now_s() - now_s)
            self._send(due, lambda: self._waits_for_checkpoints(over))
            self._report_arrived(self._now_s())

    def send_what_is_there(self) -> None:
        """Upload all that is whole, also if it has not settled: a run that resumes from now on does not write it again."""
        with self._lock:
            due = list[_Due]()
            for path, look in self._scan(self._now_s()).items():
                if look.turn in ("now", "quiet") and self._known[path].sent != look.mark:
                    with suppress(OSError):  # it was deleted since the scan
                        due += self._settled(path, look, "whole")
            self._send(due, lambda: bool(self._uploader.overtaken))

    def _wonder(self, scanned: dict[str, ScannedFile], now_s: float) -> None:
        """Warn once, and soon, that nothing is recognised as a checkpoint: the training state would be lost with the machine."""
        if self._wondered or self._resumed or self._uploader.was_given_any:
            return
        if found := strangers(path for path in scanned if now_s - self._known[path].found_s >= PUZZLED_S):
            self._wondered = True
            self._reporter.warn(
                f"{_named(found)} {'looks' if len(found) == 1 else 'look'} like training state, but no checkpoint was recognised: "
                f"{advice(found)}"
            )

    def finish(self, *, killed: bool, recognised: bool) -> bool:
        """Upload everything that differs from the store, once nobody writes any more, and return whether all of it arrived. A command that
        was `killed` may have left half-written files. If no checkpoint was `recognised`, files that look like one are uploaded as well.
        Raises `Abandoned`."""
        scanned = self._scan(self._now_s())
        left = [
            _Due(path, look, "whole")
            for path, look in scanned.items()
            if self._known[path].sent != look.mark and goes_at_end(look.turn, killed=killed, recognised=recognised)
        ]
        if states := [due.path for due in left if due.look.turn == "state"]:
            self._reporter.warn(
                f"no checkpoint was recognised, so these files are uploaded as results: {_named(states)}"
            )
        halves = [due.path for due in left if killed and not self._is_complete(due.path, due.look.at)]
        if halves:
            self._reporter.warn(f"half-written files are not uploaded: {_named(halves)}")
        self._failed, self._ending = set(), True
        self._send([due for due in left if due.path not in halves], lambda: bool(self._uploader.overtaken))
        self._reported_s = None
        self._report_arrived(self._now_s())
        lacking = [*self._files.unreadable(), *self._failed]
        for what in self._files.unreadable():
            self._reporter.warn(f"{what}, so it is not uploaded")
        for path in self._files.missing():
            self._reporter.warn(f"--results {path} does not exist")
        return not lacking and not self._uploader.overtaken

    # Which files are due

    def _begin(self, of: frozenset[str], *, ours: bool) -> None:
        """Mark files as sent that need no upload: those that an earlier run of this history sent from this disk, and, if another machine
        has resumed since, those whose paths are in the store, as its versions may be newer."""
        sent = self._files.sent()
        self._scan(self._now_s())
        for path, known in self._known.items():
            before = sent.get(path)
            is_sent = (
                before and (before.mark, before.address) == (known.mark, self._prefix.address) and before.run in of
            )
            if is_sent or (not ours and path in self.before):
                known.sent = known.mark

    def _scan(self, now_s: float) -> dict[str, ScannedFile]:
        scanned = self._files.scan()
        for path, look in scanned.items():
            known = self._known.get(path)
            if known is None:
                self._known[path] = KnownFile(mark=look.mark, found_s=now_s, changed_s=now_s)
            elif known.mark != look.mark:
                known.mark, known.changed_s = look.mark, now_s
        return scanned

    def _due(self, scanned: dict[str, ScannedFile], now_s: float) -> list[_Due]:
        changed_s = dict[str, float]()
        for path, look in scanned.items():
            changed_s[look.group] = max(changed_s.get(look.group, 0.0), self._known[path].changed_s)
        found = list[_Due]()
        for path, look in scanned.items():
            way = way_of(self._known[path], look.turn, now_s - changed_s[look.group], now_s, self._pace)
            if way != "wait":
                with suppress(OSError):  # it was deleted since the scan
                    found += self._settled(path, look, way)
        return found

    def _settled(self, path: str, look: ScannedFile, way: UploadWay) -> Iterator[_Due]:
        """Yield the file if it can be uploaded now. One that is open for writing is uploaded as a copy if it is small; a file that is
        incomplete by its own format is not uploaded."""
        if way == "whole" and self._files.is_written(look):
            way = "snapshot"
        if way == "snapshot" and (look.mark[1] > self._pace.small_bytes or look.turn == "quiet"):
            return
        if way == "snapshot" or self._files.is_complete(path, look.at):
            yield _Due(path, look, way)

    def _is_complete(self, path: str, at: Path) -> bool:
        try:
            return self._files.is_complete(path, at)
        except OSError:
            return True  # the upload raises the same error, and `_fail` reports it

    # Sending

    def _waits_for_checkpoints(self, over: Event) -> bool:
        """Wait while a checkpoint is being uploaded; return whether to stop."""
        while self._yields and self._uploader.busy and not over.wait(WAIT_S):
            pass
        return over.is_set() or bool(self._uploader.overtaken)

    def _send(self, due: list[_Due], is_over: Callable[[], bool]) -> None:
        """Upload the smallest files first, so that most files arrive if the machine has only seconds left. A batch that fails is retried
        file by file."""
        if not due:
            return
        # This sets `overtaken`, which `is_over` reads.
        self._prefix.insist(self._uploader.look_for_newer)
        waiting = _batches(sorted(due, key=lambda each: (each.look.mark[1], each.path)))
        while waiting and not is_over():
            batch = waiting.pop(0)
            self.sending = batch[0].path
            try:
                self._send_batch(batch)
            except (GanglineError, OSError) as error:
                if len(batch) > 1:
                    waiting[:0] = [[each] for each in batch]
                else:
                    self._fail(batch[0], error)
            finally:
                self.sending = ""

    def _fail(self, due: _Due, error: GanglineError | OSError) -> None:
        """Report a failed upload. A file that has disappeared is not reported; one that changed during the upload is reported only at the
        end, when nobody should write any more."""
        if isinstance(error, FileNotFoundError):
            return
        self._known[due.path].sent_s = self._now_s()  # so that it is not retried at once
        self._failed.add(due.path)
        if not isinstance(error, Damaged) or self._ending:
            why = error.message if isinstance(error, GanglineError) else error.strerror
            self._reporter.warn(f"{due.path} is not uploaded: {why}")

    def _send_batch(self, batch: list[_Due]) -> None:
        begun_s, held = self._now_s(), dict[ResultFile, Path]()
        with ExitStack() as stack:
            for due in batch:
                try:
                    file, at = stack.enter_context(self._files.hold(due.path, due.look, copied=due.way == "snapshot"))
                except Damaged:
                    if self._ending:
                        raise
                    continue  # it is being written; the next scan sees what it has become
                if due.way == "whole" or self._files.is_complete(due.path, at):
                    held[self._next(due.path, file)] = at
            self._put(held)
        sent, now_s = [due for due in batch if due.path in {each.path for each in held}], self._now_s()
        for due in sent:
            known = self._known[due.path]
            known.sent, known.sent_s, known.took_s = due.look.mark, now_s, (now_s - begun_s) / len(batch)
        self._files.note(
            {due.path: Sent(mark=due.look.mark, run=self._run, address=self._prefix.address) for due in sent}
        )

    def _next(self, path: str, file: File) -> ResultFile:
        """Return the next version of a file. A name that was tried is never used again: it may hold other bytes."""
        self._known[path].version += 1
        return ResultFile(run=self._run, path=path, version=self._known[path].version, file=file)

    def _put(self, held: dict[ResultFile, Path]) -> None:
        """Upload the files and their record; then delete the versions that they replace, and records that name no other file."""
        if not held:
            return
        self._recorded += 1
        try:
            put_results(self._prefix, self._run, self._recorded, held)
        except Damaged:
            delete_results(self._prefix, self._run, held, ())
            raise
        before = [(each.path, *self._stands[each.path]) for each in held if each.path in self._stands]
        self._records[self._recorded] = {each.path for each in held}
        self._stands |= {each.path: (each, self._recorded) for each in held}
        for path, _, number in before:
            self._records[number].discard(path)
        gone = {number for _, _, number in before if not self._records[number]}
        if before:
            delete_results(self._prefix, self._run, [result for _, result, _ in before], gone)
        self._count(held)

    def _count(self, held: Iterable[ResultFile]) -> None:
        self.count = len(self._stands)
        self.bytes += sum(each.file.bytes for each in held if each.file)
        self._arrived += [each.path for each in held if each.version == 1]

    def _report_arrived(self, now_s: float) -> None:
        """Report files that arrived for the first time."""
        arrived = self._arrived
        if arrived and (self._reported_s is None or now_s - self._reported_s >= REPORT_EVERY_S):
            is_one = len(arrived) == 1
            self._say(
                f"{_named(arrived)} {'is' if is_one else 'are'} safe in {self._prefix.address}/{output_of(self._run)}"
            )
            self._arrived, self._reported_s = [], now_s


def _batches(due: list[_Due]) -> list[list[_Due]]:
    found, size = list[list[_Due]](), 0
    for each in due:
        size += each.look.mark[1]
        if not found or len(found[-1]) >= AT_ONCE or size > BYTES_AT_ONCE:
            found.append([])
            size = each.look.mark[1]
        found[-1].append(each)
    return found


def _named(paths: list[str]) -> str:
    """Return the first few paths as text."""
    more = len(paths) - NAMED_MAX
    return ", ".join(paths[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
