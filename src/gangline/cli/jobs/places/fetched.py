"""The plan of a LoRA's training whose photos the server fetches: as data, on the terminal, and as it is submitted."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.cli.bundled.place import here_or_bundled
from gangline.cli.jobs.plan.base import Known
from gangline.cli.jobs.plan.document import Answer, PlanDocument, shared
from gangline.cli.jobs.plan.files import Files, Model, find_base, find_vae
from gangline.cli.jobs.plan.make import check_model, class_row, find_class_photos, find_lora, known_of, learns_row
from gangline.cli.jobs.plan.outlook import estimates
from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.models.bases import Role
from gangline.core.parsing import to_json
from gangline.core.specs.fields import FilesBase, base_to_json
from gangline.core.specs.lora import LoraSpec, parse_lora, refuse_idle_gpus
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.wire.client import Client

STAND_IN = File(path="photo", bytes=0, sha256="0" * 64)
NEED_A_FOLDER = {"masks": "--masks", "hold_out": "--hold-out"}
LIE_HERE = ("base", "vae", "init_lora", "class_photos", "class_captions")
NOTE = "the photos are counted when they are here: reading and encoding them is in the time as if there were one"


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
    files: dict[str, Files]
    models: dict[Role, Model]
    known: Known
    known_vae: Known | None
    told: tuple[str, ...]

    @property
    def files_count(self) -> int:
        sent = [*self.files.values(), *(model for model in self.models.values() if isinstance(model, Files))]
        return sum(len(files.paths) for files in sent)

    def rows(self) -> list[tuple[str, str]]:
        spec, more = self.spec, len(self.photos) - 1
        rows = [
            (
                "photos",
                f"{self.photos[0]['url']}{f' and {more} more' * (more > 0)}: the server fetches and checks them",
            ),
            ("steps", f"{counted(spec.steps, 'step')}, batch size {spec.batch_size}"),
            ("learns", learns_row(spec)),
        ]
        return rows + ([("class", class_row(spec))] if spec.class_prompt else [])

    def hand_in(self, client: "Client", tell: Callable[[File], None]) -> dict[str, Any]:
        """Upload what lies here, and return the spec for the server to complete."""

        def sent(files: Files) -> tuple[File, ...]:
            return client.hand_in(files.paths, files.below, tell)

        parts: dict[str, Any] = {
            role: base_to_json(FilesBase(files=sent(model)) if isinstance(model, Files) else model)
            for role, model in self.models.items()
        }
        for name, files in self.files.items():
            described = [to_json(file) for file in sent(files)]
            parts[name] = described[0] if name == "init_lora" else described
        read = to_json(self.spec)
        return {"kind": "lora"} | {name: read[name] for name in self.settings} | parts | {"photos": self.photos}


def fetched_plan(settings: dict[str, Any], photos: list[dict[str, Any]]) -> FetchedPlan:
    """Check all that can be known without the photos. Raises `BadInput`."""
    given = next((option for name, option in NEED_A_FOLDER.items() if settings.get(name)), None)
    if given:
        raise BadInput(f"{given} needs photos on this machine", hint="give their folder, and they are uploaded")
    if not settings.get("base"):
        raise BadInput(
            "no base model is given", hint="pass --base with a folder, a .safetensors file, a hub id or a name"
        )
    rest = {name: value for name, value in settings.items() if name not in (*LIE_HERE, "photos", "kind")}
    stand_ins: dict[str, Any] = {"base": FilesBase(files=(STAND_IN,)), "photos": (STAND_IN,)}
    own = (STAND_IN,) if settings.get("class_photos") else ()
    spec = parse_lora(rest | stand_ins | {"class_photos": own}, options=True)
    refuse_idle_gpus(spec)
    named = {
        role: here_or_bundled(name) if isinstance(name, str) else name
        for role in ("base", "vae")
        if (name := settings.get(role))
    }
    models: dict[Role, Model] = {"base": find_base(named["base"])}
    if "vae" in named:
        models["vae"] = find_vae(named["vae"])
    known = {role: known_of(role, named[role], model) for role, model in models.items()}
    base = known["base"].model
    check_model(spec, base)
    told: list[str] = []
    files: dict[str, Files] = {}
    if settings.get("init_lora"):
        files["init_lora"] = find_lora(Path(settings["init_lora"]), base)
    if settings.get("class_photos"):
        files |= find_class_photos(Path(settings["class_photos"]), spec.class_prompt or "", told.append)
    unsent: dict[str, Any] = {name: found.unsent() for name, found in files.items()}
    if "init_lora" in unsent:
        unsent["init_lora"] = unsent["init_lora"][0]
    for role, model in models.items():
        unsent[role] = FilesBase(files=model.unsent()) if isinstance(model, Files) else model
    return FetchedPlan(
        spec=replace(spec, **unsent),
        settings=tuple(rest),
        photos=photos,
        files=files,
        models=models,
        known=known["base"],
        known_vae=known.get("vae"),
        told=(*told, NOTE),
    )


def fetched_document(plan: FetchedPlan, answer: Answer) -> FetchedDocument:
    spec = plan.spec
    found = estimates(spec, plan.known, answer.placed)
    return FetchedDocument(
        **shared(spec, plan.known, plan.known_vae, answer, found, notes=plan.told),
        photos=tuple(place["url"] for place in plan.photos),
        steps=spec.steps,
        batch_size=spec.batch_size,
        rank=spec.rank,
    )
