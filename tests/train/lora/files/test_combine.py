"""A sum of LoRAs adds the sum of what they add."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gangline.core.errors import BadInput
from gangline.core.models.families import FAMILIES
from gangline.train.lora.files.combine import combine_loras
from gangline.train.lora.files.convert import convert_lora
from tests.train.lora.files.loras import changes, layers_of, metadata_in, parts_of, written
from tests.train.lora.test_export import TEXT, adapted, effects, loaded, part_names, part_of
from tests.train.lora.test_export import trained as trained_parts


def another(family: str, seed: int, **settings: Any) -> Any:
    """Another LoRA: of fewer layers, and another rank and alpha."""
    pipeline, _ = adapted(family, targets=["to_q", "conv1", "proj_in"], r=3, lora_alpha=1.5, **settings)
    generator = torch.Generator().manual_seed(seed)
    for name in part_names(family):
        for key, weight in getattr(pipeline, name).named_parameters():
            if "lora_" in key:
                weight.data = torch.randn(weight.shape, generator=generator) * 0.1
    return {name: part_of(pipeline, name, "default") for name in part_names(family)}


def two(tmp_path: Path, family: str) -> tuple[Path, Path]:
    first = written(tmp_path / "one", family, parts_of(family)[1], "diffusers")
    return first, written(tmp_path / "other", family, another(family, 3), "kohya")


def combined(given: Any, to: Path, family: str, **settings: Any) -> Any:
    return combine_loras(given, to, family=FAMILIES[family], layers_per_block=layers_of(family), **settings)


@pytest.mark.parametrize("family", FAMILIES)
def test_ranks_are_put_beside_each_other_and_the_sum_is_exact(family: str, tmp_path: Path) -> None:
    first, second = two(tmp_path, family)
    made = combined([(first, 0.7), (second, -0.3)], tmp_path / "sum.safetensors", family)
    assert (made.rank_least, made.rank_most, made.kept) == (4, 7, 1.0)
    ours, theirs = changes(first, family), changes(second, family)
    total = changes(tmp_path / "sum.safetensors", family)
    assert total.keys() == ours.keys() | theirs.keys() and theirs.keys() < ours.keys()
    for module, change in total.items():
        expected = 0.7 * ours[module] - (0.3 * theirs[module] if module in theirs else 0)
        assert torch.allclose(change, expected, rtol=1e-5, atol=1e-7), module


def test_diffusers_loads_the_sum_with_the_effect_of_both(tmp_path: Path) -> None:
    first, second = two(tmp_path, "sd15")
    combined([(first, 1.0), (second, 1.0)], tmp_path / "sum.safetensors", "sd15")
    other = tmp_path / "loaded" / "sum.safetensors"
    convert_lora(tmp_path / "sum.safetensors", other, "diffusers", family=FAMILIES["sd15"], layers_per_block=2)
    pipeline, adapter = loaded("sd15", other)
    both = {}
    for file in (first, second):
        one, name = loaded("sd15", file)
        for part in part_names("sd15"):
            base = dict(getattr(one, part).named_modules())
            for module, weight in effects(one, part, name).items():
                delta = weight - base[module].get_base_layer().weight
                both[part, module] = both.get((part, module), 0) + delta
    for part in part_names("sd15"):
        found = effects(pipeline, part, adapter)
        base = dict(getattr(pipeline, part).named_modules())
        assert found
        for module, weight in found.items():
            assert torch.allclose(weight - base[module].get_base_layer().weight, both[part, module], atol=1e-5), module


@pytest.mark.parametrize("rank", [1, 3, 200])
def test_with_a_rank_each_layer_is_the_best_approximation_of_the_sum(rank: int, tmp_path: Path) -> None:
    first, second = two(tmp_path, "sd15")
    made = combined([(first, 0.7), (second, 0.3)], tmp_path / "low.safetensors", "sd15", rank=rank)
    combined([(first, 0.7), (second, 0.3)], tmp_path / "sum.safetensors", "sd15")
    exact, low = changes(tmp_path / "sum.safetensors", "sd15"), changes(tmp_path / "low.safetensors", "sd15")
    before = after = 0.0
    for module, change in exact.items():
        values = torch.linalg.svdvals(change)
        error = float((low[module] - change).norm())
        assert error == pytest.approx(float(values[rank:].norm()), rel=1e-4, abs=1e-5 * float(values.norm())), module
        before, after = before + float(values.square().sum()), after + float(values[:rank].square().sum())
    assert made.kept == pytest.approx((after / before) ** 0.5, rel=1e-6) and made.rank_most == rank


def test_a_lokr_is_added_at_a_rank_only(tmp_path: Path) -> None:
    stem = "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn2_to_k"
    first, second = torch.randn(4, 8), torch.randn(8, 4)
    save_file({f"{stem}.lokr_w1": first, f"{stem}.lokr_w2": second}, tmp_path / "lokr.safetensors")
    down, up = torch.randn(2, 32), torch.randn(32, 2)
    save_file({f"{stem}.lora_down.weight": down, f"{stem}.lora_up.weight": up}, tmp_path / "lora.safetensors")
    given = [(tmp_path / "lokr.safetensors", 0.5), (tmp_path / "lora.safetensors", 2.0)]
    with pytest.raises(BadInput, match="no low rank") as refused:
        combined(given, tmp_path / "sum.safetensors", "sd15")
    assert "--rank" in str(refused.value.hint)
    combined(given, tmp_path / "sum.safetensors", "sd15", rank=32)
    (change,) = changes(tmp_path / "sum.safetensors", "sd15").values()
    assert torch.allclose(change.float(), 0.5 * torch.kron(first, second) + 2 * up @ down, atol=1e-4)


def test_a_dora_or_one_of_another_family_or_size_is_refused(tmp_path: Path) -> None:
    first, _ = two(tmp_path, "sd15")
    dora = written(
        tmp_path / "dora", "sd15", trained_parts("sd15", targets=[*TEXT, "to_q"], use_dora=True)[1], "diffusers"
    )
    with pytest.raises(BadInput, match="is a DoRA, which cannot be added") as refused:
        combined([(first, 1.0), (dora, 1.0)], tmp_path / "sum.safetensors", "sd15")
    assert "gangline lora merge LORA --base BASE" in str(refused.value.hint)
    stem = "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn2_to_k"
    for name, width in (("sd15", 768), ("sdxl", 2048), ("wide", 768)):
        outputs = 8 if name == "wide" else 4
        tensors = {f"{stem}.lora_down.weight": torch.ones(2, width), f"{stem}.lora_up.weight": torch.ones(outputs, 2)}
        save_file(tensors, tmp_path / f"{name}.safetensors")
    with pytest.raises(
        BadInput, match=r"sd15\.safetensors is a LoRA of Stable Diffusion 1, and sdxl\.safetensors one of SDXL"
    ):
        combine_loras(
            [(tmp_path / f"{name}.safetensors", 1.0) for name in ("sd15", "sdxl")], tmp_path / "sum.safetensors"
        )
    with pytest.raises(BadInput, match="models of different sizes"):
        combine_loras(
            [(tmp_path / f"{name}.safetensors", 1.0) for name in ("sd15", "wide")], tmp_path / "sum.safetensors"
        )


def test_the_metadata_says_what_it_was_merged_from_and_what_they_share(tmp_path: Path) -> None:
    first, second = (
        written(tmp_path / name, "sd15", another("sd15", seed), "kohya") for name, seed in (("a", 1), ("b", 2))
    )
    combined([(first, 0.5), (second, 1.0)], tmp_path / "sum.safetensors", "sd15", dtype=torch.float16)
    said = metadata_in(tmp_path / "sum.safetensors")
    assert said["ss_training_comment"] == "merged from sks-cat.safetensors (0.5), sks-cat.safetensors (1)"
    assert (said["ss_network_dim"], said["ss_network_alpha"], said["ss_sd_model_name"]) == (
        "6",
        "6.0",
        "dream.safetensors",
    )
    assert {tensor.dtype for tensor in load_file(tmp_path / "sum.safetensors").values()} == {torch.float16}
