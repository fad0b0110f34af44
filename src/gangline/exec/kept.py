"""Track the checkpoints below a prefix and delete old ones, but never a file that a kept record refers to.

Deletion removes the record before the files, and an upload writes it after them. So a kill between any two requests leaves files without a
record, which the next run finds and deletes, and never a record without its files.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping

from gangline.core.command.lineage import JSON, Begun, CommittedCheckpoint, Ref, forgotten, history
from gangline.core.errors import Damaged
from gangline.exec.run_prefix import RunPrefix


def find_record(prefix: RunPrefix, ref: Ref) -> CommittedCheckpoint | None:
    """Return the record; None if it is damaged."""
    try:
        return prefix.read(ref)
    except Damaged:
        return None


class KeptCheckpoints:
    """The checkpoints of a prefix: `refs` have records, `loose` are folders of files without one."""

    def __init__(self, prefix: RunPrefix, refs: Iterable[Ref], loose: Iterable[Ref]) -> None:
        self.refs = list(refs)
        self._prefix = prefix
        self._records: dict[Ref, CommittedCheckpoint | None] = {}
        self._loose: dict[Ref, frozenset[str] | None] = dict.fromkeys(loose)
        """The keys that were left in each folder because a kept record needs them; None until the folder was listed."""

    def add(self, committed: CommittedCheckpoint) -> None:
        self.refs.append(committed.ref)
        self._records[committed.ref] = committed

    def read(self, ref: Ref) -> CommittedCheckpoint | None:
        """Return the record; None if it is damaged."""
        if ref not in self._records:
            self._records[ref] = self._prefix.insist(lambda: find_record(self._prefix, ref))
        return self._records[ref]

    def keys_of(self, run: str) -> dict[str, str]:
        """Map the SHA-256s of bytes that this run has uploaded to their keys. Keys of other runs are left out, as another process may
        delete those."""
        found = [self.read(ref) for ref in self.refs if ref.run == run]
        return {sha256: key for each in found if each for sha256, key in each.keys.items()}

    def forget(
        self, begun: Mapping[str, Begun], last: str, *, keep: int, pins: Collection[int], without: Collection[Ref] = ()
    ) -> None:
        """Delete all checkpoints up to the run `last` except those in its history that hold its newest `keep` states or the steps `pins`.
        Those in `without` are deleted too. Checkpoints of runs after `last` stay."""
        mine = [ref for ref in self.refs if ref.run <= last]
        of_history = history(begun, [ref for ref in mine if ref not in without], last=last)
        pinned = frozenset(ref for ref in of_history if (each := self.read(ref)) and each.step in pins)
        self.delete(forgotten(of_history, mine, pinned, keep=keep, state_of=self._state_of))

    def delete(self, gone: Collection[Ref]) -> None:
        """Delete these checkpoints and all loose files. If a record that stays is damaged, the loose files of its run stay too, as it may
        refer to them."""
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
