"""The families of base models that Gangline trains: each is declared here, once, and no other module spells its name.

A family decides the text encoders, what the U-Net is told, the sizes, and what a LoRA of it is called by the tools that read it.
Classes of libraries are named by strings: this module knows neither torch nor diffusers. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from gangline.core.errors import BadInput
from gangline.core.models.architecture import TextTransformer, UNet, text_of_config, unet_of_config
from gangline.core.specs.fields import Prediction

FamilyName = Literal["sdxl", "sd15", "sd2"]
"""As the API, the command line and files write it."""
Bits = Literal[8, 4]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEncoder:
    """A text encoder of a family: `part` is its folder in diffusers' layout, `model` its class in transformers.

    A single file keeps it below one of `prefixes`, kohya's LoRAs below `kohya_prefix`. `without_last`: diffusers leaves out its last
    layer, which nothing reads. `reads`: which of its hidden states the U-Net is given. `shape` is that of the published bases.
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
        """Whether its pooled output goes to the U-Net, too."""
        return self.model == "CLIPTextModelWithProjection"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A base of a family by what its U-Net predicts, with the names that tools give it.

    `published`: the family's authors have published such a base.
    """

    prediction: Prediction
    published: bool
    kohya_version: str
    architecture: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What all bases of a family have in common. Lengths are in pixels, widths in channels.

    `words` name it in a sentence, `title` on a model card, `tag` on the hub; `mark` is how a file shows that it is one. `pipeline` is its
    class in diffusers. `text_width` is what the U-Net's cross-attention reads. `has_sizes`: the U-Net is told pooled text and the
    sizes of the picture (Podell et al. 2023, §2.2). `zero_empty`: it was trained with zeros for an empty prompt. `attention_heads`:
    as many in every layer; None where a head has a fixed width. `resolution`: of its first base. `resolution_max`: above it a
    subject is drawn several times. `unet` is that of the published bases, which their authors call `published_as` on the hub.
    `kohya_unet`: after which layout kohya's scripts name the U-Net's modules.
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
        """What a base predicts that says nothing of it: the only one, or one of several."""
        return tuple(variant.prediction for variant in self.variants if variant.published)

    def variant(self, prediction: Prediction) -> Variant:
        return next(variant for variant in self.variants if variant.prediction == prediction)


CLIP_L = TextTransformer(width=768, layers=12, inner=3072)
"""OpenAI's ViT-L/14, the text half."""

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

# A file is asked for them in this order: one that holds the encoders of both 2.x and 1.x counts as 2.x
FAMILIES: dict[FamilyName, Family] = {family.name: family for family in (SDXL, SD2, SD15)}


def check_clip_skip(family: Family, clip_skip: int) -> None:
    """Raise `BadInput` where bases of this family always read one layer."""
    if clip_skip != 1 and any(encoder.reads == "penultimate" for encoder in family.text_encoders):
        raise BadInput(
            f"clip_skip {clip_skip} is for Stable Diffusion 1 and 2: {family.words} always reads the last layer but one",
            hint="leave clip_skip out",
        )


def family_of_width(text_width: int) -> Family | None:
    """The family whose U-Net reads text so wide."""
    return next((family for family in FAMILIES.values() if family.text_width == text_width), None)


def sized(family: Family, configs: Mapping[str, Mapping[str, Any]]) -> Family:
    """The family as a base has it whose parts have other sizes than the published ones: `configs` is their config.json, by part."""
    encoders = tuple(
        replace(encoder, shape=text_of_config(configs[encoder.part], pooled=encoder.is_pooled))
        if encoder.part in configs
        else encoder
        for encoder in family.text_encoders
    )
    unet = unet_of_config(configs["unet"]) if "unet" in configs else family.unet
    return replace(family, unet=unet, text_encoders=encoders)
