"""The plan of a LoRA's training: as data, and on the terminal."""

from collections import Counter
from dataclasses import dataclass

from gangline.cli.jobs.plan.document import Answer, PlanDocument, shared
from gangline.cli.jobs.plan.make import LoraPlan, sizes_of
from gangline.cli.jobs.plan.outlook import estimates


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCount:
    width: int
    height: int
    photos: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionCounts:
    """Photos with a caption of their own, and those for which the prompt stands."""

    own: int
    prompt: int


@dataclass(frozen=True, kw_only=True)
class LoraDocument(PlanDocument):
    """`sizes`: what photos are cut to, empty where that depends on the base. `seen_least` and `seen_most`: how often a photo is seen."""

    photos: int
    held_out: int
    captions: CaptionCounts
    sizes: tuple[SizeCount, ...]
    steps: int
    batch_size: int
    seen_least: int
    seen_most: int
    rank: int


def lora_document(plan: LoraPlan, answer: Answer) -> LoraDocument:
    spec, (least, most) = plan.spec, plan.seen
    sizes = Counter(sizes_of(spec, plan.pictures) or ())
    own = sum(picture.own for picture in plan.pictures)
    found = estimates(spec, plan.known, answer.placed)
    return LoraDocument(
        **shared(spec, plan.known, plan.known_vae, answer, found, notes=plan.notes, tips=plan.advice),
        photos=len(plan.pictures),
        held_out=len(spec.held_out),
        captions=CaptionCounts(own=own, prompt=len(plan.pictures) - own),
        sizes=tuple(
            SizeCount(width=size.width, height=size.height, photos=count) for size, count in sorted(sizes.items())
        ),
        steps=spec.steps,
        batch_size=spec.batch_size,
        seen_least=least,
        seen_most=most,
        rank=spec.rank,
    )
