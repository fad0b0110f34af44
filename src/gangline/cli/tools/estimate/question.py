"""What `gangline estimate` is asked: a file, and options over it, become an outline; or a recipe, with what is measured of it here."""

import tomllib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from gangline.cli.bundled.place import path_or_recipe
from gangline.cli.jobs.scratch import override_recipe, plan_scratch, spec_of, with_data
from gangline.cli.tools.estimate.words import given_options, numbers, parse_number, phase_of, refuse, times_given
from gangline.core.errors import BadInput, NotFound

if TYPE_CHECKING:  # what `--help` need not wait for
    from gangline.cli.tools.measure import MeasuredPhase
    from gangline.core.estimates.estimate import Estimate
    from gangline.core.estimates.outline import Outline
    from gangline.core.specs.scratch import ScratchSpec

OF_A_PHASE = {"samples": "--samples", "gpus": "--gpus", "images_per_second": "--images-per-second"}
PhaseTable = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenThroughput:
    """The measured speed as it was typed: of a single phase, once for each phase of a recipe, or of `phases`."""

    samples: str | None
    gpus: list[str]
    rates: list[str]
    phases: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRecipe:
    """What only a training recipe can be asked."""

    measure: bool
    measure_s: float
    data: list[str] | None
    where: str | None
    base: str | None
    family: str | None
    settings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateQuestion:
    """`settings`, `tables` (by name) and `batch` are options that are over those of `file`; None where one was not given."""

    file: dict[str, Any]
    settings: dict[str, Any]
    tables: dict[str, dict[str, str | None]]
    batch: dict[str, str | None]
    measured_on: str | None
    throughput: GivenThroughput
    of_recipe: OfRecipe

    def estimate(self) -> "tuple[Estimate, list[MeasuredPhase]]":
        """Return the rows, and what was measured for them: a recipe may be trained here first. Raises `BadInput`."""
        from gangline.core.estimates.estimate import estimate

        if not is_recipe(self.file):
            return estimate(self._of_outline()), []
        if self._is_computed:
            return self._computed(), []
        outline, measured = self._of_recipe()
        return estimate(outline), measured

    @property
    def _is_computed(self) -> bool:
        """Return whether it is a recipe without throughput for kinds of GPUs."""
        return bool(self.settings["gpu"]) and not self.throughput.rates and not self.of_recipe.measure

    def _computed(self) -> "Estimate":
        from gangline.cli.tools.estimate.computed import family_of_base
        from gangline.core.estimates.computed import computed

        own = self.of_recipe
        recipe = self._recipe()
        for option, value in {"--data": own.data, "--where": own.where}.items():
            refuse(
                value,
                f"{option} works only with --measure",
                hint="leave it out: a computed throughput needs no data set",
            )
        refuse(self.measured_on, "--measured-on works only with a measured throughput", hint="leave it out")
        spec = spec_of(recipe)
        given = [count for text in self.throughput.gpus for count in numbers("--gpus", text) or []]
        counts = [*given, *(self.settings["predict"] or [])] or [spec.needs.slots]
        wrong = not all(isinstance(count, int) and count >= 1 for count in counts)
        refuse(
            wrong, "--gpus and --predict take numbers of GPUs, which are at least 1", hint="write e.g. --gpus 1,8,64"
        )
        rest = {name: table for name, values in self.tables.items() if (table := given_options(_numbers(values)))}
        return computed(spec, family_of_base(recipe.get("base"), own.family), self.settings["gpu"], counts, rest)

    def _of_outline(self) -> "Outline":
        own = self.of_recipe
        options = {
            "--measure": own.measure,
            "--data": own.data,
            "--where": own.where,
            "--base": own.base,
            "--family": own.family,
            "--set": own.settings,
        }
        for option, value in options.items():
            refuse(
                value,
                f"{option} works only with a training recipe",
                hint="pass a recipe such as sd2_base; `gangline recipes ls` lists all recipes",
            )
        options = {} if self.throughput.phases or "phases" in self.file else OF_A_PHASE
        return self._parsed(self.file, _phases(self.throughput), options)

    def _recipe(self) -> dict[str, Any]:
        """Return the recipe with the given options instead of its own settings."""
        given, own = self.throughput, self.of_recipe
        refuse(
            given.samples or given.phases,
            "phases are given twice",
            hint="describe them either in the recipe or by options",
        )
        refuse(
            self.batch["batch_size"],
            "batch_size is given twice",
            hint="leave --batch-size out: the phases of the recipe set it",
        )
        recipe = with_data(override_recipe(self.file, own.settings), own.data or [], own.where)
        recipe |= given_options({"base": own.base})
        return _with_batch(recipe, {"microbatch": self.batch["microbatch"]})

    def _of_recipe(self) -> "tuple[Outline, list[MeasuredPhase]]":
        given, own = self.throughput, self.of_recipe
        recipe = self._recipe()
        spec = spec_of(recipe)
        refuse(
            own.family,
            "--family works only with a computed throughput",
            hint="leave it out: a measured throughput needs no family",
        )
        if own.measure:
            return self._of_measured(recipe, spec)
        for option, value in {"--data": own.data, "--where": own.where, "--base": own.base}.items():
            refuse(value, f"{option} works only with --measure", hint="leave it out, or pass --measure")
        return self._parsed({}, _of_phases(spec, given.gpus, given.rates), OF_A_PHASE), []

    def _of_measured(self, recipe: dict[str, Any], spec: "ScratchSpec") -> "tuple[Outline, list[MeasuredPhase]]":
        from gangline.cli.tools.measure import CPU, gpu_here, measure_phases

        hint = "pass either --measure, or --gpus and --images-per-second"
        given = self.throughput.gpus or self.throughput.rates
        refuse(given, "the throughput is both given and to be measured", hint=hint)
        kind = gpu_here()
        no_gpu = "this machine has no GPU, so nothing can be measured that holds for one"
        refuse(self.settings["gpu"] and kind == CPU, no_gpu, hint="leave --gpu out")
        ones = _as_measured(spec, [1.0 for _ in spec.phases])
        self._parsed(
            {}, ones, OF_A_PHASE, kind
        )  # wrong options must be reported before the measurement, which takes minutes
        measured = list(measure_phases(plan_scratch(recipe), kind, self.of_recipe.measure_s))
        found = _as_measured(spec, [each.images_per_second for each in measured])
        return self._parsed({}, found, OF_A_PHASE, kind), measured

    def _parsed(
        self, file: dict[str, Any], phases: list[PhaseTable], options: dict[str, str], kind: str | None = None
    ) -> "Outline":
        from gangline.core.estimates.outline import parse_outline

        on = given_options({"measured_on": self.measured_on or kind})
        joined = _joined(file, phases, self.settings | on, self.tables)
        return parse_outline(_with_batch(joined, self.batch), options)


