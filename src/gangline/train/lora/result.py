"""Write a run's result: weights, the loss of photos that were never trained on, and the model card."""

import json
from pathlib import Path
from typing import Any

import torch

from gangline.core.models.lora_metadata import Facts, Precision, lora_name
from gangline.core.runs.contract import LORA, PHOTOS, REPORT, SAMPLES, picture_name
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sample import previews_of
from gangline.core.specs.sections.subjects import Subject
from gangline.data.bases import single_file_of
from gangline.data.images.grid import spread, strip
from gangline.data.images.pixels import read_photo
from gangline.train.checkpoints.manifest import CheckpointIdentity
from gangline.train.learning.held_out import HeldOutCurve
from gangline.train.lora.adapter import Adapter
from gangline.train.lora.batches import LoraBatch, TextBatches
from gangline.train.lora.card import CardPicture, write_card
from gangline.train.lora.export import write_diffusers, write_kohya
from gangline.train.lora.inputs import TrainingInputs
from gangline.train.lora.prepare import Latents
from gangline.train.lora.updates import LoraPart
from gangline.train.model.base import LoadedBase
from gangline.train.model.denoise import rescale_of
from gangline.train.model.loss import losses, process_of
from gangline.train.model.text import Embedded, condition, embed_all
from gangline.train.run import chance
from gangline.train.run.aside import left_out_without_memory
from gangline.train.run.contract import RunDirectory, step_of_result, steps_in_report
from gangline.train.run.digest import tensors_digest

PRECISIONS: dict[torch.dtype, Precision] = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
DRAWS = 64
FORMATS, BESIDE_BYTES = 2, 32 * 2**20
"""The formats in which a result has its weights, and the most that the rest of it takes."""


def write_result(
    run: RunDirectory,
    base: LoadedBase,
    spec: LoraSpec,
    inputs: TrainingInputs,
    adapter: Adapter,
    identity: CheckpointIdentity,
    curve: HeldOutCurve,
) -> None:
    """Write the result. The adapter must already hold the weights of the result."""
    facts = _facts(
        base,
        spec,
        steps=step_of_result(run, spec, curve.best_step),
        microbatch=int(identity.fingerprint["microbatch"]),
        exact=identity.exact,
        fingerprint=identity.fingerprint,
        held_out=tuple(measure_held_out(base, spec, inputs, adapter)),
        guidance_rescale=rescale_of(base, spec),
    )
    parts = adapter.as_parts()
    size = FORMATS * sum(weight.nbytes for part in parts.values() for weight in part.weights.values()) + BESIDE_BYTES
    run.write_output(size, lambda: _write(run, base, spec, parts, facts, curve))


def _write(
    run: RunDirectory,
    base: LoadedBase,
    spec: LoraSpec,
    parts: dict[str, LoraPart],
    facts: Facts,
    curve: HeldOutCurve,
) -> None:
    run.output.mkdir(parents=True, exist_ok=True)
    weights = write_diffusers(run.output, parts)
    write_kohya(run.output, parts, base.unet.config.layers_per_block, spec, facts, single_file_of(base.path))
    report = steps_in_report(run, spec, curve.best_step) | {
        "weights_digest": tensors_digest(weights),
        "exact": facts.exact,
        "fingerprint": facts.fingerprint,
        "held_out": facts.held_out,
        "held_out_curve": curve.told("held_out_loss"),
    }
    if spec.subjects:
        report["subjects"] = [_as_reported(subject) for subject in spec.all_subjects]
    (run.output / REPORT).write_text(json.dumps(report, indent=1) + "\n")
    _show_photos(run, spec)
    write_card(run.output, spec, facts, comparison_pictures(spec) if spec.sample_result else ())


def _as_reported(subject: Subject) -> dict[str, Any]:
    counts = {"photos": len(subject.photos), "held_out": len(subject.held_out)}
    of_class = {"class_photos": len(subject.class_photos), "class_images_drawn": subject.class_images_drawn}
    own = {
        name: getattr(subject, name)
        for name in ("folder", "prompt", "class_prompt", "repeats", "weight", "prior_weight")
    }
    return own | counts | of_class


