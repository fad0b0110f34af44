"""The tiny base that comes with Gangline, for who wants to try it all on a machine without a card: one press adds it to the project."""

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from fastapi import Request

from gangline.core.jobs.keys import blob_key
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.form import SettingsForm
from gangline.core.views import BaseView
from gangline.data.bases import describe_base, files_of_base
from gangline.ports.server import Upload
from gangline.service.content import bases
from gangline.service.content.batches import missing_blobs
from gangline.service.deployment import Deployment
from gangline.web.new.values import FilledForm, form_of_recipe

NAME = "tiny-sdxl"
OF_PHOTOS = ("prompt", "class_prompt", "sample_prompts")
"""Settings that say what is in the photos, or draws it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyBase:
    """Where its files are, under which licence, and the `recipe` of the settings that suit it."""

    folder: Path
    licence: str
    recipe: str


def tiny_of(request: Request) -> TinyBase | None:
    tiny: TinyBase | None = request.app.state.tiny
    return tiny


def add_tiny_base(deployment: Deployment, project: str, tiny: TinyBase, now_ms: int) -> BaseView:
    """Store the files of the tiny base for a project, and name it. Doing it again changes nothing. Raise `BadInput` if another base has its
    name."""
    model, files = describe_base(tiny.folder), list[Upload]()
    for path in files_of_base(tiny.folder):
        content = path.read_bytes()
        name, digest = path.relative_to(tiny.folder).as_posix(), sha256(content).hexdigest()
        deployment.objects.write(blob_key(project, digest), content)
        files.append(Upload(path=name, bytes=len(content), sha256=digest))
    found = missing_blobs(deployment, project, files, now_ms)
    assert not found.missing, "they were written above"
    stated = bases.BaseStatement(
        family=model.family.name, prediction_type=model.prediction_type, licence=tiny.licence, because=model.because
    )
    return bases.add(deployment, project, NAME, FilesBase(files=tuple(files)), None, stated, now_ms)


def with_settings_of_tiny(form: SettingsForm, typed: FilledForm, recipe: str) -> FilledForm:
    """Return a form as somebody `typed` it, with the settings of the recipe that suit the tiny base. Prompts are of the photos: none is the
    recipe's."""
    suits = form_of_recipe(form, recipe).texts
    return replace(typed, texts={**typed.texts, **{name: suits[name] for name in suits if name not in OF_PHOTOS}})
