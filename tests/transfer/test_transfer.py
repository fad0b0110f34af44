"""Bytes get through a bad network whole, are sent no more often than they must be, and stop when they are told to."""

import resource
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Event

import pytest
from fastapi import FastAPI, Response

from gangline.adapters.hub import HuggingFaceHub, NodesHub
from gangline.adapters.transfer import carrier
from gangline.adapters.transfer.carrier import Patience
from gangline.adapters.transfer.transfer import PARTS_AT_ONCE, HttpTransfer, NodesTransfer
from gangline.core.errors import BadInput, Damaged, Denied, NotFound, Unreachable, UserError
from gangline.core.files import PART_BYTES, File, Signed
from gangline.ports.server import Grant
from tests.proxy import PIECE_BYTES, Fault, Proxy
from tests.servers import served
from tests.transfer.conftest import HURRIED, Place, ended

LARGE = PART_BYTES + 5_000_000  # two parts
Make = Callable[..., HttpTransfer]
REFUSED = Fault(kind="answer")


def describe(transfer: HttpTransfer, file: File, source: Path):
    task = transfer.describe(file, source)
    assert ended(task) is None
    return task.result


@pytest.mark.parametrize("length", [0, 1, PART_BYTES, PART_BYTES + 1, LARGE])
def test_what_goes_up_comes_down_again(place: Place, transfer: HttpTransfer, length: int) -> None:
    file, source = place.file(length)
    with Proxy(place.address) as proxy:
        upload = describe(transfer, file, source)
        assert len(upload.parts) == (0 if length <= PART_BYTES else -(-length // PART_BYTES))
        assert ended(transfer.upload(place.to_write(proxy, upload), upload, source)) is None
        assert place.came_in(upload) == source.read_bytes()
        place.stored(length)
        to = place.folder / "node" / "w"
        assert ended(transfer.download(place.to_read(proxy, file), file, to, durable=True)) is None
    assert to.read_bytes() == source.read_bytes()
    assert [path.name for path in to.parent.iterdir()] == ["w"]
    assert transfer.idle


def test_a_long_file_is_asked_for_at_once_so_that_its_url_does_not_expire_meanwhile(
    place: Place, transfer: HttpTransfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrier, "SHORT_BYTES", 0)
    monkeypatch.setattr(carrier, "STREAMS", 1)
    file, content = place.stored(LARGE)
    with Proxy(place.address) as proxy:
        to = place.folder / "got"
        assert ended(transfer.download(place.to_read(proxy, file), file, to, durable=False)) is None
        assert [heard.headers["range"] for heard in proxy.heard] == [f"bytes=0-{LARGE - 1}"]
    assert to.read_bytes() == content


def test_connections_are_used_again(place: Place, transfer: HttpTransfer) -> None:
    file, _ = place.stored(1000)
    with Proxy(place.address) as proxy:
        for number in range(20):
            to = place.folder / f"got {number}"
            assert ended(transfer.download(place.to_read(proxy, file), file, to, durable=False)) is None
        assert (proxy.count("GET"), proxy.connections) == (20, 1)


def test_a_download_that_is_cut_goes_on_where_it_was(place: Place, transfer: HttpTransfer) -> None:
    file, content = place.stored(LARGE)
    cuts = [Fault(kind="cut", after=after) for after in (0, 1_000_000, 3_000_000, 70_000, 5_000_000)]
    with Proxy(place.address, faults=[*cuts, Fault(), *cuts]) as proxy:
        to = place.folder / "got"
        assert ended(transfer.download(place.to_read(proxy, file), file, to, durable=False)) is None
        twice = proxy.down.bytes - file.bytes
    assert to.read_bytes() == content
    assert twice <= len(cuts) * 2 * PIECE_BYTES, "what was still in a buffer when its connection went"


@pytest.mark.parametrize("process", ["the same", "another"])
def test_a_download_that_was_given_up_goes_on_in_the_next_task(place: Place, make_transfer: Make, process: str) -> None:
    file, content = place.stored(LARGE)
    first = make_transfer(Patience(tries=1))
    second = first if process == "the same" else make_transfer()
    to = place.folder / "got"
    with Proxy(place.address, faults=[Fault(), REFUSED, Fault()]) as proxy:
        assert isinstance(ended(first.download(place.to_read(proxy, file), file, to, durable=False)), Unreachable)
        assert not to.exists()
        assert ended(second.download(place.to_read(proxy, file), file, to, durable=False)) is None
        assert proxy.down.bytes == file.bytes
    assert to.read_bytes() == content


def test_a_byte_that_was_changed_on_the_way_down_is_noticed_and_fetched_again(
    place: Place, transfer: HttpTransfer
) -> None:
    file, content = place.stored(LARGE)
    to = place.folder / "node" / "got"
    with Proxy(place.address, faults=[Fault(), Fault(kind="change", after=1234)]) as proxy:
        url = place.to_read(proxy, file)
        assert isinstance(ended(transfer.download(url, file, to, durable=False)), Damaged)
        assert list(to.parent.iterdir()) == [], "nothing of it is used"
        assert ended(transfer.download(url, file, to, durable=False)) is None
    assert to.read_bytes() == content


def test_what_a_crash_of_the_machine_left_of_a_download_is_not_trusted(
    place: Place, transfer: HttpTransfer, make_transfer: Make
) -> None:
    file, content = place.stored(LARGE)
    to = place.folder / "node" / "got"
    hasty = make_transfer(Patience(tries=1))
    with Proxy(place.address, faults=[Fault(), REFUSED, REFUSED]) as proxy:
        url = place.to_read(proxy, file)
        assert isinstance(ended(hasty.download(url, file, to, durable=False)), Unreachable)
        (left,) = to.parent.iterdir()
        with left.open("r+b") as partial:
            partial.write(bytes(LARGE))  # its map says what of this is there; the disk has lost it
        assert isinstance(ended(transfer.download(url, file, to, durable=False)), Damaged)
        assert ended(transfer.download(url, file, to, durable=False)) is None
    assert to.read_bytes() == content


def test_a_store_that_knows_no_ranges_serves_too(place: Place, transfer: HttpTransfer) -> None:
    file, content = place.stored(LARGE)
    cut = Fault(kind="cut", after=2_000_000)
    with Proxy(place.address, faults=[Fault(), Fault(), cut, cut], knows_ranges=False) as proxy:
        to = place.folder / "got"
        assert ended(transfer.download(place.to_read(proxy, file), file, to, durable=False)) is None
    assert to.read_bytes() == content


def test_a_disk_that_is_too_small_is_known_before_anything_is_sent(place: Place, transfer: HttpTransfer) -> None:
    file, _ = place.stored(LARGE)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Proxy(place.address) as proxy:
        resource.setrlimit(resource.RLIMIT_FSIZE, (PART_BYTES, before[1]))
        try:
            to = place.folder / "node" / "got"
            task = transfer.download(place.to_read(proxy, file), file, to, durable=False)
            assert isinstance(ended(task), OSError)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert proxy.heard == []
    assert list(to.parent.iterdir()) == []


@pytest.mark.parametrize("stored", [0, PART_BYTES, LARGE - 1, LARGE + 1])
def test_a_file_of_another_length_is_damaged(place: Place, transfer: HttpTransfer, stored: int) -> None:
    file, _ = place.file(LARGE)
    place.stored(stored)
    with Proxy(place.address) as proxy:
        to = place.folder / "node" / "got"
        task = transfer.download(place.to_read(proxy, file), file, to, durable=False)
        assert isinstance(ended(task), Damaged)
    assert list(to.parent.iterdir()) == []


def test_an_upload_that_is_cut_sends_only_the_missing_part_again(place: Place, transfer: HttpTransfer) -> None:
    file, source = place.file(LARGE)
    upload = describe(transfer, file, source)
    with Proxy(place.address, faults=[Fault(), Fault(kind="cut", after=4_000_000)]) as proxy:
        assert ended(transfer.upload(place.to_write(proxy, upload), upload, source)) is None
        assert proxy.count("PUT") == len(upload.parts) + 1
        assert proxy.up.bytes <= file.bytes + 4_100_000
    assert place.came_in(upload) == source.read_bytes()


def test_an_upload_that_was_given_up_goes_on_with_the_parts_still_missing(place: Place, make_transfer: Make) -> None:
    file, source = place.file(LARGE + PART_BYTES)
    transfer = make_transfer(Patience(tries=1))
    upload = describe(transfer, file, source)
    with Proxy(place.address, faults=[Fault(), REFUSED, Fault()]) as proxy:
        assert isinstance(ended(transfer.upload(place.to_write(proxy, upload), upload, source)), Unreachable)
        rest = place.to_write(proxy, upload)
        assert [part is not None for part in rest.parts].count(True) == 1, "the others were let come to their end"
        assert ended(transfer.upload(rest, upload, source)) is None
        assert proxy.count("PUT") == len(upload.parts) + 1
    assert place.came_in(upload) == source.read_bytes()


def test_a_byte_that_was_changed_on_the_way_up_is_sent_again(place: Place, transfer: HttpTransfer) -> None:
    file, source = place.file(LARGE)
    upload = describe(transfer, file, source)
    with Proxy(place.address, faults=[Fault(kind="change", after=77)]) as proxy:
        assert ended(transfer.upload(place.to_write(proxy, upload), upload, source)) is None
        assert proxy.count("PUT") == len(upload.parts) + 1
    assert place.came_in(upload) == source.read_bytes()


def test_a_file_that_was_changed_since_it_was_hashed_does_not_go_up(place: Place, transfer: HttpTransfer) -> None:
    file, source = place.file(LARGE)
    with source.open("r+b") as content:
        content.write(b"changed")
    assert isinstance(ended(transfer.describe(file, source)), Damaged)


@pytest.mark.parametrize("upward", [True, False])
def test_a_stalled_connection_does_not_hold_a_transfer_for_ever(
    place: Place, make_transfer: Make, upward: bool
) -> None:
    transfer = make_transfer(Patience(stall_s=0.3, retry_s_first=0.01))
    file, content = place.stored(LARGE)
    with Proxy(place.address, faults=[Fault(), Fault(kind="stall", after=1_000_000)]) as proxy:
        if upward:
            upload = describe(transfer, file, place.folder / file.path)
            assert ended(transfer.upload(place.to_write(proxy, upload), upload, place.folder / file.path)) is None
            assert place.came_in(upload) == content
        else:
            to = place.folder / "got"
            assert ended(transfer.download(place.to_read(proxy, file), file, to, durable=False)) is None
            assert to.read_bytes() == content


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("upward", [True, False])
def test_a_transfer_whose_lease_was_lost_stops(
    place: Place, transfer: HttpTransfer, upward: bool, closes: bool
) -> None:
    file, _ = place.stored(LARGE)
    source, to = place.folder / file.path, place.folder / "node" / "got"
    upload = describe(transfer, file, source)
    held = [Fault(kind="stall", after=2_000_000)] * 2
    with Proxy(place.address, faults=held, closes=closes) as proxy:
        url, grant = place.to_read(proxy, file), place.to_write(proxy, upload)
        line = proxy.up if upward else proxy.down
        task = transfer.upload(grant, upload, source) if upward else transfer.download(url, file, to, durable=False)
        proxy.until(lambda _: line.bytes >= 2_000_000)
        assert not transfer.idle
        transfer.stop()
        assert isinstance(ended(task), Unreachable)
        assert transfer.idle
        assert line.bytes < file.bytes and not to.exists()
        proxy.faults.clear()
        assert ended(transfer.download(url, file, to, durable=False)) is None, "what is started later is not meant"


def test_of_two_apart_one_is_stopped_and_the_other_goes_on(
    place: Place, make_transfer: Callable[..., NodesTransfer]
) -> None:
    file, _ = place.stored(LARGE)
    transfer = make_transfer()
    one, other = transfer.apart(), transfer.apart()
    held = [Fault(kind="stall", after=2_000_000)] * 2
    with Proxy(place.address, faults=held) as proxy:
        url = place.to_read(proxy, file)
        stopped = one.download(url, file, place.folder / "one" / "got", durable=False)
        proxy.until(lambda _: proxy.down.bytes >= 2_000_000)
        proxy.faults.clear()
        going_on = other.download(url, file, place.folder / "other" / "got", durable=False)
        assert not one.idle and not other.idle
        one.stop()
        assert isinstance(ended(stopped), Unreachable) and one.idle
        assert ended(going_on) is None and other.idle
    assert (place.folder / "other" / "got").stat().st_size == file.bytes


def test_what_waits_for_a_thread_when_it_is_stopped_does_not_begin(place: Place, transfer: HttpTransfer) -> None:
    file, _ = place.stored(1000)
    with Proxy(place.address, faults=[Fault(kind="stall", after=10)] * 8) as proxy:
        url = place.to_read(proxy, file)
        tasks = [transfer.download(url, file, place.folder / f"got {number}", durable=False) for number in range(20)]
        proxy.until(lambda proxy: len(proxy.heard) == PARTS_AT_ONCE)
        transfer.stop()
        assert all(isinstance(ended(task), Unreachable) for task in tasks)
        assert len(proxy.heard) == PARTS_AT_ONCE
    assert not (place.folder / "got 19").exists()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (403, Denied),
        (401, Denied),
        (404, NotFound),
        (429, Unreachable),
        (500, Unreachable),
        (400, BadInput),
        (416, Damaged),
    ],
)
def test_what_the_store_answers_to_a_download_is_told(
    place: Place, transfer: HttpTransfer, status: int, error: type[Exception]
) -> None:
    file, _ = place.stored(1000)
    with Proxy(place.address, faults=[Fault(kind="answer", status=status)] * HURRIED.tries) as proxy:
        to = place.folder / "got"
        assert isinstance(ended(transfer.download(place.to_read(proxy, file), file, to, durable=False)), error)
        assert proxy.count("GET") == (HURRIED.tries if error in (Unreachable, Damaged) else 1)


