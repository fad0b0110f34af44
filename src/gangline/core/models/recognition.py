"""Recognise the model in a file or a folder from names, shapes and configurations alone. It reads no files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from gangline.core.errors import BadInput
from gangline.core.models.architecture import UNet, unet_of_config
from gangline.core.models.families import FAMILIES, Family, TextEncoder
from gangline.core.models.lora_names import KRONECKER, WeightRole, family_of_lora, split_key
from gangline.core.specs.fields import Prediction

WANTED = "give an SDXL, Stable Diffusion 1.x or 2.x text-to-image model"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorHeader:
    """A tensor in a safetensors file. `start` and `end` are in bytes from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header of a safetensors file called `name`, whose tensors begin at byte `data_start`."""

    name: str
    data_start: int
    tensors: Mapping[str, TensorHeader]
    metadata: Mapping[str, str]

    def has(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self.tensors)

    def has_encoder(self, encoder: TextEncoder) -> bool:
        return any(self.has(prefix) for prefix in encoder.prefixes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecognisedModel:
    """A base that can be trained. `because` says how the family and the prediction type were found, or that they are assumed. `unet` has
    the U-Net's sizes, None if there is no configuration. `licence` is the one that a single file's metadata names, else empty."""

    family: Family
    prediction_type: Prediction
    zero_terminal_snr: bool
    layout: Literal["diffusers", "single file"]
    because: str
    unet: UNet | None = None
    has_vae: bool = True
    licence: str = ""

    @property
    def is_of_published_size(self) -> bool:
        """Return whether the estimates for the family's published size apply to the base; a single file is assumed to have that size."""
        return self.unet is None or self.unet == self.family.unet


CONVERT = "convert it to safetensors where you trust it, or get the .safetensors that most authors publish beside it"


def no_safetensors(name: str, start: bytes = b"") -> BadInput:
    if start.startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return BadInput(f"{name} is a pickle under another name", hint=CONVERT)
    if start.startswith(b"GGUF"):
        return BadInput(f"{name} is in GGUF, which is for rendering only", hint="give the full model in safetensors")
    return BadInput(f"{name} is not a safetensors file, or is damaged", hint="download it again")


