"""Check deletions: nothing that a live job needs is deleted, and everything beyond its maximum age is gone at the end."""

import json
from typing import Any, NoReturn

from gangline.core.policy import Policy
from gangline.core.runs.retention import PREVIEWS, checkpoints_s
from gangline.sim.objects import SimObjects
from gangline.sim.promises.violation import fail, object_hashes
from gangline.sim.store import SimStore
from gangline.sim.world import World


class KeptChecks:
    """The checks of each object at the moment of its deletion. They find its users in the jobs' specs, unlike the service, so that both
    cannot share a mistake."""

    def __init__(self, world: World, store: SimStore, objects: SimObjects, policy: Policy) -> None:
        self._world = world
        self._store = store
        self._objects = objects
        self._policy = policy
        objects.deleted = self._check_deleted

    def _check_deleted(self, key: str) -> None:
        _, project, kind, name = key.split("/", 3)
        if kind == "blobs":
            self._check_blob(project, name)
            self._check_in_no_version(project, name)
        elif kind == "thumbnails":
            self._check_in_no_version(project, name)
        elif key in self._referred(name.split("/")[2]):
            self._fail(f"{key} was deleted, and is referred to")

    def _check_blob(self, project: str, sha256: str) -> None:
        sql = "SELECT id, spec FROM job WHERE project = ? AND ended_ms IS NULL AND spec LIKE ?"
        for job, spec in self._store.look(sql, project, f"%{sha256}%"):
            if sha256 in json.dumps(_needed(json.loads(spec))):
                self._fail(f"{sha256[:12]} was deleted, and {job} needs it")

    def _check_in_no_version(self, project: str, sha256: str) -> None:
        sql = (
            "SELECT dataset_version.id FROM dataset_file JOIN dataset_version ON dataset_version.id = dataset_file.version "
            "WHERE dataset_file.project = ? AND dataset_file.sha256 = ? AND dataset_version.state <> 'going'"
        )
        for (version,) in self._store.look(sql, project, sha256):
            self._fail(f"{sha256[:12]} was deleted, and {version} has it")

    def _referred(self, attempt: str) -> set[str]:
        look = self._store.look
        found = {key for (key,) in look("SELECT key FROM artifact WHERE attempt = ?", attempt)}
        found |= {key for (key,) in look("SELECT key FROM log_chunk WHERE attempt = ?", attempt)}
        for (checkpoint,) in look("SELECT id FROM checkpoint WHERE attempt = ? AND state = 'committed'", attempt):
            found |= object_hashes(self._store, checkpoint).keys()
        return found

    def check_expired(self, checkpoint: str, job: str) -> bool:
        """Return whether the checkpoint was deleted after its job's end; if so, check that its age or its owner allowed it."""
        [(state, ended_ms, removed_ms)] = self._store.look(
            "SELECT state, ended_ms, removed_ms FROM job WHERE id = ?", job
        )
        if ended_ms is None:
            return False
        [(pinned, because)] = self._store.look("SELECT pinned, because FROM checkpoint WHERE id = ?", checkpoint)
        due_ms = ended_ms + 1000 * checkpoints_s(state, self._policy)
        overtaken = because.startswith("newer ones are kept")
        heirs = self._store.look("SELECT id FROM job WHERE begins_from = ? AND ended_ms IS NULL", job)
        if heirs and not overtaken:
            self._fail(f"{checkpoint} of {job} was deleted, and {heirs[0][0]} is to begin from it")
        if pinned or not (overtaken or removed_ms is not None or self._world.now_ms > due_ms):
            self._fail(f"{checkpoint} of {job} was deleted too early: {because}")
        return True

    def check_removed(self, job: str) -> None:
        look = self._store.look
        [(ended_ms,)] = look("SELECT ended_ms FROM job WHERE id = ?", job)
        left = look("SELECT path FROM artifact WHERE job = ?", job)
        left += look("SELECT id FROM checkpoint WHERE job = ? AND state = 'committed'", job)
        left += look("SELECT number FROM event WHERE job = ?", job)
        if ended_ms is None or left:
            self._fail(f"{job} was deleted, and ended at {ended_ms} and has {left[:5]} left")

    def at_the_end(self) -> None:
        """Check that long after every job's end all results and pinned checkpoints are left, and nothing else."""
        look = self._store.look
        meant: set[Any] = {key for (key,) in look("SELECT key FROM artifact WHERE path NOT LIKE ?", f"{PREVIEWS}%")}
        for (checkpoint,) in look("SELECT id FROM checkpoint WHERE state = 'committed' AND pinned = 1"):
            meant |= object_hashes(self._store, checkpoint).keys()
        here = self._objects.objects.keys()
        if here != meant:
            self._fail(f"too much is kept: {sorted(here - meant)[:5]}; and too little: {sorted(meant - here)[:5]}")

    def _fail(self, what: str) -> NoReturn:
        fail(self._world, 2, what)


def _needed(spec: dict[str, Any]) -> Any:
    """Return the part of a spec whose files the job needs: a rendering job needs the base only."""
    return spec["of"]["base"] if spec["kind"] == "sample" else spec
