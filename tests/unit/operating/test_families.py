"""What the metrics of a service say of what was counted."""

from collections import Counter

from gangline.core.operating.families import Totals, by_pool, families_of_jobs, families_of_totals


def samples(totals: Totals, name: str) -> dict[tuple[str, ...], float]:
    return dict(next(each for each in families_of_totals(totals) if each.name == f"gangline_{name}_total").samples)


def test_queued_jobs_that_no_node_may_take_are_held() -> None:
    jobs, oldest = families_of_jobs({"queued": 10, "failed": 2}, 7, 30.0)
    found = {state: count for (state,), count in jobs.samples.items() if count}
    assert found == {"queued": 7, "held": 3, "failed": 2}
    assert dict(oldest.samples) == {(): 30.0}


def test_a_job_that_was_taken_between_two_counts_makes_no_count_negative() -> None:
    jobs, oldest = families_of_jobs({"queued": 1}, 2, -5.0)
    assert jobs.samples["held",] == 0 and dict(oldest.samples) == {(): 0.0}


def test_what_a_provider_billed_besides_is_a_cost_that_was_wasted_and_lowers_no_credit() -> None:
    costs = {("p", "training"): 3_000_000, ("p", "idle"): 1_000_000, ("p", "correction"): 500_000}
    time_ms = Counter({("p", "training"): 5000, ("p", "storage"): 9000})
    totals = Totals(micro_usd=Counter(costs), credit_micro_usd=Counter({("p",): 250_000}), ms=time_ms)
    assert samples(totals, "cost_usd") == {
        ("p", "training", "yes"): 3.0,
        ("p", "idle", "no"): 1.0,
        ("p", "correction", "no"): 0.5,
    }
    assert samples(totals, "credits_usd") == {("p",): 0.25}
    assert samples(totals, "node_seconds") == {("p", "training", "yes"): 5.0}  # storage is no time of a node


def test_leases_that_expired_are_the_attempts_whose_node_fell_silent() -> None:
    ended = {("p", "interrupted", ""): 2, ("p", "released", ""): 3, ("p", "failed", "diverged"): 1}
    totals = Totals(attempts=Counter(ended))
    assert samples(totals, "leases_expired") == {("p",): 2}
    assert samples(totals, "attempts_ended") == ended


def test_what_is_new_is_added_to_what_was_counted() -> None:
    before = Totals(until_ms=5, attempts=Counter({("p", "failed", ""): 1}), checkpoints=2, micro_usd=Counter(a=3, b=0))
    newer = Totals(until_ms=9, attempts=Counter({("p", "failed", ""): 1}), checkpoints=1, micro_usd=Counter(a=5))
    both = before + newer
    assert (both.until_ms, both.attempts["p", "failed", ""], both.checkpoints) == (9, 2, 3)
    assert dict(both.micro_usd) == {"a": 8, "b": 0}  # what was free stays, too
    assert before.attempts["p", "failed", ""] == 1


def test_a_pool_without_a_node_has_a_sample_of_none() -> None:
    assert by_pool(["b", "a"], {"a": 2, "gone": 1}) == {("a",): 2, ("b",): 0, ("gone",): 1}
