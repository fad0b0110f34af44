"""Specs in which each setting is changed in turn, and every key that the project derives from a spec.

`python -m tests.unit.specs.specs_of_every_setting` writes `keys_of_specs.json` again. A released key never changes: running jobs are
found by it. So the file only ever grows, by the rows of new settings.
"""

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from gangline.core.canonical import digest
from gangline.core.files import File
from gangline.core.models.families import SDXL
from gangline.core.models.lora_metadata import Facts, kohya_metadata
from gangline.core.parsing import to_json
from gangline.core.runs.prepared import class_images_key, embeddings_key, latents_key, subject_of
from gangline.core.specs.caption import CaptionSpec
from gangline.core.specs.command import BroughtFolder, CommandSpec
from gangline.core.specs.fields import FilesBase, HubBase, Needs
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.phases import DataRef, TrainingPhase, VaeLosses
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.specs.sections.continuing import Continued
from gangline.core.specs.sections.previews import SamplePrompt
from gangline.core.specs.sections.subjects import SubjectEntry
from gangline.core.specs.spec import SampleSpec, Spec, TrainingSpec, spec_hash, without_defaults, workload

RECORDED = Path(__file__).with_name("keys_of_specs.json")


FACTS = Facts(name="sks-dog", family=SDXL, prediction_type="epsilon", precision="bf16", microbatch=1)


def file(path: str) -> File:
    return File(path=path, bytes=len(path), sha256=digest(path))


LORA = LoraSpec(base=HubBase(repo="a/b", revision="c" * 40), photos=(file("a.png"), file("b.png")), prompt="sks dog")
LORA_WITH_ALL = replace(
    LORA,
    base=FilesBase(files=(file("base.safetensors"),)),
    captions=(file("a.txt"),),
    held_out=(file("h.png"),),
    mask="files",
    masks=(file("a.mask.png"),),
    class_prompt="a dog",
    crop="random",
    caption_shuffles=2,
    train_text_encoder=True,
)
UNET = ScratchSpec(
    base=HubBase(repo="a/b", revision="c" * 40),
    data=(DataRef(place="s3://b/set.lance", id="set", version=3),),
    phases=(TrainingPhase(steps=10, resolution=64, batch_size=8), TrainingPhase(steps=5, resolution=128, batch_size=4)),
)
UNET_WITH_ALL = replace(
    UNET,
    train_text_encoders=True,
    held_out="sha256 < '01'",
    ema_decay=0.99,
    sample_prompts=("a cat",),
)
VAE = replace(UNET, part="vae", new=("vae",))
COMMAND = CommandSpec(command=("python", "train.py", "--steps", "100"), code=(file("train.py"),))
CAPTION = CaptionSpec(photos=(file("a.png"),), model=FilesBase(files=(file("model.onnx"), file("tags.csv"))))
STARTS: dict[str, Spec] = {
    "lora": LORA,
    "lora with all": LORA_WITH_ALL,
    "unet": UNET,
    "unet with all": UNET_WITH_ALL,
    "vae": VAE,
    "command": COMMAND,
    "caption": CAPTION,
}

