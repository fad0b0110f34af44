"""The report's figures are those of the ledger and of the attempts; the timeline shows every job and every attempt."""

import math
from collections import Counter
from dataclasses import replace
from statistics import fmean, median
from xml.etree import ElementTree

import pytest

from gangline.core.charts.colours import colour
from gangline.core.charts.timeline import Bar, draw_timeline
from gangline.core.jobs.lists.filters import JobFilters
from gangline.core.reports.report import BECAUSE_MAX, JobsReport, PerJob
from gangline.service.reports.report import report_of_jobs
from gangline.sim.report import SimReport, make_report, make_timeline
from gangline.sim.scenario import figures, parse_scenario
from gangline.sim.simulation import Simulation

SCENARIO = """
title = "Two projects & <some> of their jobs are bad"
[fleet]
nodes_max = 6
start_s = 60
[[machines]]
count = 12
spread = 0.2
seconds_per_step = 1.0
interruptions_per_hour = 4
[[jobs]]
count = 12
steps = 300
[[jobs]]
count = 7
project = "other"
at_s = 100
steps = 100
trait = "bad_input"
[policy]
storage_usd_per_gb_month = 2
egress_usd_per_gb = 0.05
"""


@pytest.fixture(scope="module")
def ran() -> Simulation:
    simulation = Simulation(parse_scenario(SCENARIO, "test"), seed=1)
    assert simulation.run().unfinished == 0
    return simulation


@pytest.fixture(scope="module")
def report(ran: Simulation) -> SimReport:
    return make_report(ran, "test")


def per_job(report: JobsReport) -> PerJob:
    assert report.per_job is not None
    return report.per_job


def test_every_job_and_every_attempt_is_counted_by_its_state(ran: Simulation, report: SimReport) -> None:
    assert report.jobs == {"failed": 7, "succeeded": 12}
    assert report.unfinished == 0
    assert report.attempts == Counter(state for (state,) in ran.store.look("SELECT state FROM attempt"))


def test_money_is_the_whole_ledger_and_the_nodes_are_the_providers_invoice(ran: Simulation, report: SimReport) -> None:
    lines = ran.store.look("SELECT cause, micro_usd FROM ledger")
    assert report.usd == pytest.approx(sum(cost for _, cost in lines) / 1e6)
    assert report.storage_usd > 0 and report.egress_usd > 0
    nodes = sum(part.usd for part in report.spent)
    assert nodes == pytest.approx(sum(ran.cloud.invoice().values()) / 1e6)
    assert report.usd == pytest.approx(nodes + report.storage_usd + report.egress_usd)


def test_the_causes_share_all_of_the_nodes_time(report: SimReport) -> None:
    assert sum(part.share for part in report.spent) == pytest.approx(1)
    assert sum(part.node_hours for part in report.spent) == pytest.approx(report.node_hours)
    training = next(part for part in report.spent if part.cause == "training")
    assert report.share_wasted == pytest.approx(1 - training.share)
    assert {part.cause for part in report.spent} >= {"training", "start-up", "download", "redone steps", "idle"}


def test_a_jobs_minutes_are_those_of_its_attempts(ran: Simulation, report: SimReport) -> None:
    spent = Counter[str]()
    for job, ms in ran.store.look("SELECT job, ended_ms - started_ms FROM attempt"):
        spent[job] += ms
    minutes = [spent[job] / 60_000 for (job,) in ran.store.look("SELECT id FROM job WHERE state = 'succeeded'")]
    found = per_job(report)
    assert found.minutes_mean == pytest.approx(fmean(minutes))
    assert found.minutes_median == pytest.approx(median(minutes))
    assert (found.minutes_min, found.minutes_max) == (min(minutes), max(minutes))


def test_a_jobs_dollars_are_its_lines_of_the_ledger_or_its_part_of_them_all(ran: Simulation, report: SimReport) -> None:
    lines = Counter[str]()
    for job, cost in ran.store.look("SELECT job, micro_usd FROM ledger"):
        lines[job] += cost
    usd = [lines[job] / 1e6 for (job,) in ran.store.look("SELECT id FROM job WHERE state = 'succeeded'")]
    found = per_job(report)
    assert found.usd_per_job_mean == pytest.approx(fmean(usd))
    assert found.usd_per_job_min == pytest.approx(min(usd))
    assert found.usd_per_step_mean == pytest.approx(fmean(usd) / 300)
    assert found.usd_per_job_all_in == pytest.approx(report.usd / 12)
    assert found.usd_per_job_all_in > found.usd_per_job_mean


