"""Run the service's periodic work. A repeated tick changes nothing more; of several servers, one at a time does it."""

from collections.abc import Callable

from gangline.service.access.requests import forget_requests
from gangline.service.attempts import end_overdue, end_unheeded
from gangline.service.content.blobs import delete_given_up, give_up_unused
from gangline.service.content.prepared import prune_prepared
from gangline.service.content.sweep import sweep_attempts, sweep_uploads
from gangline.service.datasets.removal import continue_removals, give_up_unfinished
from gangline.service.deployment import Deployment
from gangline.service.experiments.tend import tend_each, tend_experiments
from gangline.service.facts import number_facts
from gangline.service.fleet.fleet import tend
from gangline.service.fleet.health import begin_trials, judge_machines, watch_attempts
from gangline.service.fleet.measured.gauges import forget_gauges
from gangline.service.fleet.nodes import give_up_silent
from gangline.service.fleet.terms import refresh_pools
from gangline.service.jobs.checkpoint import prune
from gangline.service.jobs.lists.labels import forget_labels
from gangline.service.jobs.placing.waiting import fail_unmatched, yield_bans
from gangline.service.jobs.samples import drop_late, give_way
from gangline.service.notices.log import bound_backlogs, shorten_logs
from gangline.service.outage import has_turn, take_turn
from gangline.service.reports.thresholds import forget_crossings, watch_thresholds
from gangline.service.retention.ages import expire_checkpoints, expire_logs, expire_previews

PRUNE_S = 600.0
"""Seconds between two runs of the tasks that nothing waits for: pruning and expiry."""
SWEEP_S = 60.0
"""Seconds between two sweeps of the object store."""
THRESHOLDS_S = 60.0
"""Seconds between two looks at the thresholds of costs."""
REMOVE_S = 3.0
"""Seconds between two steps of the removal of data sets."""


class Controller:
    """Calls each periodic task at its interval. Its only state is when it last ran each one."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._last_ms: dict[str, int] = {}

    def tick(self, now_ms: int) -> None:
        deployment, policy = self._deployment, self._deployment.policy
        if not take_turn(deployment, now_ms):
            refresh_pools(deployment, asks=False)
            return
        number_facts(deployment, now_ms)
        end_overdue(deployment, now_ms)
        end_unheeded(deployment, now_ms)
        give_up_silent(deployment, now_ms)
        give_way(deployment, now_ms)
        self._every(0, now_ms, tend_experiments)
        self._every(
            policy.watch_interval_s, now_ms, watch_attempts, judge_machines, begin_trials, yield_bans, fail_unmatched
        )
        self._every(policy.watch_interval_s, now_ms, drop_late)
        self._every(policy.scale_interval_s, now_ms, tend)
        self._every(PRUNE_S, now_ms, prune_left, prune_prepared)
        self._every(PRUNE_S, now_ms, expire_checkpoints, expire_logs, expire_previews, give_up_unused)
        self._every(PRUNE_S, now_ms, forget_requests, forget_labels, forget_gauges, forget_crossings)
        self._every(REMOVE_S, now_ms, continue_removals)
        self._every(SWEEP_S, now_ms, give_up_unfinished, delete_given_up, sweep_attempts, sweep_uploads)
        self._every(SWEEP_S, now_ms, bound_backlogs, shorten_logs)
        self._every(THRESHOLDS_S, now_ms, watch_thresholds)

    def glance(self, now_ms: int) -> None:
        """Between two ticks: number new facts, release the next jobs of experiments of which one has just ended, rent at once for work that
        has just come, and act on what a provider or an operator has just said."""
        deployment, last_ms = self._deployment, self._last_ms.get(tend.__name__)
        if last_ms is None or not has_turn(deployment, now_ms):
            return
        number_facts(deployment, now_ms)
        self._release(now_ms)
        store, said = deployment.store, any(pool.driving.has_news for pool in deployment.pools.values())
        if said or store.load("queued_since", since=last_ms) or store.load("changed_pools", since=last_ms):
            self._last_ms[tend.__name__] = now_ms
            tend(deployment, now_ms)

    def _release(self, now_ms: int) -> None:
        since = self._last_ms[tend_experiments.__name__]
        moved = self._deployment.store.load("experiments_moved", since=since)
        tend_each(self._deployment, [row["experiment"] for row in moved], now_ms)
        self._last_ms[tend_experiments.__name__] = now_ms

    def _every(self, seconds: float, now_ms: int, *parts: Callable[[Deployment, int], None]) -> None:
        for part in parts:
            if now_ms - self._last_ms.get(part.__name__, -(10**15)) >= seconds * 1000:
                self._last_ms[part.__name__] = now_ms
                part(self._deployment, now_ms)


def prune_left(deployment: Deployment, now_ms: int) -> None:
    """Prune the checkpoints that a commit left behind because the server died before it pruned them."""
    for row in deployment.store.load("jobs_to_prune", kept=deployment.policy.checkpoints_kept):
        prune(deployment, row["job"], now_ms)
