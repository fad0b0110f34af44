"""Races and rules about experiments: what two servers decide at once, and what changes while one decides."""

from typing import Any

from gangline.core.errors import BadInput
from gangline.core.experiments.terms import ExperimentAsked
from gangline.core.files import File
from gangline.core.jobs.lists.labels import LABELS_MAX
from gangline.core.parsing import parse_as, to_json
from gangline.core.runs.metrics import Point
from gangline.ports.server import Hold, Points
from gangline.service.experiments import steer as experiments
from gangline.service.experiments.submit import submit_all
from gangline.service.experiments.tend import tend_experiment
from gangline.service.jobs import metrics, steer
from gangline.service.jobs.lists.labels import change_labels, labels_of
from gangline.service.jobs.query import job as job_view
from gangline.service.retention import removal, storage
from tests.sim.mutants.bench import PROJECT, Bench, probe, refused

HALVED = {"held_out_every_steps": 1, "held_out": (File(path="h", bytes=9, sha256="f" * 64),), "sample_result": False}


def submit(bench: Bench, settings: dict[str, Any] | None = None, **given: Any) -> tuple[str, list[str]]:
    """Submit an experiment of two jobs, or as given, and return its id and theirs. Its files are there as another job's."""
    spec = bench.spec(**(settings or {}))
    steer.cancel(bench.deployment, bench.submit(**(settings or {})), bench.now_ms)
    asked = parse_as(ExperimentAsked, {"name": "e", "spec": to_json(spec), "vary": {"rank": [4, 8]}} | given)
    made = submit_all(bench.deployment, PROJECT, asked, lambda _: None, bench.now_ms, owner="operator's", request=None)
    tend_experiment(bench.deployment, made, bench.now_ms)
    return made, bench.look("SELECT job FROM experiment_run WHERE experiment = ? ORDER BY number", made)


def tend(bench: Bench, made: str) -> None:
    tend_experiment(bench.deployment, made, bench.now_ms)


def measure(bench: Bench, node: str, hold: Hold, step: int, loss: float) -> None:
    bench.beat(node, hold, step)
    point = Point(step=step, values={"held_out_loss": loss})
    metrics.take(bench.deployment, node, hold, Points(points=(point,)), bench.now_ms)


def state_of(bench: Bench, made: str) -> str:
    return bench.look("SELECT state FROM experiment WHERE id = ?", made)[0]


def end_all(bench: Bench, jobs: list[str]) -> None:
    for job in jobs:
        steer.cancel(bench.deployment, job, bench.now_ms)


@probe()
def a_job_that_is_canceled_in_this_moment_is_not_released(bench: Bench) -> None:
    made, jobs = submit(bench, at_once=1)
    steer.cancel(bench.deployment, jobs[0], bench.now_ms)
    bench.meanwhile("release_job", lambda: steer.cancel(bench.deployment, jobs[1], bench.now_ms))
    tend(bench, made)
    assert bench.events(jobs[1]) == ["submitted", "canceled"]


@probe()
def a_job_that_waits_for_its_experiment_again_is_given_to_no_node(bench: Bench) -> None:
    made, jobs = submit(bench, at_once=1)
    node, other = bench.join(), bench.join("b", "b")
    hold = bench.take(node, jobs[0])
    bench.beat(node, hold, 1)
    steer.pause(bench.deployment, jobs[0], bench.now_ms)
    bench.release(node, hold)
    tend(bench, made)
    bench.take(other, jobs[1])
    experiments.resume_runs(bench.deployment, PROJECT, made, bench.now_ms)
    assert "1 job at a time" in job_view(bench.deployment, PROJECT, jobs[0], bench.now_ms).summary.because
    bench.claim_nothing(node)


@probe()
def a_held_job_is_given_to_no_node_while_a_later_job_of_its_project_waits(bench: Bench) -> None:
    _, jobs = submit(bench, at_once=1)
    bench.wait(1)
    later = bench.submit(seed=1)
    bench.take(bench.join(), jobs[0])
    bench.take(bench.join("b", "b"), later)
    bench.claim_nothing(bench.join("c", "c"))


def _over_budget(bench: Bench) -> tuple[str, str, str, Hold]:
    """Return an experiment whose first job has spent its budget, that job, and where it runs."""
    made, jobs = submit(bench, budget_usd=0.001, at_once=1)
    node = bench.join()
    hold = bench.take(node, jobs[0])
    bench.wait(20)
    bench.beat(node, hold, 1)
    return made, jobs[0], node, hold


