"""Check the promises after each event. The checks read the database, not the service, which may believe otherwise.

The promises: 1 one attempt at a time · 2 nothing is lost · 4 each job ends · 5 every dollar is explained · 6 one true sentence why; and of
3, that a result is that of an uninterrupted run.
"""

import json
from collections.abc import Callable
from typing import Any

from gangline.core.job import ENDED
from gangline.core.policy import Policy
from gangline.core.runs.contract import pictures_name
from gangline.core.specs.kinds import KINDS
from gangline.ports.server import Hold
from gangline.ports.store import Write
from gangline.sim.node.lineage import content_sha256, lineage_of
from gangline.sim.objects import SimObjects
from gangline.sim.promises.followed import FollowedFacts
from gangline.sim.promises.kept import KeptChecks
from gangline.sim.promises.violation import fail, object_hashes
from gangline.sim.store import SimStore
from gangline.sim.world import World

FACTS = (
    "SELECT id, state, because, version, fencing, attempts_failed FROM job WHERE id = ?",
    "SELECT * FROM attempt WHERE job = ? ORDER BY fencing",
    "SELECT * FROM checkpoint WHERE job = ? ORDER BY id",
    "SELECT * FROM artifact WHERE job = ? ORDER BY path",
    "SELECT * FROM ledger WHERE job = ? ORDER BY attempt, cause, from_ms",
    "SELECT * FROM event WHERE job = ? ORDER BY number",
    "SELECT lease.* FROM lease JOIN attempt ON attempt.id = lease.attempt WHERE attempt.job = ?",
    "SELECT metric.* FROM metric JOIN attempt ON attempt.id = metric.attempt WHERE attempt.job = ? ORDER BY 1, 2",
    "SELECT log_chunk.* FROM log_chunk JOIN attempt ON attempt.id = log_chunk.attempt WHERE attempt.job = ? ORDER BY 1, 2",
)


END = "SELECT id, state, because, fencing, attempts_failed FROM job WHERE id = ?"
RESULTS = "SELECT * FROM artifact WHERE job = ? AND path NOT LIKE 'samples/%' ORDER BY path"
"""The query for a training job's results, without samples, which may arrive after the job has ended."""


