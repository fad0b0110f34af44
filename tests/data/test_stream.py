"""What is read is the data set, in its order, for any number of readers, from any sample on, in spite of faults."""

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.core.errors import BadInput, Unreachable
from gangline.data.dataset import DataSet, open_data_set
from gangline.data.place import DataPlace
from gangline.data.reading.block_cache import BlockCache
from gangline.data.reading.reader import BlockRows, DataReader, ReadOrder, block_rows
from gangline.data.reading.shuffle import SampleNumbers
from gangline.data.reading.stream import Batch, Stream
from tests.data import made
from tests.data.made import converted, samples
from tests.proxy import Fault, Proxy

COLUMNS = ("image", "captions")
ROWS = 60


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    root = tmp_path_factory.mktemp("read")
    return converted(made.as_tars(root / "source", samples(ROWS)), root / "made.lance", rows=16)[0]


def reader(data: DataSet, **changes: Any) -> DataReader:
    settings = {"columns": COLUMNS, "seed": 5, "block_rows": 4, "lanes": 4} | changes
    kept = {name: settings.pop(name) for name in ("cache", "wait_s") if name in settings}
    return DataReader(data, ReadOrder(**settings), **kept)


def taken(stream: Stream, count: int, size: int = 4, first: int = 0) -> list[Batch]:
    with stream:
        return list(itertools.islice(stream.batches(first, size), count))


def captions(batches: list[Batch]) -> list[str]:
    return [said[0] for batch in batches for said in batch.columns["captions"]]


