"""The plan of a LoRA's training whose photos the server has or fetches: as data, on the terminal, and as it is submitted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from gangline.cli.bundled.place import here_or_bundled
from gangline.cli.jobs.plan.files import LocalFiles, ModelChoice, no_base
from gangline.cli.jobs.plan.make import (
    ALONE,
    LocalInputs,
    count_files,
    find_lora,
    find_models,
    joined_files,
    spec_of_settings,
    spec_with_files,
)
from gangline.cli.jobs.plan.photos import find_class_photos
from gangline.core.datasets.roles import MASKS, FileRole
from gangline.core.errors import BadInput
from gangline.core.files import STAND_IN, File
from gangline.core.models.bases import ModelRole
from gangline.core.parsing import to_json
from gangline.core.plans.base import KnownBase, with_model
from gangline.core.plans.document import Answer
from gangline.core.plans.rows import PlanRow
from gangline.core.plans.stored import stored_photos
from gangline.core.plans.view import JobPlanView, PlannedPhotos, fetched_from, job_plan, work_rows
from gangline.core.specs.fields import Base
from gangline.core.specs.lora import LoraSpec

if TYPE_CHECKING:
    from gangline.compose.client import Client
    from gangline.core.datasets.views import DatasetFileView, DatasetVersionView
    from gangline.wire.transfers import ProgressCallback

NEED_A_FOLDER = {"masks": "--masks", "hold_out": "--hold-out", "subjects": "--subject"}
OF_A_DATASET = {"masks": "--masks", "subjects": "--subject"}
LIE_HERE = ("base", "vae", "init_lora", "class_photos", "class_captions")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPlan:
    """`spec` with a stand-in for photos that are fetched; `settings` are those that were given.

    `photos`, and `held_out` if photos of a data set are, are what the server completes; `planned` is what is known of them.
    """

    spec: LoraSpec
    settings: tuple[str, ...]
    photos: list[dict[str, Any]] | str
    held_out: tuple[str, ...] = ()
    planned: PlannedPhotos
    files: LocalInputs
    models: dict[ModelRole, ModelChoice]
    known: KnownBase
    known_vae: KnownBase | None
    notes: tuple[str, ...]

    @property
    def files_count(self) -> int:
        return count_files(self.files, self.models)

    def rows(self) -> list[PlanRow]:
        return work_rows(self.spec, self.planned)

    def upload(self, client: "Client", progress: "ProgressCallback | None" = None) -> dict[str, Any]:
        """Upload what lies here, and return the spec for the server to complete."""

        def sent(files: LocalFiles) -> tuple[File, ...]:
            return client.files.upload(files.paths, files.below, progress=progress)

        read = to_json(spec_with_files(self.spec, self.files, self.models, sent))
        named = (*self.settings, *self.models, *self.files)
        held_out = {"held_out": list(self.held_out)} if self.held_out else {}
        return {"kind": "lora"} | {name: read[name] for name in named} | {"photos": self.photos} | held_out


def fetched_plan(settings: dict[str, Any], photos: list[dict[str, Any]]) -> FetchedPlan:
    """Check all that can be known without the photos. Raises `BadInput`."""
    _refuse(settings, NEED_A_FOLDER)
    return _plan(settings, photos, ALONE, lambda spec: fetched_from([place["url"] for place in photos]))


def dataset_plan(
    settings: dict[str, Any], version: "DatasetVersionView", files: "Sequence[DatasetFileView]"
) -> FetchedPlan:
    """Check all that can be known of a job on a version of a data set, which has these files. Raises `BadInput`."""
    _refuse(settings, OF_A_DATASET)
    if version.state != "ready":
        raise BadInput(
            f"{version.reference} is {version.state}: {version.because}",
            hint=f"`gangline datasets show {version.reference}` shows it",
        )
    held_out = tuple(settings.get("hold_out") or ())
    of_role = {role: [file for file in files if file.role == role] for role in get_args(FileRole)}
    missing = next((name for name in held_out if name not in {file.path for file in of_role["photo"]}), None)
    if missing is not None:
        raise BadInput(f"the photo to hold out, {missing}, is not in {version.reference}")
    kept = [file for file in of_role["photo"] if file.path not in held_out]
    stand_ins = {"photos": _as_files(kept), "captions": _as_files(of_role["caption"])}
    if held_out:
        stand_ins["held_out"] = _as_files([file for file in of_role["photo"] if file.path in held_out])
    if of_role["mask"] and settings.get("mask", "files") == "files":
        stand_ins["masks"] = _as_files(of_role["mask"])
        settings = settings | {"mask": "files"}
    sizes = {file.sha256: (file.width, file.height) for file in kept if file.width}

    def planned(spec: LoraSpec) -> PlannedPhotos:
        reference = version.reference
        return PlannedPhotos(addresses=(reference,), shown=reference, stored=stored_photos(spec, sizes))

    return replace(_plan(settings, version.reference, stand_ins, planned), held_out=held_out)


def plan_of_dataset(client: "Client", settings: dict[str, Any], version: "DatasetVersionView") -> FetchedPlan:
    """Read the list of a version's files, and plan a job on it as `dataset_plan`."""
    return dataset_plan(settings, version, list(client.datasets.files(version.name, version.number)))


def _refuse(settings: dict[str, Any], unwanted: dict[str, str]) -> None:
    given = next((option for name, option in unwanted.items() if settings.get(name)), None)
    if given:
        raise BadInput(
            f"{given} works only with photos on this machine",
            hint="pass a local folder of photos, which is then uploaded",
        )


def _as_files(found: "Sequence[DatasetFileView]") -> tuple[File, ...]:
    return tuple(File(path=file.path.removeprefix(f"{MASKS}/"), bytes=file.bytes, sha256=file.sha256) for file in found)


def _plan(
    settings: dict[str, Any],
    photos: list[dict[str, Any]] | str,
    stand_ins: Mapping[str, tuple[File, ...]],
    planned: Callable[[LoraSpec], PlannedPhotos],
) -> FetchedPlan:
    if not settings.get("base"):
        raise no_base()
    rest = {name: value for name, value in settings.items() if name not in (*LIE_HERE, "photos", "kind", "hold_out")}
    of_class = {"class_photos": (STAND_IN,)} if settings.get("class_photos") else {}
    spec = spec_of_settings(rest, {**stand_ins, **of_class})
    notes: list[str] = []
    vae = _here(settings["vae"], notes) if settings.get("vae") else None
    models, known = find_models(_here(settings["base"], notes), vae)
    spec = with_model(spec, known["base"], own_vae="vae" in known)
    files: LocalInputs = {}
    if settings.get("init_lora"):
        files["init_lora"] = (find_lora(Path(settings["init_lora"]), known["base"].model),)
    if settings.get("class_photos"):
        found = find_class_photos(Path(settings["class_photos"]), spec.class_prompt or "", notes.append)
        files |= joined_files([found])
    return FetchedPlan(
        spec=spec_with_files(spec, files, models, LocalFiles.unsent),
        settings=(*rest, *(["base_licence"] if spec.base_licence else [])),
        photos=photos,
        planned=planned(spec),
        files=files,
        models=models,
        known=known["base"],
        known_vae=known.get("vae"),
        notes=tuple(notes),
    )


def _here(model: str | Base, notes: list[str]) -> str | Base:
    return here_or_bundled(model, notes.append) if isinstance(model, str) else model


def fetched_document(plan: FetchedPlan, answer: Answer) -> JobPlanView:
    return job_plan(plan.spec, plan.planned, plan.known, plan.known_vae, answer, plan.notes)
