"""A plan as data: what `-o json` prints, and what the rows on the terminal are made of. Numbers are numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from gangline.core.advice import Advice
from gangline.core.gpus import kind_of_device
from gangline.core.jobs.placement import FittingNode, PlacementView, RentableNode, UnfitNode
from gangline.core.models.families import FamilyName
from gangline.core.plans.base import KnownBase
from gangline.core.plans.outlook import CardEstimate, CostEstimate, GpuMemory, TimeEstimate
from gangline.core.specs.fields import Needs
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.words import one


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFacts:
    """A model to start from. `bytes`: what a node fetches; `revision`: the commit on the hub; `opens`: whether this user's token is let
    in where it is `gated`, and `copy` what the server has of it then: `ready`, or how far it is; `unknown`: why the hub said nothing."""

    name: str
    family: FamilyName | None
    prediction_type: str | None
    zero_terminal_snr: bool | None
    because: str
    bytes: int | None
    revision: str | None
    gated: bool | None
    opens: bool | None
    copy: str
    licence: str
    unknown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument:
    """What every kind of job has. `asked` is None where a server said where the job could run, else why none did. `why_none` says why no
    node takes the job at once; `estimates` has one entry for each class of card, and `time`, `usd` and `gpu_memory_gb` are the first's.
    `warnings` are of what would keep the job from running, `tips` of what may disappoint."""

    kind: str
    base: BaseFacts
    vae: BaseFacts | None
    asked: str | None
    nodes_here: int
    nodes: tuple[FittingNode, ...]
    unfit: tuple[UnfitNode, ...]
    rentable: tuple[RentableNode, ...]
    why_none: str
    ahead: int
    budget_left_usd: float | None
    estimates: tuple[CardEstimate, ...]
    time: TimeEstimate | None
    usd: CostEstimate | None
    gpu_memory_gb: GpuMemory | None
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    tips: tuple[Advice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server said, or why none was asked."""

    placed: PlacementView | None
    why_not: str | None = None


def base_facts(base: KnownBase, copy: str = "") -> BaseFacts:
    return BaseFacts(
        name=base.name,
        family=base.family.name if base.family else None,
        prediction_type=base.model.prediction_type if base.model else None,
        zero_terminal_snr=base.model.zero_terminal_snr if base.model else None,
        because=base.model.because if base.model else "",
        bytes=base.bytes,
        revision=base.revision,
        gated=base.gated,
        opens=base.opens,
        copy=copy,
        licence=base.licence,
        unknown=base.unknown,
    )


def shared(
    spec: LoraSpec | ScratchSpec,
    base: KnownBase,
    vae: KnownBase | None,
    answer: Answer,
    found: tuple[CardEstimate, ...],
    *,
    notes: Sequence[str] = (),
    tips: tuple[Advice, ...] = (),
) -> dict[str, Any]:
    """Return the fields of a `PlanDocument` that all kinds of jobs share."""
    placed = answer.placed
    copies = placed.copies if placed else {}
    facts = base_facts(base, copies.get("base", ""))
    own_vae = base_facts(vae, copies.get("vae", "")) if vae else None
    first = found[0]
    return {
        "kind": spec.kind,
        "base": facts,
        "vae": own_vae,
        "asked": answer.why_not,
        "nodes_here": placed.nodes if placed else 0,
        "nodes": placed.fitting if placed else (),
        "unfit": placed.unfit if placed else (),
        "rentable": placed.rentable if placed else (),
        "why_none": placed.because if placed else "",
        "ahead": placed.ahead if placed else 0,
        "budget_left_usd": placed.budget_left_usd if placed else None,
        "estimates": found,
        "time": first.time,
        "usd": first.usd,
        "gpu_memory_gb": first.memory,
        "warnings": tuple(warnings(spec.needs, facts, own_vae, answer, found)),
        "notes": tuple(notes),
        "tips": tips,
    }


def warnings(
    needs: Needs, base: BaseFacts, vae: BaseFacts | None, answer: Answer, found: Sequence[CardEstimate]
) -> Iterator[str]:
    """Yield what would keep the job from running, each with what helps."""
    for model in (base, vae):
        if model and (closed := why_closed(model, asked=answer.placed is not None)):
            yield closed
    placed = answer.placed
    if placed and not placed.fitting and not placed.rentable:
        yield (
            _another_name(needs, placed)
            or "no node fits the job, neither a running one nor one that could be started, so the job would wait for one"
        )
    yield from _on_memory(needs, found)


def _another_name(needs: Needs, placed: PlacementView) -> str:
    """Name the requested card as its driver does, if a node has it under another name; else return an empty text."""
    meant = kind_of_device(needs.gpu) if needs.gpu else None
    called = next((node.gpu for node in placed.unfit if meant and kind_of_device(node.gpu) == meant), "")
    return f'no node has a GPU named {needs.gpu}; pass --gpu "{called}", which is its name here' if called else ""


def _on_memory(needs: Needs, found: Sequence[CardEstimate]) -> Iterator[str]:
    cards = [(each, each.memory) for each in found if each.memory and each.memory.fits]
    small = [(each, memory) for each, memory in cards if memory.fits == "no"]
    if not small:
        return
    least, most = min(memory.low_gb for _, memory in cards), max(memory.high_gb for _, memory in cards)
    have = ", ".join(dict.fromkeys(f"{one(each.gpu)} has {each.gpu_memory_gb:g}" for each, _ in small))
    helps = "lower resolution or batch_size, or set gradient_checkpointing, or base_precision to 8bit or 4bit"
    if len(small) < len(found):
        helps = f"--gpu-memory-gb {max(ceil(most), ceil(needs.gpu_memory_gb))} avoids such nodes"
    yield f"the job needs at least {least:.1f} GB of GPU memory, but {have}: {helps}"


def why_closed(model: BaseFacts, *, asked: bool) -> str:
    """Return why nodes could not read a gated model; empty if they can, or if it is unknown whether the server has a
    copy."""
    if not model.gated or model.copy == "ready":
        return ""
    repo = model.name.partition(" at ")[0]
    if model.copy:
        return f"{repo} is gated, and the server is still copying it: {model.copy}"
    if not asked:
        return ""
    return f"{repo} is gated on the hub, and nodes have no hub token: let the server copy it once with `gangline bases add {repo}`"