OF_BOTH: dict[str, Any] = {
    "base": HubBase(repo="a/other", revision="d" * 40),
    "base_licence": "openrail",
    "caption_drop": 0.1,
    "text_encoder_learning_rate": 1e-6,
    "learning_rate": 3e-4,
    "weight_decay": 0.05,
    "adam_beta1": 0.8,
    "adam_beta2": 0.99,
    "adam_epsilon": 1e-6,
    "schedule": "cosine",
    "schedule_floor": 0.33,
    "schedule_cycles": 3,
    "schedule_steps": 300,
    "continues": Continued(job="job-a", step=400, spec_hash=digest("another spec")),
    "warmup_steps": 7,
    "gradient_norm_max": 0.5,
    "ema_decay": 0.999,
    "prediction_type": "v_prediction",
    "min_snr_gamma": 5.0,
    "noise_offset": 0.05,
    "zero_terminal_snr": True,
    "loss_type": "huber",
    "huber_c": 0.2,
    "huber_schedule": "exponential",
    "min_timestep": 100,
    "max_timestep": 900,
    "timestep_bias_strategy": "later",
    "timestep_bias_multiplier": 2.0,
    "timestep_bias_portion": 0.5,
    "timestep_bias_begin": 200,
    "timestep_bias_end": 800,
    "precision": "bf16",
    "gradient_checkpointing": True,
    "compile": True,
    "seed": 7,
    "checkpoint_every_s": 5.0,
    "checkpoint_every_steps": 9,
    "sample_result": False,
    "sample_every_steps": 3,
    "held_out_every_steps": 4,
    "stop_when_worse": 2,
    "sample_every_s": 60.0,
    "sample_prompts": ("sks dog at sea", "sks dog"),
    "sample_seeds": (3,),
    "sample_steps": 11,
    "sample_sampler": "euler",
    "guidance_scale": 7.5,
    "guidance_rescale": 0.5,
    "attempts_max": 5,
    "deliver": "s3://bucket/results/",
    "priority": 2,
    "needs": Needs(gpu="T4", gpu_memory_gb=16, slots=2, pool="p", trust=1),
    "exact": "required",
}
OF_LORA = OF_BOTH | {
    "output_name": "my dog",
    "vae": HubBase(repo="a/vae", revision="e" * 40),
    "init_lora": file("before.safetensors"),
    "photos": (file("b.png"), file("a.png")),
    "held_out": (file("i.png"),),
    "captions": (file("b.txt"),),
    "class_photos": (file("d.png"),),
    "class_captions": (file("d.txt"),),
    "masks": (file("b.mask.png"),),
    "mask": "alpha",
    "prompt": "a photo of sks cat",
    "subjects": (SubjectEntry(folder="cats", prompt="sks cat"), SubjectEntry(folder="dogs", prompt="zwx dog")),
    "caption_shuffles": 3,
    "caption_keep": 2,
    "caption_separator": ";",
    "caption_tag_dropout_rate": 0.1,
    "enable_wildcard": True,
    "caption_variants": 4,
    "clip_skip": 2,
    "class_prompt": "a cat",
    "class_images": 20,
    "class_sample_steps": 50,
    "class_sampler": "dpm++",
    "class_guidance_scale": 7.5,
    "prior_weight": 0.5,
    "resolution": 512,
    "aspect_buckets": True,
    "crop": "center",
    "crops": 2,
    "flip": True,
    "algorithm": "lokr",
    "lokr_factor": 8,
    "lokr_second_factor": "full",
    "rank": 4,
    "alpha": 8.0,
    "dropout": 0.1,
    "dora": True,
    "target_modules": ("to_q",),
    "conv_rank": 4,
    "conv_alpha": 2.0,
    "block_ranks": ("up_blocks.*=8:4", "mid_block.*=0"),
    "block_rates": ("down_blocks.*=0.5",),
    "train_text_encoder": False,
    "lora_plus_ratio": 16.0,
    "steps": 1000,
    "batch_size": 4,
    "microbatch": 1,
    "optimizer": "prodigy",
    "base_precision": "4bit",
    "keep_loras": True,
}
OF_SCRATCH = OF_BOTH | {
    "part": "unet",
    "new": ("unet",),
    "train_text_encoders": False,
    "freeze_token_embeddings": True,
    "data": (DataRef(place="data/other", id="other", version=1, files=(file("x"),), weight=2.0, where="a > 1"),),
    "phases": (TrainingPhase(steps=10, resolution=64, batch_size=8),),
    "held_out": "width < 300",
    "held_out_rows": 8,
    "text_embeddings": "required",
    "optimizer": "adamw8bit",
    "ema_from_step": 4,
    "vae_losses": VaeLosses(l1=0.5),
    "parallel": "fsdp",
}
OF_COMMAND: dict[str, Any] = {
    "command": ("python", "train.py", "--steps", "200"),
    "code": (file("other.py"),),
    "data": (BroughtFolder(name="images", files=(file("a.png"),)),),
    "checkpoints": "saves",
    "results": ("logs",),
    "layout": "accelerate",
    "complete_when": "step_*/done",
    "step": "step_{step}",
    "steps": 100,
    "environment": ("LR=1e-4",),
    "network": True,
    "grace_s": 5.0,
    "silent_s": 60.0,
} | {name: OF_BOTH[name] for name in ("attempts_max", "deliver", "priority", "needs")}
OF_CAPTION: dict[str, Any] = {
    "photos": (file("b.png"),),
    "model": FilesBase(files=(file("config.json"), file("model.safetensors"))),
    "prefix": "sks dog, ",
    "threshold": 0.5,
    "character_threshold": 0.9,
    "exclude": ("simple_background",),
    "instruction": "What is this?",
    "tokens_max": 64,
    "photo_s": 60.0,
} | {name: OF_BOTH[name] for name in ("attempts_max", "deliver", "priority", "needs")}
OF_A_PHASE: dict[str, Any] = {
    "steps": 11,
    "resolution": 72,
    "batch_size": 16,
    "microbatch": 2,
    "learning_rate": 1e-3,
    "warmup_steps": 3,
    "where": "a > 1",
    "crop": "random",
    "latents": "off",
}
OF_A_SUBJECT: dict[str, Any] = {
    "folder": "kittens",
    "prompt": "sks kitten",
    "class_prompt": "a cat",
    "class_images": 20,
    "prior_weight": 0.5,
    "repeats": 3,
    "weight": 2.0,
}
OF_A_PROMPT: dict[str, Any] = {
    "prompt": "sks dog at sea",
    "negative_prompt": "blurry",
    "width": 832,
    "height": 1216,
    "seeds": (42,),
    "steps": 28,
    "guidance_scale": 7.5,
    "sampler": "euler_a",
}


