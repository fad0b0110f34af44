"""Which examples make up a step is a function of the step, and every example has its turn."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gangline.data.chance import stream
from gangline.data.reading.order import Order

COUNTS = st.lists(st.integers(1, 30), min_size=1, max_size=6).map(tuple)


def taken(order: Order, steps: int) -> list[tuple[int, int]]:
    """(bucket, example) in the order in which they are seen."""
    chosen = [order.step(step) for step in range(1, steps + 1)]
    return [(bucket, example) for bucket, examples in chosen for example in examples]


def test_one_bucket_is_one_permutation_after_the_other() -> None:
    drawn = [example for _, example in taken(Order(7, (5,), 3), 5)]
    assert drawn == [2, 0, 3, 1, 4, 4, 0, 3, 2, 1, 2, 1, 3, 4, 0], "jobs that run go on in this order"
    assert drawn == [example for turn in range(3) for example in stream(7, "order", turn).permutation(5)]


@given(st.integers(0, 2**63), COUNTS, st.integers(1, 9), st.integers(0, 40))
def test_a_buckets_examples_come_pass_after_pass_without_a_gap(
    seed: int, counts: tuple[int, ...], batch: int, steps: int
) -> None:
    seen = taken(Order(seed, counts, batch), steps)
    for bucket, count in enumerate(counts):
        own = [example for of, example in seen if of == bucket]
        for first in range(0, len(own) - count + 1, count):
            assert sorted(own[first : first + count]) == list(range(count))
        rest = own[len(own) - len(own) % count :]
        assert len(set(rest)) == len(rest)


@given(st.integers(0, 2**63), COUNTS, st.integers(1, 9), st.integers(1, 3))
def test_every_example_is_seen_equally_often_however_large_its_bucket(
    seed: int, counts: tuple[int, ...], batch: int, rounds: int
) -> None:
    seen = Counter(taken(Order(seed, counts, batch), sum(counts) * rounds))  # batch × rounds passes
    assert set(seen.values()) == {batch * rounds}
    assert len(seen) == sum(counts)


@given(st.integers(0, 2**63), COUNTS, st.integers(1, 9), st.integers(1, 200))
def test_at_any_step_no_example_is_more_than_a_batch_and_a_round_ahead(
    seed: int, counts: tuple[int, ...], batch: int, steps: int
) -> None:
    seen = Counter(taken(Order(seed, counts, batch), steps))
    often = [seen[bucket, example] for bucket, count in enumerate(counts) for example in range(count)]
    assert max(often) - min(often) <= 2 + -(-batch // min(counts))


@given(COUNTS, st.integers(1, 9), st.integers(1, 10**9))
def test_a_late_step_is_found_as_an_early_one_is(counts: tuple[int, ...], batch: int, step: int) -> None:
    bucket, examples = Order(1, counts, batch).step(step)
    assert len(examples) == batch
    assert all(0 <= example < counts[bucket] for example in examples)


def test_another_seed_is_another_order_of_examples_and_of_buckets() -> None:
    one, other = taken(Order(1, (9, 9), 3), 12), taken(Order(2, (9, 9), 3), 12)
    assert one != other
    assert [bucket for bucket, _ in one] != [bucket for bucket, _ in other]
    assert one == taken(Order(1, (9, 9), 3), 12)


@given(st.integers(0, 2**63), COUNTS, st.integers(1, 9), st.integers(1, 60))
def test_what_earlier_steps_took_of_each_bucket_is_known_from_the_step_alone(
    seed: int, counts: tuple[int, ...], batch: int, step: int
) -> None:
    order, seen = Order(seed, counts, batch), Counter(taken(Order(seed, counts, batch), step - 1))
    for bucket, (times, once_more) in enumerate(order.taken(step)):
        wanted = {example: times + once_more.count(example) for example in range(counts[bucket])}
        assert wanted == {example: seen[bucket, example] for example in range(counts[bucket])}