def test_an_interruption_is_an_attempt_that_ended_so(ran: Simulation, report: SimReport) -> None:
    times = Counter(
        job
        for (job,) in ran.store.look(
            "SELECT job FROM attempt JOIN job ON job.id = job WHERE attempt.state = 'interrupted' AND job.state = 'succeeded'"
        )
    )
    found = per_job(report)
    assert times, "the scenario interrupts somebody"
    assert found.share_uninterrupted == pytest.approx(1 - len(times) / 12)
    assert found.share_interrupted_once == pytest.approx(sum(count == 1 for count in times.values()) / 12)
    assert found.share_interrupted_more == pytest.approx(sum(count > 1 for count in times.values()) / 12)


def test_steps_done_again_are_those_between_what_was_heard_and_where_the_next_began(
    ran: Simulation, report: SimReport
) -> None:
    redone, before = 0, {}
    for job, from_step, step in ran.store.look("SELECT job, from_step, step FROM attempt ORDER BY job, fencing"):
        redone += max(0, before.get(job, 0) - from_step)
        before[job] = step
    assert report.steps_redone == redone > 0


def test_waits_are_from_submission_to_the_first_claim(ran: Simulation, report: SimReport) -> None:
    rows = ran.store.look(
        "SELECT project, submitted_ms, (SELECT MIN(started_ms) FROM attempt WHERE attempt.job = job.id) FROM job"
    )
    waits = [(claimed - submitted) / 1000 for project, submitted, claimed in rows if project == "other"]
    found = next(wait for wait in report.waits if wait.project == "other")
    assert (found.jobs, found.seconds_mean, found.seconds_max) == (7, pytest.approx(fmean(waits)), max(waits))
    assert [wait.project for wait in report.waits] == ["default", "other"]


def test_of_the_jobs_that_failed_a_few_say_why(report: SimReport) -> None:
    assert len(report.because) == BECAUSE_MAX
    assert all("the input is bad" in because for because in report.because)


def test_where_no_job_succeeded_there_is_nothing_to_say_of_each() -> None:
    simulation = Simulation(
        parse_scenario(SCENARIO.replace('title = "', 'hours_max = 0.01\ntitle = "'), "test"), seed=1
    )
    simulation.run()
    found = make_report(simulation, "test")
    assert found.per_job is None and found.unfinished == found.jobs["queued"] == 12
    assert (found.share_wasted, found.spent) == (0, ())


def test_what_was_published_of_a_job_has_the_same_name_here() -> None:
    ours = set(PerJob.__slots__)
    assert ours - set(figures("benchmark")) == {"usd_per_job_all_in"}
    theirs = {name for name in figures("benchmark") if name.startswith(("minutes_", "usd_per_", "share_"))}
    assert theirs <= ours


def test_a_server_reports_the_same_of_these_jobs_as_the_simulator_does_of_all() -> None:
    """All jobs of a simulation with one project, once as a user's request and once as the simulator's own report."""
    one = SCENARIO[: SCENARIO.index("[[jobs]]\ncount = 7")] + SCENARIO[SCENARIO.index("[policy]") :]
    simulation = Simulation(parse_scenario(one, "test"), seed=1)
    simulation.run()
    ours, now_ms = make_report(simulation, "test"), simulation.world.now_ms
    asked = report_of_jobs(simulation.service.deployment, "default", JobFilters(), now_ms, ("jobs", "attempts"))
    same = ("jobs", "attempts", "because", "steps_redone", "first_try_failed_share", "waits", "minutes", "usd_of_jobs")
    assert {name: getattr(asked, name) for name in same} == {name: getattr(ours, name) for name in same}
    assert replace(per_job(asked), usd_per_job_all_in=0) == replace(per_job(ours), usd_per_job_all_in=0)
    # Nodes that never worked, and time after the last job, are in the whole ledger alone.
    assert 0.9 * ours.usd < asked.usd <= ours.usd
    jobs = [part for part in asked.spent if part.cause not in ("start-up", "idle", "correction")]
    assert [(part.cause, part.usd) for part in jobs] == [
        (part.cause, part.usd) for part in ours.spent if part.cause not in ("start-up", "idle", "correction")
    ]
    assert (len(asked.lines), len(asked.bars)) == (12, sum(ours.attempts.values()))


