"""Warn about settings that are allowed but may give poor results. Advice is shown before a job is submitted, and never refuses one."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gangline.core.models.families import SDXL
from gangline.core.models.lora_metadata import base_name
from gangline.core.models.recognition import RecognisedModel
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sections.previews import as_prompt
from gangline.core.specs.sections.subjects import Subject
from gangline.core.words import counted

PHOTOS_MIN = 4
RATE_HIGH = 5e-4
STEPS_FEW = 1000
RATE_ABSURD = 1e-2
SEEN_MIN, SEEN_MAX = 10, 2000
RANK_HIGH, SCALE_HIGH = 128, 8
SUBJECTS_APART = 2
RESOLUTION_OF_MODELS = 256
"""No published model family was trained on smaller images. A job at a lower resolution is a test, for which other rates are right."""
ASPECT_CUT = 1.4
WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
SMALL_WORDS = "a an the of in on at with and my his her their our this that one some by for from to is"
WORDS_OF_PICTURES = "photo photos photograph picture image images portrait painting drawing shot close-up closeup style"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoFacts:
    """A training photo: its size in pixels as displayed, and its caption; `own` is true if the caption is not its subject's prompt."""

    name: str
    width: int
    height: int
    caption: str
    own: bool = False
    repeats: int = 1
    subject: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A suggestion to change `setting`: `message` says what to set it to, `because` says why."""

    setting: str
    message: str
    because: str


def advise(spec: LoraSpec, pictures: tuple[PhotoFacts, ...], base: RecognisedModel | None = None) -> tuple[Advice, ...]:
    """Return the advice, the most important first. `base` is None if the base is not known yet."""
    return (
        *_on_words(spec, pictures),
        *_on_several(spec, pictures),
        *_on_tags(spec, pictures),
        *_on_photos(spec, pictures),
        *_on_the_base(spec, base),
        *_on_rates(spec, pictures),
        *_on_the_lora(spec),
        *_on_what_is_minimised(spec),
        *_on_where_it_is_used(spec),
        *_on_what_does_nothing(spec, pictures),
    )


def words_of_the_subject(prompt: str) -> list[str]:
    """Return the words of a prompt that name its subject.

    >>> words_of_the_subject("a photo of sks dog")
    ['sks', 'dog']
    """
    others = {*SMALL_WORDS.split(), *WORDS_OF_PICTURES.split()}
    return [word for word in WORD.findall(prompt.lower()) if word not in others]


def _on_words(spec: LoraSpec, pictures: tuple[PhotoFacts, ...]) -> Iterator[Advice]:
    prompted = [picture for picture in pictures if not picture.own]
    for subject in spec.all_subjects:
        words = words_of_the_subject(subject.prompt)
        if any(picture.subject == subject.number for picture in prompted) and len(words) < 2:
            yield Advice(
                setting=_setting(subject, "prompt"),
                message=f"add the class of the subject, as in 'a photo of {(words or ['sks'])[0]} dog'",
                because="the model learns a name together with its class much better than the name alone",
            )
    if 2 * len(prompted) > len(pictures) and not spec.train_text_encoder:
        who = (
            "the photos share" if len(prompted) == len(pictures) else f"{len(prompted)} of {len(pictures)} photos share"
        )
        yield Advice(
            setting="train_text_encoder",
            message="consider training the text encoders, too",
            because=f"{who} {_prompts(spec)}, and the text encoders learn what its rare word means; training takes longer",
        )
    for subject in spec.all_subjects:
        words = {*words_of_the_subject(subject.prompt)}
        if subject.class_prompt and not words & {*words_of_the_subject(subject.class_prompt)}:
            yield Advice(
                setting=_setting(subject, "class_prompt"),
                message="let the prompt name the class, too",
                because=f"'{subject.prompt}' and '{subject.class_prompt}' have no word in common: "
                "the class images are not of what training changes",
            )


def _setting(subject: Subject, name: str) -> str:
    """Return where a subject has a setting: in its entry, if it has one."""
    return f"subjects.{subject.number}.{name}" if subject.folder else name


def _prompts(spec: LoraSpec) -> str:
    return "the prompt of their subject" if spec.subjects else "one prompt"


def _on_several(spec: LoraSpec, pictures: tuple[PhotoFacts, ...]) -> Iterator[Advice]:
    """Yield what makes subjects of one job unequal, or mixes them."""
    if spec.preserves_classes:
        for subject in spec.all_subjects:
            if not subject.class_prompt:
                yield Advice(
                    setting=_setting(subject, "class_prompt"),
                    message="give this subject a class prompt, too",
                    because=f"others have one, but nothing keeps the model from forgetting the class of '{subject.prompt}'",
                )
    seen = Counter[int]()
    for picture in pictures:
        seen[picture.subject] += picture.repeats
    most = max(seen.values(), default=0)
    for subject in spec.all_subjects:
        own = seen[subject.number]
        if own and most >= SUBJECTS_APART * own:
            yield Advice(
                setting=_setting(subject, "repeats"),
                message=f"set it to {round(subject.repeats * most / own)}",
                because=f"steps show the most frequent subject {most / own:.1f} times as often as '{subject.prompt}'",
            )


def _on_tags(spec: LoraSpec, pictures: tuple[PhotoFacts, ...]) -> Iterator[Advice]:
    captions = [picture.caption for picture in pictures]
    between = "commas" if spec.caption_separator == "," else f"'{spec.caption_separator}'"
    if not any(spec.caption_separator in caption for caption in captions):
        for setting in ("caption_shuffles", "caption_tag_dropout_rate"):
            if getattr(spec, setting):
                yield Advice(
                    setting=setting, message="leave it at 0", because=f"no caption has tags with {between} between them"
                )
    if spec.enable_wildcard and not any("{" in caption for caption in captions):
        yield Advice(
            setting="enable_wildcard",
            message="leave it off",
            because="no caption has words in braces, as in {red|blue}",
        )
    if spec.enable_wildcard and any("{" in as_prompt(given).prompt for given in spec.prompts_to_sample):
        yield Advice(
            setting="sample_prompts",
            message="set prompts without braces",
            because="wildcards are chosen for photos alone, and pictures are drawn from their prompt as it is",
        )


def _on_photos(spec: LoraSpec, pictures: tuple[PhotoFacts, ...]) -> Iterator[Advice]:
    for subject in spec.all_subjects:
        count = sum(picture.subject == subject.number for picture in pictures)
        if count < PHOTOS_MIN:
            yield Advice(
                setting=_setting(subject, "photos"),
                message=f"use more than {counted(count, 'photo')}: 5 to 20, in several places and under different light",
                because="from few photos the model learns the background as a part of the subject",
            )
    side = spec.resolution
    small = [picture.name for picture in pictures if _side(picture, spec.aspect_buckets) < 0.95 * side]
    if small:
        yield Advice(
            setting="resolution",
            message=f"replace {_some(small)} with larger photos, or lower the resolution",
            because=f"these photos are scaled up to {side} × {side} pixels, and the model learns the blur",
        )
    wide = [picture.name for picture in pictures if _aspect(picture) > ASPECT_CUT]
    if wide and not spec.aspect_buckets and 2 * len(wide) >= len(pictures):
        yield Advice(
            setting="aspect_buckets",
            message="consider aspect buckets",
            because=f"cropping to a square cuts off more than a quarter of {_some(wide)}",
        )


def _on_the_base(spec: LoraSpec, base: RecognisedModel | None) -> Iterator[Advice]:
    if base and base.prediction_type == "v_prediction" and spec.prediction_type == "epsilon":
        yield Advice(
            setting="prediction_type",
            message="leave it at auto",
            because="the base predicts velocity, and would have to learn from scratch to predict noise",
        )
    if base and spec.zero_terminal_snr and not base.zero_terminal_snr:
        yield Advice(
            setting="zero_terminal_snr",
            message="set it only if the base was trained so",
            because="nothing in the base's files mentions zero terminal SNR, and a base has to be trained long to learn it",
        )
    if base and base.family is SDXL and _lacks_scores(spec):
        yield Advice(
            setting="sample_prompts",
            message="begin them with score_9, score_8_up, score_7_up",
            because="Pony Diffusion was trained with these tags, and its authors recommend them in every prompt",
        )
    if base and spec.resolution > base.family.resolution_max:
        yield Advice(
            setting="resolution",
            message=f"consider {base.family.resolution_max} at the most",
            because=f"{base.family.words} was not trained on larger pictures: it repeats the subject in them",
        )


def _lacks_scores(spec: LoraSpec) -> bool:
    """Whether the base is called Pony, and a prompt to sample lacks its score tags."""
    scored = ("score_" in as_prompt(given).prompt for given in spec.prompts_to_sample)
    return "pony" in base_name(spec.base).lower() and not all(scored)


def _on_rates(spec: LoraSpec, pictures: tuple[PhotoFacts, ...]) -> Iterator[Advice]:
    seen = spec.steps * spec.batch_size / len(pictures)
    which = "each photo is" if len({picture.repeats for picture in pictures}) == 1 else "on average a photo is"
    if spec.optimizer == "prodigy" and spec.learning_rate != 1:
        yield Advice(
            setting="learning_rate",
            message="set it to 1",
            because=f"Prodigy finds the rate itself and then multiplies it by {spec.learning_rate:g}",
        )
    if spec.optimizer != "prodigy" and spec.learning_rate >= RATE_ABSURD:
        yield Advice(
            setting="learning_rate",
            message=f"use 1e-4 or less instead of {spec.learning_rate:g}",
            because=f"at {RATE_ABSURD:g} and above the loss usually becomes NaN",
        )
    elif (
        spec.optimizer.startswith("adamw")
        and spec.learning_rate >= RATE_HIGH
        and spec.steps < STEPS_FEW
        and spec.resolution >= RESOLUTION_OF_MODELS
    ):
        yield Advice(
            setting="learning_rate",
            message=f"consider more steps than {spec.steps} at a lower rate than {spec.learning_rate:g}",
            because="this usually gives better results",
        )
    if seen < SEEN_MIN:
        yield Advice(
            setting="steps",
            message=f"train for more steps than {spec.steps}",
            because=f"{which} seen {counted(round(seen), 'time')}: the model learns almost nothing",
        )
    if seen > SEEN_MAX:
        yield Advice(
            setting="steps",
            message="consider fewer steps, or look at pictures on the way (sample_every_steps)",
            because=f"{which} seen {seen:.0f} times: the LoRA may overfit",
        )
    if spec.batch_size > len(pictures):
        yield Advice(
            setting="batch_size",
            message=f"{len(pictures)} is enough",
            because="a batch that is larger than the number of photos contains some of them twice",
        )
    if spec.warmup_steps >= spec.steps:
        yield Advice(
            setting="warmup_steps",
            message=f"use fewer than the {spec.steps} steps",
            because="otherwise the learning rate is never reached",
        )
    if spec.schedule == "cosine_with_restarts" and spec.schedule_cycles == 1:
        yield Advice(
            setting="schedule_cycles",
            message="set it to 2 or more",
            because="with one cycle there is no restart, and the schedule is cosine",
        )


def _on_the_lora(spec: LoraSpec) -> Iterator[Advice]:
    if spec.rank > RANK_HIGH:
        yield Advice(
            setting="rank",
            message=f"consider {RANK_HIGH} at the most",
            because=f"a rank of {spec.rank} memorises the photos, and the file has {spec.rank // 4} times the usual size",
        )
    scale = (spec.rank if spec.alpha is None else spec.alpha) / spec.rank
    if scale > SCALE_HIGH:
        yield Advice(
            setting="alpha",
            message=f"consider {spec.rank:g}, the same as the rank",
            because=f"the LoRA's effect is scaled by alpha / rank, which is {scale:g}: it acts like a learning rate higher by this factor",
        )


def _on_what_is_minimised(spec: LoraSpec) -> Iterator[Advice]:
    if spec.zero_terminal_snr and spec.noise_offset:
        yield Advice(
            setting="noise_offset",
            message="leave it at 0",
            because="with zero-terminal SNR the model learns every brightness without it",
        )


def _on_where_it_is_used(spec: LoraSpec) -> Iterator[Advice]:
    if spec.dora:
        yield Advice(
            setting="dora",
            message="use diffusers' file in diffusers, kohya's in ComfyUI and Forge; for A1111 merge it into the base (gangline merge)",
            because="each of them computes a DoRA differently, and A1111 computes it wrongly",
        )


def _on_what_does_nothing(spec: LoraSpec, pictures: tuple[PhotoFacts, ...]) -> Iterator[Advice]:
    plain = LoraSpec(base=spec.base, photos=spec.photos, prompt=spec.prompt)
    tags_change = spec.caption_shuffles or spec.caption_tag_dropout_rate
    for setting, works, where in (
        ("class_images", spec.preserves_classes, "there is a class_prompt"),
        ("class_sample_steps", spec.class_images_drawn, "the base draws pictures of a class_prompt"),
        ("class_sampler", spec.class_images_drawn, "the base draws pictures of a class_prompt"),
        ("class_guidance_scale", spec.class_images_drawn, "the base draws pictures of a class_prompt"),
        ("prior_weight", spec.preserves_classes, "there is a class_prompt"),
        ("crops", spec.crop == "random", "crop is random"),
        ("caption_keep", tags_change, "caption_shuffles or caption_tag_dropout_rate is not 0"),
        ("caption_separator", tags_change, "caption_shuffles or caption_tag_dropout_rate is not 0"),
        (
            "caption_variants",
            spec.captions_vary and not spec.caption_shuffles,
            "caption_tag_dropout_rate or enable_wildcard is set and caption_shuffles is 0",
        ),
    ):
        if not works and getattr(spec, setting) != getattr(plain, setting):
            yield Advice(setting=setting, message="it has no effect here", because=f"it has an effect only if {where}")


def _side(picture: PhotoFacts, keeps_shape: bool) -> float:
    """Return the side in pixels of the square that is cropped from the photo; if it keeps its shape, of a square with its area."""
    return (picture.width * picture.height) ** 0.5 if keeps_shape else min(picture.width, picture.height)


def _aspect(picture: PhotoFacts) -> float:
    return max(picture.width / picture.height, picture.height / picture.width)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
