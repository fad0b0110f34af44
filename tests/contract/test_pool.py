"""What every pool driver promises. `local` is the first one; here its nodes run a small program in place of a worker."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from gangline.adapters.pools import local
from gangline.adapters.pools.local import LocalPool
from gangline.ports.pool import Instance, NoCapacity, Offer, Pool, Rental
from tests.processes import is_running

PLACES = 2
POLITE = "import threading; threading.Event().wait()"
STUBBORN = "import pathlib, signal, sys, threading; signal.signal(signal.SIGTERM, signal.SIG_IGN); \
pathlib.Path(sys.argv[-1], 'ready').touch(); threading.Event().wait()"
OFFER = Offer(id="local", gpu="RTX 4090", gpu_memory_gb=24, price_micro_usd_per_hour=300_000)


def local_pool(homes: Path, program: str = POLITE) -> LocalPool:
    return LocalPool(
        homes,
        nodes_max=PLACES,
        offer=OFFER,
        server="http://nowhere",
        command=(sys.executable, "-c", program),
    )


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    return tmp_path / "nodes"


@pytest.fixture(params=[local_pool], ids=["local"])
def pool(request: pytest.FixtureRequest, homes: Path) -> Iterator[Pool]:
    """A provider that has room for two nodes."""
    made = request.param(homes)
    yield made
    made.stop_all()


def rental(name: str) -> Rental:
    return Rental(name=name, server="http://nowhere", token="a secret")


def start(pool: Pool, name: str) -> Instance:
    pool.start(pool.offers()[0].id, rental(name))
    (found,) = [instance for instance in pool.list() if instance.name == name and instance.billed_to_ms is None]
    return found


def found(pool: Pool, name: str) -> Instance:
    (only,) = [instance for instance in pool.list() if instance.name == name]
    return only


def until(condition: Callable[[], bool]) -> None:
    """Look again and again, as the controller does; pytest's time-out ends it."""
    while not condition():
        Event().wait(0.01)


def has_ended(pool: Pool, name: str) -> Callable[[], bool]:
    return lambda: found(pool, name).billed_to_ms is not None


def pid_of(instance: Instance) -> int:
    return int(instance.id.rsplit("-", 1)[1])


# Every driver


def test_a_fresh_pool_has_offers_and_no_instances(pool: Pool) -> None:
    assert pool.list() == []
    assert all(offer.slots >= 1 and offer.price_micro_usd_per_hour >= 0 for offer in pool.offers())


def test_what_was_started_is_listed_by_the_name_that_it_was_given_and_billed_from_then_on(pool: Pool) -> None:
    instance = start(pool, "node-a")
    assert instance.billed_from_ms is not None and instance.billed_to_ms is None
    assert pool.list() == [instance] == pool.list()


def test_what_was_stopped_ends_and_stays_in_the_list_with_the_end_of_its_bill(pool: Pool) -> None:
    instance = start(pool, "node-a")
    pool.stop(instance.id)
    until(has_ended(pool, "node-a"))
    ended = found(pool, "node-a")
    assert (ended.id, ended.billed_from_ms) == (instance.id, instance.billed_from_ms)
    assert instance.billed_from_ms is not None and ended.billed_to_ms is not None
    assert instance.billed_from_ms <= ended.billed_to_ms
    assert found(pool, "node-a") == ended


def test_to_stop_again_or_what_never_was_is_no_error(pool: Pool) -> None:
    instance = start(pool, "node-a")
    for _ in range(3):
        pool.stop(instance.id)
    pool.stop("no such instance")
    until(has_ended(pool, "node-a"))
    pool.stop(instance.id)


def test_a_second_request_with_one_name_rents_nothing(pool: Pool) -> None:
    instance = start(pool, "node-a")
    assert start(pool, "node-a") == instance and len(pool.list()) == 1


def test_stopping_one_leaves_the_others(pool: Pool) -> None:
    first, second = start(pool, "node-a"), start(pool, "node-b")
    pool.stop(first.id)
    until(has_ended(pool, "node-a"))
    assert found(pool, "node-b") == second


def test_where_there_is_no_room_start_says_so_and_starts_nothing(pool: Pool) -> None:
    for name in ("node-a", "node-b"):
        start(pool, name)
    with pytest.raises(NoCapacity):
        pool.start(pool.offers()[0].id, rental("node-c"))
    assert {instance.name for instance in pool.list()} == {"node-a", "node-b"}


