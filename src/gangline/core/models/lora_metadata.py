"""Make the metadata of a LoRA's file for the tools that read it. It has no time in it, so that equal results have equal files.

`ss_*` fields follow kohya's train_network.py, `modelspec.*` fields Stability AI's model metadata standard 1.0.1.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gangline.core.files import File
from gangline.core.models.families import Family, Variant
from gangline.core.models.lora_layers import rank_of_convolutions
from gangline.core.specs.fields import Base, FilesBase, HubBase, Prediction
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sections.subjects import Subject
from gangline.core.specs.settings import settings_of

Precision = Literal["fp32", "bf16", "fp16"]
OPTIMIZERS = {
    "adamw": "AdamW",
    "adamw8bit": "AdamW8bit",
    "prodigy": "Prodigy",
    "schedule_free": "AdamWScheduleFree",
}
DIFFUSERS_FILE = "pytorch_lora_weights.safetensors"
"""The name that diffusers' `load_lora_weights` looks for."""
NAME_CHARACTERS_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about a run that are not in its spec. `licence` is the base's, as the hub writes it; None if it is not known.

    `steps` were taken: None if all were, fewer if the run was finished early or is `on_the_way`. `held_out` has for each held-out photo its
    name, `loss_before` and `loss_after`. `guidance_rescale` is that of its samples. `zero_terminal_snr` says what the run trained with: the
    spec's, or the base's.
    """

    name: str
    family: Family
    prediction_type: Prediction
    precision: Precision
    microbatch: int
    licence: str | None = None
    exact: bool = True
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    held_out: tuple[Mapping[str, Any], ...] = ()
    guidance_rescale: float = 0.0
    zero_terminal_snr: bool = False
    steps: int | None = None
    on_the_way: bool = False

    @property
    def kohya_file(self) -> str:
        return f"{self.name}-step{self.steps:06d}.safetensors" if self.on_the_way else f"{self.name}.safetensors"

    @property
    def variant(self) -> Variant:
        return self.family.variant(self.prediction_type)


def lora_name(spec: LoraSpec) -> str:
    """Return a name for the result that is valid as a file name and in prompts such as `<lora:sks-cat:1>`.

    It has the words of `output_name` in any script, else the ASCII words of the prompts, else it is `lora`.
    """
    named = re.findall(r"\w+", spec.output_name.lower())
    words = named or re.findall(r"[a-z0-9]+", prompts_in_words(spec).lower())
    name = "-".join(words)[:NAME_CHARACTERS_MAX].strip("-")
    return name or "lora"


def prompts_in_words(spec: LoraSpec) -> str:
    """Return what prompts of the LoRA contain: the prompt of each subject."""
    return ", ".join(subject.prompt for subject in spec.all_subjects)


def base_name(base: Base) -> str:
    """Return the name by which a user knows the base."""
    if isinstance(base, HubBase):
        return base.repo
    only = single_file(base)
    return only.path if only else base.id


def single_file(base: Base) -> File | None:
    """Return the file that has the whole base, or None if the base has several files."""
    return base.files[0] if isinstance(base, FilesBase) and len(base.files) == 1 else None


def base_sha256(base: Base) -> str:
    """Return the SHA-256 of the base's only file, by which sites and tools find it; else that of its id, which no tool knows."""
    only = single_file(base)
    return only.sha256 if only else hashlib.sha256(base.id.encode()).hexdigest()


def kohya_metadata(spec: LoraSpec, facts: Facts, conv: bool) -> dict[str, str]:
    """Return the `ss_*` fields. `conv` says whether a convolution wider than one pixel is among the trained modules."""
    derived = _network(spec, conv) | _model(spec, facts) | _training(spec, facts) | _images(spec)
    return {f"ss_{name}": str(value) for name, value in sorted((_as_they_are(spec) | derived).items())}


def _as_they_are(spec: LoraSpec) -> dict[str, Any]:
    """Return the settings that kohya has under other names with the same values."""
    known = settings_of(LoraSpec)
    return {called: getattr(spec, name) for name, setting in known.items() for called in setting.kohya}


def _network(spec: LoraSpec, conv: bool) -> dict[str, Any]:
    """Return the network's fields. DoRA is declared as LyCORIS's, as kohya's module has none; its norms are per output, as in PEFT. Ranks
    that differ between layers are Dynamic, as kohya's scripts call them."""
    wide = rank_of_convolutions(spec)
    args: dict[str, Any] = {"conv_dim": wide.rank, "conv_alpha": wide.alpha} if conv else {}
    args |= {"loraplus_lr_ratio": spec.lora_plus_ratio} if spec.lora_plus_ratio != 1 else {}
    if spec.dora:
        args |= {"algo": "lora", "dora_wd": True, "wd_on_output": True}
    if spec.algorithm == "lokr":
        args |= {"algo": "lokr", "factor": spec.lokr_factor or -1}
        args |= {"full_matrix": True} if spec.lokr_second_factor == "full" else {}
    of_lycoris = spec.dora or spec.algorithm == "lokr"
    varied = {"network_dim": "Dynamic", "network_alpha": "Dynamic"} if spec.block_ranks else {}
    return varied | {
        "network_module": "lycoris.kohya" if of_lycoris else "networks.lora",
        "network_dropout": spec.dropout or None,
        "network_args": json.dumps(args, sort_keys=True),
    }