class Checks:
    """The checks of a simulation. `after_event` checks the rows that the event's transactions wrote; `gangline.sim.promises.audit` checks
    everything."""

    def __init__(self, world: World, store: SimStore, objects: SimObjects, policy: Policy) -> None:
        self._world = world
        self._store = store
        self._objects = objects
        self._touched: set[str] = set()
        self._projects: set[str] = set()
        self._ended_attempts: list[str] = []
        self._claimed: list[tuple[str, str, int]] = []
        self._committed: list[str] = []
        self._best: dict[str, int] = {}
        self._fencing: dict[str, int] = {}
        self._budgets: dict[str, tuple[int | None, int]] = {}
        self._ended: dict[str, Any] = {}
        self.overshoot = 0
        """Micro-dollars by which spent and reserved money may exceed a budget, as attempts end late. The simulation sets it."""
        self._rejected: set[str] = set()
        self._pruned: list[str] = []
        self._removed: list[str] = []
        self._keys_of: dict[str, dict[str, str]] = {}
        self._job_of: dict[str, str] = {}
        self.kept = KeptChecks(world, store, objects, policy)
        self.facts = FollowedFacts(world, store)
        store.applied = self._heard

    def _heard(self, writes: tuple[Write, ...]) -> None:
        for write in writes:
            hear = self._HEAR.get(write.name)
            if hear:
                hear(self, write.values)

    def _hear_event(self, values: dict[str, Any]) -> None:
        self._touched.add(values["job"])
        if not values["because"]:
            self._fail(6, f"{values['job']}: {values['kind']} without a reason")

    def _hear_claim(self, values: dict[str, Any]) -> None:
        self._job_of[values["id"]] = values["job"]
        self._claimed.append((values["job"], values["id"], values["from_step"]))
        self._touched.add(values["job"])

    def _hear_money(self, values: dict[str, Any]) -> None:
        self._projects.add(values["id"])

    _HEAR: dict[str, Callable[["Checks", dict[str, Any]], None]] = {  # noqa: RUF012 - never written
        "add_event": _hear_event,
        "number_facts": lambda self, _: self.facts.read_on(),
        "add_attempt": _hear_claim,
        "add_checkpoint": lambda self, values: self._committed.append(values["id"]),
        "reject_checkpoint": lambda self, values: self._rejected.add(values["job"]),
        "prune_checkpoint": lambda self, values: self._pruned.append(values["id"]),
        "remove_job": lambda self, values: self._removed.append(values["id"]),
        "end_attempt": lambda self, values: self._ended_attempts.append(values["attempt"]),
        "set_job_state": lambda self, values: self._touched.add(values["id"]),
        "take_job": lambda self, values: self._touched.add(values["id"]),
        "enter": _hear_money,
        "reserve": _hear_money,
        "spend": _hear_money,
        "set_project": _hear_money,
    }

    def job_of(self, attempt: str) -> str | None:
        return self._job_of.get(attempt)

    def before(self, hold: Hold | None) -> tuple[str, int, list[Any]] | None:
        """Return the facts about a request's job before the request, if its lease is lost already; None otherwise."""
        job = self._job_of.get(hold.attempt) if hold else None
        lease = "SELECT 1 FROM lease WHERE attempt = ? AND fencing = ? AND rank = ?"
        if hold is None or job is None or self._store.look(lease, hold.attempt, hold.fencing, hold.rank):
            return None
        return job, self._world.events, self._facts(job)

    def after(self, what: str, stale: tuple[str, int, list[Any]] | None) -> None:
        """Check promise 1: a request whose lease was lost before it arrived changed nothing of its job."""
        if stale is None:
            return
        job, events, facts = stale
        if events == self._world.events and self._facts(job) != facts:
            self._fail(1, f"{what} after the lease was lost changed {job}")

    def _facts(self, job: str) -> list[Any]:
        return [self._store.look(sql, job) for sql in FACTS]

    def after_event(self) -> None:
        if self._claimed:
            self._check_claims()
        if self._committed:
            self._check_commits()
        if self._pruned:
            self._check_prunes()
        while self._removed:
            self._check_removed(self._removed.pop())
        while self._touched:
            self._check_job(self._touched.pop())
        if self._ended_attempts:
            self._check_bills()
        while self._projects:
            self._check_project(self._projects.pop())
        self._rejected.clear()

    def _check_claims(self) -> None:
        for job, attempt, from_step in self._claimed:
            newest = self._newest(job)
            row = self._store.look("SELECT from_step FROM attempt WHERE id = ?", attempt)
            # A commit in the same event may have come after the claim, which then could not know it.
            committed_since = any(found == job for found in map(self._job_of_checkpoint, self._committed))
            if row and row[0][0] < newest and from_step < newest and not committed_since:
                self._fail(2, f"{attempt} begins at step {from_step}, behind the checkpoint of step {newest}")
        self._claimed.clear()

    def _check_commits(self) -> None:
        for checkpoint in self._committed:
            job, state = self._store.look("SELECT job, state FROM checkpoint WHERE id = ?", checkpoint)[0]
            self._touched.add(job)
            for key, sha256 in self._keys(checkpoint).items():
                found = self._objects.objects.get(key)
                if state == "committed" and (found is None or found.sha256 != sha256):
                    self._fail(2, f"{checkpoint} of {job} is committed without its bytes")
        self._committed.clear()

    def _job_of_checkpoint(self, checkpoint: str) -> str:
        return self._store.look("SELECT job FROM checkpoint WHERE id = ?", checkpoint)[0][0]

    def _check_removed(self, job: str) -> None:
        """Check that a deleted job had ended, and that nothing of it is left except its bills."""
        self.kept.check_removed(job)
        self._touched.discard(job)
        self._ended.pop(job, None)

    def _check_prunes(self) -> None:
        """Check that a job keeps two checkpoints until it has ended."""
        for checkpoint in self._pruned:
            job = self._job_of_checkpoint(checkpoint)
            kept = self._store.look("SELECT COUNT(*) FROM checkpoint WHERE job = ? AND state = 'committed'", job)[0][0]
            if not self.kept.check_expired(checkpoint, job) and kept < 2:
                self._fail(2, f"{job} keeps {kept} checkpoints after one was pruned")
            shows = "SELECT job.id FROM sample JOIN job ON job.id = sample.job WHERE sample.checkpoint = ? AND job.ended_ms IS NULL"
            if self._store.look(shows, checkpoint):
                self._fail(2, f"{checkpoint} of {job} was pruned while pictures of it are to be made")
        self._pruned.clear()

    def _newest(self, job: str) -> int:
        """Return the step of the job's newest checkpoint; if it has none, of the newest one of the job that it begins from, or of the one
        that it continues."""
        sql = "SELECT COALESCE(MAX(step), 0) FROM checkpoint WHERE job = ? AND state = 'committed'"
        own = self._store.look(sql, job)[0][0]
        [(begins_from, last, spec)] = self._store.look(
            "SELECT begins_from, begins_step, spec FROM job WHERE id = ?", job
        )
        if own or not begins_from:
            return own
        exactly = (json.loads(spec).get("continues") or {}).get("job") == begins_from
        up_to = f"{sql} AND step = ?" if exactly else f"{sql} AND step <= COALESCE(?, step)"
        return self._store.look(up_to, begins_from, last)[0][0]

    def _check_job(self, job: str) -> None:
        look = self._store.look
        rows = look("SELECT state, because, fencing, ended_ms, spec, steps FROM job WHERE id = ?", job)
        state, because, fencing, ended_ms, spec, _ = rows[0]
        live = look("SELECT id, fencing FROM attempt WHERE job = ? AND state = 'live'", job)
        leases = look(
            "SELECT lease.fencing FROM lease JOIN attempt ON attempt.id = lease.attempt WHERE attempt.job = ?", job
        )
        if len(live) > 1 or len(leases) != len(live) or (state == "running") != (len(live) == 1):
            self._fail(1, f"{job} is {state} with {len(live)} live attempts and {len(leases)} leases")
        if live and (live[0][1] != fencing or leases[0][0] != fencing):
            self._fail(1, f"{job} has the fencing number {fencing} and its live attempt {live[0][1]}")
        if fencing < self._fencing.get(job, 0):
            self._fail(1, f"the fencing number of {job} went back to {fencing}")
        self._fencing[job] = fencing
        if not because:
            self._fail(6, f"{job} is {state} without a reason")
        self._check_kept(job)
        self._check_end(job, state, ended_ms, spec)

    def _check_kept(self, job: str) -> None:
        """Check that kept checkpoints have their bytes, that one is verified, and that the newest is no older than before."""
        sql = "SELECT id, verified, step FROM checkpoint WHERE job = ? AND state = 'committed'"
        kept = self._store.look(sql, job)
        newest = max((step for _, _, step in kept), default=0)
        ended = self._store.look("SELECT 1 FROM job WHERE id = ? AND ended_ms IS NOT NULL", job)
        if not ended and newest < self._best.get(job, 0) and job not in self._rejected:
            self._fail(2, f"{job} fell from step {self._best[job]} to {newest}")
        self._best[job] = newest
        if kept and not any(verified for _, verified, _ in kept):
            self._fail(2, f"{job} keeps no verified checkpoint")
        for checkpoint, _, _ in kept:
            if any(key not in self._objects.objects for key in self._keys(checkpoint)):
                self._fail(2, f"a kept checkpoint of {job} has lost its bytes")

    def _keys(self, checkpoint: str) -> dict[str, str]:
        if checkpoint not in self._keys_of:
            self._keys_of[checkpoint] = object_hashes(self._store, checkpoint)
        return self._keys_of[checkpoint]

    def _check_end(self, job: str, state: str, ended_ms: int | None, spec: str) -> None:
        if (state in ENDED) != (ended_ms is not None):
            self._fail(4, f"{job} is {state} and its end is {ended_ms}")
        if job in self._ended:
            if self._terminal(job) != self._ended[job]:
                self._fail(1, f"{job} had ended, and changed: {self._ended[job]} {self._terminal(job)}")
        elif state in ENDED:
            self._ended[job] = self._terminal(job)
            self._check_wishes(job, state)
            if state == "succeeded":
                self._check_result(job, json.loads(spec))

    def _check_wishes(self, job: str, state: str) -> None:
        """Check that a job which ends says which wishes it leaves undone."""
        kinds = "'save', 'sample'" if state == "succeeded" else "'save', 'sample', 'finish'"
        left = self._store.look(f"SELECT kind FROM wish WHERE job = ? AND kind IN ({kinds})", job)  # noqa: S608 - the above
        attempts = self._store.look("SELECT 1 FROM attempt WHERE job = ? AND ended_ms = ?", job, self._world.now_ms)
        told = self._store.look("SELECT 1 FROM event WHERE job = ? AND kind = 'not done'", job)
        if left and attempts and not told:
            self._fail(6, f"{job} is {state}, and says nothing of what it was asked for: {left}")

    def _terminal(self, job: str) -> list[Any]:
        return [self._store.look(sql, job) for sql in (END, RESULTS)]

    def _check_result(self, job: str, spec: dict[str, Any]) -> None:
        """Check that the weights are those of an uninterrupted run. The results of a rendering job are checked as samples."""
        if KINDS[spec["kind"]].renders:
            self._check_pictures(job, spec)
            return
        last, asked = self._store.look(
            "SELECT ended_step, EXISTS (SELECT 1 FROM event WHERE job = job.id AND kind = 'asked to finish') FROM job WHERE id = ?",
            job,
        )[0]
        if last is not None and not asked:
            self._fail(3, f"{job} ended at step {last}, and nobody had asked it to finish")
        wanted = content_sha256(f"result of {lineage_of(spec)}", last or spec["steps"])
        found = self._store.look("SELECT sha256, key FROM artifact WHERE job = ? AND path NOT LIKE 'samples/%'", job)
        if [row[0] for row in found] != [wanted]:
            self._fail(3, f"the result of {job} is not that of an uninterrupted run")
        if found[0][1] not in self._objects.objects:
            self._fail(2, f"the result of {job} is not in the object store")

    def _check_pictures(self, job: str, spec: dict[str, Any]) -> None:
        """Check that samples show the right step of an uninterrupted run. The training node may have rendered the step before."""
        lineage, step = lineage_of(spec["of"]), spec["step"]
        of_step = (f"samples/{pictures_name(step)}/%", (lineage, f"pictures of {lineage}"))
        path, shown = of_step if spec["checkpoint"] else ("samples/prompt-%", (f"result of {lineage}",))
        found = self._store.look("SELECT sha256, key FROM artifact WHERE job = ? AND path LIKE ?", spec["job"], path)
        right = {content_sha256(of, step) for of in shown}
        if len(found) != 1 or found[0][0] not in right:
            self._fail(3, f"the pictures of {job} do not show step {spec['step']} of {spec['job']}")
        if found[0][1] not in self._objects.objects:
            self._fail(2, f"the pictures of {job} are not in the object store")

    def _check_bills(self) -> None:
        """Check that the time of an attempt that ended is billed without gaps, to the micro-dollar."""
        for attempt in self._ended_attempts:
            job, price, started, ended = self._store.look(
                "SELECT job, price_micro_usd_per_hour, started_ms, ended_ms FROM attempt WHERE id = ?", attempt
            )[0]
            lines = self._store.look(
                "SELECT from_ms, to_ms, micro_usd FROM ledger "
                "WHERE job = ? AND attempt = ? AND cause NOT IN ('storage', 'egress') ORDER BY 1",
                job,
                attempt,
            )
            whole = price * ended // 3_600_000 - price * started // 3_600_000
            if sum(line[2] for line in lines) != whole or sum(line[1] - line[0] for line in lines) != ended - started:
                self._fail(5, f"{attempt} cost {whole} and the ledger says {lines}")
        self._ended_attempts.clear()

    def _check_project(self, project: str) -> None:
        look = self._store.look
        [(reserved, budget, spent)] = look("SELECT reserved, budget, spent FROM project WHERE id = ?", project)
        owner = "(SELECT project FROM job WHERE id = (SELECT job FROM attempt WHERE id = lease.attempt))"
        [(live,)] = look(f"SELECT COALESCE(SUM(reserved), 0) FROM lease WHERE {owner} = ?", project)  # noqa: S608 - the above
        if reserved != live:
            self._fail(5, f"{project} has {reserved} reserved, and its leases {live}")
        if spent < 0 or reserved < 0:
            self._fail(5, f"{project} has spent {spent} and reserved {reserved}")
        before = self._budgets.get(project)
        self._budgets[project] = (budget, spent + reserved)
        if before is None or budget is None or before[0] != budget:
            return
        if reserved and spent + reserved > max(budget, before[1]) + self.overshoot:
            self._fail(5, f"{project} may spend {budget}; {spent} are spent and {reserved} reserved")

    def _fail(self, promise: int, what: str) -> None:
        fail(self._world, promise, what)
