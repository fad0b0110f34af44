"""The plan of a LoRA's training whose photos the server fetches: as data, on the terminal, and as it is submitted."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.cli.bundled.place import here_or_bundled
from gangline.cli.jobs.plan.base import KnownBase
from gangline.cli.jobs.plan.document import Answer, PlanDocument, shared
from gangline.cli.jobs.plan.files import LocalFiles, ModelChoice, no_base
from gangline.cli.jobs.plan.make import (
    ALONE,
    LocalInputs,
    class_row,
    count_files,
    find_lora,
    find_models,
    joined_files,
    lora_row,
    spec_of_settings,
    spec_with_files,
    with_model,
)
from gangline.cli.jobs.plan.outlook import estimates
from gangline.cli.jobs.plan.photos import find_class_photos
from gangline.core.errors import BadInput
from gangline.core.files import STAND_IN, File
from gangline.core.models.bases import ModelRole
from gangline.core.parsing import to_json
from gangline.core.specs.fields import Base
from gangline.core.specs.lora import LoraSpec
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.compose.client import Client
    from gangline.wire.transfers import ProgressCallback

NEED_A_FOLDER = {"masks": "--masks", "hold_out": "--hold-out", "subjects": "--subject"}
LIE_HERE = ("base", "vae", "init_lora", "class_photos", "class_captions")
NOTE = (
    "the number of photos is known once they are fetched; until then the time includes the reading and encoding of "
    "one photo"
)


@dataclass(frozen=True, kw_only=True)
class FetchedDocument(PlanDocument):
    """`photos`: the addresses that the server fetches from."""

    photos: tuple[str, ...]
    steps: int
    batch_size: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPlan:
    """`spec` with a stand-in for the photos; `settings` are those that were given."""

    spec: LoraSpec
    settings: tuple[str, ...]
    photos: list[dict[str, Any]]
    files: LocalInputs
    models: dict[ModelRole, ModelChoice]
    known: KnownBase
    known_vae: KnownBase | None
    notes: tuple[str, ...]

    @property
    def files_count(self) -> int:
        return count_files(self.files, self.models)

    def rows(self) -> list[tuple[str, str]]:
        spec, more = self.spec, len(self.photos) - 1
        rows = [
            (
                "photos",
                f"{self.photos[0]['url']}{f' and {more} more' * (more > 0)}: the server fetches and checks them",
            ),
            ("steps", f"{counted(spec.steps, 'step')}, batch size {spec.batch_size}"),
            ("LoRA", lora_row(spec)),
        ]
        return rows + ([("class", class_row(spec.all_subjects[0]))] if spec.class_prompt else [])

    def upload(self, client: "Client", progress: "ProgressCallback | None" = None) -> dict[str, Any]:
        """Upload what lies here, and return the spec for the server to complete."""

        def sent(files: LocalFiles) -> tuple[File, ...]:
            return client.files.upload(files.paths, files.below, progress=progress)

        read = to_json(spec_with_files(self.spec, self.files, self.models, sent))
        named = (*self.settings, *self.models, *self.files)
        return {"kind": "lora"} | {name: read[name] for name in named} | {"photos": self.photos}


def fetched_plan(settings: dict[str, Any], photos: list[dict[str, Any]]) -> FetchedPlan:
    """Check all that can be known without the photos. Raises `BadInput`."""
    given = next((option for name, option in NEED_A_FOLDER.items() if settings.get(name)), None)
    if given:
        raise BadInput(
            f"{given} works only with photos on this machine",
            hint="pass a local folder of photos, which is then uploaded",
        )
    if not settings.get("base"):
        raise no_base()
    rest = {name: value for name, value in settings.items() if name not in (*LIE_HERE, "photos", "kind")}
    of_class = {"class_photos": (STAND_IN,)} if settings.get("class_photos") else {}
    spec = spec_of_settings(rest, {**ALONE, **of_class})
    models, known = find_models(_here(settings["base"]), _here(settings["vae"]) if settings.get("vae") else None)
    spec = with_model(spec, known["base"], own_vae="vae" in known)
    notes: list[str] = []
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
        files=files,
        models=models,
        known=known["base"],
        known_vae=known.get("vae"),
        notes=(*notes, NOTE),
    )


def _here(model: str | Base) -> str | Base:
    return here_or_bundled(model) if isinstance(model, str) else model


def fetched_document(plan: FetchedPlan, answer: Answer) -> FetchedDocument:
    spec = plan.spec
    found = estimates(spec, plan.known, answer.placed)
    return FetchedDocument(
        **shared(spec, plan.known, plan.known_vae, answer, found, notes=plan.notes),
        photos=tuple(place["url"] for place in plan.photos),
        steps=spec.steps,
        batch_size=spec.batch_size,
        rank=spec.rank,
    )