def changes_of(spec: Spec) -> dict[str, Any]:
    """Another value of each setting, by its name."""
    of = {"lora": OF_LORA, "scratch": OF_SCRATCH, "command": OF_COMMAND, "caption": OF_CAPTION}[spec.kind]
    return {name: value for name, value in of.items() if getattr(spec, name) != value}


def cases() -> Iterator[tuple[str, Spec]]:
    for name, spec in STARTS.items():
        yield name, spec
        for setting, value in changes_of(spec).items():
            yield f"{name}, another {setting}", replace(spec, **{setting: value})
    for setting, value in OF_A_PHASE.items():
        yield f"unet, another phases.0.{setting}", with_phase(**{setting: value})
    for setting, value in OF_A_PROMPT.items():
        yield f"lora, another sample_prompts.0.{setting}", with_prompt(**{setting: value})
    for setting, value in OF_A_SUBJECT.items():
        yield f"lora, another subjects.0.{setting}", with_subject(**{setting: value})


def with_phase(**settings: Any) -> ScratchSpec:
    return replace(UNET, phases=(replace(UNET.phases[0], **settings), *UNET.phases[1:]))


def with_prompt(**settings: Any) -> LoraSpec:
    return replace(LORA, sample_prompts=(SamplePrompt(**{"prompt": "sks dog"} | settings),))


def with_subject(**settings: Any) -> LoraSpec:
    """Two subjects, the first with a class; of its settings some are changed."""
    first = SubjectEntry(**{"folder": "cats", "prompt": "sks cat", "class_prompt": "cat"} | settings)
    photos = tuple(file(f"{folder}/a.png") for folder in ("cats", "kittens", "dogs"))
    return replace(LORA, photos=photos, subjects=(first, SubjectEntry(folder="dogs", prompt="zwx dog")))


def keys_of(spec: Spec) -> dict[str, str]:
    """Every key that is kept anywhere: in the database, beside checkpoints, at prepared files. And what a LoRA's file says."""
    found = {"hash": spec_hash(spec), "workload": workload(spec)}
    if isinstance(spec, LoraSpec):
        made = {
            "latents": latents_key(spec, {}),
            "embeddings": embeddings_key(spec, {}),
            "class_images": class_images_key(spec),
        }
        found |= {kind: subject_of(key).removeprefix(f"{kind}-") for kind, key in made.items()}
        found["kohya"] = digest(kohya_metadata(spec, FACTS, conv=True))[:32]
    return found


def texts_of(spec: Spec) -> dict[str, str]:
    """Digests of a spec as it is stored, as a node is told it, and as that of the pictures of its result."""
    value = json.loads(json.dumps(to_json(spec)))
    found = {"json": digest(value), "told briefly": digest(without_defaults(value))}
    if not isinstance(spec, TrainingSpec):
        return found
    return found | {"pictures": digest(to_json(SampleSpec(of=spec, job="job-1", checkpoint=None, step=100)))}


def everything() -> dict[str, Any]:
    return {
        "settings": {"lora": sorted(to_json(LORA)), "scratch": sorted(to_json(UNET))},
        "texts": {name: texts_of(spec) for name, spec in STARTS.items()},
        "keys": {name: keys_of(spec) for name, spec in cases()},
    }


def unchanged(spec: Spec) -> set[str]:
    """Settings that no case changes."""
    names = {field.name for field in fields(spec)} - {"kind"}
    return names - {name for start in STARTS.values() if type(start) is type(spec) for name in changes_of(start)}


def on_lines(rows: dict[str, Any]) -> str:
    return ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())


if __name__ == "__main__":
    parts = (f"{json.dumps(name)}: {{\n{on_lines(rows)}\n}}" for name, rows in everything().items())
    RECORDED.write_text("{" + ",\n".join(parts) + "}\n")
