"""A LoRA in another tool's names has the effect that it had, and comes back to the bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from gangline.core.errors import BadInput
from gangline.core.models.families import FAMILIES
from gangline.train.lora.adapter import Adapter
from gangline.train.lora.export import kohya_hashes, write_diffusers, write_kohya
from gangline.train.lora.files.convert import convert_lora
from gangline.train.model.base import load_base
from tests.train.bases import save_tiny
from tests.train.lora.files.loras import changes, layers_of, metadata_in, parts_of, written
from tests.train.lora.test_blocks import as_if_trained
from tests.train.lora.test_export import effects, facts_of, fresh, loaded, part_names
from tests.train.lora.test_merge import spec_of

OTHER = {"kohya": "diffusers", "diffusers": "kohya"}


def converted(path: Path, to: Path, form: Any, family: str, **settings: Any) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    convert_lora(path, to, form, family=FAMILIES[family], layers_per_block=layers_of(family), **settings)
    return to


def assert_equal(one: Path, other: Path) -> None:
    ours, theirs = load_file(one), load_file(other)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype and torch.equal(tensor, theirs[name]), name


def assert_same_effects(family: str, pipeline: Any, file: Path) -> None:
    back, adapter = loaded(family, file)
    for name in part_names(family):
        expected, found = effects(pipeline, name, "default"), effects(back, name, adapter)
        assert expected and found.keys() == expected.keys()
        for module, weight in expected.items():
            assert torch.equal(found[module], weight), module


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("form", OTHER)
def test_diffusers_gives_the_converted_file_the_effect_that_was_trained(family: str, form: str, tmp_path: Path) -> None:
    some: dict[str, Any] = {"alpha_pattern": {"(conv1|fc1)": 3.0}, "rank_pattern": {"(to_v|v_proj)": 2}}
    pipeline, parts = parts_of(family, **some)
    first = written(tmp_path / "first", family, parts, form)
    other = converted(first, tmp_path / "other" / "x.safetensors", OTHER[form], family)
    if form == "kohya":  # diffusers misses alphas of a kohya file where they differ
        assert_same_effects(family, pipeline, other)
    else:
        assert_equal(other, written(tmp_path / "kohya", family, parts, "kohya"))
    assert_equal(converted(other, tmp_path / "back.safetensors", form, family), first)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_with_folded_alphas_needs_no_settings(family: str, tmp_path: Path) -> None:
    pipeline, parts = parts_of(family)
    first = written(tmp_path / "first", family, parts, "kohya")
    folded = converted(first, tmp_path / "x.safetensors", "diffusers", family, fold_alpha=True)
    save_file(load_file(folded), tmp_path / "bare.safetensors")
    back, adapter = loaded(family, tmp_path / "bare.safetensors")
    for name in part_names(family):
        expected, found = effects(pipeline, name, "default"), effects(back, name, adapter)
        assert expected and all(torch.allclose(found[key], expected[key], atol=1e-6) for key in expected)


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("family", ["sdxl", "sd15"])
def test_peft_loads_an_adapter_of_each_model(family: str, dora: bool, tmp_path: Path) -> None:
    pipeline, parts = parts_of(family, use_dora=dora)
    folder = converted(written(tmp_path, family, parts, "diffusers"), tmp_path / "peft", "peft", family)
    bare = fresh(family)
    assert {path.name for path in folder.iterdir()} == {*part_names(family)}
    for name in part_names(family):
        model = PeftModel.from_pretrained(getattr(bare, name), folder / name).merge_and_unload()
        expected = effects(pipeline, name, "default")
        found = dict(model.named_modules())
        for module, weight in expected.items():
            assert torch.allclose(found[module].weight, weight, atol=1e-6), module


def test_a_dora_of_lycoris_keeps_its_norms_both_ways(tmp_path: Path) -> None:
    pipeline, parts = parts_of("sd15", use_dora=True)
    first = written(tmp_path, "sd15", parts, "diffusers")
    kohya = converted(first, tmp_path / "kohya.safetensors", "kohya", "sd15")
    assert "gangline_dora_scale" not in metadata_in(kohya)
    assert metadata_in(kohya)["ss_network_module"] == "lycoris.kohya"
    back = converted(kohya, tmp_path / "back" / "x.safetensors", "diffusers", "sd15")
    assert_equal(back, first)
    assert_same_effects("sd15", pipeline, back)


KRONECKER: dict[str, dict[str, Any]] = {
    "low rank": {"conv_rank": 2, "conv_alpha": 3.0},
    "tucker": {"conv_rank": 2, "conv_alpha": 3.0, "lokr_factor": 4, "lokr_second_factor": "tucker"},
    "full": {"lokr_factor": 4, "lokr_second_factor": "full"},
    "blocks": {"lokr_factor": 8, "block_ranks": ("mid_block.*=2:1", "to_v=3")},
}


@pytest.mark.parametrize("family", ["sdxl", "sd15"])
@pytest.mark.parametrize("kind", KRONECKER)
def test_a_lokr_is_renamed_both_ways_and_loads(family: str, kind: str, tmp_path: Path) -> None:
    base = load_base(save_tiny(tmp_path / "base", family), torch.device("cpu"), torch.float32)  # pyright: ignore[reportArgumentType]
    adapter = Adapter(base, spec_of(algorithm="lokr", **KRONECKER[kind]))
    as_if_trained(adapter)
    parts = adapter.as_parts()
    first = write_diffusers(tmp_path, parts)
    kohya = tmp_path / "kohya.safetensors"
    convert_lora(first, kohya, "kohya", family=FAMILIES[family])  # pyright: ignore[reportArgumentType]
    (tmp_path / "exported").mkdir()
    exported = write_kohya(tmp_path / "exported", parts, 2, spec_of(), facts_of(family))
    assert_equal(kohya, exported)
    back = tmp_path / "back" / first.name
    convert_lora(kohya, back, "diffusers", family=FAMILIES[family])  # pyright: ignore[reportArgumentType]
    if kind != "tucker":
        assert_equal(back, first)
    unet = base.layout.unet(torch.float32)
    unet.load_lora_adapter(back.parent, weight_name=back.name, prefix="unet")
    wanted = {
        path: product.change(base.unet.get_submodule(path).base_layer.weight.shape)
        for path, product in parts["unet"].products()
    }
    for path, change in wanted.items():
        layer = unet.get_submodule(path)
        assert torch.allclose(layer.get_delta_weight(layer.active_adapters[0]), change, atol=1e-5), path


def test_what_a_form_cannot_hold_is_refused_with_the_reason(tmp_path: Path) -> None:
    stem = "lora_unet_mid_block_attentions_0_proj_in"
    low = {f"{stem}.lora_down.weight": torch.ones(2, 8, 1, 1), f"{stem}.lora_up.weight": torch.ones(6, 2, 1, 1)}
    lokr = {f"{stem}.lokr_w1": torch.ones(2, 4), f"{stem}.lokr_w2": torch.ones(3, 2)}
    for extra, says in (
        ({**low, f"{stem}.dora_scale": torch.ones(1, 8)}, "a norm for each input, and PEFT has one for each output"),
        (
            {f"{stem}.lokr_w1": torch.ones(6, 1), f"{stem}.lokr_w2": torch.ones(1, 8)},
            "whose factors PEFT does not make",
        ),
        ({**lokr, f"{stem}.dora_scale": torch.ones(6, 1)}, "a LoKr with DoRA"),
        (
            low
            | {
                "lora_unet_mid_block_attentions_0_proj_out.lokr_w1": torch.ones(2, 4),
                "lora_unet_mid_block_attentions_0_proj_out.lokr_w2": torch.ones(3, 2),
            },
            "into two adapters",
        ),
    ):
        save_file(extra, tmp_path / "x.safetensors")
        with pytest.raises(BadInput, match=says):
            convert_lora(tmp_path / "x.safetensors", tmp_path / "to.safetensors", "diffusers", family=FAMILIES["sd15"])
        assert not (tmp_path / "to.safetensors").exists()


def test_norms_that_fit_comfyui_alone_are_not_taken_for_trained_ones(tmp_path: Path) -> None:
    _, parts = parts_of("sd15", use_dora=True)
    file = written(tmp_path, "sd15", parts, "kohya")
    with pytest.raises(BadInput, match="norms for ComfyUI and Forge"):
        converted(file, tmp_path / "to.safetensors", "diffusers", "sd15")


def test_metadata_is_carried_over_and_hashes_are_of_the_new_file(tmp_path: Path) -> None:
    _, parts = parts_of("sd15")
    first = written(tmp_path, "sd15", parts, "kohya")
    half = converted(first, tmp_path / "half.safetensors", "kohya", "sd15", dtype=torch.float16)
    before, after = metadata_in(first), metadata_in(half)
    assert after["ss_sd_model_name"] == before["ss_sd_model_name"]
    assert after["ss_network_alpha"] == "6.5" and after["ss_network_dim"] == "4"
    assert {tensor.dtype for tensor in load_file(half).values()} == {torch.float16}
    tensors = load_file(half)
    training = {name: value for name, value in after.items() if name.startswith("ss_")}
    assert {name: after[name] for name in ("sshs_model_hash", "sshs_legacy_hash")} == kohya_hashes(tensors, training)
    for module, change in changes(half, "sd15").items():
        assert torch.allclose(change, changes(first, "sd15")[module], rtol=1e-2, atol=1e-3)
        break


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"lora_unet_foo_bar_1_9.lora_down.weight": torch.ones(1, 1)}, "does not show for which model"),
        ({"a.weight": torch.ones(1)}, "is not a LoRA"),
        (
            {"lora_te2_x.lora_down.weight": torch.ones(1, 1), "transformer.y.lora_A.weight": torch.ones(1, 1)},
            "1 layer of another model",
        ),
    ],
)
def test_what_is_no_lora_of_these_models_is_refused(
    tensors: dict[str, torch.Tensor], says: str, tmp_path: Path
) -> None:
    save_file(tensors, tmp_path / "x.safetensors")
    with pytest.raises(BadInput, match=says):
        convert_lora(tmp_path / "x.safetensors", tmp_path / "to.safetensors", "kohya")
