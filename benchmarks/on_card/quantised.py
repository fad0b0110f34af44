"""A LoRA of SDXL at 1024² with gradient checkpointing: memory and speed with the base in 8 and in 4 bits, beside the base as it is."""

from collections.abc import Iterator
from functools import partial

from benchmarks.on_card.part import Case, Rows
from benchmarks.on_card.results import Figures
from benchmarks.on_card.runs import memory, stepped
from benchmarks.on_card.scale import Scale

FULL = "base as it is"
NAMES = {"full": FULL, "8bit": "base in 8 bits", "4bit": "base in 4 bits"}


def cases(scale: Scale) -> Iterator[Case]:
    for precision, name in NAMES.items():
        yield Case(name, partial(paced, scale, name, precision))


def paced(scale: Scale, name: str, precision: str) -> Rows:
    with stepped(scale, base_precision=precision, gradient_checkpointing=True) as run:
        run.seconds_a_step(3)
        step_s = run.seconds_a_step(3 if scale.tiny else 12)
        yield {"what": name, "s/step": step_s, "images/s": 1 / step_s} | memory()


def sum_up(rows: list[Figures]) -> list[Figures]:
    full = next((row for row in rows if row["what"] == FULL and "s/step" in row), None)
    found: list[Figures] = []
    for row in rows:
        if full and row is not full and "s/step" in row:
            times = {"s/step": row["s/step"] / full["s/step"]}
            times |= {"GB": row["GB"] / full["GB"]} if "GB" in row else {}
            found.append({"what": f"{row['what']}, times the {FULL}"} | times)
    return found
