"""The order of samples is a pure function of (seed, epoch), whoever reads and however many they are."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from gangline.data.reading.mix import CYCLE, Mix
from gangline.data.reading.shuffle import LANES, Shuffle

blocks = st.lists(st.integers(1, 9), min_size=1, max_size=40).map(tuple)
shuffles = st.builds(Shuffle, st.integers(0, 2**40), blocks, st.integers(1, 8))


def order(shuffle: Shuffle, first: int, count: int) -> list[tuple[int, int]]:
    places = shuffle.places(np.arange(first, first + count))
    return list(zip(places.block.tolist(), places.row.tolist(), strict=True))


@given(st.integers(0, 2**40), blocks, st.integers(1, 8), st.integers(0, 5))
def test_an_epoch_has_every_row_once(seed: int, sizes: tuple[int, ...], lanes: int, epoch: int) -> None:
    every = [(block, row) for block, rows in enumerate(sizes) for row in range(rows)]
    shuffle = Shuffle(seed, sizes, lanes)
    assert sorted(order(shuffle, epoch * shuffle.rows, shuffle.rows)) == every


@given(shuffles, st.data())
def test_the_order_can_be_entered_anywhere(shuffle: Shuffle, data: st.DataObject) -> None:
    length = 3 * shuffle.rows
    whole = order(shuffle, 0, length)
    first = data.draw(st.integers(0, length - 1))
    count = data.draw(st.integers(1, length - first))
    assert order(shuffle, first, count) == whole[first : first + count]


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    one, other = Shuffle(1, (50,) * 20), Shuffle(2, (50,) * 20)
    assert order(one, 0, 1000) != order(one, 1000, 1000)
    assert order(one, 0, 1000) != order(other, 0, 1000)


def test_neighbours_come_from_blocks_far_apart() -> None:
    shuffle = Shuffle(3, (100,) * 64)
    seen = [block for block, _ in order(shuffle, 0, 6400)]
    assert all(len(set(seen[first : first + 64])) == 64 for first in range(0, 6400, 64))


@given(st.integers(0, 100), st.sampled_from([1, 2, 4, 8]))
def test_a_rank_reads_only_its_share_of_each_window(seed: int, ranks: int) -> None:
    shuffle = Shuffle(seed, (16,) * 40, lanes=8)
    for rank in range(ranks):
        places = shuffle.places(np.arange(rank, shuffle.rows, ranks))
        for window in range(shuffle.windows):
            assert len(np.unique(places.block[places.window == window])) == 8 // ranks


def test_ten_million_rows_need_no_list_of_them() -> None:
    shuffle = Shuffle(0, (8192,) * 1221)
    places = shuffle.places(np.arange(7 * shuffle.rows - 5, 7 * shuffle.rows + 5))
    assert places.epoch.tolist() == [6] * 5 + [7] * 5


weights = st.lists(st.floats(0.01, 10), min_size=1, max_size=5).map(tuple)


@given(weights, st.integers(0, 2**40))
def test_a_mix_numbers_the_samples_of_each_data_set_without_a_gap(shares: tuple[float, ...], seed: int) -> None:
    mix = Mix(seed, shares)
    numbers = np.arange(2 * CYCLE * LANES)
    sets, within = mix.split(numbers)
    for of in range(len(shares)):
        own = within[sets == of]
        assert sorted(own.tolist()) == list(range(len(own)))
        assert (mix.joined(of, own) == numbers[sets == of]).all()


@example((1.0, 1.0, 1.0, 1.0, 6.0), 0, 232)
@given(weights, st.integers(0, 2**40), st.integers(0, 10 * CYCLE * LANES))
def test_neighbours_of_a_mix_have_numbers_near_each_other(shares: tuple[float, ...], seed: int, first: int) -> None:
    mix = Mix(seed, shares)
    sets, within = mix.split(np.arange(first, first + LANES))
    for of in set(sets.tolist()):
        own = within[sets == of]
        assert own.max() - own.min() <= mix.spread or len(shares) == 1


@given(weights, st.integers(0, 2**40))
def test_a_mix_leaves_every_sample_in_its_lane(shares: tuple[float, ...], seed: int) -> None:
    numbers = np.arange(5 * LANES * CYCLE, 6 * LANES * CYCLE)
    assert (Mix(seed, shares).split(numbers)[1] % LANES == numbers % LANES).all()


@given(weights)
def test_a_mix_keeps_its_weights(shares: tuple[float, ...]) -> None:
    mix = Mix(0, shares)
    assert sum(mix.counts) == CYCLE
    sets, _ = mix.split(np.arange(64 * LANES))
    for of, (count, share) in enumerate(zip(mix.counts, shares, strict=True)):
        assert abs(count - max(1, share / sum(shares) * CYCLE)) <= len(shares)
        assert abs(int((sets == of).sum()) - count / CYCLE * 64 * LANES) <= 2 * LANES


@given(weights, st.integers(0, 2**20), st.sampled_from([1, 2, 4, 8]))
def test_ranks_share_no_block_of_a_mix(shares: tuple[float, ...], seed: int, ranks: int) -> None:
    mix, shuffle = Mix(seed, shares), Shuffle(seed, (16,) * 32, lanes=8)
    for of in range(len(shares)):
        readers: dict[tuple[int, int], set[int]] = {}
        for rank in range(ranks):
            sets, own = mix.split(np.arange(rank, 4096, ranks))
            places = shuffle.places(own[sets == of])
            for block in zip(places.epoch.tolist(), places.block.tolist(), strict=True):
                readers.setdefault(block, set()).add(rank)
        assert all(len(found) == 1 for found in readers.values())
