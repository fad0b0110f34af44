"""The timelines of simulated jobs: under every fault the segments are all of a job's time, and the cost is the ledger's."""

from itertools import pairwise

import pytest

from gangline.core.charts.phases import WAITING
from gangline.service.jobs.query import job as job_view
from gangline.service.jobs.story.timeline import timeline_of
from gangline.sim.scenario import parse_scenario
from gangline.sim.simulation import Simulation

SCENARIO = """
title = "Nodes come and go, and some are bad"
[fleet]
nodes_max = 6
start_s = 60
[[machines]]
count = 12
spread = 0.2
seconds_per_step = 1.0
interruptions_per_hour = 6
[[machines]]
count = 2
seconds_per_step = 1.0
trait = "fails_at_once"
[[jobs]]
count = 12
steps = 400
[[jobs]]
count = 2
at_s = 100
steps = 100
trait = "bad_input"
[policy]
storage_usd_per_gb_month = 2
egress_usd_per_gb = 0.05
"""


@pytest.fixture(scope="module", params=[1, 2])
def ran(request: pytest.FixtureRequest) -> Simulation:
    simulation = Simulation(parse_scenario(SCENARIO, "test"), seed=request.param)
    assert simulation.run().unfinished == 0
    return simulation


def test_every_timeline_is_whole_and_agrees_with_attempts_and_ledger(ran: Simulation) -> None:
    deployment, now_ms = ran.service.deployment, ran.world.now_ms
    seen = set[str]()
    for job, project in ran.store.look("SELECT id, project FROM job"):
        found = timeline_of(deployment, project, job, now_ms)
        assert all(before.to_ms == after.from_ms for before, after in pairwise(found.segments))
        assert (found.segments[0].from_ms, found.segments[-1].to_ms) == (found.from_ms, found.until_ms)
        assert all((part.attempt is None) == (part.phase in WAITING) for part in found.segments)
        tried = ran.store.look("SELECT id, ended_ms - started_ms, state FROM attempt WHERE job = ?", job)
        for attempt, ms, state in tried:
            parts = [part for part in found.segments if part.attempt == attempt]
            assert sum(part.to_ms - part.from_ms for part in parts) == ms
            assert [part.ended for part in parts if part.ended] == [state] * bool(parts)
        view = job_view(deployment, project, job, now_ms)
        assert found.verdict == view.verdict
        assert found.spent[-1].usd == pytest.approx(view.summary.cost_usd, abs=1e-9)
        seen |= {part.phase for part in found.segments}
    assert seen >= {"queued", "downloading", "preparing", "training", "uploading", "silent"}
    assert "interruption" in "".join(
        job_view(deployment, project, job, now_ms).verdict
        for job, project in ran.store.look("SELECT id, project FROM job WHERE state = 'succeeded'")
    )
