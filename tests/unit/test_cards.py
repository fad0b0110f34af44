"""Which GPUs a worker shows to its trainers, under which names."""

from pathlib import Path

import pytest

from gangline.adapters.cards import Card, describe_gpu, gpu_memory_gb, list_cards, visible_cards
from gangline.compose.worker import slots_of
from gangline.core.errors import UserError
from gangline.core.server.programs import WorkerProgram

NVIDIA_SMI = """#!/bin/sh
test "$*" = "--query-gpu=uuid,name,memory.total,driver_version --format=csv,noheader" || exit 6
echo "GPU-aa, NVIDIA RTX 4090, 24564 MiB, 570.1"
echo "GPU-bb, NVIDIA H100, 81559 MiB, 570.1"
echo "GPU-bc, NVIDIA H100, 81559 MiB, 570.1"
"""


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Card]:
    """As a driver lists them."""
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    return list_cards()


def test_a_machine_without_a_driver_has_no_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list_cards() == [] and describe_gpu([]) == {}


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
