"""What is measured of this machine, and how often."""

import os
import shutil
import time
from pathlib import Path
from threading import Event

import pytest

from gangline.adapters.cards import list_cards
from gangline.adapters.host.gauges import MeasuredMachine, NodeGauges, busy_s, carried_bytes
from gangline.adapters.host.host import memory_bytes
from gangline.core.fleet.gauges import GAUGES_EVERY_S, Gauges
from tests.waiting import until

GAUGES = Gauges(memory_used_bytes=1, memory_bytes=2, disk_free_bytes=3, disk_bytes=4)


def test_a_machine_is_measured_as_it_is(tmp_path: Path) -> None:
    cards = list_cards()
    machine, began_s = MeasuredMachine(tmp_path, cards), time.process_time()
    until(lambda: time.process_time() - began_s > 0.1 or sum(range(100_000)) < 0)
    found = machine.measure()
    assert found.cpu_load is not None and 0 <= found.cpu_load <= 1
    assert 0 < found.memory_used_bytes < found.memory_bytes == memory_bytes()
    assert 0 < found.disk_free_bytes < found.disk_bytes == shutil.disk_usage(tmp_path).total
    assert found.received_bytes_per_s is not None and found.sent_bytes_per_s is not None
    assert len(found.gpus) == len(cards)


def test_what_the_network_carries_is_counted_once(tmp_path: Path) -> None:
    devices = tmp_path / "dev"
    row = "{}: {} 9 0 0 0 0 0 0 {} 9 0 0 0 0 0 0\n"
    lines = [
        row.format(*each) for each in (("    lo", 5, 5), ("  eth0", 700, 30), ("docker0", 80, 80), (" wlan0", 7, 2))
    ]
    devices.write_text("Inter-|   Receive\n face |bytes\n" + "".join(lines))
    assert carried_bytes(devices) == (707, 32)
    devices.write_text("Inter-|\n face |bytes\n  eth0: many\n")
    assert carried_bytes(devices) is None and carried_bytes(tmp_path / "nothing") is None


def test_the_processors_that_this_process_may_use_have_worked() -> None:
    before = busy_s()
    began_s = time.process_time()
    while time.process_time() - began_s < 0.2:
        sum(range(10_000))
    after = busy_s()
    assert before is not None and after is not None and after - before >= 0.1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """As a container with a quota sees its cgroup."""
    (tmp_path / "own").write_text("0::/\n")
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 7500000\nuser_usec 7000000\n")
    core = min(os.sched_getaffinity(0))
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "stat").write_text(f"cpu  9 9 9 9\ncpu{core} {ticks} 0 {2 * ticks} 99 99 0 0 0 0 0\ncpu9999 1 1 1\n")
    return tmp_path


def test_a_container_with_a_quota_is_as_busy_as_itself_and_any_other_as_its_processors(root: Path) -> None:
    assert busy_s(root / "own", root, root / "stat") == 7.5
    (root / "cpu.max").write_text("max 100000\n")
    assert busy_s(root / "own", root, root / "stat") == 3


def test_a_load_that_cannot_be_read_is_unknown(root: Path) -> None:
    (root / "cpu.stat").write_text("")
    assert busy_s(root / "own", root, root / "stat") is None
    (root / "cpu.max").unlink()
    assert busy_s(root / "own", root, root / "nothing") is None


def test_a_node_is_measured_every_half_minute_and_each_measurement_is_sent_once() -> None:
    measured = list[Gauges]()

    def measure() -> Gauges:
        measured.append(GAUGES)
        return GAUGES

    gauges = NodeGauges(measure)
    assert gauges.take(100.0) is None
    until(lambda: gauges.take(100.0) is not None)
    assert [gauges.take(100.0 + second) for second in range(int(GAUGES_EVERY_S))] == [None] * int(GAUGES_EVERY_S)
    assert len(measured) == 1
    until(lambda: gauges.take(100.0 + GAUGES_EVERY_S) is not None)
    assert len(measured) == 2


def test_an_agent_does_not_wait_for_a_driver_that_hangs() -> None:
    answers, begun = Event(), list[int]()

    def hang() -> Gauges:
        begun.append(1)
        answers.wait()
        return GAUGES

    gauges = NodeGauges(hang)
    assert [gauges.take(now_s) for now_s in (0.0, 100.0, 1000.0)] == [None, None, None]
    assert len(begun) <= 1
    answers.set()
    until(lambda: gauges.take(1000.0) is not None)


def test_a_node_that_cannot_be_measured_is_measured_again() -> None:
    answers: list[Gauges | None] = [None, GAUGES]

    def measure() -> Gauges:
        found = answers.pop(0)
        if found is None:
            raise FileNotFoundError
        return found

    gauges = NodeGauges(measure)
    assert gauges.take(0.0) is None
    until(lambda: gauges.take(GAUGES_EVERY_S) is not None)