def read_file(given: str) -> dict[str, Any]:
    path = path_or_recipe(given)
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise NotFound(
            f"the outline {path} cannot be read: {(error.strerror or str(error)).lower()}",
            hint="pass a TOML file, a recipe that `gangline recipes ls` lists, or options",
        ) from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a text file", hint="pass an outline in TOML") from None
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        raise BadInput(
            f"{path} is not TOML: {said[:1].lower()}{said[1:]}", hint="`gangline docs estimate` has an example"
        ) from None


def is_lora(file: dict[str, Any]) -> bool:
    """Return whether the file is a LoRA's recipe, also one without `kind` that has settings of a LoRA."""
    from gangline.core.specs.lora import LoraSpec

    return file.get("kind", "lora") == "lora" and bool(file.keys() & {field.name for field in fields(LoraSpec)})


def is_recipe(file: dict[str, Any]) -> bool:
    """Return whether the file is a recipe for training from scratch; an outline has no `kind`."""
    return "kind" in file


def _numbers(texts: dict[str, str | None]) -> dict[str, Any]:
    return {name: parse_number(text) for name, text in texts.items()}


def _of_phases(spec: "ScratchSpec", gpus: list[str], rates: list[str]) -> list[PhaseTable]:
    """Return the phases of the recipe, each with its throughputs."""
    from gangline.core.estimates.outline import phases_of

    phases = phases_of(spec)
    has = f"the recipe has {len(phases)} phases ({', '.join(phase['name'] for phase in phases)}), and"
    hint = (
        "pass --gpus, and --images-per-second once for each phase in their order; or --measure; or a kind of GPU with "
        'its price, for which the throughput is computed, e.g. --gpu "H100 SXM=3"'
    )
    refuse(not (gpus and rates), "the recipe does not say how fast its phases are", hint=hint)
    refuse(len(rates) != len(phases), f"{has} --images-per-second is given {times_given(rates)}", hint=hint)
    hint = "pass it once for all phases, or once for each, in their order"
    refuse(len(gpus) not in (1, len(phases)), f"{has} --gpus is given {times_given(gpus)}", hint=hint)
    gpus = gpus if len(gpus) > 1 else gpus * len(phases)
    return [
        phase | {"gpus": numbers("--gpus", counts), "images_per_second": numbers("--images-per-second", rate)}
        for phase, counts, rate in zip(phases, gpus, rates, strict=True)
    ]