def test_an_epoch_has_each_sample_once_with_its_own_image(data: DataSet) -> None:
    batches = taken(Stream([reader(data)]), ROWS // 4)
    assert sorted(captions(batches)) == sorted(one.caption for one in samples(ROWS))
    images = {one.caption: one.image for one in samples(ROWS)}
    for batch in batches:
        assert [images[said[0]] for said in batch.columns["captions"]] == batch.columns["image"]


def test_the_second_epoch_has_another_order_and_says_that_it_is_one(data: DataSet) -> None:
    batches = taken(Stream([reader(data)]), 2 * ROWS // 4)
    first, second = captions(batches[: ROWS // 4]), captions(batches[ROWS // 4 :])
    assert sorted(first) == sorted(second)
    assert first != second
    assert {epoch for batch in batches[ROWS // 4 :] for epoch in batch.epochs.tolist()} == {1}


@pytest.mark.parametrize("first", [0, 1, 7, 59, 60, 133])
def test_reading_goes_on_from_any_sample(first: int, data: DataSet) -> None:
    whole = captions(taken(Stream([reader(data)]), 50))
    assert captions(taken(Stream([reader(data)]), 10, first=first)) == whole[first : first + 40]


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_ranks_share_the_samples_of_one_reader(ranks: int, data: DataSet) -> None:
    whole = captions(taken(Stream([reader(data)]), 30))
    each = [captions(taken(Stream([reader(data)], rank=rank, ranks=ranks), 6, size=3)) for rank in range(ranks)]
    together = [one for samples_of_step in zip(*each, strict=True) for one in samples_of_step]
    assert together[:120] == whole[: len(together)]


def test_loader_processes_are_finer_ranks(data: DataSet) -> None:
    rank, ranks, workers = 1, 2, 3
    alone = captions(taken(Stream([reader(data)], rank=rank, ranks=ranks), 4, size=6))
    each = [
        captions(taken(Stream([reader(data)], rank=rank + worker * ranks, ranks=ranks * workers), 4, size=2))
        for worker in range(workers)
    ]
    assert [one for turn in zip(*each, strict=True) for one in turn] == alone


def test_conditions_leave_rows_out(data: DataSet) -> None:
    wanted = reader(data, where="width > 43 and score < 4")
    found = captions(taken(Stream([wanted]), wanted.shuffle.rows, size=1))
    assert sorted(found) == sorted(one.caption for number, one in enumerate(samples(40)) if number % 7 > 3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"where": "colour = 1"}, "cannot be used"),
        ({"where": "width > 43 and and"}, "cannot be used"),
        ({"where": "width > 43 height < 9"}, "cannot be used"),
        ({"where": "width > 1000"}, "no row of .* matches"),
        ({"columns": ("image", "latents_64")}, "has no column latents_64"),
    ],
)
def test_what_cannot_be_read_is_told(changes: dict[str, Any], said: str, data: DataSet) -> None:
    with pytest.raises(BadInput, match=said):
        reader(data, **changes)


def test_rows_that_were_deleted_are_not_read(tmp_path: Path) -> None:
    given = samples(20)
    twice = [*given, *(made.Sample(f"z{one.name}", one.image, "twice", 0) for one in given[::3])]
    data, _ = converted(made.as_tars(tmp_path / "source", twice), tmp_path / "made.lance", unique="sha256", rows=8)
    assert sorted(captions(taken(Stream([reader(data)]), 5))) == sorted(one.caption for one in given)


def test_numbers_come_as_an_array(data: DataSet, tmp_path: Path) -> None:
    table = data.table.to_table().append_column(
        "latents", pa.FixedSizeListArray.from_arrays(pa.array(range(ROWS * 2), pa.float16()), 2)
    )
    lance.write_dataset(table, tmp_path / "made.lance")
    with_latents = open_data_set(DataPlace(str(tmp_path / "made.lance")))
    found = taken(Stream([reader(with_latents, columns=("latents", "captions"))]), 5)
    for batch in found:
        assert batch.columns["latents"].shape == (4, 2)
        numbers = [2 * int(said[0].split()[1]) for said in batch.columns["captions"]]
        assert batch.columns["latents"][:, 0].tolist() == numbers


def test_a_mix_gives_each_data_set_its_share(data: DataSet, tmp_path: Path) -> None:
    other, _ = converted(made.as_tars(tmp_path / "source", samples(20, 1000)), tmp_path / "other.lance")
    batches = taken(Stream([reader(data), reader(other)], weights=[3, 1]), 256, size=8)
    from_other = sum(int((batch.sets == 1).sum()) for batch in batches)
    assert from_other == 512
    assert sum(int(said.split()[1]) >= 1000 for said in captions(batches)) == 512
    ranks = [
        captions(taken(Stream([reader(data), reader(other)], weights=[3, 1], rank=rank, ranks=2), 64))
        for rank in (0, 1)
    ]
    assert [one for turn in zip(*ranks, strict=True) for one in turn] == captions(batches)[:512]


class Counted(DataReader):
    reads = 0

    def read(self, block: int, places: SampleNumbers) -> BlockRows:
        self.reads += 1
        return super().read(block, places)


def test_a_block_is_read_once_in_an_epoch_though_a_batch_begins_in_one_window_and_ends_in_the_next(
    tmp_path: Path,
) -> None:
    data, _ = converted(made.as_tars(tmp_path / "source", samples(64)), tmp_path / "made.lance")
    of = Counted(data, ReadOrder(columns=COLUMNS, seed=5, block_rows=4, lanes=4))
    passes, blocks, ahead, size = 3, 64 // 4, 2 * 4, 6
    taken(Stream([of]), passes * 64 // size, size=size)
    assert of.reads <= size + passes * blocks + ahead


def test_the_first_batch_is_used_while_the_blocks_of_the_next_are_read(data: DataSet) -> None:
    reads_a_block = threading.Event()

    class Told(DataReader):
        def read(self, block: int, places: SampleNumbers) -> BlockRows:
            if len(places) > 1:
                reads_a_block.set()
            return super().read(block, places)

    with Stream([Told(data, ReadOrder(columns=COLUMNS, seed=5, block_rows=4, lanes=4))]) as stream:
        batches = stream.batches(first=0, size=1)
        next(batches)
        assert reads_a_block.wait(10)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_share_the_blocks_of_a_mix(ranks: int, tmp_path: Path) -> None:
    sets = [
        converted(made.as_tars(tmp_path / f"of-{one}", samples(64, 1000 * one)), tmp_path / f"{one}.lance")[0]
        for one in range(2)
    ]
    passes, blocks, window, first_batch, reads = (4, 2), 64 // 4, 4, 8, 0
    for rank in range(ranks):
        readers = [Counted(one, ReadOrder(columns=COLUMNS, seed=5, block_rows=4, lanes=window)) for one in sets]
        taken(Stream(readers, weights=[2, 1], rank=rank, ranks=ranks), sum(passes) * 64 // 8 // ranks, size=8)
        reads += sum(one.reads for one in readers) - first_batch
    ahead = 2 * len(sets) * window
    assert reads <= sum(passes) * blocks + ahead


def test_a_version_stays_as_it_is_while_columns_are_added(tmp_path: Path) -> None:
    data, _ = converted(made.as_tars(tmp_path / "source", samples(20)), tmp_path / "made.lance")
    before = captions(taken(Stream([reader(data)]), 10))
    lance.dataset(data.place.uri).add_columns({"more": "width + 1"})
    lance.dataset(data.place.uri).delete("width > 42")
    pinned = open_data_set(data.place, version=data.version, id=data.info.id)
    assert captions(taken(Stream([reader(pinned)]), 10)) == before


def test_a_data_set_that_was_made_anew_is_another_one(tmp_path: Path) -> None:
    import shutil

    data, _ = converted(made.as_tars(tmp_path / "source", samples(8)), tmp_path / "made.lance")
    shutil.rmtree(data.place.uri)
    converted(tmp_path / "source", tmp_path / "made.lance")
    with pytest.raises(BadInput, match="is another data set than before"):
        open_data_set(data.place, version=data.version, id=data.info.id)


def test_data_that_goes_away_under_a_reader_is_told(tmp_path: Path) -> None:
    data, _ = converted(made.as_tars(tmp_path / "source", samples(40)), tmp_path / "made.lance", rows=8)
    with Stream([reader(data, wait_s=0.001)]) as stream:
        batches = stream.batches(0, 4)
        next(batches)
        for path in (tmp_path / "made.lance" / "data").iterdir():
            path.unlink()
        with pytest.raises((BadInput, Unreachable), match=r"made\.lance"):
            list(itertools.islice(batches, 10))


def test_blocks_have_about_the_same_size_whatever_rows_weigh(data: DataSet) -> None:
    assert block_rows(data, ("captions",)) == 8192
    assert 512 <= block_rows(data, ("image",)) <= 2048


@pytest.fixture
def remote(bucket: S3Bucket, tmp_path: Path) -> DataPlace:
    place = made.place_in(bucket, f"{tmp_path.name}/made.lance")
    converted(made.as_tars(tmp_path / "source", samples(ROWS)), place, rows=16)
    return place


@pytest.fixture
def proxy(bucket: S3Bucket) -> Iterator[Proxy]:
    host, port = bucket.endpoint.removeprefix("http://").split(":")
    with Proxy((host, int(port))) as started:
        yield started


def through(proxy: Proxy, remote: DataPlace) -> DataPlace:
    return DataPlace(remote.uri, remote.options | {"aws_endpoint": proxy.url})


@pytest.mark.parametrize(
    "fault", [Fault(kind="answer", status=503), Fault(kind="answer", status=500), Fault(kind="cut", after=50)]
)
def test_faults_of_the_store_are_asked_again(fault: Fault, remote: DataPlace, proxy: Proxy) -> None:
    whole = captions(taken(Stream([reader(open_data_set(remote))]), 30))
    data = open_data_set(through(proxy, remote))
    proxy.faults.extend([fault] * 5)
    assert captions(taken(Stream([reader(data, wait_s=0.001)]), 30)) == whole
    assert not proxy.faults


def test_a_key_that_is_lost_is_told_at_once(remote: DataPlace, proxy: Proxy) -> None:
    data = open_data_set(through(proxy, remote))
    with Stream([reader(data)]) as stream:
        batches = stream.batches(0, 4)
        next(batches)
        proxy.faults.extend([Fault(kind="answer", status=403)] * 1000)
        with pytest.raises(BadInput, match="refuses this key"):
            list(itertools.islice(batches, 30))


def test_blocks_that_are_on_this_disk_are_not_asked_for_again(remote: DataPlace, proxy: Proxy, tmp_path: Path) -> None:
    cache = BlockCache(tmp_path / "cache", 1 << 30)
    first = captions(taken(Stream([reader(open_data_set(through(proxy, remote)), cache=cache)]), 30))
    data = open_data_set(through(proxy, remote))
    with Stream([reader(data, cache=cache)]) as stream:
        batches = stream.batches(0, 4)
        found = [next(batches)]
        asked = len(proxy.heard)
        found += itertools.islice(batches, 14)
        assert len(proxy.heard) == asked
    assert captions(found) == first[:ROWS]


def test_a_cached_block_that_is_damaged_is_read_anew(remote: DataPlace, tmp_path: Path) -> None:
    cache = BlockCache(tmp_path / "cache", 1 << 30)
    whole = captions(taken(Stream([reader(open_data_set(remote), cache=cache)]), 30))
    files = sorted((tmp_path / "cache").iterdir())
    assert files
    for number, path in enumerate(files):
        content = bytearray(path.read_bytes())
        content[-20 - number] ^= 1
        path.write_bytes(content if number % 2 else content[: len(content) // 2])
    assert captions(taken(Stream([reader(open_data_set(remote), cache=cache)]), 30)) == whole


def test_a_cache_keeps_its_limit_and_what_was_used_last(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 100_000)
    asked: list[int] = []

    def read(number: int) -> pa.Table:
        asked.append(number)
        return pa.table({"a": [bytes(5000)]})

    for number in range(100):
        cache.get(str(number), lambda number=number: read(number))
        cache.get("0", lambda: read(0))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 110_000
    assert asked.count(0) == 1
    assert len(asked) == 100


def test_a_cache_on_a_full_disk_is_no_reason_to_stop(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path / "cache", 1 << 30)
    (tmp_path / "cache").rmdir()
    assert cache.get("a", lambda: pa.table({"a": [1]})).num_rows == 1
