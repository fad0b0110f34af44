"""Submit an experiment: all its jobs in one transaction, held until the experiment releases them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from gangline.core.canonical import canonical_json, digest
from gangline.core.datasets.names import DatasetReference
from gangline.core.display import NAME_MAX
from gangline.core.errors import BadInput, Unreachable
from gangline.core.experiments.grid import Combination, combination_words, combinations, varied, with_combination
from gangline.core.experiments.halving import check_halving
from gangline.core.experiments.takes import chosen_measure, held_out_interval
from gangline.core.experiments.terms import FILES_MAX, SEED_MAX, ExperimentAsked, Measure
from gangline.core.files import File
from gangline.core.job import HELD
from gangline.core.parsing import InvalidSpec, Problem, to_json
from gangline.core.places.places import names_places
from gangline.core.runs.prepared import subjects
from gangline.core.specs.command import CommandSpec
from gangline.core.specs.kinds import DEFAULT_KIND, KINDS, SUBMITTED, needs_prepared_files
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sample import TrainingSpec
from gangline.core.specs.spec import Spec, parse_submitted, spec_hash, workload
from gangline.core.words import counted
from gangline.ports.store import Write, write
from gangline.service.access.requests import KeyedRequest, made_before, recording
from gangline.service.access.secrets import check_secrets
from gangline.service.attempts import event
from gangline.service.content.bases import pinned, with_base_named
from gangline.service.content.blobs import check_here, naming
from gangline.service.content.mirror import copied_files
from gangline.service.datasets.named import NamedVersion, naming_version, remembering_version, with_dataset_named
from gangline.service.datasets.versions import find_version
from gangline.service.deployment import Deployment
from gangline.service.jobs.submit import adding, check_sets, picture_rhythm

BEGINS = "its first jobs are released with the server's next look"
DIGITS = 3
"""Jobs are numbered with at least this many digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A job that will be submitted, with the settings in which it differs."""

    settings: Combination
    seed: int
    spec: Spec
    prepares: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedExperiment:
    """Everything that is checked before an experiment is submitted. `combinations` is the number of its jobs without their seeds."""

    name: str
    settings: tuple[str, ...]
    combinations: int
    runs: tuple[PlannedRun, ...]
    measure: Measure
    dataset: NamedVersion | None


def submit_all(
    deployment: Deployment,
    project: str,
    asked: ExperimentAsked,
    price: Callable[[PlannedExperiment], float | None],
    now_ms: int,
    *,
    owner: str,
    request: KeyedRequest | None,
) -> str:
    """Submit all jobs of an experiment, or none, and return its id, or that of the experiment that the same `request` made before.

    `price` returns the expected price of a step in micro-dollars. Raise `BadInput` or `InvalidSpec`.
    """
    before = made_before(deployment, request)
    if before:
        return before
    planned = plan_runs(deployment, project, asked)
    files = _input_files(planned.runs)
    _check(deployment, project, planned, files)
    experiment = deployment.new_id("experiment")
    shared = sorted({file.sha256 for file in files.values()})
    added = deployment.store.apply(
        *recording(request, experiment, now_ms),
        *naming(project, files.values(), now_ms),
        *naming_version(planned.dataset, now_ms),
        write("add_project", id=project),
        write(
            "add_experiment",
            id=experiment,
            project=project,
            name=planned.name,
            owner=owner,
            settings=canonical_json(list(planned.settings)),
            measure=planned.measure,
            at_once=asked.at_once,
            budget=None if asked.budget_usd is None else round(asked.budget_usd * 1e6),
            halving=canonical_json(to_json(asked.halving)) if asked.halving else "",
            because=BEGINS,
            price=price(planned),
            now=now_ms,
        ),
        *(write("add_experiment_file", project=project, sha256=each, experiment=experiment) for each in shared),
        *_adding_runs(deployment, project, experiment, planned, asked, owner, now_ms),
    )
    if added:
        return experiment
    before = made_before(deployment, request)
    if before:
        return before
    check_here(deployment, project, files)
    if planned.dataset:
        find_version(deployment, project, DatasetReference(name=planned.dataset.name, number=planned.dataset.number))
    raise Unreachable("files of these jobs are being deleted, as nothing used them", hint="try again in a minute")


def plan_runs(deployment: Deployment, project: str, asked: ExperimentAsked) -> PlannedExperiment:
    """Return the jobs of an experiment as they would be submitted. Raise `BadInput` or `InvalidSpec` for the first that could not be."""
    value, dataset = with_dataset_named(deployment, project, asked.spec)
    if names_places(value.get("photos")):
        raise BadInput(
            "photos: the server fetches the photos of single jobs only", hint="upload the photos of an experiment"
        )
    if asked.spec.get("deliver"):
        raise BadInput(
            "deliver: the jobs of an experiment would overwrite each other's files in one place",
            hint="submit it without; `gangline artifacts download` has the results of each job",
        )
    found = combinations(asked, _class_of(value))
    _refuse_too_many_files(value, found, asked.seeds)
    models, runs = _Models(deployment, project), list[PlannedRun]()
    # what is varied in every job would else be in the common spec unread, whatever it is
    parse_submitted(models.named(with_combination(value, _lacking(value, found[0]))))
    for number, combination in enumerate(found, 1):
        spec = _read(models, value, combination, f"job {number} ({combination_words(combination)})")
        first = _seed_of(spec, asked.seeds, combination)
        for seed in range(first, first + asked.seeds):
            seeded = replace(spec, seed=seed) if isinstance(spec, TrainingSpec) else spec
            runs.append(PlannedRun(settings=combination, seed=seed, spec=seeded, prepares=_prepares(seeded)))
    _refuse_equal(runs)
    measure = chosen_measure(asked.measure, [run.spec for run in runs])
    if asked.halving:
        every = {held_out_interval(run.spec) for run in runs}
        check_halving(asked.halving, {run.spec.steps for run in runs}, every)
    return PlannedExperiment(
        name=asked.name or runs[0].spec.title,
        settings=varied(found),
        combinations=len(found),
        runs=tuple(runs),
        measure=measure,
        dataset=dataset,
    )


def _class_of(spec: dict[str, Any]) -> type:
    kind = spec.get("kind", DEFAULT_KIND)
    return next((each for each in SUBMITTED if each.name == kind), KINDS[DEFAULT_KIND]).spec


def _lacking(spec: dict[str, Any], combination: Combination) -> Combination:
    return {name: value for name, value in combination.items() if name not in spec and "." not in name}


def _read(models: "_Models", value: dict[str, Any], combination: Combination, called: str) -> Spec:
    """Return the spec of one combination. Raise `InvalidSpec` that names the job if only its own settings are to blame."""
    try:
        return models.pinned(parse_submitted(models.named(with_combination(value, combination))))
    except InvalidSpec as error:
        if not combination:
            raise
        first = error.problems[0]
        raise InvalidSpec(
            (Problem(first.field, f"{first.message}, in {called}"), *error.problems[1:]), hint=error.hint
        ) from None


def _seed_of(spec: Spec, seeds: int, combination: Combination) -> int:
    if not isinstance(spec, TrainingSpec):
        if seeds > 1:
            raise BadInput(f"seeds: a job of kind {spec.kind} has no seed", hint="vary another of its settings instead")
        return 0
    if seeds > 1 and "seed" in combination:
        raise BadInput("seeds: the seed is varied already", hint="give seeds, or vary the seed")
    if spec.seed + seeds - 1 > SEED_MAX:
        raise BadInput(
            f"seeds: {spec.seed} and the {seeds - 1} after it are more than {SEED_MAX}", hint="give a smaller seed"
        )
    return spec.seed


def _prepares(spec: Spec) -> str:
    """Return what is equal for jobs that can use the same prepared files; empty if they prepare none."""
    return digest(subjects(cast(LoraSpec, spec)))[:16] if needs_prepared_files(spec) else ""


def _refuse_equal(runs: Sequence[PlannedRun]) -> None:
    """Raise `BadInput` if two jobs ask for the same, though they are written otherwise, such as 1 and 1.0."""
    seen = dict[str, PlannedRun]()  # by digests: a thousand specs may be a gigabyte
    for run in runs:
        other = seen.setdefault(digest(to_json(run.spec)), run)
        if other is not run:
            raise BadInput(
                f"{combination_words(other.settings)} and {combination_words(run.settings)} ask for the same job",
                hint="leave one of them out",
            )


def _refuse_too_many_files(common: dict[str, Any], found: Sequence[Combination], seeds: int) -> None:
    """Raise `BadInput` for more names of files than one request may make the server read, before the spec of any job is read."""
    in_common = _files_in(common)
    count = seeds * sum(in_common + _files_in(combination) for combination in found)
    if count > FILES_MAX:
        raise BadInput(
            f"{counted(len(found) * seeds, 'job')} would name {count:,} input files together, and the most is {FILES_MAX:,}",
            hint="submit fewer jobs at once, or train on fewer files",
        )


def _files_in(value: Any) -> int:
    """Return how many files a JSON value names."""
    if isinstance(value, Mapping):
        return 1 if "sha256" in value else sum(map(_files_in, value.values()))
    return sum(map(_files_in, value)) if isinstance(value, list | tuple) else 0


def _input_files(runs: Sequence[PlannedRun]) -> dict[str, File]:
    """Return the files of all jobs by their paths. Where jobs have different files of one path, such as two bases, each is there."""
    found = dict[str, File]()
    for run in runs:
        for path, file in run.spec.input_files().items():
            if found.setdefault(path, file).sha256 != file.sha256:
                found[f"{path} ({file.sha256[:12]})"] = file
    return found


@dataclass(slots=True)
class _Models:
    """Models of specs, each looked up once: hundreds of jobs have the same base."""

    deployment: Deployment
    project: str
    names: dict[str, dict[str, Any]] = field(default_factory=dict)
    found: dict[str, Spec] = field(default_factory=dict)

    def named(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return the spec with its models' names resolved."""
        asked = {role: value[role] for role in ("base", "vae", "prediction_type") if role in value}
        if not any(isinstance(asked.get(role), str) for role in ("base", "vae")):
            return value
        key = canonical_json(asked)
        if key not in self.names:
            self.names[key] = with_base_named(self.deployment, self.project, asked)
        return value | self.names[key]

    def pinned(self, spec: Spec) -> Spec:
        """Return the spec with its models pinned."""
        if not isinstance(spec, TrainingSpec):
            return spec
        key = canonical_json([to_json(spec.base), to_json(spec.vae) if spec.vae else None, spec.base_licence])
        if key not in self.found:
            self.found[key] = pinned(self.deployment, self.project, spec)
        known = cast(LoraSpec, self.found[key])
        return replace(spec, base=known.base, base_licence=known.base_licence, vae=known.vae)


