"""Which time of nodes a report reads. Each is a sentence that holds."""

from gangline.core.money.cost import DAY_MS
from gangline.ports.store import write
from gangline.service.reports.costs import costs
from gangline.service.reports.loading import load_all_overhead, load_overhead, load_work
from tests.sim.mutants.bench import Bench, probe


def add_cost(bench: Bench, node: str, from_ms: int, job: str = "", ms: int = 1) -> None:
    line = {"cause": "idle", "from_ms": from_ms, "to_ms": from_ms + ms, "micro_usd": ms}
    bench.store.apply(write("add_cost", node=node, attempt=f"{job}-{from_ms}", job=job, project="", **line))


@probe()
def a_nodes_own_time_is_read_within_the_span_of_the_jobs_and_without_what_jobs_cost(bench: Bench) -> None:
    node, other = bench.join("a"), bench.join("b")
    for from_ms in (4, 5, 8, 9):
        add_cost(bench, node, from_ms)
    add_cost(bench, node, 6, job="somebody's")
    add_cost(bench, other, 6)
    (line,) = load_overhead(bench.store, [node], 5, 8)
    assert (line.node, line.cause, line.expense.ms, line.expense.micro_usd) == (node, "idle", 2, 2)
    assert sum(line.expense.micro_usd for line in load_all_overhead(bench.store)) == 5


@probe()
def jobs_share_a_nodes_own_time_with_those_that_began_there_within_the_span(bench: Bench) -> None:
    node, began = bench.join("a"), list[int]()
    for _ in range(3):
        job = bench.submit()
        hold = bench.take(node, job)
        began.append(bench.now_ms)
        bench.wait(1)
        bench.succeed(node, hold)
        bench.wait(60)
    assert load_work(bench.store, [node], began[1], began[1]) == {node: 1000}
    assert load_work(bench.store, [node], began[0], began[2]) == {node: 3000}


@probe()
def what_ended_when_a_span_begins_has_no_part_in_its_costs(bench: Bench) -> None:
    node = bench.join("a")
    for from_ms, job in ((4, "before"), (5, "within"), (8, "after")):
        add_cost(bench, node, from_ms, job=job)
    found = costs(bench.deployment, None, "job", bench.now_ms, since_ms=5, until_ms=8)
    assert [row.key for row in found.rows] == ["within"]


@probe()
def the_days_of_a_span_have_what_was_spent_within_it(bench: Bench) -> None:
    node = bench.join("a")
    for from_ms in (0, DAY_MS, 3 * DAY_MS):
        add_cost(bench, node, from_ms, job="one", ms=10_000)
    found = costs(bench.deployment, None, "day", bench.now_ms, since_ms=10_000, until_ms=2 * DAY_MS)
    assert [(row.key, row.usd) for row in found.rows] == [("1970-01-02", 0.01)]
