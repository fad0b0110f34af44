"""What is known of a base before a job is submitted: of files here, and of a model on the hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gangline.compose.hub import look_up_for_user
from gangline.core.errors import Unreachable
from gangline.core.models.bases import ModelRole
from gangline.core.models.licence import licence_of
from gangline.core.models.recognition import RecognisedModel
from gangline.core.plans.base import KnownBase
from gangline.core.specs.fields import HubBase
from gangline.data.bases import describe_base

if TYPE_CHECKING:
    from gangline.service.content.on_hub import OnHub


class LookUp(Protocol):
    def __call__(self, model: HubBase, role: ModelRole, *, whole: bool) -> "OnHub": ...


def of_files(path: Path, files: list[Path], *, role: ModelRole = "base") -> KnownBase:
    """Return what local files show of a base. Raises `BadInput` if they are not a base."""
    model = describe_base(path) if role == "base" else None
    return KnownBase(
        name=str(path),
        bytes=sum(file.stat().st_size for file in files),
        licence=licence_of_files(path, model),
        family=model.family if model else None,
        model=model,
    )


def licence_of_files(path: Path, model: RecognisedModel | None) -> str:
    """Return the licence that a folder's README states, else the one that a single file's metadata names, else nothing."""
    readme = path / "README.md"
    said = licence_of(readme.read_text(errors="replace")) if readme.is_file() else ""
    return said or (model.licence if model else "")


def of_hub(
    base: HubBase, role: ModelRole = "base", look_up: LookUp = look_up_for_user, *, whole: bool = True
) -> KnownBase:
    """Return what the hub shows of a model; with `whole`, all parts must have weights. A hub that does not answer is no
    error. Raises `BadInput` for a model that Gangline does not train, `NotFound` for none."""
    name = f"{base.repo} at {base.revision}"
    try:
        found = look_up(base, role, whole=whole)
    except Unreachable as error:
        return KnownBase(name=name, unknown=error.message)
    return KnownBase(
        name=name,
        bytes=found.bytes,
        revision=found.model.revision,
        gated=found.gated,
        opens=found.opens,
        licence=found.licence,
        family=found.family,
        model=found.recognised,
    )
