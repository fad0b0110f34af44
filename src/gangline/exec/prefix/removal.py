"""Remove runs and checkpoints from a prefix. It refuses to remove what an active run resumes from, unless forced."""

from collections.abc import Callable
from dataclasses import dataclass

from gangline.core.command.lineage import BEGUN, CLAIMS, ENDED, RUNS, Ref, history, newest_begun, run_number
from gangline.core.errors import NotFound, UserError
from gangline.core.words import counted
from gangline.exec.kept import KeptCheckpoints
from gangline.exec.prefix.listing import list_prefix
from gangline.exec.run_prefix import RunPrefix


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What is removed: from which runs, how much, and what the next start of the same command then does."""

    runs: tuple[int, ...]
    checkpoints: int
    results: int
    bytes: int
    then: str


class Removal:
    """Removes the run with the number `run`, or all `checkpoints`, or, with neither, everything below the prefix. Raises `NotFound`,
    `Unreachable`, and `UserError` if an active run resumes from what would be removed, unless `force`."""

    def __init__(self, prefix: RunPrefix, now_ms: int, *, run: int | None, checkpoints: bool, force: bool) -> None:
        self._prefix = prefix
        self._everything = run is None and not checkpoints
        self._listing = listing = list_prefix(prefix, now_ms)
        self._names = [name for name in listing.names if run in (None, run_number(name))]
        if not self._names:
            raise NotFound(
                f"{prefix.address} holds no run {run}", hint=f"`gangline exec ls {prefix.address}` lists the runs"
            )
        self._refs = [ref for ref in listing.found.refs if ref.run in self._names]
        self._with_results = not checkpoints
        if not force:
            self._refuse_if_in_use()
        rows = [row for row, name in zip(listing.rows, listing.names, strict=True) if name in self._names]
        sent = [row.sent_bytes for row in listing.checkpoints if Ref(self._name_of(row.key), row.number) in self._refs]
        self.removed = Removed(
            runs=tuple(row.run for row in rows),
            checkpoints=len(self._refs),
            results=sum(row.results for row in rows) if self._with_results else 0,
            bytes=sum(row.bytes for row in rows) if self._with_results else sum(sent),
            then=self._then(),
        )

    @property
    def sentence(self) -> str:
        removed = self.removed
        what = counted(removed.checkpoints, "checkpoint")
        if self._with_results:
            what = f"{what}, {counted(removed.results, 'result file')} and the log"
        whose = "all runs" if len(self._names) == len(self._listing.names) else f"run {removed.runs[0]}"
        return f"{what} of {whose} in {self._prefix.address} ({removed.bytes / 1e6:.1f} MB); {removed.then}"

    def __call__(self) -> None:
        """Delete records before files: a kill in between leaves files without a record, and the next start deletes those. Unless everything
        is removed, the records of when a run began and how it ended stay: later runs trace their history through them, and run numbers
        continue after them."""
        prefix, found = self._prefix, self._listing.found
        kept = KeptCheckpoints(prefix, found.refs, [ref for ref in found.loose if ref.run in self._names])
        kept.delete(list(self._refs))
        for run in self._names if self._with_results else ():
            stays = () if self._everything else (f"{RUNS}/{run}/{BEGUN}", f"{RUNS}/{run}/{ENDED}")
            self._delete(
                lambda run=run, stays=stays: [key for key in prefix.objects.list(f"{RUNS}/{run}") if key not in stays]
            )
        if self._everything:
            self._delete(lambda: list(prefix.objects.list(CLAIMS)))

    def _delete(self, keys: Callable[[], list[str]]) -> None:
        self._prefix.insist(lambda: self._prefix.objects.delete(keys()))

    def _refuse_if_in_use(self) -> None:
        for row, name in zip(self._listing.rows, self._listing.names, strict=True):
            found = self._listing.found
            line = {name, *(ref.run for ref in history(found.begun, found.refs, last=name))}
            if row.state == "alive" and line & set(self._names):
                where = f" on {row.host}" if row.host else ""
                raise UserError(
                    f"run {row.run}{where} is running and depends on what would be removed",
                    hint="stop that run first, or pass --force, also if the run was killed within the last minutes",
                )

    def _then(self) -> str:
        found, gone = self._listing.found, set(self._refs)
        last = newest_begun(found.begun)
        if self._everything:
            return "the same command then starts from scratch"
        if last and self._prefix.end_of(last).get("code") == 0:
            return "the same command still does nothing, because it has finished"
        left = [ref for ref in history(found.begun, found.refs, last=last) if ref not in gone]
        if not left:
            return "the next run starts from scratch"
        row = next(row for row in self._listing.checkpoints if row.key == left[0].key)
        return f"the next run resumes from {row.name or row.key} of run {row.run}"

    def _name_of(self, key: str) -> str:
        return key.split("/")[1]
