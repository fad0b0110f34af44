"""What a run makes once, before its first step, and other runs need not make again: latents, embeddings, class images.

A key is `<kind>-<of what>-<under what>`. *Of what* follows from the spec alone, so that a server knows which a job may use;
*under what* are the numerics that decide the bits. Class images are data once they are made, whoever made them.

A change in how any of it is made of the same spec is a new `MADE_AS`.
"""

import re
from typing import Any

from gangline.core.canonical import digest
from gangline.core.files import File
from gangline.core.spec import LoraSpec

MADE_AS = 1
KEY = re.compile(r"(latents|embeddings|class_images|class_latents)-[0-9a-f]{32}-[0-9a-f]{32}")
OF_THE_STEP_ALONE = ("microbatch", "ranks")


def latents_key(spec: LoraSpec, fingerprint: dict[str, str]) -> str:
    """Of the photos, the held out ones and the masks, cut as the spec says."""
    return _key(_latents(spec), fingerprint)


def embeddings_key(spec: LoraSpec, fingerprint: dict[str, str]) -> str:
    """Of every text that a run is trained on or that its pictures show."""
    return _key(_embeddings(spec), fingerprint)


def class_images_key(spec: LoraSpec) -> str:
    return _key(_class_images(spec), {})


def class_latents_key(spec: LoraSpec, fingerprint: dict[str, str], images: str) -> str:
    """`images` is the digest of the class images that they are of."""
    return _key(_class_latents(spec), fingerprint | {"class_images": images})


def subject_of(key: str) -> str:
    """The part of a key that follows from the spec."""
    return key.rsplit("-", 1)[0]


def kind_of(key: str) -> str:
    return key.split("-", 1)[0]


def subjects(spec: LoraSpec) -> tuple[str, ...]:
    """Of what a run of this spec may use what others made."""
    of_classes = (_class_images(spec), _class_latents(spec)) if spec.class_prompt else ()
    of_texts = () if spec.train_text_encoder else (_embeddings(spec),)
    return (_latents(spec), *of_texts, *of_classes)


def _key(subject: str, fingerprint: dict[str, str]) -> str:
    bits = {name: value for name, value in fingerprint.items() if name not in OF_THE_STEP_ALONE}
    return f"{subject}-{digest(bits)[:32]}"


def _subject(kind: str, of: dict[str, Any]) -> str:
    return f"{kind}-{digest(of | {'made_as': MADE_AS})[:32]}"


def _latents(spec: LoraSpec) -> str:
    return _subject(
        "latents", _cut(spec) | {name: _files(getattr(spec, name)) for name in ("photos", "held_out", "masks")}
    )


def _embeddings(spec: LoraSpec) -> str:
    """The photos' names, too: a caption belongs to a name, or is a part of it."""
    named = {name: [file.path for file in getattr(spec, name)] for name in ("photos", "held_out")}
    settings = {
        name: getattr(spec, name) for name in ("prompt", "class_prompt", "caption_shuffles", "caption_keep", "seed")
    }
    shown = {"sample_prompts": list(spec.prompts_to_sample), "with_empty": spec.caption_drop > 0}
    return _subject("embeddings", named | settings | shown | {"base": spec.base.id, "captions": _files(spec.captions)})


def _class_images(spec: LoraSpec) -> str:
    return _subject("class_images", _of_class_images(spec))


def _class_latents(spec: LoraSpec) -> str:
    return _subject("class_latents", _cut(spec) | _of_class_images(spec))


def _cut(spec: LoraSpec) -> dict[str, Any]:
    names = ("resolution", "aspect_buckets", "crop", "crops", "flip", "mask", "seed")
    return {name: getattr(spec, name) for name in names} | {"vae": _vae(spec)}


def _of_class_images(spec: LoraSpec) -> dict[str, Any]:
    names = (
        "class_prompt",
        "class_images",
        "resolution",
        "seed",
        "sample_steps",
        "sample_sampler",
        "guidance_scale",
        "prediction_type",
        "zero_terminal_snr",
        "base_precision",
    )
    return {name: getattr(spec, name) for name in names} | {"base": spec.base.id, "vae": _vae(spec)}


def _vae(spec: LoraSpec) -> str:
    return (spec.vae or spec.base).id


def _files(files: tuple[File, ...]) -> list[list[str]]:
    return [[file.path, file.sha256] for file in files]
