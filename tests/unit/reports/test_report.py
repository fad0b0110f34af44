"""The figures of a report, from a ledger that was made by hand."""

import pytest

from gangline.core.reports.overhead import group_overhead, share_overhead, sum_overhead
from gangline.core.reports.report import BECAUSE_MAX, JobsReport, PerJob, report_on
from gangline.core.reports.rows import Expense, TriedJob, TriedOn
from gangline.core.reports.view import job_line
from tests.unit.reports.ledger import FAILED, MINUTE_MS, OFTEN, ONCE, QUIET, WAITING, a_job, idle


def per_job(*jobs: TriedJob) -> PerJob:
    found = report_on(jobs, (), {}).per_job
    assert found is not None
    return found


def report(*jobs: TriedJob) -> JobsReport:
    return report_on(jobs, (), {})


def test_shares_are_of_succeeded_jobs_and_count_what_interrupted_them_not_what_released_them() -> None:
    found = per_job(QUIET, ONCE, OFTEN, a_job("released", attempts={"released": 3, "succeeded": 1}), FAILED)
    shares = (found.share_uninterrupted, found.share_interrupted_once, found.share_interrupted_more)
    assert shares == (0.5, 0.25, 0.25)


def test_minutes_are_those_on_nodes_whatever_a_job_waited() -> None:
    found = per_job(QUIET, ONCE, OFTEN, FAILED)
    assert (found.minutes_min, found.minutes_median, found.minutes_mean, found.minutes_max) == (10, 20, 30, 60)


def test_a_job_costs_all_its_lines_and_all_in_what_no_job_caused_too() -> None:
    found = report_on([QUIET, ONCE, FAILED], (), {"idle": Expense(MINUTE_MS, 450_000)})
    assert found.usd == pytest.approx(1 + 2.05 + 0.5 + 0.45)
    assert found.per_job is not None
    assert found.per_job.usd_per_job_mean == pytest.approx((1 + 2.05) / 2)
    assert found.per_job.usd_per_job_min == 1
    assert found.per_job.usd_per_job_all_in == pytest.approx(4.0 / 2)


def test_dollars_a_step_are_of_jobs_that_have_steps() -> None:
    found = per_job(QUIET, a_job("of a command", steps=0, expenses={"training": Expense(1, 9_000_000)}))
    assert (found.usd_per_step_mean, found.usd_per_step_min) == (0.01, 0.01)
    assert per_job(a_job("of a command", steps=0)).usd_per_step_mean == 0


def test_waste_is_all_node_time_but_training_and_a_correction_has_no_time() -> None:
    overhead = {"idle": Expense(5 * MINUTE_MS, 0), "correction": Expense(0, -10_000)}
    found = report_on([ONCE], (), overhead)
    assert {part.cause: part.node_hours * 60 for part in found.spent} == pytest.approx(
        {"training": 15, "download": 2, "redone steps": 3, "idle": 5, "correction": 0}
    )
    assert found.share_wasted == pytest.approx(10 / 25)
    assert found.node_hours == pytest.approx(25 / 60)
    assert (found.storage_usd, found.egress_usd) == (0.05, 0)


def test_the_first_try_failed_in_a_share_of_the_jobs_that_had_one() -> None:
    assert report(QUIET, FAILED, ONCE, WAITING).first_try_failed_share == pytest.approx(1 / 3)
    assert report(WAITING).first_try_failed_share == 0


def test_steps_and_attempts_are_added_over_all_jobs() -> None:
    found = report(ONCE, OFTEN, FAILED, WAITING)
    assert found.steps_redone == 10
    assert found.attempts == {"failed": 1, "interrupted": 3, "released": 1, "succeeded": 2}
    assert (found.jobs, found.unfinished) == ({"failed": 1, "queued": 1, "succeeded": 2}, 1)


