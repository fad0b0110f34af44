"""Checkpoints as the libraries write them: each function makes one below `folder` and gives its name."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


class Counter:
    """Something that a script registers with accelerate."""

    def state_dict(self) -> dict[str, int]:
        return {"count": 3}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


class Numbers(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        value = torch.full((4,), float(index))
        return {"x": value, "labels": value[:2]}


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        y = self.layer(x)
        return {"loss": (y - (0 if labels is None else labels)).square().mean(), "logits": y}


def by_accelerate(
    folder: Path,
    name: str = "checkpoint-100",
    *,
    precision: str = "no",
    safe: bool = True,
    models: int = 1,
    scaler: bool = False,
    registered: bool = False,
    hook: Callable[[Path], None] | None = None,
) -> str:
    """`hook` writes what a script's save hook writes; then accelerate writes no weights of its own, as in diffusers' LoRA scripts."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState, PartialState

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()  # type: ignore[attr-defined]
    accelerator = Accelerator(cpu=True, mixed_precision=precision)
    made = [Small() for _ in range(models)]
    optimisers = [torch.optim.AdamW(model.parameters()) for model in made]
    schedulers = [torch.optim.lr_scheduler.ConstantLR(each) for each in optimisers]
    loader = DataLoader(Numbers(), batch_size=2, shuffle=True)
    accelerator.prepare(*made, *optimisers, *schedulers, loader)
    if scaler:
        accelerator.scaler = torch.amp.GradScaler("cpu")
    if registered:
        accelerator.register_for_checkpointing(Counter())
    if hook:

        def save(models: list[Any], weights: list[Any], output: str) -> None:
            hook(Path(output))
            weights.clear()

        accelerator.register_save_state_pre_hook(save)
    accelerator.save_state(str(folder / name), safe_serialization=safe)
    return name


def lora_of_diffusers(output: Path) -> None:
    from safetensors.torch import save_file

    save_file({"unet.down.lora_A.weight": torch.zeros(4, 4)}, output / "pytorch_lora_weights.safetensors")


def ema_of_diffusers(output: Path) -> None:
    """As the text-to-image script does: the model and its average, each a folder by save_pretrained, in shards."""
    from diffusers import UNet2DModel

    for name in ("unet_ema", "unet"):
        model = UNet2DModel(
            block_out_channels=(8,), down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",), norm_num_groups=4
        )
        model.save_pretrained(output / name, max_shard_size="4KB")


def by_kohya(folder: Path) -> str:
    """As its scripts name it, with its note beside accelerate's files."""

    def hook(output: Path) -> None:
        lora_of_diffusers(output)
        (output / "train_state.json").write_text('{"current_epoch": 1, "current_step": 101}')

    return by_accelerate(folder, "timber-step00000100-state", hook=hook)


def by_trainer(folder: Path) -> str:
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=2,
        save_steps=2,
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(model=Small(), args=arguments, train_dataset=Numbers()).train()
    return "checkpoint-2"


def by_lightning(folder: Path) -> str:
    import pytorch_lightning as lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.small = Small()

        def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
            return self.small(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    trainer = lightning.Trainer(
        max_steps=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(Numbers(), batch_size=2))
    trainer.save_checkpoint(folder / "epoch=0-step=2.ckpt")
    return "epoch=0-step=2.ckpt"


def by_contract(folder: Path) -> str:
    """As this project's own trainers do."""
    import json

    from gangline.core.runs.contract import Manifest
    from tests.conftest import file_at

    place = folder / "000100"
    place.mkdir(parents=True)
    (place / "state.json").write_text('{"a": 1}')
    (place / "moments.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    files = tuple(file_at(path, place) for path in sorted(place.iterdir()))
    manifest = Manifest(step=100, spec_hash="0" * 64, fingerprint={}, exact=True, files=files)
    (place / "manifest.json").write_text(json.dumps(manifest.to_json()))
    return place.name


random.seed(0)
WRITERS: dict[str, tuple[str, int, Callable[[Path], str]]] = {
    "accelerate, fp32": ("accelerate", 100, by_accelerate),
    "accelerate, bf16": ("accelerate", 100, lambda folder: by_accelerate(folder, precision="bf16")),
    "accelerate, fp16": ("accelerate", 100, lambda folder: by_accelerate(folder, scaler=True)),
    "accelerate, no safetensors": ("accelerate", 100, lambda folder: by_accelerate(folder, safe=False)),
    "accelerate, two models": ("accelerate", 100, lambda folder: by_accelerate(folder, models=2)),
    "accelerate, registered objects": ("accelerate", 100, lambda folder: by_accelerate(folder, registered=True)),
    "accelerate, named step_7": ("accelerate", 7, lambda folder: by_accelerate(folder, "step_7")),
    "diffusers, LoRA": ("accelerate", 100, lambda folder: by_accelerate(folder, hook=lora_of_diffusers)),
    "diffusers, EMA in shards": ("accelerate", 100, lambda folder: by_accelerate(folder, hook=ema_of_diffusers)),
    "kohya": ("kohya", 101, by_kohya),
    "transformers": ("hf-trainer", 2, by_trainer),
    "lightning": ("lightning", 2, by_lightning),
    "contract": ("manifest", 100, by_contract),
}
