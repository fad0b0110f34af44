"""Which GPUs a worker shows to its trainers, under which names."""

from pathlib import Path

import pytest

from gangline.adapters.cards import (
    Card,
    clock_limits,
    describe_gpu,
    gpu_memory_gb,
    list_cards,
    may_spill,
    measure_cards,
    visible_cards,
)
from gangline.compose.worker import slots_of
from gangline.core.errors import UserError
from gangline.core.fleet.gauges import GpuGauges
from gangline.core.server.programs import WorkerProgram

MEASURED = "uuid,utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw,power.limit"
NVIDIA_SMI = f"""#!/bin/sh
if test "$*" = "--query-gpu={MEASURED},clocks_event_reasons.active --format=csv,noheader,nounits"
then
    echo "GPU-aa, 97, 20000, 24564, 87, 301.55, 450.00, 0x0000000000000068"
    echo "GPU-bb, 0, 0, 81559, 33, 69.90, 700.00, 0x0000000000000001"
    echo "GPU-bc, [N/A], [N/A], 81559, [N/A], [N/A], [N/A], [N/A]"
    exit
fi
test "$*" = "--query-gpu=uuid,name,memory.total,driver_version --format=csv,noheader" || exit 6
echo "GPU-aa, NVIDIA RTX 4090, 24564 MiB, 570.1"
echo "GPU-bb, NVIDIA H100, 81559 MiB, 570.1"
echo "GPU-bc, NVIDIA H100, 81559 MiB, 570.1"
"""
OLDER = """#!/bin/sh
case "$1" in
*clocks_event_reasons*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; echo; exit 2;;
*clocks_throttle_reasons.active) echo "GPU-aa, 40, 100, 24564, 60, 449.10, 450.00, 0x0000000000000004";;
esac
"""
OLDEST = """#!/bin/sh
case "$1" in
*reasons*) echo 'Field "clocks_throttle_reasons.active" is not a valid field to query.'; echo; exit 2;;
*) echo "GPU-aa, 40, 100, 24564, 60, [Not Supported], [Not Supported]";;
esac
"""
CARD = Card("GPU-aa", "NVIDIA RTX 4090", "24564 MiB", "570.1")


def driver(folder: Path, answers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(answers)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin")


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Card]:
    """As a driver lists them."""
    driver(tmp_path, NVIDIA_SMI, monkeypatch)
    return list_cards()


def test_a_machine_without_a_driver_has_no_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list_cards() == [] and describe_gpu([]) == {}
    assert measure_cards([]) == measure_cards([CARD]) == ()


@pytest.mark.parametrize(
    ("visible", "shown"),
    [
        (None, {"GPU-aa": "4090", "GPU-bb": "H100", "GPU-bc": "H100"}),
        ("1,0", {"1": "H100", "0": "4090"}),
        ("GPU-bc, GPU-a", {"GPU-bc": "H100", "GPU-a": "4090"}),
        ("0,7,1", {"0": "4090"}),
        ("0,-1,1", {"0": "4090"}),
        ("MIG-7f,MIG-80", {"MIG-7f": "4090", "MIG-80": "4090"}),
        ("", {}),
        ("-1", {}),
    ],
)
def test_cards_are_shown_as_cuda_would_show_them(cards: list[Card], visible: str | None, shown: dict[str, str]) -> None:
    found = visible_cards(cards, visible)
    assert {card.id: card.gpu.split()[-1] for card in found} == shown
    assert list(shown) == [card.id for card in found]


def test_a_node_is_described_by_the_first_card_that_it_shows(cards: list[Card]) -> None:
    described = describe_gpu(visible_cards(cards, "1"))
    assert described == {"gpu": "NVIDIA H100", "gpu_memory": "81559 MiB", "driver": "570.1"}
    assert gpu_memory_gb(described) == 80


def test_a_node_has_a_slot_for_each_card_that_it_shows_unless_it_was_told_otherwise(cards: list[Card]) -> None:
    assert slots_of(WorkerProgram(), cards) == 3
    assert slots_of(WorkerProgram(), []) == 1
    assert slots_of(WorkerProgram(slots=2), cards) == 2
    assert slots_of(WorkerProgram(slots=2), []) == 2


def test_more_slots_than_cards_are_refused(cards: list[Card]) -> None:
    with pytest.raises(UserError, match="4 slots are more than the 3 GPUs that this worker sees"):
        slots_of(WorkerProgram(slots=4), cards)
    with pytest.raises(UserError, match="2 slots are more than the one GPU that this worker sees"):
        slots_of(WorkerProgram(slots=2), cards[:1])


def test_the_cards_that_are_shown_are_measured_in_their_order(cards: list[Card]) -> None:
    busy = GpuGauges(
        utilisation=0.97,
        memory_used_bytes=20000 * 2**20,
        memory_bytes=24564 * 2**20,
        temperature_c=87,
        power_w=301.55,
        power_limit_w=450,
        limited_by=("heat",),
    )
    idle = GpuGauges(
        utilisation=0,
        memory_used_bytes=0,
        memory_bytes=81559 * 2**20,
        temperature_c=33,
        power_w=69.9,
        power_limit_w=700,
        limited_by=(),
    )
    assert measure_cards(visible_cards(cards, "1,0")) == (idle, busy)
    assert measure_cards(visible_cards(cards, "GPU-bb")) == (idle,)


def test_what_a_driver_does_not_say_of_a_card_is_unknown(cards: list[Card]) -> None:
    assert measure_cards(visible_cards(cards, "GPU-bc")) == (GpuGauges(memory_bytes=81559 * 2**20),)


def test_a_card_of_which_several_parts_are_used_is_measured_once(cards: list[Card]) -> None:
    assert len(measure_cards(visible_cards(cards, "MIG-7f,MIG-80"))) == 1


@pytest.mark.parametrize(
    ("mask", "limits"),
    [
        ("0x0000000000000000", ()),
        ("0x0000000000000001", ()),  # idle
        ("0x0000000000000002", ()),  # clocks that somebody set
        ("0x0000000000000004", ("power cap",)),
        ("0x0000000000000020", ("heat",)),
        ("0x0000000000000048", ("heat",)),
        ("0x0000000000000088", ("power brake",)),
        ("0x0000000000000008", ("hardware",)),
        ("0x000000000000006c", ("heat", "power cap")),
        ("[N/A]", None),
        ("[Unknown Error]", None),
        ("", None),
        ("0x", None),
        ("4", None),
    ],
)
def test_the_reasons_for_which_clocks_are_held_down_are_named(mask: str, limits: tuple[str, ...] | None) -> None:
    assert clock_limits(mask) == limits


def test_an_older_driver_is_asked_by_its_own_name_and_the_oldest_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(tmp_path, OLDER, monkeypatch)
    (found,) = measure_cards([CARD])
    assert (found.limited_by, found.power_w) == (("power cap",), 449.1)
    driver(tmp_path, OLDEST, monkeypatch)
    (found,) = measure_cards([CARD])
    assert (found.limited_by, found.power_w, found.temperature_c) == (None, None, 60)


def test_only_the_driver_of_windows_lets_memory_spill(tmp_path: Path) -> None:
    assert not may_spill(tmp_path / "dxg")
    (tmp_path / "dxg").touch()
    assert may_spill(tmp_path / "dxg")
