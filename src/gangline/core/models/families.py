"""Declare the families of base models that Gangline trains. Each is declared here only, and no other module spells its name.

A family decides the text encoders, the U-Net's conditioning, the sizes, and the names that other tools use in its LoRAs. Classes of
libraries are named by strings: this module knows neither torch nor diffusers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from gangline.core.errors import BadInput
from gangline.core.models.architecture import TextTransformer, UNet, text_of_config, unet_of_config
from gangline.core.specs.fields import Prediction

FamilyName = Literal["sdxl", "sd15", "sd2"]
"""A family's name in the API, on the command line and in files."""
Bits = Literal[8, 4]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEncoder:
    """A text encoder of a family: `part` is its folder in diffusers' layout, `model` its class in transformers.

    A single file has its tensors under one of `prefixes`, kohya's LoRAs under `kohya_prefix`. `without_last` says that diffusers omits its
    last layer, which nothing reads. `reads` is the layer whose hidden states the U-Net gets. `shape` is that of the published bases.
    """

    part: Literal["text_encoder", "text_encoder_2"]
    origin: Literal["CLIP", "OpenCLIP"]
    model: Literal["CLIPTextModel", "CLIPTextModelWithProjection"]
    prefixes: tuple[str, ...]
    kohya_prefix: str
    shape: TextTransformer
    without_last: bool = False
    reads: Literal["last", "penultimate"] = "last"

    @property
    def is_pooled(self) -> bool:
        """Return whether the U-Net also gets the encoder's pooled output."""
        return self.model == "CLIPTextModelWithProjection"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The bases of a family whose U-Net has this prediction type, with the names that other tools give them.

    `published` says that the family's authors published such a base.
    """

    prediction: Prediction
    published: bool
    kohya_version: str
    architecture: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The common properties of all bases of a family. Lengths are in pixels, widths in channels.

    Its names are `words` in a sentence, `title` on a model card and `tag` on the hub; `mark` says by what a file is recognised as one.
    `pipeline` is its class in diffusers. `text_width` is the width that the U-Net's cross-attention reads. `has_sizes` says that the U-Net
    is conditioned on pooled text and image sizes (Podell et al. 2023, §2.2), `zero_empty` that an empty prompt was zeros in its training.
    `attention_heads` is the number in every layer; None if a head has a fixed width. `resolution` is that of its first base; above
    `resolution_max` it repeats the subject. `unet` has the sizes of the published bases, which are `published_as` on the hub. `kohya_unet`
    is the layout by which kohya's scripts name the U-Net's modules.
    """

    name: FamilyName
    words: str
    title: str
    tag: str
    mark: str
    pipeline: str
    text_encoders: tuple[TextEncoder, ...]
    text_width: int
    has_sizes: bool
    zero_empty: bool
    attention_heads: int | None
    latent_scale: float
    resolution: int
    resolution_max: int
    variants: tuple[Variant, ...]
    unet: UNet
    published_as: tuple[str, ...]
    kohya_unet: Literal["diffusers", "original"]
    kohya_v2: bool
    implementation: str

    @property
    def text_parts(self) -> tuple[str, ...]:
        return tuple(encoder.part for encoder in self.text_encoders)

    @property
    def published(self) -> tuple[Prediction, ...]:
        """Return the prediction types of published bases. A base that does not state its type has one of these."""
        return tuple(variant.prediction for variant in self.variants if variant.published)

    def variant(self, prediction: Prediction) -> Variant:
        return next(variant for variant in self.variants if variant.prediction == prediction)


CLIP_L = TextTransformer(width=768, layers=12, inner=3072)
"""The text encoder of OpenAI's CLIP ViT-L/14."""

SDXL = Family(
    name="sdxl",
    words="SDXL",
    title="SDXL",
    tag="stable-diffusion-xl",
    mark="it has SDXL's second text encoder and size conditioning",
    pipeline="StableDiffusionXLPipeline",
    text_encoders=(
        TextEncoder(
            part="text_encoder",
            origin="CLIP",
            model="CLIPTextModel",
            prefixes=("conditioner.embedders.0.transformer.",),
            kohya_prefix="lora_te1",
            shape=CLIP_L,
            reads="penultimate",
        ),
        TextEncoder(
            part="text_encoder_2",
            origin="OpenCLIP",
            model="CLIPTextModelWithProjection",
            prefixes=("conditioner.embedders.1.model.",),
            kohya_prefix="lora_te2",
            shape=TextTransformer(width=1280, layers=32, inner=5120, projection=1280),
            reads="penultimate",
        ),
    ),
    text_width=2048,
    has_sizes=True,
    zero_empty=True,
    attention_heads=None,
    latent_scale=0.13025,
    resolution=1024,
    resolution_max=1280,
    variants=(
        Variant(
            prediction="epsilon",
            published=True,
            kohya_version="sdxl_base_v1-0",
            architecture="stable-diffusion-xl-v1-base",
        ),
        Variant(
            prediction="v_prediction",
            published=False,
            kohya_version="sdxl_base_v1-0",
            architecture="stable-diffusion-xl-v1-base",
        ),
    ),
    unet=UNet(
        channels=(320, 640, 1280),
        depths=(0, 2, 10),
        middle_depth=10,
        text_width=2048,
        linear_projection=True,
        sizes_width=2816,
    ),
    published_as=("stabilityai/stable-diffusion-xl-base-1.0",),
    kohya_unet="original",
    kohya_v2=False,
    implementation="https://github.com/Stability-AI/generative-models",
)