def test_room_that_became_free_can_be_rented_again_and_every_instance_has_its_own_id(pool: Pool) -> None:
    first, second = start(pool, "node-a"), start(pool, "node-b")
    pool.stop(first.id)
    until(has_ended(pool, "node-a"))
    third = start(pool, "node-c")
    assert len({first.id, second.id, third.id}) == 3


def test_an_offer_that_is_not_there_cannot_be_had(pool: Pool) -> None:
    with pytest.raises(NoCapacity):
        pool.start("no such offer", rental("node-a"))
    assert pool.list() == []


# This one alone


def test_a_worker_learns_its_node_and_its_token_from_the_environment_and_its_name_and_home_from_the_command_line(
    pool: Pool, homes: Path
) -> None:
    process = Path("/proc", str(pid_of(start(pool, "node-a"))))
    environment = (process / "environ").read_bytes().split(b"\0")
    assert b"GANGLINE_NODE=node-a" in environment and b"GANGLINE_TOKEN=a secret" in environment
    words = (process / "cmdline").read_text().split("\0")[-7:-1]
    assert words == ["--server", "http://nowhere", "--name", "node-a", "--home", str(homes / "1")]


def test_a_process_that_was_killed_is_listed_as_ended(pool: Pool) -> None:
    os.kill(pid_of(start(pool, "node-a")), signal.SIGKILL)
    until(has_ended(pool, "node-a"))
    assert found(pool, "node-a").ended == "killed by SIGKILL on this box"


def test_a_home_is_used_again_and_there_are_no_more_of_them_than_nodes(pool: Pool, homes: Path) -> None:
    for number in range(4):
        pool.stop(start(pool, f"node-{number}").id)
        until(has_ended(pool, f"node-{number}"))
    assert [home.name for home in homes.iterdir()] == ["1"]
    start(pool, "node-a")
    start(pool, "node-b")
    assert sorted(home.name for home in homes.iterdir()) == ["1", "2"]


def test_a_worker_that_does_not_heed_is_killed_after_its_grace(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = local_pool(homes, STUBBORN)
    instance = start(pool, "node-a")
    until((homes / "1" / "ready").exists)
    pool.stop(instance.id)
    pool.stop(instance.id)
    assert found(pool, "node-a") == instance
    monkeypatch.setattr(local, "GRACE_S", 0)
    pool.stop(instance.id)
    until(has_ended(pool, "node-a"))
    pool.stop_all()


def test_once_all_are_stopped_nothing_starts_any_more(pool: LocalPool) -> None:
    instance = start(pool, "node-a")
    pool.stop_all()
    assert not is_running(pid_of(instance)) and found(pool, "node-a").billed_to_ms is not None
    with pytest.raises(NoCapacity):
        pool.start("local", rental("node-b"))


def test_a_node_outlives_the_thread_that_asked_for_it(pool: Pool) -> None:
    asking = Thread(target=pool.start, args=("local", rental("node-a")))
    asking.start()
    asking.join()
    pid = pid_of(found(pool, "node-a"))
    pool.start("local", rental("node-b"))
    assert is_running(pid) and found(pool, "node-a").billed_to_ms is None


def test_nodes_die_with_the_server_and_the_next_one_lists_them_as_ended(homes: Path) -> None:
    program = (
        "import sys, threading; from pathlib import Path\n"
        "from tests.contract.test_pool import local_pool, start\n"
        "print(start(local_pool(Path(sys.argv[1])), 'node-a').id, flush=True); threading.Event().wait()"
    )
    server = subprocess.Popen([sys.executable, "-c", program, homes], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    instance = server.stdout.readline().strip()
    assert re.fullmatch(r"local-\d+-\d+", instance)
    pid = int(instance.rsplit("-", 1)[1])
    server.kill()
    server.communicate()
    until(lambda: not is_running(pid))
    pool = local_pool(homes)
    (ended,) = pool.list()
    assert (ended.id, ended.name, ended.ended) == (instance, "node-a", "it ended when this box's server ended")
    assert ended.billed_from_ms is not None and ended.billed_to_ms is not None
    assert ended.billed_from_ms <= ended.billed_to_ms
    start(pool, "node-b")
    pool.stop_all()


def test_a_record_that_was_cut_off_keeps_no_server_from_starting(homes: Path) -> None:
    (homes / "1").mkdir(parents=True)
    (homes / "1" / local.RECORD).write_text('{"id": "loc')
    pool = local_pool(homes)
    assert pool.list() == []
    start(pool, "node-a")
    pool.stop_all()


def test_a_box_that_is_to_have_no_nodes_offers_none(homes: Path) -> None:
    pool = LocalPool(homes, nodes_max=0, offer=OFFER, server="http://nowhere")
    assert pool.offers() == []
