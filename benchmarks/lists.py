"""Lists of jobs, paged and filtered: `python benchmarks/lists.py [JOBS] [ROUNDS]` (100,000 jobs and 20 rounds by default).

Each line is one list on one engine: how long a page of 50 takes at its beginning, in its middle and at its end, through the service without
HTTP. A fifth of the jobs is queued, and 500 nodes are here: a page says of each queued job why it waits. Beside it stands the bare SQL of a
page: one statement of the newest jobs' ids after a position, in the order of the primary index of lists, and nothing of what a list shows.
Where a search looks, jobs have the spec of a LoRA of twenty photos with captions.
Milliseconds: median, 99th percentile, most.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

from benchmarks.engines import services
from tests.service.conftest import PROJECT, Service
from tests.service.lists.many import NAMED, Given, write_many
from tests.service.lists.worked import work_on_all, write_nodes

from gangline.core.canonical import canonical_json
from gangline.core.files import File
from gangline.core.jobs.lists.cursor import write_cursor
from gangline.core.jobs.lists.filters import JobFilters, LabelFilter, ListPosition
from gangline.core.jobs.lists.search import SEARCHED_MAX
from gangline.core.parsing import to_json
from gangline.service.jobs.lists.page import page_of_jobs

LIMIT = 50
NODES = 500
DEPTHS = {"first": 0.0, "middle": 0.5, "last": 0.99}


@dataclass(frozen=True)
class Asked:
    called: str
    filters: JobFilters


def lists(owners: tuple[str, ...], made: list[Given]) -> list[Asked]:
    low, high, seldom = LabelFilter("low"), LabelFilter("high"), LabelFilter("seldom", "x")
    return [
        Asked("all", JobFilters()),
        Asked("state failed (20 %)", JobFilters(states=("failed",))),
        Asked("state queued or canceled", JobFilters(states=("queued", "canceled"))),
        Asked("state canceled (0.1 %)", JobFilters(states=("canceled",))),
        Asked("state queued (20 %)", JobFilters(states=("queued",))),
        Asked("kind command (20 %)", JobFilters(kind="command")),
        Asked("label low (50 %)", JobFilters(labels=(low,))),
        Asked("label seldom=x (0.05 %)", JobFilters(labels=(seldom,))),
        Asked("owner (43 %)", JobFilters(owner=owners[0])),
        Asked("owner of 3 jobs", JobFilters(owner=owners[2])),
        Asked("newest tenth, failed", JobFilters(states=("failed",), since_ms=made[len(made) // 10].submitted_ms)),
        Asked("succeeded, owner, label low", JobFilters(states=("succeeded",), owner=owners[0], labels=(low,))),
        Asked("canceled and label low", JobFilters(states=("canceled",), labels=(low,))),
        Asked("labels low and high (none)", JobFilters(labels=(low, high))),
        Asked("succeeded, label seldom=x", JobFilters(states=("succeeded",), labels=(seldom,))),
        Asked("named as 91 % are", JobFilters(named=NAMED)),
        Asked("named as one is", JobFilters(named=f"run {len(made) // 2 // 11 * 11}")),
        Asked("an end of an id", JobFilters(named=made[len(made) // 2].id[-8:])),
        Asked("a beginning of all ids", JobFilters(named=made[0].id[:8])),
        Asked("three characters of an id", JobFilters(named="zzz")),
        Asked("search: a text of 91 %", JobFilters(search="sks dog")),
        Asked("search: a text of none", JobFilters(search="lighthouse")),
        Asked("search: none, failed, label low", JobFilters(search="lighthouse", states=("failed",), labels=(low,))),
    ]


def measure(act: Callable[[], object], rounds: int) -> str:
    act()
    took = list[float]()
    for _ in range(rounds):
        began = time.perf_counter()
        act()
        took.append((time.perf_counter() - began) * 1000)
    slowest = sorted(took)[min(len(took) - 1, round(0.99 * len(took)))]
    return f"{statistics.median(took):7.1f} {slowest:7.1f} {max(took):7.1f}"


def write_specs(service: Service, made: list[Given]) -> bool:
    """Give the jobs after each depth the spec that such a job has, as far as a page of a search may look."""
    photos, captions = (
        tuple(File(path=f"photo-{number:02d}.{kind}", bytes=10**6, sha256=f"{number:064x}") for number in range(20))
        for kind in ("jpg", "txt")
    )
    spec = canonical_json(to_json(service.spec(prompt="a photo of sks dog", photos=photos, captions=captions)))
    for share in DEPTHS.values():
        start = min(len(made) - 1, round(len(made) * share))
        newest, oldest = made[start].submitted_ms, made[min(len(made) - 1, start + 10 * SEARCHED_MAX)].submitted_ms
        service.execute(
            f"UPDATE job SET spec = '{spec}' WHERE project = '{PROJECT}' AND submitted_ms BETWEEN {oldest} AND {newest}"
        )
    print(f"searched from here on: specs of {len(spec):,} characters")
    return True


def bench(engine: str, service: Service, jobs: int, rounds: int) -> None:
    owners = tuple(service.make_key("member", name=name)["key"]["id"] for name in ("ada", "grace", "mary"))
    made = write_many(service, jobs, owners[:2])
    work_on_all(service)
    write_nodes(service, NODES)
    service.execute(*(f"UPDATE job SET owner = '{owners[2]}' WHERE id = '{made[at].id}'" for at in (9, jobs // 2, -9)))
    gc.collect()
    gc.freeze()  # a server does not hold the 100,000 rows that were made here, which a collection walks through
    print(f"{engine}: {jobs:,} jobs, {NODES} nodes, pages of {LIMIT}")
    print(f"{'list':<30} {'page':<7} {'p50':>7} {'p99':>7} {'max':>7} ms")
    deployment, written = service.deployment, False
    for depth, share in DEPTHS.items():
        at = made[min(len(made) - 1, round(len(made) * share))]
        since = {"from_ms": -1, "from_id": "", "before_ms": at.submitted_ms, "before_id": at.id, "project": PROJECT}
        bare = {
            "filters": 0,
            "states": "",
            "kind": "",
            "owners": "",
            "named": "",
            "labels": "",
            "labelled": 0,
            "break": "\n",
        }
        values = since | bare | {"limit": LIMIT}
        print(
            f"{'(bare SQL of a page)':<30} {depth:<7} {measure(lambda v=values: service.store.load('jobs_by_time', **v), rounds)}"
        )
    for asked in lists(owners, made):
        if asked.filters.search and not written:
            written = write_specs(service, made)
        for depth, share in DEPTHS.items():
            at = made[min(len(made) - 1, round(len(made) * share))]
            cursor = write_cursor(ListPosition(at.submitted_ms, at.id), asked.filters) if share else None

            def page(asked: Asked = asked, cursor: str | None = cursor) -> object:
                now_ms = service.store.now_ms()
                return page_of_jobs(deployment, PROJECT, asked.filters, now_ms, limit=LIMIT, cursor=cursor)

            print(f"{asked.called:<30} {depth:<7} {measure(page, rounds)}", flush=True)


def main() -> None:
    jobs, rounds = (int(word) for word in [*sys.argv[1:], *("100000", "20")[len(sys.argv) - 1 :]])
    with services() as found:
        for engine, service in found.items():
            bench(engine, service, jobs, rounds)


if __name__ == "__main__":
    main()
