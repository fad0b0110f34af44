"""`gangline lora`: what each command says, writes and refuses."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from gangline.train.lora.merge import merge_loras
from gangline.train.model.base import load_base
from tests.conftest import Typed
from tests.train.bases import save_tiny
from tests.train.lora.files.loras import parts_of, written

STEM = "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn2_to_k"


def small(path: Path, *, rank: int = 2, seed: int = 1, width: int = 768) -> Path:
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        f"{STEM}.lora_down.weight": torch.randn(rank, width, generator=generator),
        f"{STEM}.lora_up.weight": torch.randn(16, rank, generator=generator),
        f"{STEM}.alpha": torch.tensor(1.0),
    }
    save_file(tensors, path, {"ss_sd_model_name": "dream.safetensors", "modelspec.trigger_phrase": "sks cat"})
    return path


def test_info_prints_a_table_or_json_and_fails_for_a_damaged_file(tmp_path: Path, typed: Typed) -> None:
    path = written(tmp_path, "sd15", parts_of("sd15")[1], "kohya")
    code, printed, _ = typed("lora", "info", path)
    assert code == 0
    for words in (
        "kind",
        "LoRA of Stable Diffusion 1",
        "kohya (ComfyUI",
        "unet.up_blocks.0",
        "text_encoder",
        "sks cat",
    ):
        assert words in printed, words
    code, printed, _ = typed("lora", "info", path, "-o", "json")
    found = json.loads(printed)
    assert code == 0 and found["family"] == "sd15" and found["problems"] == [] and len(found["sha256"]) == 64
    tensors = load_file(small(tmp_path / "x.safetensors"))
    del tensors[f"{STEM}.lora_up.weight"]
    save_file(tensors, tmp_path / "x.safetensors")
    code, _, said = typed("lora", "info", tmp_path / "x.safetensors")
    assert code == 1 and "is incomplete" in said


def test_convert_there_and_back_and_never_over_a_file_without_force(tmp_path: Path, typed: Typed) -> None:
    path, there, back = small(tmp_path / "x.safetensors"), tmp_path / "d.safetensors", tmp_path / "k.safetensors"
    code, printed, _ = typed("lora", "convert", path, "--form", "diffusers", "--to", there, "-o", "json")
    assert code == 0 and json.loads(printed) == {
        "path": str(there), "form": "diffusers", "family": "sd15", "layers": 1, "folded": 0
    }  # fmt: skip
    assert typed("lora", "convert", there, "--form", "kohya", "--to", back)[0] == 0
    before, after = load_file(path), load_file(back)
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    content = back.read_bytes()
    code, _, said = typed("lora", "convert", path, "--form", "diffusers", "--to", back)
    assert code == 2 and "exists already" in said and back.read_bytes() == content
    code, _, said = typed(
        "lora", "convert", path, "--form", "kohya", "--to", back, "--force", "--dtype", "fp16", "--fold-alpha"
    )
    assert code == 0 and "1 layer" in said and load_file(back)[f"{STEM}.lora_up.weight"].dtype is torch.float16
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".")]


def test_a_folder_of_adapters_is_overwritten_with_force_but_no_other_folder(tmp_path: Path, typed: Typed) -> None:
    path, folder = small(tmp_path / "x.safetensors"), tmp_path / "peft"
    words = ("lora", "convert", path, "--form", "peft", "--to", folder)
    assert typed(*words)[0] == 0 and (folder / "unet" / "adapter_config.json").is_file()
    assert typed(*words)[0] == 2 and typed(*words, "--force")[0] == 0
    (folder / "mine.txt").write_text("mine")
    code, _, said = typed(*words, "--force")
    assert code == 2 and "is left alone" in said and (folder / "mine.txt").is_file()


def test_merge_adds_loras_with_weights_or_puts_them_into_a_base(tmp_path: Path, typed: Typed) -> None:
    one, other = small(tmp_path / "a.safetensors"), small(tmp_path / "b:x.safetensors", rank=3, seed=2)
    total = tmp_path / "sum.safetensors"
    code, printed, _ = typed("lora", "merge", f"{one}:0.7", f"{other}", "--to", total, "-o", "json")
    assert code == 0 and json.loads(printed)["rank_most"] == 5
    assert typed("lora", "merge", f"{one}:0.7", other, "--rank", "2", "--to", total)[0] == 2
    code, _, said = typed("lora", "merge", f"{one}:0.7", other, "--rank", "2", "--to", total, "--force")
    assert code == 0 and "rank 2" in said and "of the sum's norm" in said
    assert "no usable weight" in typed("lora", "merge", f"{one}:inf", "--to", tmp_path / "c.safetensors")[2]
    assert (
        "leave them out"
        in typed("lora", "merge", one, "--rank", "2", "--base", tmp_path, "--to", tmp_path / "c.safetensors")[2]
    )


def test_merged_into_a_base_each_lora_counts_by_its_weight(tmp_path: Path, typed: Typed) -> None:
    base = save_tiny(tmp_path / "base", "sd15")
    files = []
    for seed in (1, 2):
        generator, module = torch.Generator().manual_seed(seed), "lora_unet_time_embedding_linear_1"
        down, up = torch.randn(2, 32, generator=generator), torch.randn(128, 2, generator=generator)
        save_file(
            {f"{module}.lora_down.weight": down, f"{module}.lora_up.weight": up}, tmp_path / f"{seed}.safetensors"
        )
        files.append((tmp_path / f"{seed}.safetensors", up @ down))
    (first, change), (second, other) = files
    target = tmp_path / "whole.safetensors"
    code, printed, _ = typed(
        "lora",
        "merge",
        f"{first}:0.5",
        f"{second}:-0.25",
        "--base",
        base,
        "--to",
        target,
        "--dtype",
        "fp32",
        "-o",
        "json",
    )
    assert code == 0 and json.loads(printed) == {
        "path": str(target),
        "family": "Stable Diffusion 1",
        "layers": 1,
        "precision": "fp32",
    }
    before, after = (
        load_base(path, torch.device("cpu"), torch.float32).unet.time_embedding.linear_1.weight
        for path in (base, target)
    )
    assert torch.allclose(after, before + 0.5 * change - 0.25 * other, atol=1e-5)
    merge_loras([(first, 1.0)], base, tmp_path / "one.safetensors", torch.float32)
    alone = load_base(
        tmp_path / "one.safetensors", torch.device("cpu"), torch.float32
    ).unet.time_embedding.linear_1.weight
    assert torch.equal(alone, before + change)


def test_resize_says_what_is_kept_of_each_block(tmp_path: Path, typed: Typed) -> None:
    path, target = small(tmp_path / "x.safetensors", rank=8), tmp_path / "small.safetensors"
    code, printed, said = typed("lora", "resize", path, "--rank", "4", "--to", target)
    assert code == 0 and "unet.mid_block" in printed and "% of the norm kept" in said
    code, printed, _ = typed("lora", "resize", path, "--energy", "0.9", "--to", target, "--force", "-o", "json")
    assert code == 0 and 0.9**0.5 <= json.loads(printed)["kept"] <= 1
    assert "not clear" in typed("lora", "resize", path, "--to", target, "--force")[2]
    assert (
        "not clear" in typed("lora", "resize", path, "--energy", "0.9", "--sv-ratio", "2", "--to", target, "--force")[2]
    )
    assert "out of range" in typed("lora", "resize", path, "--energy", "1.5", "--to", target, "--force")[2]
    assert "out of range" in typed("lora", "resize", path, "--sv-ratio", "0.5", "--to", target, "--force")[2]


def test_extract_makes_a_lora_of_two_checkpoints(tmp_path: Path, typed: Typed) -> None:
    base = save_tiny(tmp_path / "base", "sd15")
    tuned = tmp_path / "tuned.safetensors"
    module = "lora_unet_down_blocks_0_attentions_0_proj_in"
    tensors = {
        f"{module}.lora_down.weight": torch.randn(2, 32, 1, 1),
        f"{module}.lora_up.weight": torch.randn(32, 2, 1, 1),
    }
    save_file(tensors, tmp_path / "lora.safetensors")
    merge_loras([(tmp_path / "lora.safetensors", 1.0)], base, tuned, torch.float32)
    code, _, said = typed("lora", "extract", base, tuned, "--rank", "2", "--to", tmp_path / "made.safetensors")
    assert code == 0 and "100.00% of their difference's norm" in said and "did not change" in said
    code, printed, _ = typed(
        "lora", "extract", base, tuned, "--rank", "2", "--to", tmp_path / "made.safetensors", "--force", "-o", "json"
    )
    assert code == 0 and json.loads(printed)["layers"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ("info", "{x}"),
        ("convert", "{x}", "--form", "kohya", "--to", "{to}"),
        ("merge", "{x}", "--to", "{to}"),
        ("resize", "{x}", "--rank", "2", "--to", "{to}"),
        ("extract", "{x}", "{x}", "--to", "{to}"),
    ],
)
def test_a_file_that_is_not_there_or_cut_off_is_named(words: tuple[str, ...], tmp_path: Path, typed: Typed) -> None:
    path = tmp_path / "x.safetensors"
    filled = [word.format(x=path, to=tmp_path / "to.safetensors") for word in words]
    code, _, said = typed("lora", *filled)
    assert code == 2 and "x.safetensors does not exist" in said
    small(path)
    path.write_bytes(path.read_bytes()[:-8])
    code, _, said = typed("lora", *filled)
    assert code == 2 and "x.safetensors is cut off" in said
    assert not (tmp_path / "to.safetensors").exists()
