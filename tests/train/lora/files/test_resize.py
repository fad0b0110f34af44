"""A LoRA of a lower rank is the best of that rank, and the file says what was kept."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gangline.core.errors import BadInput
from gangline.core.models.families import FAMILIES
from gangline.train.lora.files.factors import spectrum_of, spectrum_of_product
from gangline.train.lora.files.resize import Resized, Rule, resize_lora
from tests.train.lora.files.loras import changes, layers_of, metadata_in, opened, parts_of, written

STEM = "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn2_to_k"


def resized(path: Path, to: Path, family: str, **rule: Any) -> Resized:
    return resize_lora(path, to, Rule(**rule), family=FAMILIES[family], layers_per_block=layers_of(family))  # pyright: ignore[reportArgumentType]


def falling(values: list[float], tmp_path: Path, alpha: float = 3.0) -> Path:
    """One layer with these singular values, before its scale."""
    count = len(values)
    left, right = (torch.linalg.qr(torch.randn(size, count, dtype=torch.float64))[0] for size in (12, 768))
    up, down = (left * torch.tensor(values)).float().contiguous(), right.T.float().contiguous()
    tensors = {f"{STEM}.lora_up.weight": up, f"{STEM}.lora_down.weight": down, f"{STEM}.alpha": torch.tensor(alpha)}
    save_file(tensors, tmp_path / "x.safetensors")
    return tmp_path / "x.safetensors"


@pytest.mark.parametrize("family", FAMILIES)
def test_each_layer_is_the_best_approximation_of_its_rank(family: str, tmp_path: Path) -> None:
    path = written(tmp_path, family, parts_of(family)[1], "kohya")
    made = resized(path, tmp_path / "small.safetensors", family, rank=2, conv_rank=3)
    before, after = changes(path, family), changes(tmp_path / "small.safetensors", family)
    assert before.keys() == after.keys()
    file = opened(tmp_path / "small.safetensors", family)
    whole = kept = 0.0
    for module in file.stems:
        wide = file.tensors_of(module)["down"].shape[2:].numel() > 1
        rank = len(file.tensors_of(module)["down"])
        assert rank == (3 if wide else 2) and file.alpha(module) / rank == pytest.approx(6.5 / 4)
        values = torch.linalg.svdvals(before[tuple(module)])
        error = float((after[tuple(module)] - before[tuple(module)]).norm())
        assert error == pytest.approx(float(values[rank:].norm()), rel=1e-4), module
        whole, kept = whole + float(values.square().sum()), kept + float(values[:rank].square().sum())
    assert made.kept == pytest.approx((kept / whole) ** 0.5, rel=1e-6)
    assert {block.block.split(".")[0] for block in made.blocks} >= {"unet", "text_encoder"}
    assert all(0 < block.kept < 1 and block.rank_least >= 2 for block in made.blocks)
    said = metadata_in(tmp_path / "small.safetensors")
    assert said["ss_training_comment"].startswith("dimension is resized to 2 (conv: 3) from 4; trained by Gangline")
    assert said["ss_network_dim"] == "2" and said["ss_sd_model_name"] == "dream.safetensors"


@pytest.mark.parametrize(
    ("rule", "rank"),
    [
        ({"rank": 3}, 3),
        ({"method": "energy", "parameter": 0.7}, 1),
        ({"method": "energy", "parameter": 0.9}, 2),
        ({"method": "energy", "parameter": 1.0}, 4),
        ({"method": "sv_fro", "parameter": 0.9}, 2),
        ({"method": "sv_fro", "parameter": 0.85}, 1),
        ({"method": "sv_ratio", "parameter": 3.0}, 2),
        ({"method": "sv_ratio", "parameter": 100.0}, 4),
        ({"rank": 1, "method": "energy", "parameter": 0.9}, 1),
        ({"rank": 400}, 4),
    ],
)
def test_a_rule_gives_each_layer_the_rank_that_its_singular_values_ask_for(
    rule: dict[str, Any], rank: int, tmp_path: Path
) -> None:
    """Of squares 16, 4, 1, 0.25 the first is 75 %, the first two 94 %; of the norm the first is 87 %."""
    resize_lora(falling([4.0, 2.0, 1.0, 0.5], tmp_path), tmp_path / "to.safetensors", Rule(**rule))
    tensors = load_file(tmp_path / "to.safetensors")
    assert len(tensors[f"{STEM}.lora_down.weight"]) == rank
    assert float(tensors[f"{STEM}.alpha"]) == pytest.approx(0.75 * rank)
    dynamic = "method" in rule and not rule.get("rank")
    said = metadata_in(tmp_path / "to.safetensors")
    assert said["ss_network_dim"] == str(rank) and ("dynamic" in said["ss_training_comment"]) >= dynamic


def test_layers_of_different_ranks_are_dynamic_in_the_metadata(tmp_path: Path) -> None:
    path = falling([4.0, 2.0], tmp_path)
    tensors = load_file(path)
    other = {name.replace("to_k", "to_v"): tensor.clone() for name, tensor in tensors.items()}
    other[f"{STEM.replace('to_k', 'to_v')}.lora_up.weight"] = torch.linalg.qr(torch.randn(12, 2))[0].contiguous()
    save_file(tensors | other, path)
    made = resize_lora(path, tmp_path / "to.safetensors", Rule(method="energy", parameter=0.7))
    assert metadata_in(tmp_path / "to.safetensors")["ss_network_dim"] == "Dynamic"
    assert (made.blocks[0].rank_least, made.blocks[0].rank_most) == (1, 2)


def test_what_keeps_its_rank_keeps_its_bits_and_zeros_stay_zeros(tmp_path: Path) -> None:
    path = falling([4.0, 2.0], tmp_path)
    before = load_file(path)
    resize_lora(path, tmp_path / "same.safetensors", Rule(rank=2))
    for name, tensor in load_file(tmp_path / "same.safetensors").items():
        assert torch.equal(tensor, before[name]), name
    save_file({name: tensor * (0 if "up" in name else 1) for name, tensor in before.items()}, path)
    made = resize_lora(path, tmp_path / "zeros.safetensors", Rule(method="energy", parameter=0.9))
    assert (made.kept, made.blocks[0].rank_most) == (1.0, 1)
    assert not load_file(tmp_path / "zeros.safetensors")[f"{STEM}.lora_up.weight"].any()


def test_a_dora_keeps_its_norms_and_one_for_comfyui_or_a_lokr_is_refused(tmp_path: Path) -> None:
    _, parts = parts_of("sd15", use_dora=True)
    path = written(tmp_path, "sd15", parts, "diffusers")
    resized(path, tmp_path / "small.safetensors", "sd15", rank=2)
    ours, theirs = opened(path, "sd15"), opened(tmp_path / "small.safetensors", "sd15")
    for module in ours.stems:
        one, other = ours.norms(module), theirs.norms(module)
        assert one is not None and other is not None and torch.equal(one.flatten(), other.flatten())
    with pytest.raises(BadInput, match="norms for ComfyUI and Forge"):
        resized(written(tmp_path, "sd15", parts, "kohya"), tmp_path / "no.safetensors", "sd15", rank=2)
    save_file(
        {f"{STEM}.lokr_w1": torch.ones(2, 4), f"{STEM}.lokr_w2": torch.ones(2, 192)}, tmp_path / "lokr.safetensors"
    )
    with pytest.raises(BadInput, match="is a LoKr") as refused:
        resized(tmp_path / "lokr.safetensors", tmp_path / "no.safetensors", "sd15", rank=2)
    assert "gangline lora merge FILE --rank N" in str(refused.value.hint)


@pytest.mark.parametrize("shape", [(40, 90), (90, 40), (33, 33)])
@pytest.mark.parametrize("rank", [1, 7, 20])
def test_a_spectrum_has_the_singular_values_that_torch_finds(shape: tuple[int, int], rank: int) -> None:
    up, down = torch.randn(shape[0], 20), torch.randn(20, shape[1])
    values = torch.linalg.svdvals((up @ down).double())
    for spectrum in (spectrum_of(up @ down, rank), spectrum_of_product(down, up)):
        assert torch.allclose(spectrum.values[:rank], values[:rank], rtol=1e-5)
        low, high = spectrum.factors(rank)
        assert float((high @ low - up @ down).norm()) == pytest.approx(float(values[rank:].norm()), rel=1e-3, abs=1e-3)
