"""What is known of a base before a job is submitted: of files here, of what is in the object store, of a model on the hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gangline.compose.hub import look_up_for_user
from gangline.core.errors import BadInput, Unreachable
from gangline.core.models.bases import ModelRole
from gangline.core.models.families import Family
from gangline.core.models.licence import licence_of
from gangline.core.models.recognition import RecognisedModel
from gangline.core.specs.fields import FilesBase, HubBase
from gangline.core.specs.lora import LoraSpec
from gangline.data.bases import describe_base

if TYPE_CHECKING:
    from gangline.service.content.on_hub import OnHub


class LookUp(Protocol):
    def __call__(self, model: HubBase, role: ModelRole, *, whole: bool) -> "OnHub": ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBase:
    """`bytes`: what a node fetches of it, None where nobody could say; `revision` is a commit. Of a model on the hub, `gated` says
    whether its owner lets people in one by one, and `opens` whether this user's token does; `unknown` says why it could not be
    looked up. `family` may be known where `model`, what it was recognised as, is not."""

    name: str
    bytes: int | None = None
    revision: str | None = None
    gated: bool | None = None
    opens: bool | None = None
    licence: str = ""
    family: Family | None = None
    model: RecognisedModel | None = None
    unknown: str = ""


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


def of_content(base: FilesBase) -> KnownBase:
    """Return a base that was uploaded before, without looking into it again."""
    return KnownBase(name=base.id, bytes=sum(file.bytes for file in base.files))


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


def check_objective(spec: LoraSpec, base: RecognisedModel | None) -> None:
    """Raise `BadInput` if the trainer would, as far as that is known already."""
    predicts = base.prediction_type if base and spec.prediction_type == "auto" else spec.prediction_type
    if predicts == "epsilon" and base is not None and base.zero_terminal_snr:
        raise BadInput(
            "prediction_type cannot be epsilon, as this base was trained with v-prediction and zero terminal SNR",
            hint="leave prediction_type out",
        )
    if predicts == "epsilon" and spec.zero_terminal_snr:
        raise BadInput(
            "zero_terminal_snr needs a base that predicts velocity, but this base predicts noise",
            hint="leave zero_terminal_snr out, or use a base that predicts velocity",
        )
