"""Settings of a subject that is taught by photos: files, words, the class that is kept, and how photos are cut."""

from typing import Annotated, Literal

from annotated_types import Ge, Interval, Le, MaxLen, MinLen, Predicate

from gangline.core.display import has_words
from gangline.core.files import File, Files
from gangline.core.specs.fields import Base, Prompt, Sampler, Side
from gangline.core.specs.sections.shared import CaptionSettings, StartSettings
from gangline.core.specs.sections.subjects import SubjectEntries
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


@section(SettingGroup.FILES)
class SubjectSettings(StartSettings):
    """`held_out` photos are never trained on: their loss at fixed noise is measured before and after. `captions` are .txt files named
    as their photos, and metadata.jsonl; photos without a caption have the prompt. `class_photos` and
    `class_captions` are the same of the class, with the class prompt. With `subjects` each file lies below the folder of one of them, and
    `prompt` is the first one's."""

    vae: Annotated[
        Base | None,
        Setting(
            "Use this VAE instead of the base's own, e.g. because that one overflows in fp16.",
            LATENTS | CLASS_IMAGES | RESULT,
        ),
    ] = None
    init_lora: Annotated[File | None, Setting("Continue training this LoRA, a .safetensors file.", RESULT)] = None
    photos: Annotated[
        Files,
        MinLen(1),
        MaxLen(10_000),
        Setting("Train on these photos of the subject.", LATENTS | EMBEDDINGS | RESULT),
    ]
    held_out: Annotated[
        Files,
        MaxLen(1000),
        Setting(
            "Do not train on this photo; measure its loss before and after training.",
            LATENTS | EMBEDDINGS | RESULT,
            always=("lora",),
        ),
    ] = ()
    captions: Annotated[
        Files, MaxLen(10_000), Setting("These are the captions; each is named like its photo.", EMBEDDINGS | RESULT)
    ] = ()
    class_photos: Annotated[
        Files,
        MaxLen(10_000),
        Setting(
            "Use the photos in this folder as regularisation images of the class (kohya's reg_data_dir, diffusers' "
            "class_data_dir). Captions beside them are read.",
            LATENTS | EMBEDDINGS | CLASS_IMAGES | RESULT,
        ),
    ] = ()
    class_captions: Annotated[
        Files,
        MaxLen(10_000),
        Setting("These are the captions of class photos; each is named like its photo.", EMBEDDINGS | RESULT),
    ] = ()
    masks: Annotated[
        Files,
        MaxLen(10_000),
        Setting(
            "Use the masks in this folder, one picture for each photo, white where the loss counts.", LATENTS | RESULT
        ),
    ] = ()
    prompt: Annotated[
        Prompt,
        Setting(
            "Describe the photos with a rare word and the subject's class, e.g. 'a photo of sks dog'.",
            EMBEDDINGS | RESULT,
            group=SettingGroup.SUBJECT,
        ),
    ]
    subjects: Annotated[
        SubjectEntries,
        Setting(
            "Train on several subjects, each with photos, a prompt and a class of its own, instead of on one.",
            EMBEDDINGS | CLASS_IMAGES | RESULT,
            group=SettingGroup.SUBJECT,
        ),
    ] = ()
    mask: Annotated[
        Literal["none", "alpha", "files"],
        Setting(
            "Compute the loss everywhere (none), where a photo is opaque (alpha), or where its mask is white (files).",
            LATENTS | RESULT | WORKLOAD,
            group=SettingGroup.SUBJECT,
        ),
    ] = "none"


