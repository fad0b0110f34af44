"""A node that is slow has a cause, and each cause its consequence."""

from dataclasses import replace
from typing import Any

import pytest

from gangline.core.fleet.gauges import Gauges, GpuGauges
from gangline.ports.server import Beaten, Hold
from gangline.service.fleet import operating
from gangline.service.fleet.measured.gauges import keep_gauges
from tests.service.conftest import Service
from tests.service.jobs.test_one_at_a_time import view
from tests.service.test_rules import advance, beat, kinds, release, succeed

GIB = 2**30
COOL = Gauges(
    memory_used_bytes=1,
    memory_bytes=2,
    disk_free_bytes=3,
    disk_bytes=4,
    gpus=(GpuGauges(memory_used_bytes=6 * GIB, memory_bytes=12 * GIB, temperature_c=70, limited_by=()),),
)
HOT = replace(COOL, gpus=(replace(COOL.gpus[0], temperature_c=93, limited_by=("heat", "power cap")),))
SPILLS = replace(COOL, gpu_memory_spills=True)
FULL = replace(SPILLS, gpus=(replace(COOL.gpus[0], memory_used_bytes=12 * GIB),))
CARD = {"gpu": "RTX 4070", "gpu_memory_gb": 12}
LARGER = {"gpu": "RTX 4090", "gpu_memory_gb": 24}


def train(service: Service, node: str, hold: Hold, gauges: Gauges | None, step: int = 2, **said: Any) -> Beaten:
    """Train for four minutes, with gauges each half minute."""
    for _ in range(8):
        service.wait(30)
        if gauges:
            keep_gauges(service.deployment, node, gauges, service.now_ms)
        answer = beat(service, node, hold, step, **said)
        assert isinstance(answer, Beaten)
    return answer


def look_again(service: Service, node: str, hold: Hold, step: int) -> None:
    """Let the server look at its attempts once more: it does so once a minute."""
    for _ in range(3):
        service.wait(30)
        assert isinstance(beat(service, node, hold, step), Beaten)
    service.tick()


@pytest.fixture
def slow(service: Service) -> tuple[str, str, Hold]:
    """A node among five that do the same work, its job, and its lease: a step takes it twelve times as long."""
    for number in range(4):
        node = service.join(f"node-{number}", **CARD)
        service.submit()
        hold = service.claim(node).hold
        advance(service, node, hold)
        succeed(service, node, hold)
    node, job = service.join("node-slow", **CARD), service.submit()
    return node, job, service.claim(node).hold


def asked_to_stop(service: Service, slow: tuple[str, str, Hold], gauges: Gauges | None, **said: Any) -> str:
    node, _, hold = slow
    train(service, node, hold, gauges, seconds_per_step=12.0, **said)
    service.tick()
    answer = beat(service, node, hold, 3)
    assert isinstance(answer, Beaten)
    return answer.stop


def strikes(service: Service) -> list[int]:
    return [row["quarters"] for row in service.look("SELECT quarters FROM strike")]


def slowed(service: Service, node: str) -> str:
    return operating.node_detail(service.deployment, node, None, service.now_ms).slowed


def test_a_throttled_card_loses_its_job_with_its_cause_and_a_quarter_of_a_strike(
    service: Service, slow: tuple[str, str, Hold]
) -> None:
    stop = asked_to_stop(service, slow, HOT)
    assert stop.startswith("its card is throttled: heat held its clocks down in 100% of the last measurements (93 °C")
    assert "12 s a step, against 1 on 5 machines" in stop
    node, job, hold = slow
    assert slowed(service, node).startswith("its card is throttled: heat held its clocks down")
    release(service, node, hold)
    assert view(service, job).attempts[0].because == stop
    assert strikes(service) == [1] and service.look("SELECT attempts_failed FROM job WHERE attempts_failed > 0") == []
    service.claim_nothing(node)
    assert service.claim(service.join("node-cool", **CARD)).job == job


def test_a_cool_machine_that_is_slow_gets_a_whole_strike(service: Service, slow: tuple[str, str, Hold]) -> None:
    assert asked_to_stop(service, slow, COOL).startswith("too slow beside its peers")
    release(service, slow[0], slow[2])
    assert strikes(service) == [4] and slowed(service, slow[0]) == ""


def test_a_slow_machine_is_not_judged_before_its_card_was_measured_often_enough(
    service: Service, slow: tuple[str, str, Hold]
) -> None:
    node, _, hold = slow
    assert beat(service, node, hold, 1, seconds_per_step=12.0) == Beaten()
    service.wait(30)
    keep_gauges(service.deployment, node, HOT, service.now_ms)
    service.tick()
    assert beat(service, node, hold, 2) == Beaten()
    train(service, node, hold, HOT)
    service.tick()
    answer = beat(service, node, hold, 3)
    assert isinstance(answer, Beaten) and answer.stop.startswith("its card is throttled")


def test_a_full_card_where_memory_spills_gives_its_job_away_without_a_strike(
    service: Service, slow: tuple[str, str, Hold]
) -> None:
    stop = asked_to_stop(service, slow, FULL)
    assert stop.startswith("the memory of its card is full: the same work fits into the GPU memory of other")
    release(service, slow[0], slow[2])
    assert strikes(service) == []
    assert service.look("SELECT gpu_memory_gb FROM job WHERE gpu_memory_gb > 0") == [], "it fits elsewhere"


