"""What is known of a base before a job is submitted, and whether the job's settings suit it."""

from dataclasses import dataclass, replace
from functools import lru_cache

from gangline.core.display import NAME_MAX, printable
from gangline.core.errors import BadInput
from gangline.core.estimates.layers import unet_layers
from gangline.core.models.bases import family_published_as
from gangline.core.models.families import FAMILIES, Family, check_clip_skip
from gangline.core.models.recognition import RecognisedModel
from gangline.core.specs.fields import Base, FilesBase
from gangline.core.specs.lora import LoraSpec
from gangline.core.views import BaseView

ASKED_LATER = "the hub is asked when the job is submitted, and `gangline bases add` asks it once for all jobs"


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

    @property
    def is_of_another_size(self) -> bool:
        """Return whether the estimates for the family's published size do not apply: by the U-Net's sizes where they are known, else by the
        bytes, of which each weight of a published U-Net takes at least one. A base of which neither is known is assumed to have that size.
        """
        if self.model and self.model.unet:
            return not self.model.is_of_published_size
        return self.family is not None and self.bytes is not None and self.bytes < _weights(self.family)


@lru_cache
def _weights(family: Family) -> int:
    """Return how many weights the U-Net of a family's published bases has."""
    return sum(layer.weights for layer in unet_layers(family.unet, family.resolution))


def of_content(base: FilesBase) -> KnownBase:
    """Return a base that was uploaded before, without looking into it again."""
    return KnownBase(name=base.id, bytes=sum(file.bytes for file in base.files))


def of_named(base: FilesBase, view: BaseView) -> KnownBase:
    """Return a base that was uploaded before with what the project's list says about it."""
    return replace(of_content(base), name=view.name, licence=view.licence, family=_family(view))


def of_spec(base: Base, view: BaseView | None) -> KnownBase:
    """Return what is known of a spec's base or VAE without asking the hub; `view` is its entry in the project's list, if it has one.

    Of a model on the hub, the family is that of the list, or the one whose authors published it under this name.
    """
    if isinstance(base, FilesBase):
        return of_named(base, view) if view else of_content(base)
    known = KnownBase(name=f"{base.repo} at {base.revision}", family=family_published_as(base.repo))
    if view:
        size = None if view.vae else view.bytes  # those of a VAE of its own are among them
        family = _family(view) or known.family
        return replace(known, bytes=size, revision=base.revision, licence=view.licence, family=family)
    return known if known.family else replace(known, unknown=ASKED_LATER)


def _family(view: BaseView) -> Family | None:
    return next((family for family in FAMILIES.values() if family.name == view.family), None)


def with_model(spec: LoraSpec, known: KnownBase, *, own_vae: bool) -> LoraSpec:
    """Return the settings with the base's licence. Raises `BadInput` if they do not suit the base, or if no VAE is there."""
    check_objective(spec, known.model)
    if known.model:
        check_clip_skip(known.model.family, spec.clip_skip)
        if not known.model.has_vae and not own_vae:
            raise BadInput(f"{known.name} has no VAE", hint="give one with --vae")
    return replace(spec, base_licence=spec.base_licence or printable(known.licence)[:NAME_MAX])


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
