"""A LoRA of the difference of two checkpoints is that difference, as far as its rank goes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gangline.core.errors import BadInput
from gangline.core.models.families import FAMILIES, FamilyName
from gangline.train.lora.adapter import Adapter
from gangline.train.lora.export import write_diffusers
from gangline.train.lora.files.extract import extract_lora
from gangline.train.lora.merge import merge_loras
from gangline.train.model.base import load_base
from tests.train.bases import save_single, save_tiny
from tests.train.lora.files.loras import metadata_in
from tests.train.lora.test_blocks import as_if_trained
from tests.train.lora.test_merge import spec_of

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=FAMILIES)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[FamilyName, Path, Path, Path]:
    """A base as a folder and as a file, and a file of it with a LoRA of rank 4 in many layers merged into it."""
    family: FamilyName = request.param
    at = tmp_path_factory.mktemp(family)
    folder = save_tiny(at / "folder", family)
    file = save_single(folder, at / "base.safetensors", family)
    adapter = Adapter(load_base(folder, CPU, torch.float32), spec_of(conv_rank=3, conv_alpha=5.0))
    as_if_trained(adapter)
    lora = write_diffusers(at, adapter.as_parts())
    return family, folder, file, merge_loras([(lora, 1.0)], folder, at / "tuned.safetensors", torch.float32).path


def weights(path: Path, part: str) -> dict[str, torch.Tensor]:
    base = load_base(path, CPU, torch.float32)
    module: Any = base.unet if part == "unet" else base.text_encoders[int(part == "text_encoder_2")]
    return {
        name.removesuffix(".weight"): weight
        for name, weight in module.state_dict().items()
        if name.endswith(".weight") and weight.dim() > 1
    }


@pytest.mark.parametrize("layout", ["folder", "file"])
def test_merged_into_the_base_it_gives_the_tuned_checkpoint(
    pair: tuple[FamilyName, Path, Path, Path], layout: str, tmp_path: Path
) -> None:
    family, folder, file, tuned = pair
    base = folder if layout == "folder" else file
    done: list[tuple[int, int]] = []
    made = extract_lora(
        base,
        tuned,
        tmp_path / "lora.safetensors",
        4,
        conv_rank=4,
        text_encoder=True,
        dtype=torch.float32,
        tell=lambda *numbers: done.append(numbers),
    )
    assert made.family == family and made.kept == pytest.approx(1.0, abs=1e-4)
    assert done[-1] == (len(done), len(done)) and made.layers + made.equal == len(done)
    merged = merge_loras(
        [(tmp_path / "lora.safetensors", 1.0)], base, tmp_path / "merged.safetensors", torch.float32
    ).path
    for part in ("unet", *FAMILIES[family].text_parts):
        wanted, found = weights(tuned, part), weights(merged, part)
        for name, weight in wanted.items():
            assert torch.allclose(found[name], weight, atol=2e-5), f"{part}.{name}"


def test_without_options_only_transformers_of_the_unet_are_compared(
    pair: tuple[FamilyName, Path, Path, Path], tmp_path: Path
) -> None:
    family, folder, _, tuned = pair
    extract_lora(folder, tuned, tmp_path / "lora.safetensors", 2)
    tensors = load_file(tmp_path / "lora.safetensors")
    assert tensors and all(name.startswith("lora_unet_") for name in tensors)
    assert not [name for name in tensors if "conv" in name or "resnets" in name or "in_layers" in name]
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    said = metadata_in(tmp_path / "lora.safetensors")
    assert said["ss_base_model_version"] == FAMILIES[family].variant("epsilon").kohya_version
    assert (said["ss_network_dim"], said["ss_network_alpha"], said["ss_sd_model_name"]) == ("2", "2.0", "folder")


def test_a_lower_rank_keeps_the_largest_part(pair: tuple[FamilyName, Path, Path, Path], tmp_path: Path) -> None:
    _, _, file, tuned = pair
    kept = [extract_lora(file, tuned, tmp_path / f"{rank}.safetensors", rank).kept for rank in (1, 2, 4)]
    assert kept == sorted(kept) and 0.3 < kept[0] < kept[1] < 0.999 < kept[2] + 0.001


def test_checkpoints_of_two_families_or_sizes_and_equal_ones_are_refused(tmp_path: Path) -> None:
    one, other = save_tiny(tmp_path / "one", "sd15"), save_tiny(tmp_path / "other", "sdxl")
    target = tmp_path / "lora.safetensors"
    with pytest.raises(BadInput, match="one is Stable Diffusion 1, and other is SDXL"):
        extract_lora(one, other, target, 4)
    with pytest.raises(BadInput, match="one has the weights of one in every layer") as refused:
        extract_lora(one, one, target, 4)
    assert "--text-encoder" in str(refused.value.hint)
    from tests.train.bases import save_smallest

    with pytest.raises(BadInput, match="different layers in their unet"):
        extract_lora(one, save_smallest(tmp_path / "small"), target, 4)
    assert not target.exists()