def write_step(folder: Path, base: LoadedBase, spec: LoraSpec, adapter: Adapter, step: int) -> None:
    """Write the LoRA that the adapter holds, of a step on the way, in kohya's format, which diffusers loads as well. It is the same file
    whichever process writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = _facts(base, spec, steps=step, microbatch=spec.microbatch or spec.batch_size, on_the_way=True)
    layers = base.unet.config.layers_per_block
    write_kohya(folder, adapter.as_parts(), layers, spec, facts, single_file_of(base.path))


def _facts(base: LoadedBase, spec: LoraSpec, **of_the_run: Any) -> Facts:
    return Facts(
        name=lora_name(spec),
        family=base.family,
        prediction_type=base.prediction_type,
        zero_terminal_snr=base.zero_terminal_snr,
        precision=PRECISIONS[base.dtype],
        licence=spec.base_licence or None,
        **of_the_run,
    )


def _show_photos(run: RunDirectory, spec: LoraSpec) -> None:
    """Write a strip of photos to compare pictures of the result with."""
    folder = run.output / SAMPLES
    folder.mkdir(exist_ok=True)
    shown = (read_photo(run.inputs / "photos" / spec.photos[number].path) for number in spread(len(spec.photos)))
    strip(shown).save(folder / PHOTOS)


def comparison_pictures(spec: LoraSpec) -> tuple[CardPicture, ...]:
    """Return the pictures with the LoRA that `render_comparison` will make, with their paths among the job's artifacts."""
    return tuple(
        CardPicture(
            prompt=preview.prompt,
            negative_prompt=preview.negative_prompt,
            path=f"samples/{picture_name(preview.number, seed, LORA)}",
        )
        for preview in previews_of(spec)
        for seed in preview.seeds
    )


def spoken_now(base: LoadedBase, words: TextBatches) -> Embedded:
    """Return the embeddings of the texts by the text encoders in their current state."""
    return embed_all(base, words.texts) if words.embedded is None else words.embedded


def held_out_batches(
    base: LoadedBase, spec: LoraSpec, inputs: TrainingInputs
) -> tuple[list[LoraBatch], list[torch.Tensor]]:
    """Return the samples of each held-out photo, `DRAWS` pairs of noise and timestep that never change, and their numbers."""
    batches, numbers = list[LoraBatch](), list[torch.Tensor]()
    for place, photo in enumerate(inputs.held_out):
        noise, timesteps = held_out_draws(base, spec, photo.latents)
        batches.append(
            LoraBatch(
                clean=photo.latents.mean.expand(DRAWS, -1, -1, -1),
                noise=noise,
                timesteps=timesteps,
                sizes=photo.latents.sizes.expand(DRAWS, -1),
                mask=None,
                share=torch.full((DRAWS,), 1 / DRAWS),
                **inputs.words.batch([photo.caption] * DRAWS),
            )
        )
        numbers.append(torch.arange(place * DRAWS, (place + 1) * DRAWS))
    return batches, numbers


def held_out_draws(base: LoadedBase, spec: LoraSpec, latents: Latents) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noise (DRAWS, C, H, W) and as many timesteps, spread evenly, the same at any time; on the CPU."""
    count = base.noise.config.num_train_timesteps
    timesteps = torch.arange(DRAWS) * count // DRAWS + count // (2 * DRAWS)
    return chance.normal(spec.seed, "held-out noise", 0, range(DRAWS), latents.shape), timesteps


def measure_held_out(
    base: LoadedBase, spec: LoraSpec, inputs: TrainingInputs, adapter: Adapter
) -> list[dict[str, Any]]:
    """Return the loss of photos that were never trained on, with the base alone and with the LoRA; empty if memory runs out."""
    found = list[dict[str, Any]]()
    if not inputs.held_out:
        return found
    with left_out_without_memory("the loss of held-out photos is"):
        spoken = spoken_now(base, inputs.words)
        for photo in inputs.held_out:
            caption = inputs.words.texts.index(photo.caption)
            with adapter.switched_off():
                before = held_out_loss(base, spec, photo.latents, inputs.spoken[[caption]])
            after = held_out_loss(base, spec, photo.latents, spoken[[caption]])
            found.append({"photo": photo.photo, "loss_before": round(before, 6), "loss_after": round(after, 6)})
    return found


@torch.no_grad()
def held_out_loss(base: LoadedBase, spec: LoraSpec, latents: Latents, words: Embedded) -> float:
    """Return the mean loss over `DRAWS` fixed pairs of noise and timestep, the same before and after training."""
    device = base.device
    process = process_of(base)
    noise, timesteps = (drawn.to(device) for drawn in held_out_draws(base, spec, latents))
    clean = latents.mean.to(device)
    told = condition(base, words.to(device), latents.sizes.to(device))
    total = 0.0
    for draw in range(DRAWS):
        noisy = process.noisy(clean, noise[[draw]], timesteps[[draw]])
        with torch.autocast(device.type, base.dtype, enabled=base.dtype != torch.float32):
            predicted = base.unet(noisy.to(base.dtype), timesteps[[draw]], **told).sample
        total += losses(process, predicted, clean, noise[[draw]], timesteps[[draw]]).item()
    return total / DRAWS