def test_waits_are_by_project_of_those_that_were_claimed() -> None:
    found = report(QUIET, ONCE, WAITING, a_job("theirs", project="other", first_started_ms=1000))
    waits = [(wait.project, wait.jobs, wait.seconds_mean, wait.seconds_max) for wait in found.waits]
    assert waits == [("default", 2, 240, 360), ("other", 1, 1, 1)]


def test_of_failed_jobs_the_first_few_say_why() -> None:
    failed = [a_job(f"{number}", state="failed", because="bad", ended_ms=-number) for number in range(9)]
    assert report(*failed).because == tuple(f"job-{number}: bad" for number in range(8, 8 - BECAUSE_MAX, -1))


def test_a_report_without_jobs_has_no_figures_of_jobs() -> None:
    found = report()
    assert (found.per_job, found.minutes, found.usd_of_jobs) == (None, None, None)
    assert (found.usd, found.share_wasted, found.spent, found.waits, found.by_gpu) == (0, 0, (), (), ())


def test_each_gpu_class_and_each_pool_has_a_line_the_busiest_first() -> None:
    nodes = [
        TriedOn(gpu="A", pool="p", attempts={"succeeded": 1}, expenses={"training": Expense(MINUTE_MS, 10**6)}),
        TriedOn(
            gpu="B",
            pool="p",
            attempts={"interrupted": 2, "failed": 1},
            expenses={"training": Expense(6 * MINUTE_MS, 0), "idle": Expense(4 * MINUTE_MS, 0)},
        ),
        TriedOn(gpu="A", pool="q", attempts={}, expenses={"idle": Expense(MINUTE_MS, 500_000)}),
    ]
    found = report_on([], nodes, {})
    first, second = found.by_gpu
    assert (first.name, first.attempts, first.interrupted, first.failed) == ("B", 3, 2, 1)
    assert first.share_wasted == pytest.approx(0.4)
    assert (second.name, second.usd, second.share_wasted) == ("A", 1.5, pytest.approx(0.5))
    assert [(group.name, group.attempts) for group in found.by_pool] == [("p", 4), ("q", 0)]


# What nodes did for no job


def test_a_nodes_own_time_is_split_by_the_time_that_jobs_had_its_slots() -> None:
    lines = [idle("a", 10, 100), idle("b", 10, 100), idle("c", 10, 100)]
    everyone = {"a": 100, "b": 100, "c": 100}
    ours = sum_overhead(share_overhead(lines, {"a": 25, "b": 100}, everyone))["idle"]
    theirs = sum_overhead(share_overhead(lines, {"a": 75, "c": 100}, everyone))["idle"]
    assert ours == Expense(12.5 * MINUTE_MS, 125)
    assert ours + theirs == Expense(30 * MINUTE_MS, 300)


def test_no_set_of_jobs_bears_more_than_a_node_cost() -> None:
    (line,) = share_overhead([idle("a", 10, 100)], {"a": 7}, {"a": 5})
    assert line.expense == Expense(10 * MINUTE_MS, 100)
    (line,) = share_overhead([idle("a", 10, 100)], {"a": 0}, {})
    assert line.expense == Expense(0, 0)


def test_overhead_is_grouped_by_gpu_class_and_pool() -> None:
    found = group_overhead([idle("a", 1, 1), idle("b", 2, 2), idle("c", 4, 4, gpu="A100", pool="slurm")])
    assert {(on.gpu, on.pool): on.expenses["idle"].micro_usd for on in found} == {
        ("RTX 4090", "salad"): 3,
        ("A100", "slurm"): 4,
    }


def test_a_jobs_line_has_its_own_figures() -> None:
    line = job_line(ONCE)
    assert (line.wait_s, line.minutes, line.attempts, line.interrupted, line.failed) == (360, 20, 2, 1, 0)
    assert (line.download_s, line.training_s, line.redone_s, line.failed_s) == (120, 900, 180, 0)
    assert (line.usd, line.storage_usd, line.steps_redone) == (pytest.approx(2.05), 0.05, 7)
    assert job_line(WAITING).wait_s is None
