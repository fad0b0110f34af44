"""The plan of a LoRA's training: as data, and on the terminal."""

from collections import Counter
from dataclasses import dataclass

from gangline.cli.jobs.plan.make import LoraPlan, sizes_of
from gangline.core.plans.document import Answer, PlanDocument, shared
from gangline.core.plans.outlook import estimates
from gangline.core.plans.stored import CaptionCounts
from gangline.core.plans.work import times_seen_of
from gangline.core.specs.sections.subjects import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCount:
    width: int
    height: int
    photos: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectCounts:
    """One of several subjects: its settings, how many files of each kind it has, and how often its photos are seen."""

    folder: str
    prompt: str
    class_prompt: str | None
    repeats: int
    weight: float
    prior_weight: float
    photos: int
    held_out: int
    class_photos: int
    class_images_drawn: int
    seen_least: int
    seen_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraDocument(PlanDocument):
    """`sizes`: what photos are cut to, empty where that depends on the base. `seen_least` and `seen_most`: how often a photo is seen.
    `subjects` is empty if there is only one."""

    photos: int
    held_out: int
    captions: CaptionCounts
    sizes: tuple[SizeCount, ...]
    steps: int
    batch_size: int
    seen_least: int
    seen_most: int
    rank: int
    subjects: tuple[SubjectCounts, ...]


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
        subjects=tuple(_counts(plan, subject) for subject in spec.all_subjects if spec.subjects),
    )


def _counts(plan: LoraPlan, subject: Subject) -> SubjectCounts:
    least, most = times_seen_of(plan.spec, plan.pictures, subject.number)
    return SubjectCounts(
        folder=subject.folder,
        prompt=subject.prompt,
        class_prompt=subject.class_prompt,
        repeats=subject.repeats,
        weight=subject.weight,
        prior_weight=subject.prior_weight,
        photos=len(subject.photos),
        held_out=len(subject.held_out),
        class_photos=len(subject.class_photos),
        class_images_drawn=subject.class_images_drawn,
        seen_least=least,
        seen_most=most,
    )
