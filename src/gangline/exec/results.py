"""Results on their way into the store, beside a command: each file as it settles, what changes again and again at intervals, and at the
end whatever is left. Checkpoints go first."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from gangline.core.command.lineage import Begun, ResultFile, kin, newest_results, output_of
from gangline.core.command.results import KnownFile, UploadPace, UploadWay, advice, goes_at_end, strangers, way_of
from gangline.core.errors import Damaged, GanglineError
from gangline.core.files import File
from gangline.exec.error_reporter import ErrorReporter
from gangline.exec.outputs import delete_results, put_results
from gangline.exec.plan import NICE
from gangline.exec.run_prefix import Abandoned, PrefixContent, RunPrefix
from gangline.exec.sender import CheckpointUploader
from gangline.ports.results import ResultFiles, ScannedFile, Sent

WAIT_S = 0.2
AT_ONCE, BYTES_AT_ONCE = 16, 64 * 2**20
NAMED_MAX = 5
TOLD_EVERY_S = 60.0
"""How often it is said which files have arrived: a script may write pictures all the time."""
PUZZLED_S = 5.0
"""How long a file that looks like a training's state lies there before that is said."""


@dataclass(frozen=True, slots=True)
class _Due:
    path: str
    look: ScannedFile
    way: UploadWay


