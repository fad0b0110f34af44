"""Upload checkpoints, the newest first, and delete old ones once newer ones are in the store."""

import json
from collections.abc import Callable
from threading import Condition

from gangline.core.canonical import digest
from gangline.core.command.lineage import Begun, CommittedCheckpoint, Ref, overtaken_by
from gangline.core.errors import Damaged, GanglineError
from gangline.core.files import File
from gangline.core.runs.contract import MANIFEST, parse_manifest
from gangline.exec.kept import KeptCheckpoints
from gangline.exec.plan import ExecPlan
from gangline.exec.run_prefix import Abandoned, PrefixContent, RunPrefix
from gangline.ports.workspace import Taken, Workspace

Safe = Callable[[CommittedCheckpoint], None]


class CheckpointUploader:
    """Uploads the checkpoints of the run `begun`. `found` is what the store held when it began. `safe` is called with each checkpoint that
    has arrived."""

    def __init__(
        self,
        plan: ExecPlan,
        prefix: RunPrefix,
        workspace: Workspace,
        begun: Begun,
        found: PrefixContent,
        safe: Safe,
        say: Callable[[str], None],
    ) -> None:
        self.committed: list[CommittedCheckpoint] = []
        self.sending = ""
        self.overtaken = ""
        self._failed: Ref | None = None
        self._plan = plan
        self._prefix = prefix
        self._workspace = workspace
        self._run = begun.run
        self._safe = safe
        self._say = say
        self._begun = {**found.begun, begun.run: begun}
        self._kept = KeptCheckpoints(prefix, found.refs, [ref for ref in found.loose if ref.run < begun.run])
        self._waiting: list[tuple[Ref, Taken, int]] = []
        self._added_to = set[Ref]()
        self._taken = 0
        self._closing = False
        self._changed = Condition()

    @property
    def lacks_newest(self) -> bool:
        """Return whether an upload failed and no newer checkpoint arrived after it."""
        return self._failed is not None and all(self._failed > committed.ref for committed in self.committed)

    @property
    def busy(self) -> bool:
        """Return whether a checkpoint waits or is being uploaded."""
        return bool(self._waiting or self.sending)

    @property
    def was_given_any(self) -> bool:
        return self._taken > 0

    def put(self, taken: Taken, after_ms: int) -> None:
        """Queue a checkpoint. If more wait than are kept, the oldest are skipped: they would be deleted as soon as they had arrived."""
        self._taken += 1
        with self._changed:
            self._waiting.append((Ref(self._run, self._taken), taken, after_ms))
            spare = [each for each in self._waiting if each[1].step not in self._plan.pins]
            for late in spare[: max(0, len(spare) - self._plan.keep)]:
                self._waiting.remove(late)
                self._workspace.release(late[1])
                self._say(f"{late[1].title} is skipped, because newer checkpoints were saved during another upload")
            self._changed.notify_all()

    def close(self) -> None:
        """Accept no more checkpoints; those that wait are still uploaded."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def send_next(self) -> bool:
        """Wait for a checkpoint and upload it. Return False if no more will come. Raises `Abandoned` if the run was overtaken."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if not self._waiting:
                return False
            ref, taken, after_ms = self._waiting.pop()  # the newest first: a restart resumes from it
        self.sending = taken.title
        try:
            self._commit(ref, taken, after_ms)
        except (GanglineError, OSError):
            self._failed = max(ref, self._failed or ref)
            raise
        finally:
            self.sending = ""
            self._workspace.release(taken)
        return True

    def look_for_newer(self) -> None:
        """Set `overtaken` if another run has claimed a greater number. Raises `Unreachable`."""
        self.overtaken = self.overtaken or overtaken_by(self._run, self._prefix.claims()) or ""

    def _commit(self, ref: Ref, taken: Taken, after_ms: int) -> None:
        self._refuse_if_overtaken()
        described = self._workspace.describe(taken)
        _check_own_manifest(taken, described)
        identity, keys = digest(list(self._plan.command)), self._kept.keys_of(self._run)
        committed = self._prefix.commit(ref, taken, described, after_ms, identity, keys)
        if taken.adds and (same := next((each for each in reversed(self.committed) if each.name == taken.name), None)):
            self._added_to.add(same.ref)  # the new one contains all of it
        self.committed.append(committed)
        self._kept.add(committed)
        self._safe(committed)
        self.forget(self._plan.keep)

    def forget(self, keep: int) -> None:
        """Delete old checkpoints, unless this run was overtaken: a checkpoint that is old to it may be the one that another run resumed
        from. Raises `Abandoned`."""
        self._refuse_if_overtaken()
        self._kept.forget(self._begun, self._run, keep=keep, pins=self._plan.pins, without=self._added_to)

    def _refuse_if_overtaken(self) -> None:
        self._prefix.insist(self.look_for_newer)
        if self.overtaken:
            raise Abandoned


def _check_own_manifest(taken: Taken, described: tuple[File, ...]) -> None:
    """Check the files against the manifest that a script of the trainer contract wrote with them. Raises `Damaged`."""
    place = taken.files.get(f"{taken.name}/{MANIFEST}")
    if place is None:
        return
    here = {file.path: file.sha256 for file in described}
    try:
        named = parse_manifest(json.loads(place.read_bytes())).files
    except (Damaged, ValueError):
        return  # the file has this name but is not a manifest of the contract
    for file in named:
        if here.get(f"{taken.name}/{file.path}") != file.sha256:
            raise Damaged(f"{taken.name}/{file.path} differs from its own manifest")
