"""Name what a run prepares before its first step and other runs can reuse: latents, embeddings, class images.

A key is `<kind>-<subject>-<numerics>`. The subject is a hash of the settings that decide it, so that the server knows which ones a job may
use. The second hash has the numerics that decide the bits, and the number of the shard: an interruption loses one shard, not all. Class
images are data, whichever machine made them, so their keys have no numerics.

Raise `MADE_AS` when a change makes other bits from the same spec.
"""

import re
from dataclasses import fields
from typing import Any

from gangline.core.canonical import digest
from gangline.core.files import File
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sample import previews_of
from gangline.core.specs.sections.shared import RESCALE_OF_ZERO_SNR
from gangline.core.specs.sections.subjects import Subject
from gangline.core.specs.settings import CLASS_IMAGES, EMBEDDINGS, LATENTS, PREPARED, Decides, deciding

MADE_AS = 2
VIEWS_IN_SHARD, CLASS_IMAGES_IN_SHARD = 32, 10
"""The size of a shard: seconds of work for a GPU. Changing it needs a new `MADE_AS`. A photo's views (crops, flips) stay together."""
SHOWN = 1
"""The shard of embeddings for the texts of previews. A run writes it if those of the texts that it trains on do not serve."""
KINDS = tuple(str(each.name).lower() for each in PREPARED)
KEY = re.compile(rf"({'|'.join(KINDS)})-[0-9a-f]{{32}}-[0-9a-f]{{32}}")
CLASS_IMAGES_CALLED = {
    "class_sample_steps": "sample_steps",
    "class_sampler": "sample_sampler",
    "class_guidance_scale": "guidance_scale",
}
"""Old names of settings that keys still use: class images once used the settings of samples, and those remain valid."""
ADDED = {
    "clip_skip",
    "class_photos",
    "class_captions",
    "caption_separator",
    "caption_tag_dropout_rate",
    "enable_wildcard",
    "caption_variants",
}
"""Settings that were added after the first release: a key has them only if they are not the default, so that old keys stay valid."""
OF_THE_STEP_ALONE = ("trainer", "microbatch", "ranks", "peft", "bitsandbytes", "prodigyopt", "schedulefree", "compile")
"""Parts of the fingerprint that do not affect a frozen encoder: jobs that differ only in these share prepared files."""


def latents_key(spec: LoraSpec, fingerprint: dict[str, str], shard: int = 0) -> str:
    """Return the key of a shard of latents: of photos, held-out photos, class photos and masks, cropped as the spec says."""
    return _key(_latents(spec), fingerprint, shard)


def embeddings_key(spec: LoraSpec, fingerprint: dict[str, str], shard: int = 0) -> str:
    """Return the key of the embeddings of every text that a run trains on, or of the shard `SHOWN`: the texts of its previews."""
    return _key(_embeddings(spec), fingerprint, shard)


def class_images_key(spec: LoraSpec, shard: int = 0, *, number: int = 0) -> str:
    """Return the key of a shard of the images of one class, that of the subject with this number."""
    return _key(_class_images(spec, spec.all_subjects[number]), {}, shard)


def subject_of(key: str) -> str:
    """Return the part of a key that follows from the spec."""
    return key.rsplit("-", 1)[0]


def is_under_numerics(key: str) -> bool:
    """Return whether the bits depend on the kind of machine, so that only machines of the same kind may use them."""
    return prepared_kind(key) != "class_images"


def may_stay(key: str) -> bool:
    """Return whether a node may keep the files after the job has ended: class images contain no photos or texts of a user."""
    return prepared_kind(key) == "class_images"


def prepared_kind(key: str) -> str:
    return key.split("-", 1)[0]


def subjects(spec: LoraSpec) -> tuple[str, ...]:
    """Return the subjects of which a run of this spec may reuse files that other runs prepared."""
    of_classes = [_class_images(spec, each) for each in spec.all_subjects if each.class_images_drawn]
    return (_latents(spec), _embeddings(spec), *dict.fromkeys(of_classes))


def _key(subject: str, fingerprint: dict[str, str], shard: int = 0) -> str:
    bits = {name: value for name, value in fingerprint.items() if name not in OF_THE_STEP_ALONE}
    return f"{subject}-{digest([bits, shard])[:32]}"


def _subject(kind: str, of: dict[str, Any]) -> str:
    return f"{kind}-{digest(of | {'made_as': MADE_AS})[:32]}"


def _latents(spec: LoraSpec) -> str:
    """Return the subject of the latents. The seed is a part of it only with random crops, as it decides nothing else there."""
    cut = _values(spec, LATENTS, {"base", "vae", "seed"})
    return _subject("latents", cut | {"seed": spec.seed if spec.crop == "random" else None, "vae": _vae(spec)})


def _embeddings(spec: LoraSpec) -> str:
    """Return the subject of the embeddings. Photos' names are a part of it, as a caption belongs to a name or is in it."""
    drawn = {"shuffles": spec.caption_shuffles, "keep": spec.caption_keep, "seed": spec.seed}
    otherwise = {"base", "sample_prompts", "caption_shuffles", "caption_keep", "seed", "class_photos", "subjects"}
    said = _values(spec, EMBEDDINGS, otherwise)
    named = {name: [file.path for file in getattr(spec, name)] for name in ("photos", "held_out")}
    texts = [[each.prompt, each.negative_prompt] if each.negative_prompt else each.prompt for each in previews_of(spec)]
    shown: dict[str, Any] = {"shown": texts} | (drawn if spec.captions_vary else {})
    if spec.class_photos:
        named["class_photos"] = [file.path for file in spec.class_photos]
    if spec.subjects:
        shown["subjects"] = [[each.folder, each.prompt, each.class_prompt] for each in spec.subjects]
    return _subject("embeddings", said | named | shown | {"base": spec.base.id})


def _class_images(spec: LoraSpec, of: Subject) -> str:
    """Return the subject of the images of a class. An image's number is its seed, so that jobs with different seeds share them, and so do
    subjects of the same class."""
    drawn = {"class_images": max(0, of.class_images - len(of.class_photos)), "class_prompt": of.class_prompt}
    of_spec = _values(spec, CLASS_IMAGES, {"base", "vae", "class_photos", "subjects"}) | drawn
    settings = {CLASS_IMAGES_CALLED.get(name, name): value for name, value in of_spec.items()}
    if spec.zero_terminal_snr:
        settings["guidance_rescale"] = RESCALE_OF_ZERO_SNR
    return _subject("class_images", settings | {"base": spec.base.id, "vae": _vae(spec)})


def _values(spec: LoraSpec, what: Decides, written_otherwise: set[str]) -> dict[str, Any]:
    """Return the settings that decide `what`, except those that the key has in another form (`written_otherwise`)."""
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