def test_a_throttled_card_whose_job_is_nearly_done_goes_on_and_says_so_once(
    service: Service, slow: tuple[str, str, Hold]
) -> None:
    node, job, hold = slow
    train(service, node, hold, HOT, step=95, seconds_per_step=12.0)
    for _ in range(3):
        look_again(service, node, hold, 95)
    assert beat(service, node, hold, 96) == Beaten()
    assert kinds(service, job).count("slowed") == 1
    told = service.look("SELECT because FROM event WHERE kind = 'slowed'")[0]["because"]
    assert told.startswith("its card is throttled: heat") and "12 s a step, against 1 on 5 machines" in told


def spilling(service: Service) -> tuple[str, str, Hold]:
    node, job = service.join("node-small", **CARD), service.submit()
    hold = service.claim(node).hold
    train(service, node, hold, SPILLS, seconds_per_step=12.0, memory_bytes=20 * GIB)
    return node, job, hold


def test_a_job_that_spilled_asks_for_a_larger_card_and_its_node_is_not_blamed(service: Service) -> None:
    node, job, hold = spilling(service)
    service.join("node-large", **LARGER)
    service.tick()
    answer = beat(service, node, hold, 3)
    assert isinstance(answer, Beaten)
    assert answer.stop.startswith("its GPU memory spilled into the machine's: it holds 20.0 GB and its card has 12.0")
    assert answer.stop.endswith("it asks for a GPU with 20 GB or more from now on")
    release(service, node, hold)
    assert strikes(service) == [] and service.look("SELECT * FROM ban") == []
    found = view(service, job)
    assert (found.summary.state, found.attempts[0].state) == ("queued", "released")
    assert service.look("SELECT gpu_memory_gb, attempts_failed FROM job") == [
        {"gpu_memory_gb": 20, "attempts_failed": 0}
    ]
    service.claim_nothing(node)
    other = service.submit()
    assert service.claim(node).job == other, "any other job is welcome there"
    assert service.claim(service.join("node-b", **LARGER)).job == job


def test_a_job_that_spilled_stays_where_there_is_no_larger_card_and_says_once_what_would_help(service: Service) -> None:
    node, job, hold = spilling(service)
    service.join("node-middle", gpu="RTX 4080", gpu_memory_gb=16)
    for _ in range(3):
        look_again(service, node, hold, 3)
    assert beat(service, node, hold, 4) == Beaten()
    assert kinds(service, job).count("slowed") == 1
    told = service.look("SELECT because FROM event WHERE kind = 'slowed'")[0]["because"]
    assert "No node that it may use has 20 GB, and none can be rented now, so it continues" in told
    assert service.look("SELECT gpu_memory_gb FROM job") == [{"gpu_memory_gb": 0}]
    assert slowed(service, node).startswith("a job of it has spilled: it holds 20.0 GB")


def test_a_job_that_is_bound_to_its_numerics_or_nearly_done_is_not_moved_for_its_memory(service: Service) -> None:
    node, job, hold = spilling(service)
    service.join("node-large", **LARGER)
    service.execute("UPDATE job SET numerics = 'these'")
    service.tick()
    assert beat(service, node, hold, 95) == Beaten() and kinds(service, job).count("slowed") == 1
    service.execute("UPDATE job SET numerics = ''", "DELETE FROM event WHERE kind = 'slowed'")
    look_again(service, node, hold, 95)
    assert beat(service, node, hold, 96) == Beaten() and kinds(service, job).count("slowed") == 0


def test_a_job_that_spilled_beside_faster_machines_of_its_class_moves_to_one_of_them_and_needs_no_more(
    service: Service, slow: tuple[str, str, Hold]
) -> None:
    node, job, hold = slow
    service.join("node-large", **LARGER)
    stop = asked_to_stop(service, slow, SPILLS, memory_bytes=20 * GIB)
    assert stop.startswith("the memory of its card is full: it holds 20.0 GB and its card has 12.0")
    assert "fits into the GPU memory of other machines of the class; 12 s a step, against 1 on 5 machines" in stop
    release(service, node, hold)
    assert strikes(service) == [] and kinds(service, job).count("slowed") == 0
    assert service.look("SELECT gpu_memory_gb FROM job WHERE gpu_memory_gb > 0") == []
    service.claim_nothing(node)
    assert service.claim(service.join("node-sound", **CARD)).job == job, "its class holds the work"


def test_a_slow_machine_whose_driver_no_longer_answers_is_moved_from_all_the_same(
    service: Service, slow: tuple[str, str, Hold]
) -> None:
    node, _, hold = slow
    silent = replace(COOL, gpus=(replace(COOL.gpus[0], limited_by=None),))
    keep_gauges(service.deployment, node, HOT, service.now_ms)
    train(service, node, hold, silent, seconds_per_step=12.0)
    service.tick()
    assert beat(service, node, hold, 3) == Beaten(), "it may answer again"
    train(service, node, hold, silent, seconds_per_step=12.0)
    train(service, node, hold, silent, seconds_per_step=12.0)
    service.tick()
    answer = beat(service, node, hold, 3)
    assert isinstance(answer, Beaten) and answer.stop.startswith("too slow beside its peers")


def test_what_a_trainer_holds_on_linux_is_no_spill(service: Service) -> None:
    node, job = service.join("node-small", **CARD), service.submit()
    hold = service.claim(node).hold
    service.join("node-large", **LARGER)
    train(service, node, hold, COOL, seconds_per_step=12.0, memory_bytes=20 * GIB)
    service.tick()
    assert beat(service, node, hold, 3) == Beaten() and kinds(service, job).count("slowed") == 0