def waits_of(bench: Bench, job: str) -> str:
    return bench.look("SELECT waits FROM experiment_run WHERE job = ?", job)[0]


@probe()
def a_job_that_its_node_hands_back_in_this_moment_is_paused_at_the_next_look(bench: Bench) -> None:
    made, job, node, hold = _over_budget(bench)
    bench.meanwhile("ask_to_pause", lambda: bench.release(node, hold))
    tend(bench, made)
    assert (bench.state(job), waits_of(bench, job)) == ("queued", "")
    tend(bench, made)
    assert (bench.state(job), waits_of(bench, job)) == ("paused", "budget")


@probe()
def a_job_that_is_handed_back_while_its_budget_is_raised_goes_on(bench: Bench) -> None:
    made, job, node, hold = _over_budget(bench)
    tend(bench, made)
    bench.meanwhile("unpause_lease", lambda: bench.release(node, hold))
    wish = experiments.TermsWish(budget_usd=9.0)
    experiments.change_terms(bench.deployment, PROJECT, made, wish, bench.now_ms)
    tend(bench, made)
    assert bench.state(job) == "queued"


@probe()
def of_two_changes_in_one_moment_none_is_lost(bench: Bench) -> None:
    made, _ = submit(bench, at_once=1)

    def change(**wish: Any) -> None:
        experiments.change_terms(bench.deployment, PROJECT, made, experiments.TermsWish(**wish), bench.now_ms)

    bench.meanwhile("change_experiment", lambda: change(at_once=2))
    change(budget_usd=9.0)
    assert bench.look("SELECT at_once, budget FROM experiment") == [(2, 9_000_000)]


def _at_the_rung(bench: Bench) -> tuple[str, list[str]]:
    """Return an experiment of which the first job is paused at its rung, and the second has just got there with a better loss."""
    made, jobs = submit(bench, HALVED, halving={"min_steps": 2})
    nodes = [bench.join("a", "a"), bench.join("b", "b")]
    hold = bench.take(nodes[0], jobs[0])
    measure(bench, nodes[0], hold, 2, 0.5)
    tend(bench, made)
    bench.release(nodes[0], hold)
    tend(bench, made)
    measure(bench, nodes[1], bench.take(nodes[1], jobs[1]), 2, 0.3)
    return made, jobs


@probe()
def of_two_servers_that_decide_about_a_rung_at_once_one_does(bench: Bench) -> None:
    made, jobs = _at_the_rung(bench)
    bench.meanwhile("advance_run", lambda: tend(bench, made))
    tend(bench, made)
    assert bench.look("SELECT rung, dropped FROM experiment_run ORDER BY number") == [(0, 1), (1, 0)]
    assert [bench.state(job) for job in jobs] == ["canceled", "running"]


def _succeeded(bench: Bench, labels: dict[str, str]) -> tuple[str, list[str]]:
    """Return an experiment of which all jobs have ended, and that nobody has looked at since."""
    made, jobs = submit(bench, labels=labels)
    node = bench.join()
    hold = bench.take(node, jobs[0])
    bench.beat(node, hold, 1)
    metrics.take(bench.deployment, node, hold, Points(points=(Point(step=1, values={"loss": 0.5}),)), bench.now_ms)
    bench.commit(node, hold, 1)
    bench.succeed(node, hold)
    steer.cancel(bench.deployment, jobs[1], bench.now_ms)
    return made, jobs


@probe()
def what_another_server_has_ended_is_not_ended_again(bench: Bench) -> None:
    labels = {f"label-{number}": "" for number in range(LABELS_MAX - 1)}
    made, jobs = _succeeded(bench, labels)
    change_labels(bench.deployment, jobs[0], {"one-more": ""})  # so the best one gets none

    def end_and_unpin() -> None:
        tend(bench, made)
        (row,) = bench.store.load("job", id=jobs[0])
        storage.pin(bench.deployment, row, 1, pinned=False)

    bench.meanwhile("end_experiment", end_and_unpin)
    tend(bench, made)
    assert bench.look("SELECT pinned FROM checkpoint") == [0]


@probe()
def the_best_job_gets_no_more_labels_than_a_job_may_have(bench: Bench) -> None:
    labels = {f"label-{number}": "" for number in range(LABELS_MAX - 1)}
    made, jobs = _succeeded(bench, labels)
    bench.meanwhile("end_experiment", lambda: change_labels(bench.deployment, jobs[0], {"one-more": ""}))
    tend(bench, made)
    tend(bench, made)
    assert (state_of(bench, made), len(labels_of(bench.deployment, jobs[0]))) == ("ended", LABELS_MAX)


