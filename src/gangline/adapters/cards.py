"""The GPUs of this machine, as its driver lists them and as CUDA_VISIBLE_DEVICES shows them to a process."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.core.fleet.gauges import ClockLimit, GpuGauges

MIB = 2**20
MEASURED = "uuid,utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw,power.limit"
LIMITS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""What drivers call the reasons for which they hold clocks down: those before version 535 know only the second name."""
REASONS: tuple[tuple[int, ClockLimit], ...] = ((0x20 | 0x40, "heat"), (0x80, "power brake"), (0x04, "power cap"))
"""The bits of these reasons (NVML, nvmlClocksEventReasons). Being idle, and clocks that somebody set, limit nothing that we want."""
HARDWARE = 0x08
"""The bit that is set with those of heat and of the power brake, and alone where the card does not say which it is."""
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
    return [Card(*row) for row in _ask_driver(QUERY) if len(row) == 4]


def measure_cards(cards: Sequence[Card]) -> tuple[GpuGauges, ...]:
    """Return how busy, full, hot and limited these cards are now, in their order; a card of which several parts are used (MIG) counts
    once. A driver that does not know one of the fields is asked for fewer."""
    rows = _measured_rows() if cards else []
    ids = [row[0] for row in rows]
    numbers = dict.fromkeys(_number_of(card.id, ids) for card in cards)
    return tuple(_as_gauges(*rows[number][1:]) for number in numbers if number is not None)


def _measured_rows() -> list[list[str]]:
    for limit in (*LIMITS, ""):
        fields = f"{MEASURED},{limit}" if limit else MEASURED
        rows = [
            [*row, ""] if not limit else row
            for row in _ask_driver(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"])
            if len(row) == len(fields.split(","))
        ]
        if rows:
            return rows
    return []


def _as_gauges(
    utilisation: str, used: str, total: str, temperature: str, power: str, power_limit: str, limits: str
) -> GpuGauges:
    percent, used_mib, total_mib = _number(utilisation), _number(used), _number(total)
    return GpuGauges(
        utilisation=None if percent is None else percent / 100,
        memory_used_bytes=None if used_mib is None else round(used_mib) * MIB,
        memory_bytes=None if total_mib is None else round(total_mib) * MIB,
        temperature_c=_number(temperature),
        power_w=_number(power),
        power_limit_w=_number(power_limit),
        limited_by=clock_limits(limits),
    )


def clock_limits(mask: str) -> tuple[ClockLimit, ...] | None:
    """Return what holds a card's clocks down by the driver's mask, such as `0x0000000000000044`; None where it has a word instead."""
    if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", mask) is None:
        return None
    bits = int(mask, 16)
    found: list[ClockLimit] = [name for bit, name in REASONS if bits & bit]
    if bits & HARDWARE and not bits & (0x40 | 0x80):
        found.append("hardware")
    return tuple(found)


def _number(text: str) -> float | None:
    """Return a number of the driver's; None where it has a word instead, as `[N/A]`."""
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) else None


def _ask_driver(query: list[str]) -> list[list[str]]:
    """Return the driver's answer, a row for each card; none if there is no driver."""
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [[part.strip() for part in line.split(",")] for line in answer.splitlines()]


def visible_cards(cards: list[Card], visible: str | None) -> list[Card]:
    """Return the cards that CUDA shows to a process with this CUDA_VISIBLE_DEVICES, under the names that it has there.

    As in CUDA, the first entry that names no card hides those after it. Without the variable cards go by their UUID, since CUDA's own
    numbers may follow another order than the driver's.
    """
    if visible is None:
        return cards
    found, ids = [], [card.id for card in cards]
    for entry in visible.split(","):
        number = _number_of(entry.strip(), ids)
        if number is None:
            break
        card = cards[number]
        found.append(Card(entry.strip(), card.gpu, card.gpu_memory, card.driver))
    return found


def _number_of(entry: str, ids: list[str]) -> int | None:
    """Return which card of the driver's list an entry of CUDA_VISIBLE_DEVICES names; None if there is none."""
    if entry.isdecimal():
        return int(entry) if int(entry) < len(ids) else None
    if entry.startswith("MIG-"):  # a part of a card; the driver's list does not say of which
        return 0 if ids else None
    return next((number for number, each in enumerate(ids) if entry and each.startswith(entry)), None)


def describe_gpu(cards: list[Card]) -> dict[str, str]:
    """Return the first card as the driver names it; empty if there is none."""
    return {"gpu": cards[0].gpu, "gpu_memory": cards[0].gpu_memory, "driver": cards[0].driver} if cards else {}


def uuids_of(shown: Sequence[Card]) -> tuple[str, ...]:
    """Return the UUIDs of these cards, each once; none of a card of which this is a part (MIG), which others have parts of, too."""
    ids = [card.id for card in list_cards()] if shown else []
    numbers = dict.fromkeys(_number_of(card.id, ids) for card in shown if not card.id.startswith("MIG-"))
    return tuple(ids[number] for number in numbers if number is not None)


def may_spill(device: Path = Path("/dev/dxg")) -> bool:
    """Return whether the driver moves to the machine's memory what does not fit into a card's, as that of Windows does below WSL 2, whose
    device this is. On Linux itself such a program is refused the memory."""
    return device.exists()


def gpu_memory_gb(described: dict[str, str]) -> float:
    """Return the GB of a GPU that `describe_gpu` describes, rounded as vendors do: `24564 MiB` is a card of 24 GB."""
    memory = described.get("gpu_memory", "").split()
    return round(float(memory[0]) / 1024) if memory and memory[0].isdigit() else 0.0
