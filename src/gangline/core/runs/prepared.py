"""What a run makes once, before its first step, and other runs need not make again: latents, embeddings, class images.

A key is `<kind>-<of what>-<under what>`. *Of what* follows from the spec alone, so that a server knows which a job may use;
*under what* are the numerics that decide the bits, and which shard of it is meant: an interruption costs one shard, not all.
Class images are data once they are made, whoever made them.

A change in how any of it is made of the same spec is a new `MADE_AS`.
"""

import re
from dataclasses import fields
from typing import Any

from gangline.core.canonical import digest
from gangline.core.files import File
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.settings import CLASS_IMAGES, EMBEDDINGS, LATENTS, PREPARED, Decides, deciding
from gangline.core.specs.shared import RESCALE_OF_ZERO_SNR

MADE_AS = 2
VIEWS_IN_SHARD, CLASS_IMAGES_IN_SHARD = 32, 10
"""Seconds of work for a card; another number is another `MADE_AS`. A photo's views (crops, mirror images) stay together."""
KINDS = tuple(str(each.name).lower() for each in PREPARED)
KEY = re.compile(rf"({'|'.join(KINDS)})-[0-9a-f]{{32}}-[0-9a-f]{{32}}")
CLASS_IMAGES_CALLED = {
    "class_sample_steps": "sample_steps",
    "class_sampler": "sample_sampler",
    "class_guidance_scale": "guidance_scale",
}
"""What these were in keys when class images were drawn as pictures to look at are: those that were made so are the same still."""
ADDED = {"clip_skip", "class_photos", "class_captions"}
"""Settings that came after the first release: in a key only where they are not as they are by default."""
OF_THE_STEP_ALONE = ("trainer", "microbatch", "ranks", "peft", "bitsandbytes", "prodigyopt", "schedulefree", "compile")
"""What no frozen encoder knows of: jobs on one kind of node that differ in these alone share what they made."""


def latents_key(spec: LoraSpec, fingerprint: dict[str, str], shard: int = 0) -> str:
    """Of the photos, the held out ones, those of the class and the masks, cut as the spec says."""
    return _key(_latents(spec), fingerprint, shard)


def embeddings_key(spec: LoraSpec, fingerprint: dict[str, str]) -> str:
    """Of every text that a run is trained on or that its pictures show."""
    return _key(_embeddings(spec), fingerprint)


def class_images_key(spec: LoraSpec, shard: int = 0) -> str:
    return _key(_class_images(spec), {}, shard)


def subject_of(key: str) -> str:
    """The part of a key that follows from the spec."""
    return key.rsplit("-", 1)[0]


def is_under_numerics(key: str) -> bool:
    """Whether its bits are those of one kind of machine: only its like may use it."""
    return prepared_kind(key) != "class_images"


def may_stay(key: str) -> bool:
    """Whether a node may keep it when the job has ended: it shows nobody's photos and words."""
    return prepared_kind(key) == "class_images"


def prepared_kind(key: str) -> str:
    return key.split("-", 1)[0]


def subjects(spec: LoraSpec) -> tuple[str, ...]:
    """Of what a run of this spec may use what others made."""
    of_class = (_class_images(spec),) if spec.class_images_drawn else ()
    return (_latents(spec), _embeddings(spec), *of_class)


def _key(subject: str, fingerprint: dict[str, str], shard: int = 0) -> str:
    bits = {name: value for name, value in fingerprint.items() if name not in OF_THE_STEP_ALONE}
    return f"{subject}-{digest([bits, shard])[:32]}"


def _subject(kind: str, of: dict[str, Any]) -> str:
    return f"{kind}-{digest(of | {'made_as': MADE_AS})[:32]}"


def _latents(spec: LoraSpec) -> str:
    """The seed chooses where pictures are cut at random, and nothing else of them."""
    cut = _values(spec, LATENTS, {"base", "vae", "seed"})
    return _subject("latents", cut | {"seed": spec.seed if spec.crop == "random" else None, "vae": _vae(spec)})


def _embeddings(spec: LoraSpec) -> str:
    """The photos' names, too: a caption belongs to a name, or is a part of it."""
    shuffled = {"shuffles": spec.caption_shuffles, "keep": spec.caption_keep, "seed": spec.seed}
    said = _values(
        spec, EMBEDDINGS, {"base", "sample_prompts", "caption_shuffles", "caption_keep", "seed", "class_photos"}
    )
    named = {name: [file.path for file in getattr(spec, name)] for name in ("photos", "held_out")}
    shown = {"shown": list(spec.prompts_to_sample)} | (shuffled if spec.caption_shuffles else {})
    if spec.class_photos:
        named["class_photos"] = [file.path for file in spec.class_photos]
    return _subject("embeddings", said | named | shown | {"base": spec.base.id})


def _class_images(spec: LoraSpec) -> str:
    """Each picture's number is its seed, so that jobs of every seed share them."""
    drawn = {"class_images": max(0, spec.class_images - len(spec.class_photos))}
    of_spec = _values(spec, CLASS_IMAGES, {"base", "vae", "class_photos"}) | drawn
    settings = {CLASS_IMAGES_CALLED.get(name, name): value for name, value in of_spec.items()}
    if spec.zero_terminal_snr:
        settings["guidance_rescale"] = RESCALE_OF_ZERO_SNR
    return _subject("class_images", settings | {"base": spec.base.id, "vae": _vae(spec)})


def _values(spec: LoraSpec, what: Decides, written_otherwise: set[str]) -> dict[str, Any]:
    """Every setting that decides it, but for those that the key has in a form of their own."""
    defaults = {field.name: field.default for field in fields(spec)}
    names = [name for name in deciding(type(spec), what) if name not in written_otherwise]
    counting = [name for name in names if name not in ADDED or getattr(spec, name) != defaults[name]]
    return {name: _value(getattr(spec, name)) for name in counting}


def _value(value: Any) -> Any:
    return _files(value) if isinstance(value, tuple) else value


def _vae(spec: LoraSpec) -> str:
    return (spec.vae or spec.base).id


def _files(files: tuple[File, ...]) -> list[list[str]]:
    return [[file.path, file.sha256] for file in files]