def test_an_archived_object_is_no_refused_key_and_not_asked_for_again(place: Place, transfer: HttpTransfer) -> None:
    """As Amazon answers where a lifecycle rule has moved it to Glacier."""
    app, asked = FastAPI(), list[str]()

    @app.get("/w")
    def refuse() -> Response:
        asked.append("w")
        return Response("<Error><Code>InvalidObjectState</Code></Error>", 403)

    file, _ = place.file(1000)
    with served(app) as url:
        error = ended(transfer.download(Signed(url=f"{url}/w"), file, place.folder / "got", durable=False))
    assert isinstance(error, UserError) and not isinstance(error, Denied)
    assert "is archived" in error.message and asked == ["w"]


def test_a_name_as_long_as_a_disk_can_keep_comes_down(place: Place, transfer: HttpTransfer) -> None:
    file, content = place.stored(1000)
    to = place.folder / "node" / ("é" * 127 + "w")
    with Proxy(place.address) as proxy:
        assert ended(transfer.download(place.to_read(proxy, file), file, to, durable=False)) is None
    assert [(path.name, path.read_bytes()) for path in to.parent.iterdir()] == [(to.name, content)]


def test_a_url_that_has_expired_is_told_even_while_a_long_part_is_being_sent(
    place: Place, transfer: HttpTransfer
) -> None:
    file, source = place.file(LARGE)
    upload = describe(transfer, file, source)
    place.clock.time_ms = 1001
    with Proxy(place.address) as proxy:
        assert isinstance(ended(transfer.upload(place.to_write(proxy, upload), upload, source)), Denied)


