"""Reports of many jobs: `python benchmarks/reports.py [JOBS] [TRIES] [ROUNDS] [costs]` (10,000 jobs with 5 attempts each, 5 rounds by
default). With `costs`: the median seconds of what they cost through HTTP, by each key and with a forecast, instead of what is below.

For each engine: the seconds of a report through HTTP, without lines and with a line for each job, how long the server's processor was busy
(with SQLite in it, without PostgreSQL, which is another process), and the size of the answer; and the milliseconds of a
heartbeat, alone and while reports are made one after the other: median, 99th percentile, most.
"""

import statistics
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

from benchmarks.engines import services
from tests.service.conftest import OPERATOR, Service
from tests.service.lists.many import write_many
from tests.service.reports.many import write_nodes_of_reports, write_tries

from gangline.core.reports.costs import CostKey


def seconds_of_report(service: Service, **params: object) -> tuple[float, float, int]:
    """Return the seconds of a report, those of the processor in this process, and the size of the answer."""
    began, busy = time.perf_counter(), time.process_time()
    answer = service.ask("GET", "/v1/report", params=params)
    assert answer.status_code == 200, answer.text
    return time.perf_counter() - began, time.process_time() - busy, len(answer.content)


@dataclass(frozen=True)
class Beating:
    """A node with a lease, whose heartbeats are measured."""

    service: Service
    token: str
    path: str

    def beat_ms(self, until: threading.Event | None, count: int) -> list[float]:
        """Return the milliseconds of heartbeats, until the event is set or there are enough."""
        took = list[float]()
        while len(took) < count and not (until and until.is_set()):
            began = time.perf_counter()
            answer = self.service.ask("POST", self.path, self.token, json={"step": 1, "phase": "training"})
            took.append((time.perf_counter() - began) * 1000)
            assert answer.status_code == 200, answer.text
        return took


def a_node(service: Service) -> Beating:
    service.submit()
    joined = service.join_with(service.join_token()["secret"]).json()
    held = service.claim(joined["node"])
    return Beating(
        service, joined["token"], f"/v1/attempts/{held.hold.attempt}/heartbeats?fencing={held.hold.fencing}&rank=0"
    )


def bench_costs(engine: str, service: Service, jobs: int, tries: int, rounds: int) -> None:
    made = write_many(service, jobs, ("nobody", "somebody"))
    write_nodes_of_reports(service)
    write_tries(service, [(job.id, job.submitted_ms) for job in made], tries)
    lines = service.look("SELECT COUNT(*) AS lines FROM ledger")[0]["lines"]
    print(f"{engine}: {jobs:,} jobs, {lines:,} lines of the ledger", flush=True)
    asked = [{"by": by} for by in get_args(CostKey)] + [{"by": "cause", "forecast": "true"}]
    for params in asked:
        took = list[float]()
        for _ in range(rounds):
            began = time.perf_counter()
            answer = service.ask("GET", "/v1/costs", OPERATOR, params=params)
            took.append(time.perf_counter() - began)
            assert answer.status_code == 200, answer.text
        print(f"  costs by {' '.join(params.values()):<20} {statistics.median(took):6.2f} s", flush=True)


def percentiles(took: list[float]) -> str:
    ordered = sorted(took)
    return f"{statistics.median(ordered):6.1f} {ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]:6.1f} {ordered[-1]:6.1f}"


def bench(engine: str, service: Service, jobs: int, tries: int, rounds: int) -> None:
    node = a_node(service)
    made = write_many(service, jobs - 1, ("nobody", "somebody"))
    write_nodes_of_reports(service)
    write_tries(service, [(job.id, job.submitted_ms) for job in made], tries)
    print(f"{engine}: {jobs:,} jobs, {tries} attempts each")
    for called, params in (("report", {}), ("with a line for each job", {"include": "jobs"})):
        took = [seconds_of_report(service, **params) for _ in range(rounds)]
        seconds, cpu_s = (statistics.median(each[column] for each in took) for column in (0, 1))
        print(
            f"  {called:<28} {seconds:6.2f} s, {cpu_s:.2f} s of the server's CPU, {took[0][2] / 1e6:.3f} MB", flush=True
        )
    print(f"  heartbeats alone             {percentiles(node.beat_ms(None, 300))} ms", flush=True)
    over = threading.Event()

    def report_again() -> None:
        for _ in range(rounds):
            seconds_of_report(service)
        over.set()

    reporting = threading.Thread(target=report_again)
    reporting.start()
    beside = node.beat_ms(over, 10**6)
    reporting.join()
    print(f"  heartbeats during reports    {percentiles(beside)} ms ({len(beside)} requests)", flush=True)


def main() -> None:
    given = [word for word in sys.argv[1:] if word != "costs"]
    jobs, tries, rounds = map(int, [*given, *("10000", "5", "5")[len(given) :]])
    measure = bench_costs if "costs" in sys.argv else bench
    with services() as found:
        for engine, service in found.items():
            measure(engine, service, jobs, tries, rounds)


if __name__ == "__main__":
    main()
