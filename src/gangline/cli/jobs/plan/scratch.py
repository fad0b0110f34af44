"""The plan of a training on data sets, as data."""

from collections.abc import Mapping
from dataclasses import dataclass

from gangline.core.plans.base import KnownBase
from gangline.core.plans.document import Answer, PlanDocument, shared
from gangline.core.plans.outlook import estimates
from gangline.core.specs.scratch import ScratchSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """`rows` are all that it has; those for which `where` holds are trained on, their share by `weight`."""

    place: str
    rows: int
    where: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFacts:
    """`seen`: images, each as often as it comes."""

    resolution: int
    steps: int
    batch_size: int
    seen: int
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchDocument(PlanDocument):
    """`trains`: unet or vae; `new`: the parts that begin random; `gpus` of one node, which share each batch."""

    trains: str
    new: tuple[str, ...]
    data: tuple[DataFacts, ...]
    phases: tuple[PhaseFacts, ...]
    steps: int
    gpus: int


def scratch_document(spec: ScratchSpec, base: KnownBase, rows: Mapping[str, int], answer: Answer) -> ScratchDocument:
    return ScratchDocument(
        **shared(spec, base, None, answer, estimates(spec, base, answer.placed)),
        trains=spec.part,
        new=tuple(spec.new),
        data=tuple(
            DataFacts(place=ref.place, rows=rows[ref.place], where=ref.where, weight=ref.weight) for ref in spec.data
        ),
        phases=tuple(
            PhaseFacts(
                resolution=phase.resolution,
                steps=phase.steps,
                batch_size=phase.batch_size,
                seen=phase.steps * phase.batch_size,
                where=phase.where,
            )
            for phase in spec.phases
        ),
        steps=spec.steps,
        gpus=spec.needs.slots,
    )
