"""What a run leaves: weights, pictures, the loss of photos that were never trained on, and what is to be said of them."""

import json
from dataclasses import replace
from typing import Any

import torch
from diffusers import StableDiffusionXLPipeline
from diffusers.utils import convert_state_dict_to_diffusers

from gangline.core.spec import LoraSpec
from gangline.train import chance
from gangline.train.adapter import UNET, Adapter
from gangline.train.base import Base
from gangline.train.checkpoint import Identity
from gangline.train.contract import RunDirectory
from gangline.train.digest import tensors_digest
from gangline.train.loss import losses, process_of
from gangline.train.material import Material
from gangline.train.prepare import Latents
from gangline.train.sample import render_comparison
from gangline.train.text import Embedded, condition, embed_all

WEIGHTS = "pytorch_lora_weights.safetensors"
REPORT = "report.json"
DRAWS = 64


def write_result(
    run: RunDirectory, base: Base, spec: LoraSpec, material: Material, adapter: Adapter, identity: Identity
) -> None:
    """The adapter is as it is to be used."""
    settings = {
        key: sorted(value) if isinstance(value, set) else value
        for key, value in adapter.configs[UNET].to_dict().items()
    }
    StableDiffusionXLPipeline.save_lora_weights(
        run.output,
        unet_lora_layers=convert_state_dict_to_diffusers(adapter.state_of(UNET)),
        unet_lora_adapter_metadata=settings,
    )
    spoken = spoken_now(base, material, adapter)
    report = {
        "steps": spec.steps,
        "weights_digest": tensors_digest(run.output / WEIGHTS),
        "exact": identity.exact,
        "fingerprint": identity.fingerprint,
        "held_out": measure_held_out(base, spec, material, adapter, spoken),
    }
    (run.output / REPORT).write_text(json.dumps(report, indent=1) + "\n")
    render_comparison(base, spec, adapter, material.words.texts, material.spoken, spoken, run.samples)


def spoken_now(base: Base, material: Material, adapter: Adapter) -> Embedded:
    """The embeddings of all texts, by the text encoders as they have become."""
    if material.words.embedded is not None:
        return material.words.embedded
    return embed_all(base, material.words.texts)


def measure_held_out(
    base: Base, spec: LoraSpec, material: Material, adapter: Adapter, spoken: Embedded
) -> list[dict[str, Any]]:
    """The loss of photos that were never trained on, with the base alone and with the LoRA."""
    prompt = material.words.texts.index(spec.prompt)
    found = []
    for file, latents in material.held_out:
        with adapter.switched_off():
            before = held_out_loss(base, spec, latents, material.spoken[[prompt]])
        after = held_out_loss(base, spec, latents, spoken[[prompt]])
        found.append({"photo": file.path, "loss_before": round(before, 6), "loss_after": round(after, 6)})
    return found


@torch.no_grad()
def held_out_loss(base: Base, spec: LoraSpec, latents: Latents, words: Embedded) -> float:
    """The mean over fixed pairs of noise and timestep, the same before and after training."""
    device = base.unet.device
    process = replace(process_of(base.noise, spec, device), min_snr_gamma=None)
    count = len(process.alphas)
    timesteps = (torch.arange(DRAWS) * count // DRAWS + count // (2 * DRAWS)).to(device)
    noise = chance.normal(spec.seed, "held-out noise", 0, range(DRAWS), latents.shape).to(device)
    clean = latents.mean.to(device)
    told = condition(base, words.to(device), latents.sizes.to(device))
    total = 0.0
    for draw in range(DRAWS):
        noisy = process.noisy(clean, noise[[draw]], timesteps[[draw]])
        with torch.autocast(device.type, base.dtype, enabled=base.dtype != torch.float32):
            predicted = base.unet(noisy.to(base.dtype), timesteps[[draw]], **told).sample
        total += losses(process, predicted, clean, noise[[draw]], timesteps[[draw]]).item()
    return total / DRAWS