class ResultUploader:
    """Of the run that `begun` tells of. `found` is what there was in the store when it began, `ours` whether what lies on this disk is
    newer than that. `count` is how many files stand in the store, `bytes` what sending them took."""

    def __init__(
        self,
        files: ResultFiles,
        prefix: RunPrefix,
        sender: CheckpointUploader,
        begun: Begun,
        found: PrefixContent,
        reporter: ErrorReporter,
        say: Callable[[str], None],
        now_s: Callable[[], float],
        *,
        ours: bool,
        pace: UploadPace = UploadPace(),  # noqa: B008 - it is frozen
    ) -> None:
        self.count = 0
        self.bytes = 0
        self.sending = ""
        self._files = files
        self._prefix = prefix
        self._sender = sender
        self._run = begun.run
        self._reporter = reporter
        self._say = say
        self._now_s = now_s
        self._pace = pace
        self._known: dict[str, KnownFile] = {}
        self._records: dict[int, set[str]] = {}
        self._recorded = 0
        self._stands: dict[str, tuple[ResultFile, int]] = {}
        self._failed: set[str] = set()
        self._ending = False
        self._arrived: list[str] = []
        self._told_s: float | None = None
        self._wondered = False
        self._resumed = bool(begun.origin or begun.continues)
        self._pause_s = pace.scan_s
        of = kin({**found.begun, begun.run: begun}, begun.run)
        self.before = frozenset(newest_results(of, found.results))
        """The paths that runs before have sent."""
        self._begin(frozenset(of), ours=ours)

    def work(self, over: Event) -> None:
        os.nice(NICE)
        with suppress(Abandoned):
            while not over.wait(self._pause_s):
                self._reporter(lambda: self.look(over))

    def look(self, over: Event) -> None:
        """Send what has settled, until it is `over`."""
        now_s = self._now_s()
        scanned = self._scan(now_s)
        due = self._due(scanned, now_s)
        self._wonder(scanned, now_s)
        self._pause_s = self._pace.pause_s(self._now_s() - now_s)
        self._send(due, lambda: self._waits_for_checkpoints(over))
        self._tell(self._now_s())

    def _wonder(self, scanned: dict[str, ScannedFile], now_s: float) -> None:
        """Once, and soon: a training whose state nothing is known to be a checkpoint of would be lost with its machine."""
        if self._wondered or self._resumed or self._sender.was_given_any:
            return
        if found := strangers(path for path in scanned if now_s - self._known[path].found_s >= PUZZLED_S):
            self._wondered = True
            self._reporter.warn(
                f"{_named(found)} {'looks' if len(found) == 1 else 'look'} like the state of a training, but nothing is known here as a "
                f"checkpoint: {advice(found)}"
            )

    def finish(self, *, killed: bool, recognised: bool) -> bool:
        """Send whatever is not in the store as it is, once nobody writes any more; return whether all of it is. What was `killed` may have
        left half-written files. Where no checkpoint was `recognised`, what looks like one goes up as well. Raises `Abandoned`."""
        scanned = self._scan(self._now_s())
        left = [
            _Due(path, look, "whole")
            for path, look in scanned.items()
            if self._known[path].sent != look.mark and goes_at_end(look.turn, killed=killed, recognised=recognised)
        ]
        if states := [due.path for due in left if due.look.turn == "state"]:
            self._reporter.warn(f"no checkpoint was recognised: {_named(states)} goes up with the results")
        halves = [due.path for due in left if killed and not self._is_whole(due.path, due.look.at)]
        if halves:
            self._reporter.warn(f"half-written, and not uploaded: {_named(halves)}")
        self._failed, self._ending = set(), True
        self._send([due for due in left if due.path not in halves], lambda: bool(self._sender.overtaken))
        self._told_s = None
        self._tell(self._now_s())
        lacking = [*self._files.unreadable(), *self._failed]
        for path in self._files.unreadable():
            self._reporter.warn(f"{path} cannot be read: it is not uploaded")
        for path in self._files.missing():
            self._reporter.warn(f"--results {path} is not there")
        return not lacking and not self._sender.overtaken

    # What is due

    def _begin(self, of: frozenset[str], *, ours: bool) -> None:
        """What an earlier run of this history has sent from this disk counts as sent; so does, on a disk that another run has gone on
        from elsewhere, what has the path of something that run may have made anew."""
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
                with suppress(OSError):  # it has gone since the scan
                    found += self._settled(path, look, way)
        return found

    def _settled(self, path: str, look: ScannedFile, way: UploadWay) -> Iterator[_Due]:
        """One that is open for writing goes up as a copy where it is small; half of one by its own format does not."""
        if way == "whole" and self._files.is_written(look):
            way = "snapshot"
        if way == "snapshot" and (look.mark[1] > self._pace.small_bytes or look.turn == "quiet"):
            return
        if way == "snapshot" or self._files.is_whole(path, look.at):
            yield _Due(path, look, way)

    def _is_whole(self, path: str, at: Path) -> bool:
        try:
            return self._files.is_whole(path, at)
        except OSError:
            return True  # sending it says what is wrong

    # Sending

    def _waits_for_checkpoints(self, over: Event) -> bool:
        """Whether it is over; not while one is on its way."""
        while self._sender.busy and not over.wait(WAIT_S):
            pass
        return over.is_set() or bool(self._sender.overtaken)

    def _send(self, due: list[_Due], is_over: Callable[[], bool]) -> None:
        """The smallest first: where a machine has seconds left, most files arrive. A batch that fails is sent file by file."""
        if not due:
            return
        self._prefix.insist(self._sender.look_for_newer)
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
        """What has gone is nothing to say; what changes meanwhile only where nobody should write any more."""
        if isinstance(error, FileNotFoundError):
            return
        self._known[due.path].sent_s = self._now_s()  # not again at once
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
                    continue  # somebody writes it again: the next look finds it as it is then
                if due.way == "whole" or self._files.is_whole(due.path, at):
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
        """A name that was tried is not used again: other bytes may lie there."""
        self._known[path].version += 1
        return ResultFile(run=self._run, path=path, version=self._known[path].version, file=file)

    def _put(self, held: dict[ResultFile, Path]) -> None:
        """Files and their record; then what they take the place of goes, and records that tell of nothing else."""
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

    def _tell(self, now_s: float) -> None:
        """What has arrived for the first time."""
        arrived = self._arrived
        if arrived and (self._told_s is None or now_s - self._told_s >= TOLD_EVERY_S):
            is_one = len(arrived) == 1
            self._say(
                f"{_named(arrived)} {'is' if is_one else 'are'} safe in {self._prefix.address}/{output_of(self._run)}"
            )
            self._arrived, self._told_s = [], now_s


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
    """The first few of them."""
    more = len(paths) - NAMED_MAX
    return ", ".join(paths[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
