"""A scrape of a large service: `python benchmarks/metrics.py [JOBS] [NODES] [ROUNDS]` (100,000 jobs, 10,000 nodes, 20 rounds by default).

Each line is GET /metrics with a key, over HTTP to a server on loopback in this process, on one engine, in milliseconds. Every job has an
attempt, a checkpoint, a result and a bill. The first scrape of a process counts all of them. The others count what has ended since, here a
tenth of all, and keep the sums of stored bytes. CPU is this process's: all of it with SQLite. A recount is what a thread beside the scrapes
does each hour. The exit status is 1 where the slowest of the other scrapes takes longer than the limit; the first has none.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import httpx
from benchmarks.engines import services
from tests.service.conftest import OPERATOR, Service
from tests.service.lists.many import write_many
from tests.service.lists.worked import work_on_all, write_nodes
from tests.service.served import serving

from gangline.api.app import over_another
from gangline.service.operating.measure import count_totals

LIMIT_MS = 200


def took_ms(act: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    act()
    return (time.perf_counter() - began_s) * 1000


def bench(engine: str, service: Service, jobs: int, nodes: int, rounds: int) -> bool:
    """Return whether the limit is kept."""
    write_many(service, jobs, ("ada", "grace"))
    work_on_all(service)
    write_nodes(service, nodes)
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    app = over_another(service.app, service.deployment)
    with serving(app) as served, httpx.Client(base_url=served.url, headers=headers, timeout=60) as asked:

        def scrape() -> None:
            assert asked.get("/metrics").status_code == 200

        asked.get("/healthz")  # the first request of an application prepares its routes
        first = took_ms(scrape)
        service.wait(10)
        service.execute(
            f"UPDATE attempt SET ended_ms = {service.now_ms} WHERE id LIKE '%0'",
            f"UPDATE ledger SET to_ms = {service.now_ms} WHERE attempt LIKE '%0'",
            f"UPDATE checkpoint SET committed_ms = {service.now_ms} WHERE id LIKE '%0'",
        )
        began_s = time.process_time()
        scrapes = sorted(took_ms(scrape) for _ in range(rounds))
        cpu = (time.process_time() - began_s) * 1000 / rounds
    recount = took_ms(lambda: count_totals(service.store, 0, service.now_ms))
    median, slowest = statistics.median(scrapes), scrapes[-1]
    is_within = slowest < LIMIT_MS
    print(
        f"{engine:<11} first {first:5.0f} (counts everything once)   then {median:5.0f} ({scrapes[0]:.0f} to {slowest:.0f}), "
        f"{cpu:.0f} of CPU   {'within' if is_within else 'ABOVE'} the limit of {LIMIT_MS}   recount {recount:5.0f}",
        flush=True,
    )
    return is_within


def main() -> None:
    jobs, nodes, rounds = (int(word) for word in (*sys.argv[1:], *("100000", "10000", "20")[len(sys.argv) - 1 :]))
    print(f"{jobs:,} jobs, {nodes:,} nodes, {rounds} scrapes")
    with services() as found:
        kept = [bench(engine, service, jobs, nodes, rounds) for engine, service in found.items()]
    sys.exit(not all(kept))


if __name__ == "__main__":
    main()
