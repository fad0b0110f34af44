"""The checkpoints that lie below a prefix, their files, and what is deleted of them: never what a kept record refers to.

A record goes before its files, and a record comes after them. So a kill between any two requests leaves files without a record, which
the next run finds, and no record without its files.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping

from gangline.core.command.lineage import JSON, Begun, CommittedCheckpoint, Ref, forgotten, history
from gangline.core.errors import Damaged
from gangline.exec.run_prefix import RunPrefix


def find_record(prefix: RunPrefix, ref: Ref) -> CommittedCheckpoint | None:
    """None where it is damaged."""
    try:
        return prefix.read(ref)
    except Damaged:
        return None


class KeptCheckpoints:
    """`refs` have records; `loose` are folders of files without one."""

    def __init__(self, prefix: RunPrefix, refs: Iterable[Ref], loose: Iterable[Ref]) -> None:
        self.refs = list(refs)
        self._prefix = prefix
        self._records: dict[Ref, CommittedCheckpoint | None] = {}
        self._loose: dict[Ref, frozenset[str] | None] = dict.fromkeys(loose)
        """With what was left there because it is needed; None where nobody has looked."""

    def add(self, committed: CommittedCheckpoint) -> None:
        self.refs.append(committed.ref)
        self._records[committed.ref] = committed

    def read(self, ref: Ref) -> CommittedCheckpoint | None:
        """None where its record is damaged."""
        if ref not in self._records:
            self._records[ref] = self._prefix.insist(lambda: find_record(self._prefix, ref))
        return self._records[ref]

    def keys_of(self, run: str) -> dict[str, str]:
        """Where the bytes of each SHA-256 lie that this run has sent, as far as they are sure to stay."""
        found = [self.read(ref) for ref in self.refs if ref.run == run]
        return {sha256: key for each in found if each for sha256, key in each.keys.items()}

    def forget(
        self, begun: Mapping[str, Begun], last: str, *, keep: int, pins: Collection[int], without: Collection[Ref] = ()
    ) -> None:
        """Delete all but the newest `keep` states that led to where the run `last` stands, `without` some, and those of the steps `pins`.
        What came from a run after it stays."""
        mine = [ref for ref in self.refs if ref.run <= last]
        of_history = history(begun, [ref for ref in mine if ref not in without], last=last)
        pinned = frozenset(ref for ref in of_history if (each := self.read(ref)) and each.step in pins)
        self.delete(forgotten(of_history, mine, pinned, keep=keep, state_of=self._state_of))

    def delete(self, gone: Collection[Ref]) -> None:
        """Those, and what lies loose. Where a record that stays is damaged, the files of its run stay: nobody knows which it refers to."""
        for ref in gone:
            self._delete([f"{ref.key}{JSON}"])
            self.refs.remove(ref)
            self._loose[ref] = None
        if not self._loose:
            return
        runs = {ref.run for ref in self._loose}
        kept = {ref: self.read(ref) for ref in self.refs if ref.run in runs}
        unsure = {ref.run for ref, each in kept.items() if each is None}
        needed = frozenset(key for each in kept.values() if each for key in each.elsewhere.values())
        for ref in [each for each in self._loose if each.run not in unsure]:
            self._sweep(ref, frozenset(key for key in needed if key.startswith(f"{ref.key}/")))

    def _state_of(self, ref: Ref) -> Hashable:
        committed = self.read(ref)
        return ref if committed is None else committed.state

    def _sweep(self, ref: Ref, needed: frozenset[str]) -> None:
        if needed and self._loose[ref] == needed:
            return
        there = self._prefix.insist(lambda: list(self._prefix.objects.list(ref.key)))
        self._delete([key for key in there if key not in needed])
        if needed:
            self._loose[ref] = needed
        else:
            del self._loose[ref]

    def _delete(self, keys: list[str]) -> None:
        self._prefix.insist(lambda: self._prefix.objects.delete(keys))
