"""Settings of a subject that is taught by photos: files, words, the class that is kept, and how photos are cut."""

from typing import Annotated, Literal

from annotated_types import Ge, Interval, Le, MaxLen, MinLen

from gangline.core.files import File, Files
from gangline.core.specs.fields import Base, Prompt, Sampler, Side
from gangline.core.specs.settings import (
    CLASS_IMAGES,
    EMBEDDINGS,
    LATENTS,
    RESULT,
    WORKLOAD,
    Setting,
    SettingGroup,
    section,
)
from gangline.core.specs.shared import CaptionSettings, StartSettings


@section(SettingGroup.FILES)
class SubjectSettings(StartSettings):
    """`held_out` photos are never trained on: their loss at fixed noise is measured before and after. `captions` are .txt files named
    as their photos, and metadata.jsonl; photos without a caption have the prompt. `class_photos` and
    `class_captions` are the same of the class, with the class prompt."""

    vae: Annotated[
        Base | None,
        Setting(
            "A VAE in the place of the base's own, where that overflows in fp16, say.", LATENTS | CLASS_IMAGES | RESULT
        ),
    ] = None
    init_lora: Annotated[File | None, Setting("A LoRA to go on from: a .safetensors file.", RESULT)] = None
    photos: Annotated[
        Files, MinLen(1), MaxLen(10_000), Setting("Photos of the subject.", LATENTS | EMBEDDINGS | RESULT)
    ]
    held_out: Annotated[
        Files,
        MaxLen(1000),
        Setting(
            "A photo that is not trained on: its loss is measured before and after.",
            LATENTS | EMBEDDINGS | RESULT,
            always=("lora",),
        ),
    ] = ()
    captions: Annotated[
        Files, MaxLen(10_000), Setting("Texts that are named as their photos.", EMBEDDINGS | RESULT)
    ] = ()
    class_photos: Annotated[
        Files,
        MaxLen(10_000),
        Setting(
            "A folder of your own photos of the class, as regularisation images (kohya's reg_data_dir, diffusers' class_data_dir); "
            "captions beside them are found.",
            LATENTS | EMBEDDINGS | CLASS_IMAGES | RESULT,
        ),
    ] = ()
    class_captions: Annotated[
        Files, MaxLen(10_000), Setting("Texts that are named as photos of the class.", EMBEDDINGS | RESULT)
    ] = ()
    masks: Annotated[
        Files,
        MaxLen(10_000),
        Setting("A folder with a picture for each photo, white where the loss counts.", LATENTS | RESULT),
    ] = ()
    prompt: Annotated[
        Prompt,
        Setting(
            "What the photos show, with a rare word and the kind of thing: 'a photo of sks dog'.",
            EMBEDDINGS | RESULT,
            group=SettingGroup.SUBJECT,
        ),
    ]
    mask: Annotated[
        Literal["none", "alpha", "files"],
        Setting(
            "Where the loss counts: everywhere, where a photo is opaque (alpha), or where its mask is white (files).",
            LATENTS | RESULT | WORKLOAD,
            group=SettingGroup.SUBJECT,
        ),
    ] = "none"


@section(SettingGroup.SUBJECT)
class SubjectCaptionSettings(CaptionSettings):
    caption_shuffles: Annotated[
        int,
        Interval(ge=0, le=64),
        Setting("How many orders of a caption's tags are seen; 0 leaves them as they are.", EMBEDDINGS | RESULT),
    ] = 0
    caption_keep: Annotated[
        int,
        Interval(ge=0, le=1000),
        Setting(
            "How many tags at the start of a caption are never shuffled.", EMBEDDINGS | RESULT, kohya=("keep_tokens",)
        ),
    ] = 1


@section(SettingGroup.SUBJECT)
class LayerSettings:
    clip_skip: Annotated[
        int,
        Interval(ge=1, le=12),
        Setting(
            "Which layer of SD 1's or 2's text encoder is read, from the end: 1 the last one, 2 the one before, as kohya's scripts and "
            "A1111 count (diffusers counts from 0). SDXL always reads the last but one.",
            EMBEDDINGS | CLASS_IMAGES | RESULT,
        ),
    ] = 1


@section(SettingGroup.SUBJECT)
class PriorPreservationSettings:
    """`class_images` pictures that the base makes of `class_prompt` (Ruiz et al. 2022, §4.2), drawn with settings of their own: what is
    to be preserved does not depend on how quickly somebody wants to look at pictures on the way."""

    class_prompt: Annotated[
        Prompt | None,
        Setting(
            "The kind of thing alone, 'a photo of a dog': the base's own pictures of it are learned too, so that it is kept.",
            EMBEDDINGS | CLASS_IMAGES | RESULT,
        ),
    ] = None
    class_images: Annotated[
        int,
        Interval(ge=1, le=10_000),
        Setting(
            "The least number of pictures of the class; the base draws those that class photos do not provide.",
            CLASS_IMAGES | RESULT,
        ),
    ] = 100
    class_sample_steps: Annotated[
        int,
        Ge(1),
        Le(1000),
        Setting("Sampler steps of each class image that the base draws.", CLASS_IMAGES | RESULT),
    ] = 30
    class_sampler: Annotated[Sampler, Setting("The sampler of class images.", CLASS_IMAGES | RESULT)] = "ddim"
    class_guidance_scale: Annotated[
        float,
        Ge(0),
        Le(100),
        Setting("How strongly class images follow the class prompt.", CLASS_IMAGES | RESULT),
    ] = 5.0
    prior_weight: Annotated[
        float,
        Ge(0),
        Le(100),
        Setting("How much their loss counts against that of the photos.", RESULT, kohya=("prior_loss_weight",)),
    ] = 1.0


@section(SettingGroup.CUTTING)
class CropSettings:
    """`crops` places for each picture where `crop` is random, and each of them mirrored too with `flip`."""

    resolution: Annotated[
        Side,
        Setting(
            "Pixels of a square's side, or of one with a bucket's area: 1024 for SDXL, 768 or 512 for SD 2, 512 for SD 1.5.",
            LATENTS | CLASS_IMAGES | RESULT | WORKLOAD,
            unit="px",
            always=("lora",),
        ),
    ] = 1024
    aspect_buckets: Annotated[
        bool,
        Setting(
            "Keep the shape of each photo, from 1:2 to 2:1, in place of cutting a square from it.",
            LATENTS | RESULT | WORKLOAD,
            kohya=("enable_bucket",),
        ),
    ] = False
    crop: Annotated[
        Literal["center", "random"],
        Setting(
            "Which part of a photo is taken where it does not fit: its center, or random places.", LATENTS | RESULT
        ),
    ] = "center"
    crops: Annotated[
        int, Interval(ge=1, le=64), Setting("How many random places of each photo are seen.", LATENTS | RESULT)
    ] = 4
    flip: Annotated[
        bool,
        Setting(
            "See each picture mirrored, too: not for faces, letters and whatever has a left and a right.",
            LATENTS | RESULT,
            kohya=("flip_aug",),
        ),
    ] = False