def test_what_is_there_already_need_not_be_created(place: Place, transfer: HttpTransfer) -> None:
    file, source = place.file(1000)
    upload = describe(transfer, file, source)
    with Proxy(place.address, faults=[Fault(kind="answer", status=412)]) as proxy:
        assert ended(transfer.upload(place.to_write(proxy, upload), upload, source)) is None


def test_a_store_that_says_when_to_come_again_is_heeded(place: Place, transfer: HttpTransfer) -> None:
    file, _ = place.stored(1000)
    with Proxy(place.address, faults=[Fault(kind="answer", headers={"Retry-After": "1"})]) as proxy:
        to = place.folder / "got"
        assert ended(transfer.download(place.to_read(proxy, file), file, to, durable=False)) is None
        first, second = proxy.heard
    assert second.at_s - first.at_s >= 1


def test_a_store_that_asks_for_a_long_time_is_not(place: Place, transfer: HttpTransfer) -> None:
    file, _ = place.stored(1000)
    with Proxy(place.address, faults=[Fault(kind="answer", headers={"Retry-After": "3600"})]) as proxy:
        to = place.folder / "got"
        assert ended(transfer.download(place.to_read(proxy, file), file, to, durable=False)) is None


def test_a_request_is_sent_with_the_headers_that_were_signed(place: Place, transfer: HttpTransfer) -> None:
    file, source = place.file(1000)
    upload = describe(transfer, file, source)
    with Proxy(place.address) as proxy:
        (signed,) = place.to_write(proxy, upload).parts
        assert signed
        headers = {"X-Amz-Checksum-Sha256": "abc=", "content-length": "1000", "If-None-Match": "*"}
        assert ended(transfer.upload(Grant(parts=(Signed(url=signed.url, headers=headers),)), upload, source)) is None
        (heard,) = proxy.heard
    sent = {"x-amz-checksum-sha256": "abc=", "content-length": "1000", "if-none-match": "*"}
    assert {name: value for name, value in heard.headers.items() if name != "host"} == sent


