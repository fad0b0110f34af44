"""Whom a threshold of costs tells, and that it does so once."""

from gangline.ports.store import write
from gangline.service.notices import log
from gangline.service.reports import thresholds
from gangline.service.reports.thresholds import ThresholdWish, forget_crossings, keep_threshold, watch_thresholds
from tests.sim.mutants.bench import PROJECT, Bench, probe
from tests.sim.mutants.probes_of_notices import Notified


def spend(bench: Bench, micro_usd: int = 6_000_000) -> None:
    line = {"cause": "training", "from_ms": bench.now_ms - 1, "to_ms": bench.now_ms, "micro_usd": micro_usd}
    bench.store.apply(write("add_cost", node="n", attempt="a", job="j", project=PROJECT, **line))


def keep(bench: Bench, usd: float = 10.0, notify: str = PROJECT) -> None:
    wish = ThresholdWish(usd=usd, per="month", project=PROJECT, percents=(50,), forecast=False, notify=notify)
    keep_threshold(bench.deployment, wish, bench.now_ms)


def watch(bench: Bench) -> None:
    watch_thresholds(bench.deployment, bench.now_ms)


def crossings(bench: Bench) -> int:
    return len(bench.look("SELECT fact FROM cost_crossing"))


@probe()
def a_threshold_is_told_of_once_although_two_look_at_the_same_time(bench: Bench) -> None:
    found = Notified(bench)
    endpoint = found.add("a", "cost_threshold")
    keep(bench)
    keep(bench)
    spend(bench)
    bench.meanwhile("add_crossing", lambda: watch(bench))
    watch(bench)
    watch(bench)
    assert crossings(bench) == 1 and found.notices(endpoint) == [(1, "waiting", 0)]
    assert bench.look("SELECT facts FROM project WHERE id = ?", PROJECT) == [1]
    bench.submit()
    found.number()
    assert bench.look("SELECT fact FROM event WHERE project = ?", PROJECT) == [2]


@probe()
def who_has_no_turn_tells_nobody(bench: Bench) -> None:
    Notified(bench).add("a", "cost_threshold")
    keep(bench)
    spend(bench)
    bench.look("UPDATE service SET ticker = 'another'")
    watch(bench)
    assert crossings(bench) == 0


@probe()
def a_threshold_that_is_changed_meanwhile_is_looked_at_again(bench: Bench) -> None:
    found = Notified(bench)
    found.add("a", "cost_threshold"), found.add("b", "cost_threshold", project="other")
    for change in (lambda: keep(bench, usd=1000), lambda: keep(bench, notify="other")):
        keep(bench)
        bench.look("DELETE FROM ledger")
        spend(bench)
        bench.meanwhile("add_crossing", change)
        watch(bench)
        assert crossings(bench) == 0


@probe()
def endpoints_that_are_active_and_chose_it_hear_of_a_threshold(bench: Bench) -> None:
    found = Notified(bench)
    chose, others = found.add("a", "cost_threshold"), found.add("b", "failed")
    disabled, elsewhere = found.add("c", "cost_threshold"), found.add("d", "cost_threshold", project="other")
    found.set(disabled, state="disabled")
    keep(bench)
    spend(bench)
    watch(bench)
    assert [len(found.notices(each)) for each in (chose, others, disabled, elsewhere)] == [1, 0, 0, 0]
    log.shorten_logs(bench.deployment, bench.now_ms)
    assert found.notices(chose) == [(1, "waiting", 0)], "no job was deleted"


@probe()
def a_threshold_that_nobody_hears_of_is_told_of_later(bench: Bench) -> None:
    found = Notified(bench)
    disabled = found.add("a", "cost_threshold")
    found.add("b", "failed"), found.add("c", "cost_threshold", project="other")
    found.set(disabled, state="disabled")
    keep(bench)
    spend(bench)
    watch(bench)
    assert crossings(bench) == 0
    found.set(disabled, state="active")
    watch(bench)
    assert found.notices(disabled) == [(1, "waiting", 0)]


@probe()
def a_replay_sends_crossings_that_the_endpoint_hears_of(bench: Bench) -> None:
    found = Notified(bench)
    endpoint, other = found.add("a", "cost_threshold"), found.add("b", "failed")
    keep(bench)
    spend(bench)
    watch(bench)
    later = bench.now_ms + 1
    assert found.replay(endpoint) == found.replay(endpoint, since_ms=bench.now_ms) == 1
    assert found.replay(endpoint, after=1) == found.replay(endpoint, since_ms=later) == found.replay(other) == 0
    found.add("c", "cost_threshold", project="other")
    keep(bench, notify="other", usd=9.0)
    watch(bench)
    assert crossings(bench) == 2 and found.replay(endpoint) == 1
    found.set(endpoint, state="disabled")
    wanted = {"endpoint": endpoint, "after": 0, "since_ms": 0, "now": bench.now_ms, "most": 10}
    assert bench.store.change("replay_facts", **wanted) == [], "it may be disabled in this moment"


@probe()
def what_was_told_is_known_for_long(bench: Bench) -> None:
    Notified(bench).add("a", "cost_threshold")
    keep(bench)
    spend(bench)
    watch(bench)
    forget_crossings(bench.deployment, bench.now_ms + thresholds.KEPT_MS)
    assert crossings(bench) == 1
    forget_crossings(bench.deployment, bench.now_ms + thresholds.KEPT_MS + 1)
    assert crossings(bench) == 0