# The timeline

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 - written here


def lanes(root: ElementTree.Element) -> list[ElementTree.Element]:
    return root.findall(f"{SVG}g[@class='lane']")


def test_the_timeline_has_a_lane_for_each_job_in_the_order_of_their_first_claim(ran: Simulation) -> None:
    root = parsed(make_timeline(ran))
    claimed = ran.store.look("SELECT job FROM attempt WHERE fencing = 1 ORDER BY started_ms, id")
    assert [lane.get("data-job") for lane in lanes(root)] == [job for (job,) in claimed]


def test_the_timeline_has_a_bar_for_each_attempt_in_the_colour_of_its_machine(ran: Simulation) -> None:
    root = parsed(make_timeline(ran))
    bars = [bar for lane in lanes(root) for bar in lane.findall(f"{SVG}rect") if bar.find(f"{SVG}title") is not None]
    found = Counter((bar.findtext(f"{SVG}title", "").split()[0], bar.get("fill")) for bar in bars)
    assert found == Counter((id, colour(machine)) for id, machine in ran.store.look("SELECT id, machine FROM attempt"))


def test_the_timeline_is_the_same_each_time(ran: Simulation) -> None:
    assert make_timeline(ran) == make_timeline(ran)


def test_what_people_and_nodes_write_is_escaped() -> None:
    bar = Bar(
        job='<job "1">', attempt="a&b", machine="<m>", state="failed", because="\x00</svg>", from_ms=0, to_ms=60_000
    )
    root = parsed(draw_timeline("<&>", ['<job "1">', "never claimed"], [bar], 120_000))
    assert [lane.get("data-job") for lane in lanes(root)] == ['<job "1">', "never claimed"]
    assert root.findtext(f"{SVG}title") == "<&>"


def test_a_lane_has_the_jobs_name_cut_in_its_middle_and_the_id_beside_it() -> None:
    names = {"job-1": "<dogs>", "job-2": "dogs-rank=16-seed=2"}
    root = parsed(draw_timeline("t", ["job-1", "job-2", "job-3"], [], 60_000, names))
    labels = [lane.find(f"{SVG}text") for lane in lanes(root)]
    assert [label.text for label in labels if label is not None] == ["<dogs>", "dogs-r…-seed=2", "job-3"]
    said = [label.findtext(f"{SVG}title") for label in labels if label is not None]
    assert said == ["<dogs>, job-1", "dogs-rank=16-seed=2, job-2", "job-3"]


@pytest.mark.parametrize(
    ("until_s", "ticks", "units"),
    [
        (0, ["0:00"], "minutes:seconds"),
        (50, ["0:00", "0:05", "0:10"], "minutes:seconds"),
        (280, ["0:00", "0:30", "1:00"], "minutes:seconds"),
        (3599, ["0:00", "5:00", "10:00"], "minutes:seconds"),
        (3600, ["0:00", "0:05", "0:10"], "hours:minutes"),
        (90_000, ["0:00", "2:00", "4:00"], "hours:minutes"),
        (86_400 * 100, ["0:00", "168:00", "336:00"], "hours:minutes"),
    ],
)
def test_the_axis_counts_minutes_in_a_run_of_less_than_an_hour(until_s: int, ticks: list[str], units: str) -> None:
    texts = [text.text or "" for text in parsed(draw_timeline("t", [], [], until_s * 1000)).findall(f"{SVG}text")]
    assert texts[-1] == units
    assert [text for text in texts if ":" in text][:-1:2][: len(ticks)] == ticks


@pytest.mark.parametrize("jobs", [0, 1, 40, 1000, 20_000])
def test_the_timeline_stays_on_a_page(jobs: int) -> None:
    names = [f"job-{number}" for number in range(jobs)]
    root = parsed(draw_timeline("many", names, [], until_ms=3_600_000 * max(1, jobs)))
    assert len(lanes(root)) == jobs
    height, labels = float(root.get("height", "0")), root.findall(f"{SVG}g/{SVG}text")
    assert math.isfinite(height) and height < 1800
    assert len(labels) * 12 <= max(12, height)
    assert len(root.findall(f"{SVG}line")) <= 20