SD15 = Family(
    name="sd15",
    words="Stable Diffusion 1",
    title="Stable Diffusion 1.x",
    tag="stable-diffusion",
    mark="its text encoder is CLIP's, as in Stable Diffusion 1",
    pipeline="StableDiffusionPipeline",
    text_encoders=(
        TextEncoder(
            part="text_encoder",
            origin="CLIP",
            model="CLIPTextModel",
            prefixes=("cond_stage_model.transformer.",),
            kohya_prefix="lora_te",
            shape=CLIP_L,
        ),
    ),
    text_width=768,
    has_sizes=False,
    zero_empty=False,
    attention_heads=8,
    latent_scale=0.18215,
    resolution=512,
    resolution_max=768,
    variants=(
        Variant(prediction="epsilon", published=True, kohya_version="sd_v1", architecture="stable-diffusion-v1"),
        Variant(
            prediction="v_prediction", published=False, kohya_version="sd_v1_v", architecture="stable-diffusion-v1"
        ),
    ),
    unet=UNet(
        channels=(320, 640, 1280, 1280), depths=(1, 1, 1, 0), middle_depth=1, text_width=768, linear_projection=False
    ),
    published_as=(
        "CompVis/stable-diffusion-v1-4",
        "runwayml/stable-diffusion-v1-5",
        "stable-diffusion-v1-5/stable-diffusion-v1-5",
    ),
    kohya_unet="diffusers",
    kohya_v2=False,
    implementation="diffusers",
)

SD2 = Family(
    name="sd2",
    words="Stable Diffusion 2",
    title="Stable Diffusion 2.x",
    tag="stable-diffusion",
    mark="its text encoder is OpenCLIP's, as in Stable Diffusion 2",
    pipeline="StableDiffusionPipeline",
    text_encoders=(
        TextEncoder(
            part="text_encoder",
            origin="OpenCLIP",
            model="CLIPTextModel",
            prefixes=("cond_stage_model.model.", "conditioner.embedders.0.model."),
            kohya_prefix="lora_te",
            shape=TextTransformer(width=1024, layers=23, inner=4096),
            without_last=True,
        ),
    ),
    text_width=1024,
    has_sizes=False,
    zero_empty=False,
    attention_heads=None,
    latent_scale=0.18215,
    resolution=512,
    resolution_max=768,
    variants=(
        Variant(prediction="epsilon", published=True, kohya_version="sd_v2", architecture="stable-diffusion-v2-512"),
        Variant(
            prediction="v_prediction",
            published=True,
            kohya_version="sd_v2_v",
            architecture="stable-diffusion-v2-768-v",
        ),
    ),
    unet=UNet(
        channels=(320, 640, 1280, 1280), depths=(1, 1, 1, 0), middle_depth=1, text_width=1024, linear_projection=True
    ),
    published_as=(
        "stabilityai/stable-diffusion-2",
        "stabilityai/stable-diffusion-2-base",
        "stabilityai/stable-diffusion-2-1",
        "stabilityai/stable-diffusion-2-1-base",
    ),
    kohya_unet="diffusers",
    kohya_v2=True,
    implementation="diffusers",
)

# Files are matched in this order: one that has the encoders of both 2.x and 1.x counts as 2.x.
FAMILIES: dict[FamilyName, Family] = {family.name: family for family in (SDXL, SD2, SD15)}


def check_clip_skip(family: Family, clip_skip: int) -> None:
    """Raise `BadInput` if the family cannot use this clip_skip, as its bases always read the same layer."""
    if clip_skip != 1 and any(encoder.reads == "penultimate" for encoder in family.text_encoders):
        raise BadInput(
            f"clip_skip {clip_skip} is for Stable Diffusion 1 and 2: {family.words} always reads the last layer but one, "
            "which other tools call clip skip 2",
            hint="leave clip_skip out, also for models whose authors ask for clip skip 2",
        )


def family_of_width(text_width: int) -> Family | None:
    """Return the family whose U-Net reads text of this width, or None."""
    return next((family for family in FAMILIES.values() if family.text_width == text_width), None)


def sized(family: Family, configs: Mapping[str, Mapping[str, Any]]) -> Family:
    """Return the family with the sizes of a base that differs from the published ones. `configs` has the parts' config.json, by part."""
    encoders = tuple(
        replace(encoder, shape=text_of_config(configs[encoder.part], pooled=encoder.is_pooled))
        if encoder.part in configs
        else encoder
        for encoder in family.text_encoders
    )
    unet = unet_of_config(configs["unet"]) if "unet" in configs else family.unet
    return replace(family, unet=unet, text_encoders=encoders)
