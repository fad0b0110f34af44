"""What a file of a LoRA is, said of files of every kind, damaged ones too."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gangline.core.errors import BadInput
from gangline.core.models.families import FAMILIES
from gangline.train.lora.adapter import Adapter
from gangline.train.lora.export import write_diffusers, write_kohya
from gangline.train.lora.files.describe import describe_lora
from gangline.train.model.base import load_base
from tests.train.bases import save_tiny
from tests.train.lora.files.loras import changes, layers_of, parts_of, written
from tests.train.lora.test_blocks import as_if_trained
from tests.train.lora.test_export import facts_of
from tests.train.lora.test_merge import spec_of

STEM = "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn2_to_k"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("form", ["kohya", "diffusers"])
def test_it_says_what_each_tools_file_has(family: str, form: str, tmp_path: Path) -> None:
    _, parts = parts_of(family)
    path = written(tmp_path, family, parts, form)
    found = describe_lora(path, layers_of(family))
    assert (found.kind, found.problems, found.unknown) == ("LoRA", (), ())
    assert found.format.startswith("kohya" if form == "kohya" else "diffusers")
    assert {part.part: part.layers for part in found.parts} == {
        name: len(list(part.layers())) for name, part in parts.items()
    }
    for part in found.parts:
        assert {*part.ranks, *part.conv_ranks} == {"4"} and part.alphas == {"6.5": part.layers}
    blocks = {block.block: block.norm for block in found.blocks}
    squares = dict.fromkeys(blocks, 0.0)
    for (part, module), change in changes(path, family).items():
        (block,) = [
            name for name in blocks if f"{part}.{module}".startswith(f"{name}.") and (part == name or name != "unet")
        ] or ["unet"]
        squares[block] += float(change.square().sum())
    for block, norm in blocks.items():
        assert norm == pytest.approx(squares[block] ** 0.5, rel=1e-6), block
    if form == "kohya":
        assert found.family == family
        assert (found.said["trained by"], found.said["base"], found.hash_matches) == (
            "Gangline",
            "dream.safetensors",
            True,
        )
    content = path.read_bytes()
    assert found.sha256 == hashlib.sha256(content).hexdigest() and found.autov2 == found.sha256[:10]
    start = 8 + int.from_bytes(content[:8], "little")
    assert found.tensors_sha256 == hashlib.sha256(content[start:]).hexdigest()
    assert found.legacy_hash == hashlib.sha256(content[0x100000:0x110000]).hexdigest()[:8]


@pytest.mark.parametrize("second", ["low_rank", "full"])
def test_the_norm_of_a_lokr_is_its_products(second: str, tmp_path: Path) -> None:
    base = load_base(save_tiny(tmp_path / "base", "sd15"), torch.device("cpu"), torch.float32)
    adapter = Adapter(base, spec_of(algorithm="lokr", lokr_factor=4, lokr_second_factor=second))
    as_if_trained(adapter)
    for path in (
        write_diffusers(tmp_path, adapter.as_parts()),
        write_kohya(tmp_path, adapter.as_parts(), 2, spec_of(algorithm="lokr"), facts_of("sd15")),
    ):
        found = describe_lora(path)
        assert found.kind == "LoKr"
        whole = sum(float(change.square().sum()) for change in changes(path, "sd15").values()) ** 0.5
        assert sum((block.norm or 0) ** 2 for block in found.blocks) ** 0.5 == pytest.approx(whole, rel=1e-4)


def test_a_loha_and_a_dora_are_called_by_their_names(tmp_path: Path) -> None:
    tensors = {
        f"{STEM}.hada_w{n}_{side}": torch.randn(shape)
        for n in (1, 2)
        for side, shape in (("a", (6, 2)), ("b", (2, 768)))
    }
    save_file(tensors | {f"{STEM}.alpha": torch.tensor(1.0)}, tmp_path / "loha.safetensors")
    found = describe_lora(tmp_path / "loha.safetensors")
    product = (tensors[f"{STEM}.hada_w1_a"] @ tensors[f"{STEM}.hada_w1_b"]) * (
        tensors[f"{STEM}.hada_w2_a"] @ tensors[f"{STEM}.hada_w2_b"]
    )
    assert (found.kind, found.parts[0].ranks, found.blocks[0].norm) == (
        "LoHa",
        {"2": 1},
        pytest.approx(float(product.norm()) / 2),
    )
    assert found.format.startswith("LyCORIS")
    _, parts = parts_of("sd15", use_dora=True)
    assert describe_lora(written(tmp_path, "sd15", parts, "diffusers")).kind == "DoRA"


def test_what_is_damaged_is_listed(tmp_path: Path) -> None:
    tensors = {
        f"{STEM}.lora_down.weight": torch.ones(2, 768),
        f"{STEM.replace('to_k', 'to_q')}.lora_down.weight": torch.ones(2, 8),
        f"{STEM.replace('to_k', 'to_q')}.lora_up.weight": torch.full((4, 2), float("nan")),
        f"{STEM.replace('to_k', 'to_v')}.lora_down.weight": torch.ones(2, 768),
        f"{STEM.replace('to_k', 'to_v')}.lora_up.weight": torch.ones(4, 3),
        "something.else": torch.ones(1),
    }
    save_file(tensors, tmp_path / "x.safetensors", {"sshs_model_hash": "0" * 64})
    found = describe_lora(tmp_path / "x.safetensors")
    assert [problem.removeprefix(STEM[:-4]) for problem in found.problems] == [
        "to_k is incomplete: it has only down",
        "to_q has values that are not finite, in up",
        "to_v has rank 2 in one matrix and 3 in the other",
    ]
    assert found.unknown == ("something.else",) and found.hash_matches is False and found.family == "sd15"


def test_metadata_is_said_in_words_and_never_believed(tmp_path: Path) -> None:
    metadata = {
        "ss_sd_scripts_commit_hash": "abc",
        "ss_sd_model_name": "ponyDiffusionV6XL.safetensors",
        "ss_num_epochs": "10",
        "ss_clip_skip": "None",
        "ss_tag_frequency": json.dumps({"10_cat": {"cat": 7, " sks": 9}, "5_dog": {"cat": 3}}),
    }
    save_file({f"{STEM}.lora_down.weight": torch.ones(2, 2048)}, tmp_path / "x.safetensors", metadata)
    said = describe_lora(tmp_path / "x.safetensors").said
    assert (said["base"], said["epochs"], said["tags"]) == ("ponyDiffusionV6XL.safetensors", "10", "cat (10), sks (9)")
    assert said["trained by"].startswith("kohya's sd-scripts") and "clip skip" not in said
    for odd in ("[1]", "{", '{"a": 1}', '{"a": {"b": "c"}}'):
        save_file({f"{STEM}.lora_down.weight": torch.ones(2, 2)}, tmp_path / "x.safetensors", {"ss_tag_frequency": odd})
        assert "tags" not in describe_lora(tmp_path / "x.safetensors").said


def test_what_is_no_lora_or_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"model.diffusion_model.out.2.weight": torch.ones(2, 2)}, path)
    with pytest.raises(BadInput, match=r"x\.safetensors is not a LoRA"):
        describe_lora(path)
    save_file({f"{STEM}.lora_down.weight": torch.ones(2, 768)}, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadInput, match="is cut off"):
        describe_lora(path)


def test_a_file_that_peft_wrote_is_recognised(tmp_path: Path) -> None:
    _, parts = parts_of("sd15")
    tensors = {
        f"base_model.model.{name}": tensor
        for name, tensor in load_file(written(tmp_path, "sd15", parts, "diffusers")).items()
    }
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    found: Any = describe_lora(tmp_path / "adapter_model.safetensors")
    assert (found.format, found.kind) == ("PEFT", "LoRA")
