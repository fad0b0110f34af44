"""A base and a LoRA as one model in one file: what it draws is what both draw together."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from gangline.core.errors import BadInput
from gangline.core.models.recognition import Header
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sample import previews_of
from gangline.data.safetensors_header import read_header
from gangline.train.lora.adapter import Adapter
from gangline.train.lora.export import write_diffusers, write_kohya
from gangline.train.lora.merge import merge_loras
from gangline.train.model.base import LoadedBase, load_base
from gangline.train.model.denoise import drawing_of, sample_latents
from gangline.train.model.text import embed_all, tokenize
from tests.conftest import BASE, Typed
from tests.train.bases import save_single, save_tiny
from tests.train.conftest import small_spec
from tests.train.lora.test_export import facts_of

TARGETS = ("to_q", "to_k", "to_out.0", "ff.net.0.proj", "proj_in", "conv1", "conv_shortcut", "time_emb_proj")
FAMILIES = ("sdxl", "sd15", "sd2")


@pytest.fixture(scope="module", params=[(family, layout) for family in FAMILIES for layout in ("folder", "file")])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family, layout = request.param
    folder = save_tiny(tmp_path_factory.mktemp("base") / family, family)
    return folder if layout == "folder" else save_single(folder, folder.with_suffix(".safetensors"), family)


KINDS: dict[str, dict[str, Any]] = {
    "lora": {},
    "dora": {"dora": True},
    "lokr": {"algorithm": "lokr", "conv_rank": 2, "conv_alpha": 3.0, "lokr_factor": 4, "lokr_second_factor": "tucker"},
    "lokr in full": {"algorithm": "lokr", "lokr_factor": 4, "lokr_second_factor": "full"},
    "convolutions": {"conv_rank": 3, "conv_alpha": 5.0, "block_ranks": ("mid_block.*=2:1",)},
}


def spec_of(**settings: Any) -> LoraSpec:
    values = {"rank": 4, "alpha": 6.0, "train_text_encoder": True, "target_modules": TARGETS, "sample_steps": 2}
    return small_spec(**(values | settings))


def trained(base: LoadedBase, spec: LoraSpec) -> Adapter:
    """As if trained: no weight is zero, and the norms are others."""
    adapter = Adapter(base, spec)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weight in adapter.weights.items():
            noise = torch.randn(weight.shape, generator=generator) * 0.1
            weight.copy_(weight * (1 + noise) if "magnitude" in name else noise)
    return adapter


def drawn(base: LoadedBase, spec: LoraSpec) -> torch.Tensor:
    texts = tokenize(base, [spec.prompt, ""])
    spoken = embed_all(base, texts)
    return sample_latents(base, drawing_of(base, spec, previews_of(spec)[0]), spoken[[0]], spoken[[1]], 1)


def at(path: Path) -> LoadedBase:
    return load_base(path, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("form", ["kohya", "diffusers"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_merged_draws_what_the_base_draws_with_the_lora(
    tmp_path: Path, base: Path, kind: str, form: str
) -> None:
    spec, model = spec_of(**KINDS[kind]), at(base)
    alone = drawn(model, spec)
    adapter = trained(model, spec)
    parts, layers = adapter.as_parts(), model.unet.config.layers_per_block
    facts = facts_of(model.family.name)
    file = (
        write_diffusers(tmp_path, parts) if form == "diffusers" else write_kohya(tmp_path, parts, layers, spec, facts)
    )
    with adapter.at_rest():
        together = drawn(model, spec)
    made = merge_loras([(file, 1.0)], base, tmp_path / "merged.safetensors", torch.float32)
    merged = drawn(at(made.path), spec)
    assert made.layers == sum(len([*part.layers(), *part.products()]) for part in parts.values())
    assert float((merged - together).norm()) < 1e-4 * float((together - alone).norm())


def test_what_is_merged_holds_all_that_the_base_held_in_the_precision_that_is_asked_for(
    tmp_path: Path, base: Path
) -> None:
    spec, model = spec_of(), at(base)
    file = write_diffusers(tmp_path, trained(model, spec).as_parts())
    made = merge_loras([(file, 1.0)], base, tmp_path / "merged.safetensors", torch.float16)
    header = read_header(made.path)
    assert {tensor.dtype for tensor in header.tensors.values()} == {"F16"}
    if base.is_file():
        assert shapes(header) == shapes(read_header(base))
    again = at(made.path)
    assert torch.equal(again.vae.decoder.conv_in.weight, model.vae.decoder.conv_in.weight.half().float())
    assert again.model.family == model.model.family


def shapes(header: Header) -> dict[str, tuple[int, ...]]:
    return {name: tensor.shape for name, tensor in header.tensors.items()}


def test_a_lora_of_modules_that_the_base_lacks_is_refused(tmp_path: Path) -> None:
    small = save_tiny(tmp_path / "small", "sd15")
    model = at(small)
    file = write_diffusers(tmp_path, trained(model, spec_of()).as_parts())
    renamed = rename(file, "down_blocks.0.", "down_blocks.7.")
    with pytest.raises(BadInput, match=r"has weights for \d+ modules that small lacks"):
        merge_loras([(renamed, 1.0)], small, tmp_path / "merged.safetensors", torch.float16)
    assert not (tmp_path / "merged.safetensors").exists()


def rename(file: Path, old: str, new: str) -> Path:
    save_file({name.replace(old, new): tensor for name, tensor in load_file(file).items()}, file)
    return file


def test_a_base_whose_architecture_a_file_cannot_say_is_refused(tmp_path: Path) -> None:
    """The tiny base of this repository has more heads than tools would give it."""
    model = at(BASE)
    file = write_diffusers(tmp_path, trained(model, spec_of()).as_parts())
    with pytest.raises(BadInput, match="tools would infer"):
        merge_loras([(file, 1.0)], BASE, tmp_path / "merged.safetensors", torch.float16)


def test_the_command_says_what_it_made_and_refuses_to_write_over_a_file(tmp_path: Path, typed: Typed) -> None:
    base = save_tiny(tmp_path / "sd15", "sd15")
    file = write_diffusers(tmp_path, trained(at(base), spec_of(dora=True)).as_parts())
    words = ("merge", file, "--base", base, "--to", tmp_path / "merged.safetensors")
    code, printed, _ = typed(*words, "-o", "json")
    assert code == 0
    told: Any = json.loads(printed)
    assert told["path"] == str(tmp_path / "merged.safetensors") and told["precision"] == "fp16" and told["layers"] > 0
    before = np.frombuffer((tmp_path / "merged.safetensors").read_bytes(), np.uint8).copy()
    code, _, said = typed(*words)
    assert code == 2 and "exists already" in said
    assert (np.frombuffer((tmp_path / "merged.safetensors").read_bytes(), np.uint8) == before).all()
