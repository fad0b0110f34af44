"""The GPUs of this machine, as its driver lists them and as CUDA_VISIBLE_DEVICES shows them to a process."""

import subprocess
from dataclasses import dataclass

QUERY = ["nvidia-smi", "--query-gpu=uuid,name,memory.total,driver_version", "--format=csv,noheader"]


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU. `id` is how CUDA_VISIBLE_DEVICES names it, the other fields are the driver's."""

    id: str
    gpu: str
    gpu_memory: str
    driver: str


def list_cards() -> list[Card]:
    """Return all GPUs that the driver lists; none if there is no driver."""
    try:
        answer = subprocess.run(QUERY, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[part.strip() for part in line.split(",")] for line in answer.splitlines()]
    return [Card(*row) for row in rows if len(row) == 4]


def visible_cards(cards: list[Card], visible: str | None) -> list[Card]:
    """Return the cards that CUDA shows to a process with this CUDA_VISIBLE_DEVICES, under the names that it has there.

    As in CUDA, the first entry that names no card hides those after it. Without the variable cards go by their UUID, since CUDA's own
    numbers may follow another order than the driver's.
    """
    if visible is None:
        return cards
    found = []
    for entry in visible.split(","):
        card = _named(cards, entry.strip())
        if card is None:
            break
        found.append(Card(entry.strip(), card.gpu, card.gpu_memory, card.driver))
    return found


def _named(cards: list[Card], entry: str) -> Card | None:
    if entry.isdecimal():
        return cards[int(entry)] if int(entry) < len(cards) else None
    if entry.startswith("MIG-"):  # a part of a card; the driver's list does not say of which
        return cards[0] if cards else None
    return next((card for card in cards if entry and card.id.startswith(entry)), None)


def describe_gpu(cards: list[Card]) -> dict[str, str]:
    """Return the first card as the driver names it; empty if there is none."""
    return {"gpu": cards[0].gpu, "gpu_memory": cards[0].gpu_memory, "driver": cards[0].driver} if cards else {}


def gpu_memory_gb(described: dict[str, str]) -> float:
    """Return the GB of a GPU that `describe_gpu` describes, rounded as vendors do: `24564 MiB` is a card of 24 GB."""
    memory = described.get("gpu_memory", "").split()
    return round(float(memory[0]) / 1024) if memory and memory[0].isdigit() else 0.0
