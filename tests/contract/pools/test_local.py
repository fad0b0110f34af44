"""The `local` driver: here its nodes run a small program in place of a worker."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from gangline.adapters.pools import local
from gangline.adapters.pools.local import LocalPool
from gangline.ports.pool import Instance, NoCapacity, Offer
from tests.contract.pools.suite import PLACES, PoolSuite, alive, found, has_ended, rental, start
from tests.processes import is_running
from tests.waiting import until

POLITE = "import threading; threading.Event().wait()"
STUBBORN = "import pathlib, signal, sys, threading; signal.signal(signal.SIGTERM, signal.SIG_IGN); \
pathlib.Path(sys.argv[-1], 'ready').touch(); threading.Event().wait()"
OFFER = Offer(id="local", gpu="RTX 4090", gpu_memory_gb=24, price_micro_usd_per_hour=300_000)


class ThisBox:
    """This machine as a provider: what a test does to a node from behind, it does to its process."""

    def __init__(self, homes: Path, program: str = POLITE) -> None:
        self.driver = LocalPool(
            homes, nodes_max=PLACES, offer=OFFER, server="http://nowhere", command=(sys.executable, "-c", program)
        )

    def run(self, name: str) -> None:
        assert is_running(pid_of(alive(self, name))), "a process runs at once"

    def kill(self, name: str) -> None:
        os.kill(pid_of(alive(self, name)), signal.SIGKILL)


def pid_of(instance: Instance) -> int:
    return int(instance.id.rsplit("-", 1)[1])


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    return tmp_path / "nodes"


@pytest.fixture
def provider(homes: Path) -> Iterator[ThisBox]:
    box = ThisBox(homes)
    yield box
    box.driver.stop_all()


class TestLocal(PoolSuite):
    """On this box no answer is lost and no list is late: the kernel answers."""


def test_a_worker_learns_its_node_and_its_token_from_the_environment_and_its_name_and_home_from_the_command_line(
    provider: ThisBox, homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_the_server = (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "GANGLINE_DATABASE_URL",
        "GANGLINE_JOIN_TOKEN",
        "GANGLINE_MAIL_PASSWORD",
        "GANGLINE_METRICS_TOKEN",
        "GANGLINE_OPERATOR_KEY",
        "GANGLINE_POOL_SALAD",
        "GANGLINE_SECRETS_KEY",
    )
    for name in (*of_the_server, "HF_TOKEN", "GANGLINE_DATA_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x" * 32)
    process = Path("/proc", str(pid_of(start(provider, "node-a"))))
    environment = (process / "environ").read_bytes().split(b"\0")
    assert b"GANGLINE_NODE=node-a" in environment and b"GANGLINE_TOKEN=a secret" in environment
    known = {each.partition(b"=")[0].decode() for each in environment}
    assert {"HF_TOKEN", "GANGLINE_DATA_SECRET_ACCESS_KEY"} <= known
    assert not known & {*of_the_server}, "what is the server's alone stays there"
    words = (process / "cmdline").read_text().split("\0")[-7:-1]
    assert words == ["--server", "http://nowhere", "--name", "node-a", "--home", str(homes / "1")]


def test_a_process_that_was_killed_is_listed_as_ended_by_its_signal(provider: ThisBox) -> None:
    start(provider, "node-a")
    provider.kill("node-a")
    until(has_ended(provider, "node-a"))
    assert found(provider, "node-a").ended == "killed by SIGKILL on this box"


def test_a_home_is_used_again_and_there_are_no_more_of_them_than_nodes(provider: ThisBox, homes: Path) -> None:
    for number in range(4):
        provider.driver.stop(start(provider, f"node-{number}").id)
        until(has_ended(provider, f"node-{number}"))
    assert [home.name for home in homes.iterdir()] == ["1"]
    start(provider, "node-a")
    start(provider, "node-b")
    assert sorted(home.name for home in homes.iterdir()) == ["1", "2"]


def test_a_worker_that_does_not_heed_is_killed_after_its_grace(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = ThisBox(homes, STUBBORN)
    instance = start(box, "node-a")
    until((homes / "1" / "ready").exists)
    box.driver.stop(instance.id)
    box.driver.stop(instance.id)
    assert found(box, "node-a") == instance
    monkeypatch.setattr(local, "GRACE_S", 0)
    box.driver.stop(instance.id)
    until(has_ended(box, "node-a"))
    box.driver.stop_all()


def test_once_all_are_stopped_nothing_starts_any_more(provider: ThisBox) -> None:
    instance = start(provider, "node-a")
    provider.driver.stop_all()
    assert not is_running(pid_of(instance)) and found(provider, "node-a").billed_to_ms is not None
    with pytest.raises(NoCapacity):
        provider.driver.start("local", rental("node-b"))


def test_a_node_outlives_the_thread_that_asked_for_it(provider: ThisBox) -> None:
    asking = Thread(target=provider.driver.start, args=("local", rental("node-a")))
    asking.start()
    asking.join()
    pid = pid_of(found(provider, "node-a"))
    provider.driver.start("local", rental("node-b"))
    assert is_running(pid) and found(provider, "node-a").billed_to_ms is None


def test_nodes_die_with_the_server_and_the_next_one_lists_them_as_ended(homes: Path) -> None:
    program = (
        "import sys, threading; from pathlib import Path\n"
        "from tests.contract.pools.test_local import ThisBox, start\n"
        "print(start(ThisBox(Path(sys.argv[1])), 'node-a').id, flush=True); threading.Event().wait()"
    )
    server = subprocess.Popen([sys.executable, "-c", program, homes], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    instance = server.stdout.readline().strip()
    assert re.fullmatch(r"local-\d+-\d+", instance)
    pid = int(instance.rsplit("-", 1)[1])
    server.kill()
    server.communicate()
    until(lambda: not is_running(pid))
    box = ThisBox(homes)
    (ended,) = box.driver.list()
    assert (ended.id, ended.name, ended.ended) == (instance, "node-a", "it ended when this box's server ended")
    assert ended.billed_from_ms is not None and ended.billed_to_ms is not None
    assert ended.billed_from_ms <= ended.billed_to_ms
    start(box, "node-b")
    box.driver.stop_all()


def test_a_record_that_was_cut_off_keeps_no_server_from_starting(homes: Path) -> None:
    (homes / "1").mkdir(parents=True)
    (homes / "1" / local.RECORD).write_text('{"id": "loc')
    box = ThisBox(homes)
    assert box.driver.list() == []
    start(box, "node-a")
    box.driver.stop_all()


def test_a_box_that_is_to_have_no_nodes_offers_none(homes: Path) -> None:
    assert LocalPool(homes, nodes_max=0, offer=OFFER, server="http://nowhere").offers() == []


def test_each_local_node_sees_one_card_of_the_box_in_turn(homes: Path) -> None:
    program = (
        "import os, pathlib, sys; pathlib.Path(sys.argv[-1], 'card').write_text(os.environ['CUDA_VISIBLE_DEVICES']); "
        + POLITE
    )
    pool = LocalPool(
        homes,
        nodes_max=3,
        offer=OFFER,
        server="http://nowhere",
        cards=["GPU-a", "GPU-b"],
        command=(sys.executable, "-c", program),
    )
    for name in ("node-a", "node-b", "node-c"):
        pool.start("local", rental(name))
    until(lambda: len([path for path in homes.glob("*/card") if path.read_text()]) == 3)
    assert [(homes / number / "card").read_text() for number in "123"] == ["GPU-a", "GPU-b", "GPU-a"]
    pool.stop_all()
