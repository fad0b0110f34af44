"""The plan of a LoRA's training whose photos the server has or fetches: the answer of the API, and what `-o json` prints."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gangline.core.plans.base import KnownBase
from gangline.core.plans.document import Answer, PlanDocument, shared
from gangline.core.plans.outlook import estimates
from gangline.core.plans.rows import PlanRow, plan_rows
from gangline.core.plans.stored import CaptionCounts, StoredPhotos
from gangline.core.plans.work import class_row, lora_row
from gangline.core.specs.lora import LoraSpec
from gangline.core.words import counted

UNSEEN = (
    "the number of photos is known once they are fetched; until then the time includes the reading and encoding of "
    "one photo"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRowView:
    """A line of a plan for people. A line without a `label` belongs to the one before it."""

    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPhotos:
    """Which photos are trained on: the addresses that the server fetches them from, or the version of a data set, or neither if they are
    uploaded files. `shown` says so in words; `stored` is what is known of them, None before they are fetched."""

    addresses: tuple[str, ...]
    shown: str
    stored: StoredPhotos | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlanView(PlanDocument):
    """What a job would do, where it could run, how long that takes and what it costs. `rows` say it in words.

    `photos`: the addresses that the server fetches from, or the version of a data set; empty for uploaded files. `trained_on` and
    `held_out` count photos, and are None for those that are fetched; the counts of `captions` and how often a photo is seen are also None
    if a metadata.jsonl may state them.
    """

    photos: tuple[str, ...]
    trained_on: int | None
    held_out: int | None
    captions: CaptionCounts | None
    seen_least: int | None
    seen_most: int | None
    steps: int
    batch_size: int
    rank: int
    rows: tuple[PlanRowView, ...]


def fetched_from(addresses: Sequence[str]) -> PlannedPhotos:
    """Return what is known of photos that the server fetches, from at least one address."""
    more = len(addresses) - 1
    shown = f"{addresses[0]}{f' and {more} more' * (more > 0)}: the server fetches and checks them"
    return PlannedPhotos(addresses=tuple(addresses), shown=shown, stored=None)


def work_rows(spec: LoraSpec, photos: PlannedPhotos) -> list[PlanRow]:
    """Return what the job will do."""
    unseen = [("photos", photos.shown), ("steps", f"{counted(spec.steps, 'step')}, batch size {spec.batch_size}")]
    rows = photos.stored.rows(spec, photos.shown) if photos.stored else unseen
    rows = [*rows, ("LoRA", lora_row(spec))]
    return rows + ([("class", class_row(spec.all_subjects[0]))] if spec.class_prompt else [])


def job_plan(
    spec: LoraSpec,
    photos: PlannedPhotos,
    base: KnownBase,
    vae: KnownBase | None,
    answer: Answer,
    notes: Sequence[str] = (),
) -> JobPlanView:
    """Return the plan of a spec, whose photos are a stand-in where the server fetches them."""
    stored = photos.stored
    least, most = (stored.seen(spec) if stored else None) or (None, None)
    tips = stored.advice(spec, base) if stored else ()
    said = (*notes, *(() if stored else (UNSEEN,)))
    plan = JobPlanView(
        **shared(spec, base, vae, answer, estimates(spec, base, answer.placed), notes=said, tips=tips),
        photos=photos.addresses,
        trained_on=len(stored.pictures) if stored else None,
        held_out=len(spec.held_out) if stored else None,
        captions=stored.counts if stored else None,
        seen_least=least,
        seen_most=most,
        steps=spec.steps,
        batch_size=spec.batch_size,
        rank=spec.rank,
        rows=(),
    )
    rows = plan_rows(plan, work_rows(spec, photos))
    return replace(plan, rows=tuple(PlanRowView(label=label, text=text) for label, text in rows))
