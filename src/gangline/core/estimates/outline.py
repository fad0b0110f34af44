"""Parse an outline, the input of an estimate: the phases of a training with their measurements, prices, interruptions, data. All problems
of an outline are reported at once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from gangline.core.errors import BadInput
from gangline.core.estimates.scaling import Measurement, StepBatch
from gangline.core.gpus import find_kind
from gangline.core.parsing import adapter, in_words
from gangline.core.specs.scratch import ScratchSpec

STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}
HINT = "`gangline docs estimate` has every field and option"
OutlineCount = Annotated[int, Ge(1), Le(10**15)]
Gpus = Annotated[int, Ge(1), Le(10**7)]
Positive = Annotated[float, Gt(0), Le(1e15)]
NotNegative = Annotated[float, Ge(0), Le(1e15)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseOutline:
    """A phase with `samples`, or `steps` of `batch_size`, at one resolution. `images_per_second` has the measured throughput for each
    number in `gpus`. `batch_size` is over all GPUs; `microbatch` is the images that each computes at a time."""

    __pydantic_config__: ClassVar[Any] = STRICT
    name: Annotated[str, MinLen(1), MaxLen(100)] = "training"
    samples: OutlineCount | None = None
    steps: OutlineCount | None = None
    gpus: Annotated[tuple[Gpus, ...], MinLen(1)]
    images_per_second: Annotated[tuple[Positive, ...], MinLen(1)]
    batch_size: OutlineCount | None = None
    microbatch: OutlineCount | None = None

    @property
    def images(self) -> int:
        """Return the number of images that are trained on; an image counts each time that it is used."""
        return self.samples or (self.steps or 0) * (self.batch_size or 0)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        pairs = zip(self.gpus, self.images_per_second, strict=True)
        return tuple(Measurement(gpus=gpus, images_per_second=rate) for gpus, rate in pairs)

    @property
    def batch(self) -> StepBatch | None:
        if self.batch_size is None or self.microbatch is None:
            return None
        return StepBatch(size=self.batch_size, microbatch=self.microbatch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Precompute:
    """The work that is done once before training (latents, embeddings), on GPUs that do not wait for each other. `training_without` is the
    factor by which training takes longer without it."""

    __pydantic_config__: ClassVar[Any] = STRICT
    gpu_hours: Positive
    training_without: Annotated[float, Ge(1), Le(1000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """The rate at which nodes are preempted; a run stops when any of its nodes is. A checkpoint stops training for `checkpoint_s`;
    `restart_s` pass from an interruption until training resumes, including the start of a new node."""

    __pydantic_config__: ClassVar[Any] = STRICT
    per_node_hour: NotNegative
    gpus_per_node: Gpus = 8
    checkpoint_s: NotNegative
    restart_s: NotNegative

    def nodes(self, gpus: int) -> int:
        return -(-gpus // self.gpus_per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOutline:
    """The data that is stored while the run lasts, and read. With `dataset_images` the data set is read again in every epoch, as nodes
    without a cache do; else once. The newest `checkpoints_kept` checkpoints are stored."""

    __pydantic_config__: ClassVar[Any] = STRICT
    dataset_gb: NotNegative = 0.0
    dataset_images: OutlineCount | None = None
    checkpoint_gb: NotNegative = 0.0
    checkpoints_kept: Annotated[int, Ge(1), Le(10_000)] = 2
    storage_usd_per_gb_month: NotNegative = 0.0
    egress_usd_per_gb: NotNegative = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The input of an estimate. `predict` are numbers of GPUs in addition to the measured ones. `gpu` has kinds of GPUs with their prices;
    if it is empty, the kind is `measured_on`, at `usd_per_gpu_hour`. `usd_per_gpu_hour_at` has prices for certain numbers of GPUs."""

    __pydantic_config__: ClassVar[Any] = STRICT
    phases: Annotated[tuple[PhaseOutline, ...], MinLen(1)]
    predict: tuple[Gpus, ...] = ()
    measured_on: str = ""
    gpu: dict[str, NotNegative] = field(default_factory=dict)
    usd_per_gpu_hour: NotNegative | None = None
    usd_per_gpu_hour_at: dict[Gpus, NotNegative] = field(default_factory=dict)
    precompute: Precompute | None = None
    interruptions: Interruptions | None = None
    data: DataOutline = DataOutline()

    @property
    def counts(self) -> tuple[int, ...]:
        """Return the numbers of GPUs of all rows."""
        measured = (gpus for phase in self.phases for gpus in phase.gpus)
        return tuple(sorted({*measured, *self.predict}))

    def price_usd_per_hour(self, kind: str, gpus: int) -> float:
        """Return the price of one GPU."""
        if self.gpu:
            return self.gpu[kind]
        assert self.usd_per_gpu_hour is not None, "an outline was checked"
        return self.usd_per_gpu_hour_at.get(gpus, self.usd_per_gpu_hour)