def _as_measured(spec: "ScratchSpec", rates: list[float]) -> list[PhaseTable]:
    """Return the phases of the recipe, each with its throughput as measured on the GPUs of this machine."""
    from gangline.core.estimates.outline import phases_of

    return [
        phase | {"gpus": [spec.needs.slots], "images_per_second": [rate]}
        for phase, rate in zip(phases_of(spec), rates, strict=True)
    ]


def _phases(said: GivenThroughput) -> list[PhaseTable]:
    """Return the phases that options describe: none, a single one, or several by --phase."""
    for option, values in {"--gpus": said.gpus, "--images-per-second": said.rates}.items():
        hint = "pass it once; describe several phases of an outline with --phase"
        refuse(len(values) > 1, f"{option} is given {times_given(values)}", hint=hint)
    counts = numbers("--gpus", said.gpus[0] if said.gpus else None)
    rate = numbers("--images-per-second", said.rates[0] if said.rates else None)
    simple = given_options({"samples": parse_number(said.samples), "gpus": counts, "images_per_second": rate})
    if simple and said.phases:
        raise BadInput(
            "phases are given twice",
            hint="pass either --phase, or --samples, --gpus and --images-per-second of a single phase",
        )
    return [simple] if simple else [phase_of(text) for text in said.phases]


def _joined(
    file: dict[str, Any], phases: list[PhaseTable], settings: dict[str, Any], tables: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Return the outline of the file, overridden by the options."""
    if phases and "phases" in file:
        raise BadInput("phases are given twice", hint="describe them either in the outline or by options")
    unlike = {"gpu": ("usd_per_gpu_hour", "usd_per_gpu_hour_at"), "usd_per_gpu_hour": ("gpu",)}
    given = given_options(settings)
    replaced = {name for option, others in unlike.items() if option in given for name in others}
    kept = {name: value for name, value in file.items() if name not in replaced}
    asked = kept | given | ({"phases": phases} if phases else {})
    if "phases" not in asked:
        hint = "pass an outline, or --samples, --gpus, --images-per-second and --usd-per-gpu-hour"
        raise BadInput("there is no phase to estimate", hint=hint)
    for name, table_ in tables.items():
        own = given_options(_numbers(table_))
        if own:
            before = asked.get(name, {})
            asked[name] = before | own if isinstance(before, dict) else before
    return asked


def _with_batch(asked: dict[str, Any], batch: dict[str, str | None]) -> dict[str, Any]:
    """Set the batch of all phases that do not have their own."""
    own = given_options(_numbers(batch))
    phases = asked.get("phases")
    if not own or not isinstance(phases, list):
        return asked
    return asked | {"phases": [own | phase if isinstance(phase, dict) else phase for phase in phases]}