@section(SettingGroup.SUBJECT)
class SubjectCaptionSettings(CaptionSettings):
    caption_shuffles: Annotated[
        int,
        Interval(ge=0, le=64),
        Setting("Train on this many random orders of each caption's tags; 0 keeps their order.", EMBEDDINGS | RESULT),
    ] = 0
    caption_keep: Annotated[
        int,
        Interval(ge=0, le=1000),
        Setting(
            "Keep this many tags at the start of each caption in place.", EMBEDDINGS | RESULT, kohya=("keep_tokens",)
        ),
    ] = 1
    caption_separator: Annotated[
        str,
        MinLen(1),
        MaxLen(20),
        Predicate(has_words),
        Setting(
            "Split captions into tags at this. Tags that are shuffled or dropped are joined with commas.",
            EMBEDDINGS | RESULT,
        ),
    ] = ","
    caption_tag_dropout_rate: Annotated[
        float,
        Interval(ge=0, le=1),
        Setting(
            "Drop this share of each caption's tags at random, but none of the first caption_keep.", EMBEDDINGS | RESULT
        ),
    ] = 0.0
    enable_wildcard: Annotated[
        bool,
        Setting(
            "Choose at random among words in braces: '{red|blue} collar' is 'red collar' or 'blue collar', and {{ is a brace.",
            EMBEDDINGS | RESULT,
        ),
    ] = False
    caption_variants: Annotated[
        int,
        Interval(ge=1, le=64),
        Setting(
            "Train on this many texts of each caption where tags are dropped or wildcards are chosen (with caption_shuffles: on "
            "that many). They are drawn before training.",
            EMBEDDINGS | RESULT,
        ),
    ] = 8

    @property
    def captions_vary(self) -> bool:
        """Whether the texts of a photo are drawn from its caption."""
        return bool(self.caption_shuffles or self.caption_tag_dropout_rate or self.enable_wildcard)

    @property
    def texts_per_caption(self) -> int:
        return (self.caption_shuffles or self.caption_variants) if self.captions_vary else 1


@section(SettingGroup.SUBJECT)
class LayerSettings:
    clip_skip: Annotated[
        int,
        Interval(ge=1, le=12),
        Setting(
            "Read this layer of SD 1's or 2's text encoder, counted from the end: 1 is the last one, 2 the one before, as "
            "in kohya's scripts and A1111 (diffusers counts from 0). SDXL always reads the last but one.",
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
            "The subject's class, e.g. 'a photo of a dog'. Images of it drawn by the base are trained on too, so that the "
            "model does not forget the class (prior preservation).",
            EMBEDDINGS | CLASS_IMAGES | RESULT,
        ),
    ] = None
    class_images: Annotated[
        int,
        Interval(ge=1, le=10_000),
        Setting(
            "Train on at least this many pictures of the class. The base draws those that class photos do not provide.",
            CLASS_IMAGES | RESULT,
        ),
    ] = 100
    class_sample_steps: Annotated[
        int,
        Ge(1),
        Le(1000),
        Setting("Draw each class image with this many sampler steps.", CLASS_IMAGES | RESULT),
    ] = 30
    class_sampler: Annotated[Sampler, Setting("Draw class images with this sampler.", CLASS_IMAGES | RESULT)] = "ddim"
    class_guidance_scale: Annotated[
        float,
        Ge(0),
        Le(100),
        Setting(
            "Draw class images with this guidance scale. Higher values follow the class prompt more closely.",
            CLASS_IMAGES | RESULT,
        ),
    ] = 5.0
    prior_weight: Annotated[
        float,
        Ge(0),
        Le(100),
        Setting(
            "Weigh the loss of class images by this, against 1 for the photos.", RESULT, kohya=("prior_loss_weight",)
        ),
    ] = 1.0


@section(SettingGroup.CUTTING)
class CropSettings:
    """`crops` places for each picture where `crop` is random, and each of them mirrored too with `flip`."""

    resolution: Annotated[
        Side,
        Setting(
            "Train on squares whose side has this many pixels, or on buckets of the same area. Use 1024 for SDXL, 768 or "
            "512 for SD 2, 512 for SD 1.5.",
            LATENTS | CLASS_IMAGES | RESULT | WORKLOAD,
            unit="px",
            always=("lora",),
        ),
    ] = 1024
    aspect_buckets: Annotated[
        bool,
        Setting(
            "Keep the aspect ratio of each photo, from 1:2 to 2:1, instead of cropping it to a square.",
            LATENTS | RESULT | WORKLOAD,
            kohya=("enable_bucket",),
        ),
    ] = False
    crop: Annotated[
        Literal["center", "random"],
        Setting("Crop photos that do not fit at their center, or at random places.", LATENTS | RESULT),
    ] = "center"
    crops: Annotated[
        int, Interval(ge=1, le=64), Setting("Crop each photo at this many random places.", LATENTS | RESULT)
    ] = 4
    flip: Annotated[
        bool,
        Setting(
            "Train on mirrored photos too. Leave this off for faces, letters and other things with a left and a right.",
            LATENTS | RESULT,
            kohya=("flip_aug",),
        ),
    ] = False
