"""What each setting of a LoRA's spec means, in a sentence: for `gangline train --help` and docs/training.md.

What is handed in as files is not among them: the base, the VAE, the LoRA to go on from, photos, captions and masks.
"""

from dataclasses import MISSING, fields

HANDED_IN = ("kind", "base", "vae", "init_lora", "photos", "held_out", "captions", "masks")

GROUPS: dict[str, dict[str, str]] = {
    "What it learns": {
        "prompt": "What the photos show, with a rare word and the kind of thing: 'a photo of sks dog'.",
        "mask": "Where the loss counts: everywhere, where a photo is opaque (alpha), or where its mask is white (files).",
        "caption_drop": "The share of images that are shown without words: it makes guidance stronger later.",
        "caption_shuffles": "How many orders of a caption's tags are seen; 0 leaves them as they are.",
        "caption_keep": "How many tags at the start of a caption are never shuffled.",
        "class_prompt": "The kind of thing alone, 'a photo of a dog': the base's own pictures of it are learned too, so that it is kept.",
        "class_images": "How many pictures the base makes of the class prompt.",
        "prior_weight": "How much their loss counts against that of the photos.",
    },
    "How pictures are cut": {
        "resolution": "Pixels of a square's side, or of one with a bucket's area: 1024 for SDXL, 768 or 512 for SD 2, 512 for SD 1.5.",
        "aspect_buckets": "Keep the shape of each photo, from 1:2 to 2:1, in place of cutting a square from it.",
        "crop": "Which part of a photo is taken where it does not fit: its center, or random places.",
        "crops": "How many random places of each photo are seen.",
        "flip": "See each picture mirrored, too: not for faces, letters and whatever has a left and a right.",
    },
    "The LoRA": {
        "rank": "How many directions each layer may learn: more hold more and take more memory.",
        "alpha": "What is learned counts alpha ÷ rank.",
        "dropout": "The share of what comes into the LoRA that is left out by chance in each step.",
        "dora": "Learn size and direction of the weights apart (Liu et al. 2024): slower, often closer to full training.",
        "target_modules": "The layers that learn, by the end of their names.",
        "train_text_encoder": "Learn in the text encoders too: a subject with a word of its own is learned much better.",
        "text_encoder_learning_rate": "Their own rate; without it, that of the U-Net.",
    },
    "How it is trained": {
        "steps": "Optimiser steps.",
        "batch_size": "Images of one step.",
        "microbatch": "How many of them are computed at a time; without it, as many as fit into memory.",
        "optimizer": "AdamW, AdamW with 8-bit states, Prodigy (which finds the rate itself), or schedule-free AdamW.",
        "learning_rate": "The optimiser's; for Prodigy a factor, best left at 1.",
        "weight_decay": "How fast weights that nothing asks for go back to 0.",
        "schedule": "The rate over time: it stays, or falls to 0 in a line or along a cosine.",
        "warmup_steps": "Over so many steps the rate rises from 0.",
        "gradient_norm_max": "Longer gradients are cut to this norm.",
        "ema_decay": "Keep a mean of the weights over time, which forgets by this factor a step (0.999, say), as the result.",
    },
    "What is minimised": {
        "prediction_type": "What the base predicts: noise (epsilon) or velocity (v_prediction); auto asks the base.",
        "min_snr_gamma": "Weigh timesteps by their signal-to-noise ratio up to this (Hang et al. 2023; 5 is usual): learns faster.",
        "noise_offset": "Add a little of one brightness to the noise (0.05, say): darker and lighter pictures become possible.",
        "zero_terminal_snr": "Let the last timestep be pure noise (Lin et al. 2023): for bases that predict velocity.",
    },
    "How a card manages": {
        "precision": "Of the computation: auto takes bf16 on cards that have it, else fp32. The LoRA's own weights are always fp32.",
        "base_precision": "The base's weights in full, or in 8 or 4 bits (QLoRA) for small cards.",
        "gradient_checkpointing": "Compute parts twice in place of keeping them: slower, in much less memory.",
        "compile": "Compile the U-Net first: minutes at the start, faster steps.",
    },
    "Chance and saving": {
        "seed": "All chance follows from it: the same spec gives the same weights.",
        "checkpoint_every_s": "Seconds between saves at the most.",
        "checkpoint_every_steps": "Steps between saves, besides.",
    },
    "Pictures to look at": {
        "sample_result": "Show the result beside what the base alone makes of the same prompts and seeds.",
        "sample_every_steps": "Steps between pictures of what is learned so far; without an interval there are none on the way.",
        "sample_every_s": "Seconds between pictures.",
        "sample_prompts": "What to render; without it, the prompt.",
        "sample_seeds": "A picture of each prompt for each seed.",
        "sample_steps": "Steps of the sampler.",
        "sample_sampler": "The sampler.",
        "guidance_scale": "How strongly pictures follow their prompts.",
    },
    "What is said of it": {
        "base_licence": "The base's licence, for the model card; else what the base itself says, or the hub.",
    },
    "Where and how often it is tried": {
        "attempts_max": "After so many failures the job has failed; interruptions are none.",
        "priority": "Higher goes first among your jobs.",
        "needs": "What it asks of a node.",
        "exact": "Whether it goes on only where the bits stay the same: required, preferred, off.",
    },
}

NEEDS = {
    "gpu": "The class of GPU that it needs, as `gangline nodes ls` shows.",
    "gpu_memory_gb": "The memory of a GPU that it needs.",
    "slots": "How many GPUs of one node it needs.",
    "pool": "The pool that it may run in.",
    "trust": "The least trust tier of its pool.",
}


def default_of(of: type, name: str) -> str:
    """As people write it; empty where there is none."""
    default = next(field.default for field in fields(of) if field.name == name)
    if default is MISSING or default is None or default in ((), "") or name == "needs":
        return ""
    if isinstance(default, bool):
        return "yes" if default else "no"
    return (
        ", ".join(map(str, default))
        if isinstance(default, tuple)
        else f"{default:g}"
        if isinstance(default, float)
        else str(default)
    )
