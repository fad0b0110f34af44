"""A training script as people have them: DreamBooth, a LoRA for SDXL's U-Net, with accelerate, diffusers and PEFT. It knows nothing of Gangline.

    accelerate launch train.py --base MODEL --photos FOLDER --prompt "a photo of sks dog" --output_dir output --resume_from_checkpoint latest

It saves `checkpoint-N` every --checkpointing_steps steps, resumes from the newest with --resume_from_checkpoint latest, and leaves
pytorch_lora_weights.safetensors in --output_dir. Each step prints a line of JSON with its loss.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from diffusers import DDPMScheduler, StableDiffusionXLPipeline
from diffusers.utils import convert_state_dict_to_diffusers
from peft import LoraConfig, get_peft_model_state_dict, set_peft_model_state_dict
from PIL import Image
from safetensors.torch import load_file, save_file

ENDINGS = (".png", ".jpg", ".jpeg", ".webp")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", required=True)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--output_dir", type=Path, default=Path("output"))
    parser.add_argument("--resolution", type=int, default=64)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--train_batch_size", type=int, default=2)
    parser.add_argument("--max_train_steps", type=int, default=100)
    parser.add_argument("--checkpointing_steps", type=int, default=10)
    parser.add_argument("--resume_from_checkpoint", choices=["latest"])
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def read_photos(folder: Path, side: int) -> torch.Tensor:
    """(photos, 3, side, side), between -1 and 1."""
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)
    pictures = [Image.open(path).convert("RGB").resize((side, side), Image.Resampling.LANCZOS) for path in paths]
    return torch.stack([torch.from_numpy(np.array(each)).permute(2, 0, 1) / 127.5 - 1 for each in pictures])


def newest(folder: Path) -> Path | None:
    found = [path for path in folder.glob("checkpoint-*") if path.is_dir()]
    return max(found, key=lambda path: int(path.name.split("-")[1]), default=None)


def main() -> None:
    args = parse()
    accelerator = Accelerator()
    set_seed(args.seed)
    pipeline = StableDiffusionXLPipeline.from_pretrained(args.base).to(dtype=torch.float32)
    unet, vae, scheduler = pipeline.unet, pipeline.vae, DDPMScheduler.from_config(pipeline.scheduler.config)

    with torch.no_grad():
        embeddings, _, pooled, _ = pipeline.encode_prompt(args.prompt, do_classifier_free_guidance=False)
        latents = vae.encode(read_photos(args.photos, args.resolution)).latent_dist.mode() * vae.config.scaling_factor
    sizes = torch.tensor([[args.resolution, args.resolution, 0, 0, args.resolution, args.resolution]])

    unet.requires_grad_(False)
    unet.add_adapter(LoraConfig(r=args.rank, lora_alpha=args.rank, target_modules=["to_k", "to_q", "to_v", "to_out.0"]))
    trained = [parameter for parameter in unet.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=args.learning_rate)
    unet, optimizer = accelerator.prepare(unet, optimizer)
    plain = accelerator.unwrap_model(unet)

    def save_hook(models: list, weights: list, folder: str) -> None:
        if accelerator.is_main_process:
            save_file(get_peft_model_state_dict(plain), Path(folder) / "lora.safetensors")
        weights.clear()  # so that accelerate does not save the whole model

    def load_hook(models: list, folder: str) -> None:
        set_peft_model_state_dict(plain, load_file(Path(folder) / "lora.safetensors"))
        models.clear()

    accelerator.register_save_state_pre_hook(save_hook)
    accelerator.register_load_state_pre_hook(load_hook)

    step = 0
    if args.resume_from_checkpoint and (place := newest(args.output_dir)):
        accelerator.load_state(str(place))
        step = int(place.name.split("-")[1])
    print(f"training from step {step}", flush=True)

    while step < args.max_train_steps:
        chance = torch.Generator().manual_seed(args.seed * 1_000_003 + step)
        chosen = torch.randint(len(latents), (args.train_batch_size,), generator=chance)
        clean = latents[chosen]
        noise = torch.randn(clean.shape, generator=chance)
        timesteps = torch.randint(scheduler.config.num_train_timesteps, (len(clean),), generator=chance)
        count = len(clean)
        predicted = unet(
            scheduler.add_noise(clean, noise, timesteps),
            timesteps,
            embeddings.expand(count, -1, -1),
            added_cond_kwargs={"text_embeds": pooled.expand(count, -1), "time_ids": sizes.expand(count, -1)},
        ).sample
        of_velocity = scheduler.config.prediction_type == "v_prediction"
        target = scheduler.get_velocity(clean, noise, timesteps) if of_velocity else noise
        loss = torch.nn.functional.mse_loss(predicted, target)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        print(json.dumps({"step": step, "loss": round(loss.item(), 6)}), flush=True)
        if step % args.checkpointing_steps == 0:
            accelerator.save_state(str(args.output_dir / f"checkpoint-{step}"))

    if accelerator.is_main_process:
        layers = convert_state_dict_to_diffusers(get_peft_model_state_dict(plain))
        StableDiffusionXLPipeline.save_lora_weights(args.output_dir, unet_lora_layers=layers)
    accelerator.end_training()


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "0")) or torch.get_num_threads())
    main()