@probe()
def an_experiment_that_has_ended_stays_as_it_ended(bench: Bench) -> None:
    made, jobs = submit(bench)
    bench.meanwhile("say_why_experiment", lambda: (end_all(bench, jobs), tend(bench, made)))
    steer.cancel(bench.deployment, jobs[0], bench.now_ms)
    tend(bench, made)
    assert bench.look("SELECT because FROM experiment") == ["2 canceled"]
    experiments.stop_runs(bench.deployment, PROJECT, made, bench.now_ms)
    assert state_of(bench, made) == "ended"
    assert refused(BadInput, lambda: experiments.resume_runs(bench.deployment, PROJECT, made, bench.now_ms))


@probe()
def an_experiment_goes_with_the_last_of_its_jobs_and_no_other_does(bench: Bench) -> None:
    made, jobs = submit(bench)
    other, others = submit(bench)
    for each, its in ((made, jobs), (other, others)):
        end_all(bench, its)
        tend(bench, each)
    removal.remove(bench.deployment, jobs[0], bench.now_ms)
    assert len(bench.look("SELECT id FROM experiment")) == 2
    assert len(bench.look("SELECT sha256 FROM experiment_file WHERE experiment = ?", made)) == 2
    removal.remove(bench.deployment, jobs[1], bench.now_ms)
    assert bench.look("SELECT id FROM experiment") == [other]
    assert bench.look("SELECT DISTINCT experiment FROM experiment_file") == [other]


@probe()
def of_two_servers_that_release_at_once_one_does(bench: Bench) -> None:
    made, jobs = submit(bench, at_once=1)
    steer.pause(bench.deployment, jobs[0], bench.now_ms)
    bench.meanwhile("release_job", lambda: experiments.resume_runs(bench.deployment, PROJECT, made, bench.now_ms))
    tend(bench, made)
    assert bench.look("SELECT fetching FROM job WHERE state = 'queued' ORDER BY id") == [0, 2]


def _last_metrics(bench: Bench, node: str, hold: Hold) -> None:
    point = Point(step=2, values={"loss": 0.1})
    metrics.take(bench.deployment, node, hold, Points(points=(point,)), bench.now_ms)


@probe()
def the_best_job_is_known_when_the_last_metrics_are_summed_up(bench: Bench) -> None:
    made, jobs = submit(bench)
    steer.cancel(bench.deployment, jobs[1], bench.now_ms)
    node = bench.join()
    hold = bench.take(node, jobs[0])
    bench.beat(node, hold, 2)
    metrics.take(bench.deployment, node, hold, Points(points=(Point(step=1, values={"loss": 0.5}),)), bench.now_ms)

    def end() -> None:
        bench.wait(1)
        _last_metrics(bench, node, hold)
        bench.succeed(node, hold)

    bench.meanwhile("set_measured", end)
    tend(bench, made)
    assert state_of(bench, made) == "running"
    tend(bench, made)
    assert bench.look("SELECT because FROM experiment") == ["1 canceled and 1 succeeded"]
    (best,) = bench.look("SELECT best_as FROM experiment")
    assert "e-001 with rank=4 is the only one with a result to compare: a loss of 0.3" in best


@probe()
def of_two_servers_that_sum_up_the_one_that_has_read_more_is_kept(bench: Bench) -> None:
    made, jobs = submit(bench)
    node = bench.join()
    hold = bench.take(node, jobs[0])
    bench.beat(node, hold, 2)
    metrics.take(bench.deployment, node, hold, Points(points=(Point(step=1, values={"loss": 0.5}),)), bench.now_ms)

    def more() -> None:
        bench.wait(1)
        _last_metrics(bench, node, hold)
        tend(bench, made)

    bench.meanwhile("set_measured", more)
    tend(bench, made)
    assert '"step":2' in bench.look("SELECT measured FROM experiment_run ORDER BY number")[0]


@probe()
def a_job_that_its_experiment_lets_go_in_this_moment_is_paused_by_its_owner_all_the_same(bench: Bench) -> None:
    made, job, node, hold = _over_budget(bench)
    tend(bench, made)
    bench.release(node, hold)
    wish = experiments.TermsWish(budget_usd=9.0)
    bench.meanwhile("say_why", lambda: experiments.change_terms(bench.deployment, PROJECT, made, wish, bench.now_ms))
    steer.pause(bench.deployment, job, bench.now_ms)
    tend(bench, made)
    assert (bench.state(job), waits_of(bench, job)) == ("paused", "")