def _check(deployment: Deployment, project: str, planned: PlannedExperiment, files: dict[str, File]) -> None:
    check_here(deployment, project, files)
    for run in planned.runs:
        check_sets(run.spec)
    first = planned.runs[0].spec
    if isinstance(first, CommandSpec):
        check_secrets(deployment, project, first.secrets)


def _adding_runs(
    deployment: Deployment,
    project: str,
    experiment: str,
    planned: PlannedExperiment,
    asked: ExperimentAsked,
    owner: str,
    now_ms: int,
) -> list[Write]:
    because, copied = f"waits for its experiment {planned.name}", dict[str, int]()
    writes, digits = list[Write](), max(DIGITS, len(str(len(planned.runs))))
    for number, run in enumerate(planned.runs, 1):
        name, job = f"{planned.name[: NAME_MAX - 8]}-{number:0{digits}d}", deployment.new_id("job")
        spec = replace(run.spec, output_name=name) if _is_unnamed(run.spec) else run.spec
        models = canonical_json([spec.base.id, spec.vae.id if spec.vae else ""])
        if models not in copied:
            copied[models] = sum(file.bytes for file in copied_files(deployment, project, spec).values())
        writes += [
            adding(
                spec,
                spec,
                id=job,
                project=project,
                name=name,
                spec_hash=spec_hash(spec),
                request=None,
                because=because,
                steps=spec.steps,
                workload=workload(spec),
                copied_bytes=copied[models],
                fetching=HELD,
                exact=spec.exact,
                owner=owner,
                fingerprint=None,
                now=now_ms,
            ),
            *(write("put_label", job=job, key=key, value=value) for key, value in asked.labels.items()),
            *remembering_version(job, project, planned.dataset),
            *picture_rhythm(spec, job, now_ms),
            event(job, "submitted", because, now_ms),
            write(
                "add_experiment_run",
                job=job,
                experiment=experiment,
                number=number,
                settings=canonical_json(run.settings),
                seed=run.seed,
                prepares=run.prepares,
            ),
        ]
    return writes


def _is_unnamed(spec: Spec) -> bool:
    return isinstance(spec, LoraSpec) and not spec.output_name