def phases_of(recipe: ScratchSpec) -> list[dict[str, Any]]:
    """Return an outline's phases from a training recipe, without their measurements."""
    sides = [phase.resolution for phase in recipe.phases]
    once = len(set(sides)) == len(sides)
    return [
        {
            "name": f"{phase.resolution} px" if once else f"phase {number}, {phase.resolution} px",
            "steps": phase.steps,
            "batch_size": phase.batch_size,
        }
        | ({"microbatch": phase.microbatch} if phase.microbatch else {})
        for number, phase in enumerate(recipe.phases, 1)
    ]


def parse_outline(value: dict[str, Any], options: Mapping[str, str] = MappingProxyType({})) -> Outline:
    """Parse an outline from the values of TOML or the command line; `options` maps fields to the options that gave them.

    Raises `BadInput` with every problem.
    """
    from pydantic import ValidationError

    try:
        outline = adapter(Outline).validate_python(value)
    except ValidationError as error:
        found = error.errors()
        raise BadInput(in_words(found, "an outline", options), hint=_hint(found)) from None
    problems = list(_contradictions(outline))
    if problems:
        raise BadInput("; ".join(problems), hint=HINT)
    return outline


def _contradictions(outline: Outline) -> Iterator[str]:
    for phase in outline.phases:
        yield from _of_phase(phase, outline.counts)
    names = [phase.name for phase in outline.phases]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two phases are named {name}"
    yield from _of_kinds(outline)
    if outline.usd_per_gpu_hour is None and not outline.gpu:
        yield "usd_per_gpu_hour is missing"
    if outline.gpu and (outline.usd_per_gpu_hour is not None or outline.usd_per_gpu_hour_at):
        yield "usd_per_gpu_hour and gpu both give prices: where kinds have theirs, leave usd_per_gpu_hour out"
    for gpus in sorted(set(outline.usd_per_gpu_hour_at) - set(outline.counts)):
        yield f"there is a price of {gpus} GPUs, which are neither measured nor to be predicted"


def _of_phase(phase: PhaseOutline, counts: tuple[int, ...]) -> Iterator[str]:
    if len(phase.gpus) != len(phase.images_per_second):
        yield f"{phase.name} has {len(phase.gpus)} gpus and {len(phase.images_per_second)} images_per_second"
    if (phase.samples is None) == (phase.steps is None):
        yield f"{phase.name} should have either samples or steps"
    if phase.batch_size is None:
        if phase.steps is not None or phase.microbatch is not None:
            yield f"{phase.name} needs batch_size, as it has {'steps' if phase.microbatch is None else 'microbatch'}"
        return
    if uneven := [str(gpus) for gpus in counts if phase.batch_size % gpus]:
        yield f"a batch of {phase.batch_size} images is not shared evenly by {' or '.join(uneven)} GPUs ({phase.name})"
    if (phase.microbatch or 1) > phase.batch_size:
        yield f"the microbatch of {phase.name} is larger than its batch"


def _of_kinds(outline: Outline) -> Iterator[str]:
    if outline.gpu and not outline.measured_on:
        yield "measured_on is missing: on which GPU the throughput was measured"
    spellings = [
        [name for name in outline.gpu if name.lower() == one] for one in {name.lower() for name in outline.gpu}
    ]
    for names in sorted(names for names in spellings if len(names) > 1):
        yield f"gpu has {' and '.join(names)}, which are one kind"
    known = outline.gpu.keys() if not outline.measured_on else {outline.measured_on, *outline.gpu}
    for name in sorted(known) if outline.gpu else ():
        try:
            find_kind(name)
        except BadInput as error:
            yield f"{error.message} ({error.hint})"


def _hint(found: list[Any]) -> str:
    for problem in found:
        if problem["type"] == "unexpected_keyword_argument":
            *_, name = problem["loc"]
            if near := get_close_matches(str(name), _field_names(), n=1):
                return f"did you mean {near[0]}?"
    return HINT


def _field_names() -> list[str]:
    of = (Outline, PhaseOutline, Precompute, Interruptions, DataOutline)
    return [each.name for kind in of for each in fields(kind)]