def test_a_url_of_the_server_itself_needs_no_host(place: Place, make_transfer: Make) -> None:
    file, content = place.stored(1000)
    with Proxy(place.address) as proxy:
        transfer = make_transfer(server=proxy.url)
        path = place.to_read(proxy, file).url.removeprefix(proxy.url)
        to = place.folder / "got"
        assert ended(transfer.download(Signed(url=path), file, to, durable=False)) is None
    assert to.read_bytes() == content


def test_the_proxy_of_the_environment_is_used(
    place: Place, transfer: HttpTransfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, content = place.stored(1000)
    with Proxy(place.address) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//user:pass%20word@"))
        monkeypatch.delenv("no_proxy", raising=False)
        url = place.to_read(proxy, file).url.replace(proxy.url, "http://objects.invalid")
        to = place.folder / "got"
        assert ended(transfer.download(Signed(url=url), file, to, durable=False)) is None
        assert proxy.heard[0].target.startswith("http://objects.invalid/")
        assert proxy.heard[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNzIHdvcmQ="
    assert to.read_bytes() == content


@pytest.mark.parametrize("seed", range(4))
def test_whatever_goes_wrong_for_a_while_all_of_it_gets_through(place: Place, make_transfer: Make, seed: int) -> None:
    rng = Random(seed)
    kinds = ("cut", "cut", "change", "stall", "answer", "")
    faults = [Fault(kind=rng.choice(kinds), after=rng.randrange(PART_BYTES // 4)) for _ in range(30)]
    transfer = make_transfer(Patience(stall_s=0.2, retry_s_first=0.01))
    file, content = place.stored(LARGE)
    source, to = place.folder / file.path, place.folder / "got"
    upload = describe(transfer, file, source)
    with Proxy(place.address, faults=faults, bytes_per_s=200e6, delay_s=0.005) as proxy:
        while ended(transfer.upload(place.to_write(proxy, upload), upload, source)):
            pass
        while ended(transfer.download(place.to_read(proxy, file), file, to, durable=False)):
            pass
    assert place.came_in(upload) == to.read_bytes() == content


def test_who_waits_for_a_transfer_is_woken_once_it_has_ended(place: Place) -> None:
    woken, (file, source) = Event(), place.file(LARGE)
    hub = NodesHub(HuggingFaceHub(""), place.folder)
    for transfer in (beside := NodesTransfer("", hub, Random(0), news=woken.set), beside.apart()):
        task = transfer.describe(file, source)
        assert woken.wait(20) and task.done
        woken.clear()