def header_of(name: str, value: Any, data_start: int, size: int) -> Header:
    """Return the header of a file, given its parsed JSON (`value`) and the length of the whole file (`size`). Raises `BadInput`."""
    try:
        metadata = {str(key): str(text) for key, text in value.pop("__metadata__", {}).items()}
        tensors = {tensor: _tensor(entry) for tensor, entry in value.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise no_safetensors(name) from None
    end = data_start + max((tensor.end for tensor in tensors.values()), default=0)
    if end > size:
        raise BadInput(f"{name} is cut off: it has {size} of {end} bytes", hint="download it again")
    return Header(name=name, data_start=data_start, tensors=tensors, metadata=metadata)


def _tensor(entry: Any) -> TensorHeader:
    start, end = (int(place) for place in entry["data_offsets"])
    if not 0 <= start <= end:
        raise ValueError("a tensor ends before it begins")
    return TensorHeader(
        dtype=str(entry["dtype"]), shape=tuple(int(side) for side in entry["shape"]), start=start, end=end
    )


def check_lora(header: Header, base: Family | None) -> None:
    """Raise `BadInput` if the file has no LoRA or LoKr, or one that is recognised as one of another family than the base."""
    layers: dict[str, dict[WeightRole, tuple[int, ...]]] = {}
    for name, tensor in header.tensors.items():
        if key := split_key(name):
            layers.setdefault(key[0], {})[key[1]] = tensor.shape
    if not any(layer.keys() & {"down", "up", *KRONECKER} for layer in layers.values()):
        raise BadInput(
            f"{header.name} is not a LoRA", hint="give a base model as `base`; LoHa and (IA)³ are not supported"
        )
    widths = {stem: width for stem, layer in layers.items() if (width := input_width(layer))}
    found = family_of_lora(widths)
    if base and found and found != base:
        raise BadInput(
            f"{header.name} is a LoRA of {found.words}, and the base is {base.words}",
            hint="take a LoRA and a base of the same family",
        )


def input_width(layer: Mapping[WeightRole, tuple[int, ...]]) -> int:
    """Return the width of a linear layer's input; 0 if its tensors do not show it."""
    down = layer.get("down", ())
    if len(down) > 1:
        return down[1]
    first, second = layer.get("lokr_w1", layer.get("lokr_w1_b", ())), layer.get("lokr_w2", layer.get("lokr_w2_b", ()))
    return first[1] * second[1] if len(first) > 1 and len(second) > 1 else 0


# Single files, as kohya's scripts, ComfyUI and Civitai have them

UNET = "model.diffusion_model."
VAE = "first_stage_model."
V_MARK, ZERO_SNR_MARK = "v_pred", "ztsnr"
"""Empty tensors by which ComfyUI, A1111 and Forge know a U-Net that predicts velocity, and noise with zero terminal SNR. The second counts
only beside the first."""
V_IN_METADATA = ("modelspec.prediction_type", "modelspec.predict_key")
"""ModelSpec's field, and the one that ComfyUI writes in its place."""
FIRST_CONV = f"{UNET}input_blocks.0.0.weight"
SIZES = f"{UNET}label_emb."
OPEN_CLIP_OF_THE_REFINER = "conditioner.embedders.0.model."
TELLS_V_OF_SD2 = f"{UNET}output_blocks.11.1.transformer_blocks.0.norm1.bias"
SPREAD_OF_EPSILON_MAX = 0.09

OTHER_ARCHITECTURES = (
    ("double_blocks.", "is a FLUX model"),
    ("joint_blocks.", "is a Stable Diffusion 3 model"),
    ("control_model.", "is a ControlNet"),
    ("controlnet_cond_embedding.", "is a ControlNet"),
    (VAE, "holds a VAE and no U-Net"),
    ("encoder.conv_in.", "is a VAE"),
    ("down_blocks.", "is one part of a model in diffusers' layout; the whole folder is needed"),
    ("input_blocks.", "holds a U-Net alone, without its text encoders and VAE"),
)
VARIANTS = tuple(variant for family in FAMILIES.values() for variant in family.variants)
OTHER_INPUTS = {9: "an inpainting model", 8: "an image editing model", 5: "a depth-to-image model", 7: "an upscaler"}
OTHER_PROCESSES = (
    ("edm_mean", "is trained on another noise process (EDM, as Playground v2.5 is)"),
    ("edm_vpred.sigma_max", "is trained on another noise process (EDM, as CosXL is)"),
)


def recognise_file(header: Header, spread: float | None = None) -> RecognisedModel:
    """Return the model in a single file. `spread` is the standard deviation of the tensor `TELLS_V_OF_SD2`, None if there is none."""
    _check_architecture(header)
    family, mark = _family_of_file(header)
    prediction, reason = _prediction_of_file(header, family, spread)
    zero = prediction == "v_prediction" and ZERO_SNR_MARK in header.tensors
    marked = f"; it is marked {ZERO_SNR_MARK}, so its noise has zero terminal SNR" * zero
    return RecognisedModel(
        family=family,
        prediction_type=prediction,
        zero_terminal_snr=zero,
        layout="single file",
        because=f"{mark}; {reason}{marked}",
        has_vae=header.has(VAE),
        licence=header.metadata.get("modelspec.license", ""),
    )


def _check_architecture(header: Header) -> None:
    if any(split_key(name) for name in header.tensors):
        raise BadInput(f"{header.name} is a LoRA, not a base", hint="to continue training a LoRA, give it as init_lora")
    if FIRST_CONV not in header.tensors:
        bare = {name.removeprefix(UNET) for name in header.tensors}
        for mark, what in OTHER_ARCHITECTURES:
            if any(name.startswith(mark) for name in bare):
                raise BadInput(f"{header.name} {what}", hint=WANTED)
        raise BadInput(f"{header.name} holds no model that Gangline knows", hint=WANTED)
    for mark, what in OTHER_PROCESSES:
        if mark in header.tensors:
            raise BadInput(f"{header.name} {what}", hint=WANTED)
    _check_inputs(header.name, header.tensors[FIRST_CONV].shape[1])


def _check_inputs(name: str, channels: int) -> None:
    if channels != 4:
        what = OTHER_INPUTS.get(channels, "not a text-to-image model")
        raise BadInput(f"{name} is {what}: its U-Net takes {channels} channels, not 4", hint=WANTED)


def _family_of_file(header: Header) -> tuple[Family, str]:
    has_sizes = header.has(SIZES)
    for family in FAMILIES.values():
        if family.has_sizes == has_sizes and header.has_encoder(family.text_encoders[-1]):
            return family, family.mark
    if header.has(OPEN_CLIP_OF_THE_REFINER) and has_sizes:
        raise BadInput(f"{header.name} is SDXL's refiner", hint="give the base model")
    if has_sizes:
        raise BadInput(f"{header.name} takes image embeddings or lacks SDXL's text encoders", hint=WANTED)
    raise BadInput(
        f"{header.name} holds no text encoder", hint="give a file with the U-Net, text encoders and VAE in one"
    )


def _prediction_of_file(header: Header, family: Family, spread: float | None) -> tuple[Prediction, str]:
    """Return the prediction type of a file and the reason: by a marker tensor, else by its metadata, else by a guess from the weights.

    The metadata of a merge may be that of one of its parts, so a marker overrides it. The spread of one bias distinguishes the published
    768-v weights of Stable Diffusion 2, and models derived from them, from 512-base: ComfyUI uses the same test.
    """
    if V_MARK in header.tensors:
        return "v_prediction", f"it is marked {V_MARK}"
    for field in V_IN_METADATA:
        said = header.metadata.get(field, "").lower()
        if said in ("v", "v_prediction", "v-prediction", "epsilon"):
            of = field.removeprefix("modelspec.")
            return "epsilon" if said == "epsilon" else "v_prediction", f"its metadata says {of} {said}"
    if header.metadata.get("ss_v_parameterization", "").lower() == "true":
        return "v_prediction", "its metadata says ss_v_parameterization"
    architecture = header.metadata.get("modelspec.architecture", "").lower()
    meant: list[Prediction] = [each.prediction for each in VARIANTS if architecture.startswith(each.architecture)]
    if len(meant) == 1:
        return meant[0], f"its metadata says {architecture}"
    if family.published == ("epsilon",):
        return "epsilon", "nothing in it mentions v-prediction, so epsilon is assumed"
    if spread is not None and spread > SPREAD_OF_EPSILON_MAX:
        return (
            "v_prediction",
            f"v-prediction is assumed, as the spread of its last attention's bias is {spread:.3f}, like 768-v's",
        )
    return "epsilon", "epsilon is assumed, as the spread of its last attention's bias is small, like 512-base's"


# Folders in diffusers' layout


def pipeline_of(name: str, index: Any) -> str:
    """Return the class in diffusers that a folder's model_index.json names. Raises `BadInput` if no family has it."""
    kind = index.get("_class_name")
    if not any(family.pipeline == kind for family in FAMILIES.values()):
        raise BadInput(f"{name} is a {kind}", hint=WANTED)
    return kind


def recognise_folder(name: str, pipeline: str, *, unet: Any, text_encoder: Any, scheduler: Any) -> RecognisedModel:
    """Return the model in a folder of this `pipeline`, recognised by the configurations of three of its parts. Raises `BadInput`."""
    _check_inputs(name, unet.get("in_channels", 4))
    _check_process(name, scheduler)
    family, mark = _family_of_folder(pipeline, unet, text_encoder)
    prediction = scheduler.get("prediction_type", "epsilon")
    if prediction not in get_args(Prediction):
        raise BadInput(f"{name} predicts the {prediction}, which Gangline does not train", hint=WANTED)
    return RecognisedModel(
        family=family,
        prediction_type=prediction,
        zero_terminal_snr=bool(scheduler.get("rescale_betas_zero_snr", False)),
        layout="diffusers",
        because=f"{mark}; its scheduler says {prediction}",
        unet=_size_of(unet),
    )


def _size_of(config: Any) -> UNet | None:
    try:
        return unet_of_config(config)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None


def _check_process(name: str, scheduler: Any) -> None:
    kind = str(scheduler.get("_class_name", ""))
    if kind.startswith(("EDM", "FlowMatch")):
        raise BadInput(f"{name} is trained on another noise process ({kind})", hint=WANTED)


def _family_of_folder(pipeline: str, unet: Any, text_encoder: Any) -> tuple[Family, str]:
    """Return the family by pipeline; if families share it, by the width of the text, else by the origin of the text encoder."""
    possible = [family for family in FAMILIES.values() if family.pipeline == pipeline]
    if len(possible) == 1:
        return possible[0], f"it is a {pipeline}"
    width = unet.get("cross_attention_dim")
    for family in possible:
        if family.text_width == width:
            return family, f"its U-Net attends to text of width {width}, as in {family.words}"
    origin = "OpenCLIP" if text_encoder.get("hidden_act") == "gelu" else "CLIP"
    return next((family, family.mark) for family in possible if family.text_encoders[0].origin == origin)