def _model(spec: LoraSpec, facts: Facts) -> dict[str, Any]:
    of_its_id = "" if single_file(spec.base) else "; ss_new_sd_model_hash is that id's, as the base is not one file"
    values: dict[str, Any] = {
        "output_name": facts.name,
        "base_model_version": facts.variant.kohya_version,
        "v2": facts.family.kohya_v2,
        "sd_model_name": base_name(spec.base),
        "new_sd_model_hash": base_sha256(spec.base),
        "training_comment": f"trained by Gangline on {spec.base.id}{of_its_id}",
    }
    if spec.vae:
        values |= {"vae_name": base_name(spec.vae), "new_vae_hash": base_sha256(spec.vae)}
    return values


def _training(spec: LoraSpec, facts: Facts) -> dict[str, Any]:
    warm = "_with_warmup" if spec.warmup_steps and spec.schedule == "constant" else ""
    only_if_used = _loss(spec) | ({"clip_skip": spec.clip_skip} if spec.clip_skip > 1 else {})
    only_if_used |= {"zero_terminal_snr": True} if facts.zero_terminal_snr else {}
    return only_if_used | {
        "steps": spec.steps if facts.steps is None else facts.steps,
        "text_encoder_lr": (spec.text_encoder_learning_rate or spec.learning_rate) if spec.train_text_encoder else None,
        "lr_scheduler": spec.schedule + warm,
        "optimizer": f"{OPTIMIZERS[spec.optimizer]}({_arguments(spec)})",
        "batch_size_per_device": facts.microbatch,
        "gradient_accumulation_steps": -(-spec.batch_size // facts.microbatch),
        "mixed_precision": "no" if facts.precision == "fp32" else facts.precision,
        "noise_offset": spec.noise_offset or None,
    }


def _loss(spec: LoraSpec) -> dict[str, Any]:
    """Return the loss's fields, of which a file with the squared error has none, as before there was another one."""
    if spec.loss_type == "l2":
        return {}
    return {name: getattr(spec, name) for name in ("loss_type", "huber_c", "huber_schedule")}


def _arguments(spec: LoraSpec) -> str:
    """Return the optimiser's arguments, without those that are the default."""
    betas, eps = (spec.adam_beta1, spec.adam_beta2), spec.adam_epsilon
    given = {"betas": betas} if betas != (0.9, 0.999) else {}
    given |= {"eps": eps} if eps != 1e-8 else {}
    return ",".join(f"{name}={value}" for name, value in {"weight_decay": spec.weight_decay, **given}.items())


def _images(spec: LoraSpec) -> dict[str, Any]:
    """Return the data's fields. UIs suggest the words of `tag_frequency` for prompts; captions of single photos are not repeated there."""
    dropped = {"caption_tag_dropout_rate": rate} if (rate := spec.caption_tag_dropout_rate) else {}
    prompted = {_folder(each): {each.prompt: len(each.photos)} for each in spec.all_subjects if not each.captions}
    trained = {"tag_frequency": json.dumps(prompted)} if prompted else {}
    return (
        trained
        | dropped
        | _folders(spec)
        | {
            "num_train_images": sum(len(each.photos) * each.repeats for each in spec.all_subjects),
            "num_reg_images": sum(map(_class_count, spec.all_subjects)),
            "resolution": (spec.resolution, spec.resolution),
            "random_crop": spec.crop == "random",
            "cache_latents": True,
            "shuffle_caption": spec.caption_shuffles > 0,
        }
    )


def _folder(subject: Subject) -> str:
    return subject.folder or "photos"


def _class_count(subject: Subject) -> int:
    return len(subject.class_photos) + subject.class_images_drawn


def _folders(spec: LoraSpec) -> dict[str, Any]:
    """Return the folders of several subjects, as kohya's script lists them; a file of one subject had none before there were several."""
    if not spec.subjects:
        return {}
    photos = {one.folder: {"n_repeats": one.repeats, "img_count": len(one.photos)} for one in spec.all_subjects}
    counts = {one.folder: _class_count(one) for one in spec.all_subjects if one.class_prompt}
    of_classes = {folder: {"n_repeats": 1, "img_count": count} for folder, count in counts.items()}
    return {"dataset_dirs": json.dumps(photos), "reg_dataset_dirs": json.dumps(of_classes)}


def modelspec(spec: LoraSpec, facts: Facts, content_sha256: str) -> dict[str, str]:
    """Return the `modelspec.*` fields. `content_sha256` is the hash of all bytes after the file's header.

    The standard's date is left out: with it, equal results would have different files.
    """
    values = {
        "sai_model_spec": "1.0.1",
        "architecture": f"{facts.variant.architecture}/lora",
        "implementation": facts.family.implementation,
        "title": facts.name,
        "resolution": f"{spec.resolution}x{spec.resolution}",
        "hash_sha256": f"0x{content_sha256}",
        "trigger_phrase": prompts_in_words(spec),
        "prediction_type": "v" if facts.prediction_type == "v_prediction" else "epsilon",
    }
    if facts.licence:
        values["license"] = facts.licence
    return {f"modelspec.{name}": value for name, value in values.items()}
