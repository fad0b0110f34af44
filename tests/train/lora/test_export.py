"""LoRA files: each tool's names, loaded back by diffusers, equal to what was trained; and files to go on from."""

import copy
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, StableDiffusionXLPipeline
from diffusers import UNet2DConditionModel as UNet
from diffusers.utils import convert_state_dict_to_diffusers
from peft import LoraConfig
from peft.tuners.lora import LoraLayer
from peft.utils import get_peft_model_state_dict
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.models.families import FAMILIES, SD15, SDXL
from gangline.core.models.lora_metadata import DIFFUSERS_FILE, Facts, lora_name
from gangline.core.specs.fields import FilesBase, HubBase
from gangline.core.specs.lora import LoraSpec
from gangline.train.lora.adapter import originals
from gangline.train.lora.export import SETTINGS, kohya_tensors, webui_hash, write_diffusers, write_kohya
from gangline.train.lora.init_lora import read_lora
from gangline.train.lora.updates import MAGNITUDE, LoraPart
from gangline.train.tensors import Tensors
from tests.conftest import BASE

GOLDEN = Path(__file__).parent / "golden"
LAYERS_PER_BLOCK = {"sdxl": 1, "sd15": 2, "sd2": 2}
RANK, ALPHA = 4, 6.5

ATTENTION = ["to_q", "to_k", "to_v", "to_out.0"]
TRANSFORMER = [*ATTENTION, "ff.net.0.proj", "ff.net.2", "proj_in", "proj_out"]
CONV = ["conv1", "conv2", "conv_shortcut", "time_emb_proj", "downsamplers.0.conv", "upsamplers.0.conv"]
TEXT = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]

SHA = "ab" * 32
SPEC = LoraSpec(
    base=FilesBase(files=(File(path="dream.safetensors", bytes=7, sha256=SHA),)),
    photos=(File(path="a.png", bytes=1, sha256=SHA),),
    prompt="sks cat",
    rank=RANK,
    alpha=ALPHA,
)


def facts_of(family: str, **values: Any) -> Facts:
    given = {"name": "sks-cat", "prediction_type": "epsilon", "precision": "bf16", "microbatch": 1}
    return Facts(**{"family": FAMILIES[family], **given, **values})


# Models: SDXL's architecture from the repository, the others made here, small, with random weights.


@cache
def pipeline_of(family: str) -> Any:
    if family == "sdxl":
        return StableDiffusionXLPipeline.from_pretrained(BASE, local_files_only=True, torch_dtype=torch.float32)
    torch.manual_seed(0)
    width = 32
    unet = UNet(
        block_out_channels=(32, 64),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        layers_per_block=LAYERS_PER_BLOCK[family],
        cross_attention_dim=width,
        attention_head_dim=4,
        norm_num_groups=8,
        use_linear_projection=family == "sd2",
    )
    text = CLIPTextModel(
        CLIPTextConfig(
            hidden_size=width, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=49408
        )
    )
    return StableDiffusionPipeline(
        unet=unet,
        text_encoder=text,
        vae=AutoencoderKL(block_out_channels=(8,), norm_num_groups=2),
        tokenizer=CLIPTokenizer.from_pretrained(BASE / "tokenizer"),
        scheduler=DDIMScheduler(),
        safety_checker=None,
        feature_extractor=None,  # pyright: ignore[reportArgumentType]
        requires_safety_checker=False,
    )


def fresh(family: str) -> Any:
    pipeline = pipeline_of(family)
    models = {name: copy.deepcopy(getattr(pipeline, name)) for name in part_names(family)}
    return type(pipeline)(**pipeline.components | models)


def part_names(family: str) -> tuple[str, ...]:
    return ("unet", "text_encoder", "text_encoder_2") if family == "sdxl" else ("unet", "text_encoder")


def adapted(family: str, *, targets: list[str], **settings: Any) -> tuple[Any, dict[str, LoraPart]]:
    """A pipeline with adapters of which nothing is trained yet, and their weights."""
    pipeline = fresh(family)
    parts = {}
    for name in part_names(family):
        values = {"r": RANK, "lora_alpha": ALPHA, "init_lora_weights": "gaussian"} | settings
        config = LoraConfig(target_modules=targets if name == "unet" else TEXT, **values)
        getattr(pipeline, name).add_adapter(config)
        parts[name] = part_of(pipeline, name, "default")
    return pipeline, parts


def part_of(pipeline: Any, name: str, adapter: str) -> LoraPart:
    model = getattr(pipeline, name)
    weights = get_peft_model_state_dict(model, adapter_name=adapter)
    return LoraPart(
        weights={key: value.clone() for key, value in weights.items()},
        config=model.peft_config[adapter],
        originals=originals(model),
    )


def trained(family: str, *, targets: list[str], **settings: Any) -> tuple[Any, dict[str, LoraPart]]:
    """The same with weights as if trained: none is zero."""
    pipeline, _ = adapted(family, targets=targets, **settings)
    generator = torch.Generator().manual_seed(7)
    for name in part_names(family):
        for key, weight in getattr(pipeline, name).named_parameters():
            if "lora_" in key:
                noise = torch.randn(weight.shape, generator=generator) * 0.1
                weight.data = weight.data * (1 + noise) if "magnitude" in key else noise
    return pipeline, {name: part_of(pipeline, name, "default") for name in part_names(family)}


def effects(pipeline: Any, name: str, adapter: str) -> Tensors:
    """What each module's weight becomes."""
    found = {}
    for path, layer in getattr(pipeline, name).named_modules():
        if isinstance(layer, LoraLayer) and adapter in layer.lora_A:
            layer.merge(adapter_names=[adapter])
            found[path] = layer.get_base_layer().weight.detach().clone()
            layer.unmerge()
    return found


def loaded(family: str, file: Path) -> tuple[Any, str]:
    pipeline = fresh(family)
    pipeline.load_lora_weights(file.parent, weight_name=file.name)
    return pipeline, pipeline.get_active_adapters()[0]


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("family", FAMILIES)
def test_diffusers_loads_its_file_with_the_names_shapes_and_bytes_that_were_trained(
    family: str, dora: bool, tmp_path: Path
) -> None:
    _, parts = trained(family, targets=[*TRANSFORMER, *CONV], use_dora=dora)
    pipeline, adapter = loaded(family, write_diffusers(tmp_path, parts))
    for name, part in parts.items():
        back = part_of(pipeline, name, adapter)
        assert back.weights.keys() == part.weights.keys()
        assert len(back.weights) == (3 if dora else 2) * len(list(part.layers())) > 0
        for key, weight in part.weights.items():
            assert torch.equal(back.weights[key], weight), key
        assert (back.config.r, back.config.lora_alpha, back.config.use_dora) == (RANK, ALPHA, dora)


@pytest.mark.parametrize("family", FAMILIES)
def test_diffusers_loads_kohyas_file_with_the_effect_that_was_trained(family: str, tmp_path: Path) -> None:
    before, parts = trained(family, targets=[*TRANSFORMER, *CONV])
    file = write_kohya(tmp_path, parts, LAYERS_PER_BLOCK[family], SPEC, facts_of(family))
    pipeline, adapter = loaded(family, file)
    for name in parts:
        expected, found = effects(before, name, "default"), effects(pipeline, name, adapter)
        assert found.keys() == expected.keys() and expected
        for module, weight in expected.items():
            assert torch.equal(found[module], weight), module


def comfyui_weight(
    weight: torch.Tensor, delta: torch.Tensor, dora_scale: torch.Tensor, alpha: float, strength: float = 1.0
) -> torch.Tensor:
    """What ComfyUI and Forge make of a DoRA: the changed weights are scaled by the norms of the base's own, of each output where
    `dora_scale` has one for each."""
    changed = weight + delta * alpha
    if dora_scale.shape[0] == changed.shape[0]:
        norm = weight.reshape(weight.shape[0], -1).norm(dim=1, keepdim=True)
        norm = norm.reshape(weight.shape[0], *[1] * (weight.dim() - 1))
    else:
        turned = weight.transpose(0, 1)
        norm = turned.reshape(turned.shape[0], -1).norm(dim=1, keepdim=True)
        norm = norm.reshape(turned.shape[0], *[1] * (weight.dim() - 1)).transpose(0, 1)
    changed = changed * (dora_scale / (norm + torch.finfo(weight.dtype).eps))
    return changed if strength == 1 else weight + strength * (changed - weight)


@pytest.mark.parametrize("family", FAMILIES)
def test_comfyui_and_forge_make_of_a_dora_in_kohyas_file_the_weights_that_were_trained(
    family: str, tmp_path: Path
) -> None:
    before, parts = trained(family, targets=[*TRANSFORMER, *CONV], use_dora=True)
    file = write_kohya(tmp_path, parts, LAYERS_PER_BLOCK[family], replace(SPEC, dora=True), facts_of(family))
    tensors = load_file(file)
    stems = {path: stem for stem, path in stems_of(parts, family).items()}
    for name in parts:
        originals = dict(fresh(family).components[name].named_modules())
        for module, expected in effects(before, name, "default").items():
            stem, weight = stems[f"{name}.{module}"], originals[module].weight.detach()
            down, up = tensors[f"{stem}.lora_down.weight"], tensors[f"{stem}.lora_up.weight"]
            delta = (up.flatten(1) @ down.flatten(1)).reshape(expected.shape)
            alpha = float(tensors[f"{stem}.alpha"]) / RANK
            made = comfyui_weight(weight, delta, tensors[f"{stem}.dora_scale"], alpha)
            torch.testing.assert_close(made, expected, atol=1e-6, rtol=1e-5)
            assert not torch.allclose(expected, weight, rtol=1e-2)


def test_diffusers_leaves_the_norms_of_kohyas_file_out_so_its_own_file_is_for_it(tmp_path: Path) -> None:
    _, parts = trained("sdxl", targets=ATTENTION, use_dora=True)
    pipeline, adapter = loaded("sdxl", write_kohya(tmp_path, parts, 1, replace(SPEC, dora=True), facts_of("sdxl")))
    assert not pipeline.unet.peft_config[adapter].use_dora


def stems_of(parts: dict[str, LoraPart], family: str) -> dict[str, str]:
    """The path of each of kohya's stems, by what its tensors are: each weight is another one."""
    by_bytes = {
        layer.down.numpy().tobytes(): f"{name}.{module}"
        for name, part in parts.items()
        for module, layer in part.layers()
    }
    tensors = kohya_tensors(parts, FAMILIES[family], LAYERS_PER_BLOCK[family])
    ending = ".lora_down.weight"
    return {
        key.removesuffix(ending): by_bytes[tensor.numpy().tobytes()]
        for key, tensor in tensors.items()
        if key.endswith(ending)
    }


# Names on the real architectures. tests/train/lora/golden/README.md says where the lists come from.

CLIP_L = CLIPTextConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)
CLIP_H = CLIPTextConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=23, num_attention_heads=16)
CLIP_G = CLIPTextConfig(
    hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=20, projection_dim=1280
)
REAL: dict[str, Callable[[], dict[str, torch.nn.Module]]] = {
    "sdxl": lambda: {
        "unet": UNet(
            block_out_channels=(320, 640, 1280),
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            transformer_layers_per_block=(1, 2, 10),
            attention_head_dim=(5, 10, 20),
            cross_attention_dim=2048,
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=256,
            projection_class_embeddings_input_dim=2816,
        ),
        "text_encoder": CLIPTextModel(CLIP_L),
        "text_encoder_2": CLIPTextModelWithProjection(CLIP_G),
    },
    "sd15": lambda: {
        "unet": UNet(cross_attention_dim=768, attention_head_dim=8),
        "text_encoder": CLIPTextModel(CLIP_L),
    },
    "sd2": lambda: {
        "unet": UNet(cross_attention_dim=1024, attention_head_dim=(5, 10, 20, 20), use_linear_projection=True),
        "text_encoder": CLIPTextModel(CLIP_H),
    },
}
OUTSIDE_BLOCKS = ("conv_in", "conv_out", "time_embedding", "add_embedding", "text_projection")


@cache
def real_parts(family: str) -> dict[str, LoraPart]:
    """Rank 1 on every linear layer and convolution that kohya's scripts train, without memory for its weights."""
    with torch.device("meta"):
        models = REAL[family]()
    return {
        name: LoraPart(weights=dict(rank_one(model)), config=LoraConfig(r=1, lora_alpha=1))
        for name, model in models.items()
    }


def rank_one(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear | torch.nn.Conv2d) and not name.startswith(OUTSIDE_BLOCKS):
            output, *rest = module.weight.shape
            yield f"{name}.lora_A.weight", torch.empty(1, *rest, device="meta")
            yield f"{name}.lora_B.weight", torch.empty(output, 1, *[1] * len(rest[1:]), device="meta")


def golden(family: str) -> list[tuple[str, str, str, str]]:
    lines = (GOLDEN / f"{family}.txt").read_text().splitlines()
    return [(stem, down, up, path) for stem, down, up, path in (line.split() for line in lines)]


def written(shape: torch.Size) -> str:
    return "x".join(str(size) for size in shape)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_names_and_shapes_of_the_real_architecture_are_kohyas(family: str) -> None:
    expected = {}
    for stem, down, up, _ in golden(family):
        expected |= {f"{stem}.lora_down.weight": down, f"{stem}.lora_up.weight": up, f"{stem}.alpha": ""}
    found = kohya_tensors(real_parts(family), FAMILIES[family], 2)
    assert {key: written(tensor.shape) for key, tensor in found.items()} == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_each_of_kohyas_names_is_the_module_that_it_was_in_the_published_layout(family: str) -> None:
    """Names and shapes alone do not tell two modules of one shape apart."""
    paths = {path: stem for stem, _, _, path in golden(family)}
    for name, part in real_parts(family).items():
        for module, layer in part.layers():
            path = module if name == "unet" or module.startswith("text_model.") else f"text_model.{module}"
            alone = LoraPart(
                weights={f"{module}.lora_A.weight": layer.down, f"{module}.lora_B.weight": layer.up}, config=part.config
            )
            stems = {key.split(".")[0] for key in kohya_tensors({name: alone}, FAMILIES[family], 2)}
            assert stems == {paths[f"{name}.{path}"]}


def test_the_modules_of_sdxl_outside_its_blocks_have_their_published_names() -> None:
    """By the U-Net's tensors in sd_xl_base_1.0.safetensors; kohya's scripts do not train them by default."""
    modules = {
        "conv_in": "input_blocks_0_0",
        "conv_out": "out_2",
        "time_embedding.linear_1": "time_embed_0",
        "time_embedding.linear_2": "time_embed_2",
        "add_embedding.linear_1": "label_emb_0_0",
        "add_embedding.linear_2": "label_emb_0_2",
    }
    low = torch.zeros(1, 1)
    weights = {f"{module}.lora_{side}.weight": low for module in modules for side in "AB"}
    tensors = kohya_tensors({"unet": LoraPart(weights=weights, config=LoraConfig(r=1))}, SDXL, 2)
    assert {key.split(".")[0] for key in tensors} == {f"lora_unet_{name}" for name in modules.values()}


# What the file says of itself.


def metadata_of(file: Path) -> dict[str, str]:
    with safe_open(file, framework="pt") as opened:
        return opened.metadata()


def small_parts() -> dict[str, LoraPart]:
    torch.manual_seed(1)
    weights = {"mid_block.attentions.0.proj_in.lora_A.weight": torch.randn(RANK, 8)}
    weights["mid_block.attentions.0.proj_in.lora_B.weight"] = torch.randn(8, RANK)
    return {"unet": LoraPart(weights=weights, config=LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["proj_in"]))}  # pyright: ignore[reportArgumentType]


def test_the_file_says_what_tools_ask_for(tmp_path: Path) -> None:
    file = write_kohya(tmp_path, small_parts(), 2, SPEC, facts_of("sdxl", licence="openrail++"))
    metadata = metadata_of(file)
    expected = {
        "ss_network_module": "networks.lora",
        "ss_network_dim": "4",
        "ss_network_alpha": "6.5",
        "ss_base_model_version": "sdxl_base_v1-0",
        "ss_v2": "False",
        "ss_sd_model_name": "dream.safetensors",
        "ss_new_sd_model_hash": SHA,
        "ss_resolution": "(1024, 1024)",
        "ss_mixed_precision": "bf16",
        "ss_lr_scheduler": "constant",
        "ss_output_name": "sks-cat",
        "modelspec.architecture": "stable-diffusion-xl-v1-base/lora",
        "modelspec.prediction_type": "epsilon",
        "modelspec.license": "openrail++",
    }
    assert expected.items() <= metadata.items()
    assert file.name == "sks-cat.safetensors"
    assert json.loads(metadata["ss_tag_frequency"]) == {"photos": {"sks cat": 1}}


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (
            {"loss_type": "huber", "huber_c": 0.2},
            {"ss_loss_type": "huber", "ss_huber_c": "0.2", "ss_huber_schedule": "snr"},
        ),
        ({"caption_tag_dropout_rate": 0.1}, {"ss_caption_tag_dropout_rate": "0.1"}),
        ({"lora_plus_ratio": 16.0}, {"ss_network_args": '{"loraplus_lr_ratio": 16.0}'}),
        ({"schedule": "cosine_with_restarts"}, {"ss_lr_scheduler": "cosine_with_restarts"}),
    ],
)
def test_what_kohya_has_too_the_file_says_by_its_names_where_it_was_used(
    tmp_path: Path, settings: dict[str, Any], fields: dict[str, str]
) -> None:
    plain = metadata_of(write_kohya(tmp_path, small_parts(), 2, SPEC, facts_of("sdxl")))
    used = metadata_of(write_kohya(tmp_path, small_parts(), 2, replace(SPEC, **settings), facts_of("sdxl")))
    assert {name: value for name, value in used.items() if plain.get(name) != value} == fields


@pytest.mark.parametrize(
    ("family", "prediction_type", "version", "architecture"),
    [
        ("sd15", "epsilon", "sd_v1", "stable-diffusion-v1/lora"),
        ("sd2", "epsilon", "sd_v2", "stable-diffusion-v2-512/lora"),
        ("sd2", "v_prediction", "sd_v2_v", "stable-diffusion-v2-768-v/lora"),
    ],
)
def test_the_file_names_the_version_of_its_base(
    family: str, prediction_type: str, version: str, architecture: str, tmp_path: Path
) -> None:
    metadata = metadata_of(
        write_kohya(tmp_path, small_parts(), 2, SPEC, facts_of(family, prediction_type=prediction_type))
    )
    assert metadata["ss_base_model_version"] == version
    assert metadata["ss_v2"] == str(family == "sd2")
    assert metadata["modelspec.architecture"] == architecture


def test_a_base_that_is_not_one_file_is_known_by_the_hash_of_its_id_and_the_file_says_so(tmp_path: Path) -> None:
    spec = replace(SPEC, base=HubBase(repo="stabilityai/sdxl", revision="abc"))
    metadata = metadata_of(write_kohya(tmp_path, small_parts(), 2, spec, facts_of("sdxl")))
    assert metadata["ss_new_sd_model_hash"] == hashlib.sha256(b"hub:stabilityai/sdxl@abc").hexdigest()
    assert (
        "hub:stabilityai/sdxl@abc" in metadata["ss_training_comment"]
        and "not one file" in metadata["ss_training_comment"]
    )
    assert "ss_sd_model_hash" not in metadata


def test_the_hashes_are_those_that_kohya_and_the_web_ui_compute(tmp_path: Path) -> None:
    """`sshs_model_hash` is of all that follows the header; the old one of 64 KiB after the first MiB of the file as saved
    with the `ss_` metadata alone."""
    weights = {"mid_block.attentions.0.proj_in.lora_A.weight": torch.randn(RANK, 100_000)}
    weights["mid_block.attentions.0.proj_in.lora_B.weight"] = torch.randn(100_000, RANK)
    base = tmp_path / "dream.safetensors"
    base.write_bytes(bytes(range(256)) * 8192)
    parts = {"unet": LoraPart(weights=weights, config=small_parts()["unet"].config)}
    file = write_kohya(tmp_path, parts, 2, SPEC, facts_of("sd15"), base)
    metadata = metadata_of(file)
    blob = file.read_bytes()
    content = blob[8 + int.from_bytes(blob[:8], "little") :]
    assert metadata["sshs_model_hash"] == hashlib.sha256(content).hexdigest()
    assert metadata["modelspec.hash_sha256"] == "0x" + metadata["sshs_model_hash"]
    alone = save(load_file(file), {key: value for key, value in metadata.items() if key.startswith("ss_")})
    assert metadata["sshs_legacy_hash"] == hashlib.sha256(alone[0x100000:0x110000]).hexdigest()[:8]
    assert (
        metadata["ss_sd_model_hash"]
        == webui_hash(base)
        == hashlib.sha256(base.read_bytes()[0x100000:0x110000]).hexdigest()[:8]
    )


def test_equal_results_give_equal_bytes(tmp_path: Path) -> None:
    files = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        kohya = write_kohya(tmp_path / name, small_parts(), 2, SPEC, facts_of("sdxl"))
        files.append((kohya.read_bytes(), write_diffusers(tmp_path / name, small_parts()).read_bytes()))
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("prompt", "name"),
    [("sks cat face, fluent emoji", "sks-cat-face-fluent-emoji"), ("猫", "lora"), ("a" * 99, "a" * 60)],
)
def test_a_result_is_named_after_its_prompt(prompt: str, name: str) -> None:
    assert lora_name(replace(SPEC, prompt=prompt)) == name


@pytest.mark.parametrize(
    ("given", "name"),
    [("Grüße 🐱 cat", "grüße-cat"), ("my_dog v2", "my_dog-v2"), ("猫", "猫"), ("🐱", "sks-cat"), ("../../x", "x")],
)
def test_a_result_that_was_given_a_name_has_it_in_any_script(given: str, name: str) -> None:
    assert lora_name(replace(SPEC, prompt="sks cat", output_name=given)) == name


# A LoRA to go on from.


def as_kohya(parts: dict[str, LoraPart], family: str) -> Tensors:
    return kohya_tensors(parts, FAMILIES[family], LAYERS_PER_BLOCK[family])


def as_old_diffusers(parts: dict[str, LoraPart], family: str) -> Tensors:
    """What diffusers 0.20 wrote, before it used PEFT; its alphas are the ranks."""
    tensors = {}
    for name, part in parts.items():
        for module, layer in part.layers():
            path = re.sub(r"\.(attn\d)\.to_(\w+?)(\.0)?$", r".\1.processor.to_\2_lora", module)
            if name != "unet":
                path = "text_model." * (not module.startswith("text_model.")) + module + ".lora_linear_layer"
            elif path == module:
                path += ".lora"
            tensors[f"{name}.{path}.down.weight"] = layer.down
            tensors[f"{name}.{path}.up.weight"] = layer.up * (part.config.lora_alpha / part.config.r)
    return tensors


def save_by_diffusers(family: str, pipeline: Any, parts: dict[str, LoraPart], file: Path) -> None:
    layers = {f"{name}_lora_layers": convert_state_dict_to_diffusers(part.weights) for name, part in parts.items()}
    settings = {f"{name}_lora_adapter_metadata": part.config.to_dict() for name, part in parts.items()}
    type(pipeline).save_lora_weights(file.parent, weight_name=file.name, **layers, **settings)


def put(pipeline: Any, weights: dict[str, Tensors]) -> Any:
    from peft.utils import set_peft_model_state_dict

    for name, state in weights.items():
        set_peft_model_state_dict(getattr(pipeline, name), state)
    return pipeline


@pytest.mark.parametrize("form", ["kohya", "diffusers", "diffusers itself", "old diffusers"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_lora_is_gone_on_from_with_the_effect_that_it_had(family: str, form: str, tmp_path: Path) -> None:
    """At another alpha and a larger rank than it was made with."""
    before, parts = trained(family, targets=[*TRANSFORMER, *CONV])
    file = write_diffusers(tmp_path, parts)
    match form:
        case "kohya":
            save_file(as_kohya(parts, family), file)
        case "old diffusers":
            save_file(as_old_diffusers(parts, family), file)
        case "diffusers itself":
            save_by_diffusers(family, before, parts, file)
    pipeline, start = adapted(family, targets=[*TRANSFORMER, *CONV], r=RANK + 2, lora_alpha=1.0)
    put(pipeline, read_lora(file, FAMILIES[family], start, LAYERS_PER_BLOCK[family]))
    for name in parts:
        expected, found = effects(before, name, "default"), effects(pipeline, name, "default")
        assert found.keys() == expected.keys()
        for module, weight in expected.items():
            torch.testing.assert_close(found[module], weight, atol=1e-6, rtol=1e-5, msg=module)


@pytest.mark.parametrize("form", ["kohya", "diffusers"])
@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_what_was_written_is_read_to_the_bit(form: str, dora: bool, tmp_path: Path) -> None:
    """But for the norms of a DoRA in kohya's file, which are divided and multiplied again."""
    _, parts = trained("sdxl", targets=[*TRANSFORMER, *CONV], use_dora=dora)
    write = {
        "diffusers": lambda: write_diffusers(tmp_path, parts),
        "kohya": lambda: write_kohya(tmp_path, parts, 1, SPEC, facts_of("sdxl")),
    }
    _, start = adapted("sdxl", targets=[*TRANSFORMER, *CONV], use_dora=dora)
    back = read_lora(write[form](), SDXL, start, 1)
    for name, part in parts.items():
        assert back[name].keys() == part.weights.keys()
        for key, weight in part.weights.items():
            if form == "kohya" and key.endswith(MAGNITUDE):
                torch.testing.assert_close(back[name][key], weight, atol=0, rtol=1e-6)
            else:
                assert torch.equal(back[name][key], weight), key


def test_a_dora_in_kohyas_format_of_another_tool_is_read_as_it_is(tmp_path: Path) -> None:
    """As LyCORIS writes one, whose norms are those of the sum."""
    _, parts = trained("sd15", targets=ATTENTION, use_dora=True)
    tensors = load_file(write_kohya(tmp_path, parts, 2, replace(SPEC, dora=True), facts_of("sd15")))
    file = tmp_path / "another.safetensors"
    save_file(tensors, file)
    back = read_lora(file, SD15, adapted("sd15", targets=ATTENTION, use_dora=True)[1], 2)
    stem, module = next((stem, path.partition(".")) for stem, path in stems_of(parts, "sd15").items())
    found = back[module[0]][module[2] + MAGNITUDE]
    assert torch.equal(found.flatten(), tensors[f"{stem}.dora_scale"].flatten())


def test_further_directions_and_modules_begin_at_zero_and_can_learn(tmp_path: Path) -> None:
    _, parts = trained("sd15", targets=["to_q"])
    _, start = adapted("sd15", targets=["to_q", "to_k"], r=RANK + 2)
    file = write_diffusers(tmp_path, parts)
    back = read_lora(file, SD15, start, 2)["unet"]
    module = "mid_block.attentions.0.transformer_blocks.0.attn1"
    assert not back[f"{module}.to_q.lora_B.weight"][:, RANK:].any()
    assert torch.equal(
        back[f"{module}.to_q.lora_A.weight"][RANK:], start["unet"].weights[f"{module}.to_q.lora_A.weight"][RANK:]
    )
    assert back[f"{module}.to_q.lora_A.weight"][RANK:].all()
    assert torch.equal(back[f"{module}.to_k.lora_A.weight"], start["unet"].weights[f"{module}.to_k.lora_A.weight"])
    assert not back[f"{module}.to_k.lora_B.weight"].any()


@pytest.mark.parametrize(
    "settings",
    [{"use_rslora": True}, {"alpha_pattern": {"mid_block.*.to_q|q_proj": 3.0, "attn2.to_k|0.*.k_proj": 2.0}}],
    ids=str,
)
def test_scales_that_peft_computes_otherwise_are_kept(settings: dict[str, Any], tmp_path: Path) -> None:
    before, parts = trained("sd15", targets=ATTENTION, **settings)
    save_by_diffusers("sd15", before, parts, tmp_path / "style.safetensors")
    pipeline, start = adapted("sd15", targets=ATTENTION)
    put(pipeline, read_lora(tmp_path / "style.safetensors", SD15, start, 2))
    expected, found = effects(before, "unet", "default"), effects(pipeline, "unet", "default")
    for module, weight in expected.items():
        torch.testing.assert_close(found[module], weight, atol=1e-6, rtol=1e-5, msg=module)


def test_half_precision_goes_on_with_the_values_that_it_has(tmp_path: Path) -> None:
    _, parts = trained("sd15", targets=ATTENTION)
    save_file({key: tensor.half() for key, tensor in as_kohya(parts, "sd15").items()}, tmp_path / "half.safetensors")
    back = read_lora(tmp_path / "half.safetensors", SD15, adapted("sd15", targets=ATTENTION)[1], 2)["unet"]
    for key, weight in parts["unet"].weights.items():
        assert back[key].dtype == torch.float32
        assert torch.equal(back[key], weight.half().float()), key


@pytest.fixture(scope="module")
def cat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA of the small Stable Diffusion 1.5, attention only."""
    return write_diffusers(tmp_path_factory.mktemp("lora"), trained("sd15", targets=ATTENTION)[1])


@pytest.fixture(scope="module")
def start() -> dict[str, LoraPart]:
    """What a job has that trains the attention of that model."""
    return adapted("sd15", targets=ATTENTION)[1]


def change(file: Path, to: Path, edit: Callable[[Tensors], None]) -> Path:
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, to / "style.safetensors", metadata_of(file))
    return to / "style.safetensors"


def test_a_lora_of_a_larger_rank_is_refused(cat: Path) -> None:
    _, start = adapted("sd15", targets=ATTENTION, r=2)
    with pytest.raises(BadInput, match=f"{DIFFUSERS_FILE} has rank 4, but the job has rank 2") as refused:
        read_lora(cat, SD15, start, 2)
    assert refused.value.hint == "set rank to 4"


def test_modules_that_the_job_does_not_train_are_refused_by_name(tmp_path: Path) -> None:
    file = write_kohya(tmp_path, trained("sdxl", targets=TRANSFORMER)[1], 1, SPEC, facts_of("sdxl"))
    _, start = adapted("sdxl", targets=ATTENTION)
    with pytest.raises(BadInput, match=r"does not train: lora_unet_.* more") as refused:
        read_lora(file, SDXL, start, 1)
    assert refused.value.hint == "add ff.net.0.proj, ff.net.2, proj_in, proj_out to target_modules"


def test_weights_of_a_text_encoder_are_refused_where_it_is_not_trained(cat: Path, start: dict[str, LoraPart]) -> None:
    with pytest.raises(BadInput, match="text encoders") as refused:
        read_lora(cat, SD15, {"unet": start["unet"]}, 2)
    assert refused.value.hint == "set train_text_encoder"


@pytest.mark.parametrize(("dora", "says"), [(False, "a DoRA"), (True, "not a DoRA")])
def test_a_dora_goes_on_as_a_dora_only(dora: bool, says: str, tmp_path: Path) -> None:
    file = write_diffusers(tmp_path, trained("sd15", targets=ATTENTION, use_dora=not dora)[1])
    _, start = adapted("sd15", targets=ATTENTION, use_dora=dora)
    with pytest.raises(BadInput, match=says) as refused:
        read_lora(file, SD15, start, 2)
    assert refused.value.hint == f"set dora to {str(not dora).lower()}"


def test_a_dora_with_norms_for_each_input_is_refused(tmp_path: Path) -> None:
    """LyCORIS's default: (1, in)."""
    tensors = kohya_tensors(trained("sd15", targets=["ff.net.2"], use_dora=True)[1], SD15, 2)
    inputs = {
        key: tensors[key.replace("dora_scale", "lora_down.weight")].shape[1] for key in tensors if "dora_scale" in key
    }
    save_file(tensors | {key: torch.ones(1, width) for key, width in inputs.items()}, tmp_path / "lycoris.safetensors")
    _, start = adapted("sd15", targets=["ff.net.2"], use_dora=True)
    with pytest.raises(BadInput, match="a norm for each input"):
        read_lora(tmp_path / "lycoris.safetensors", SD15, start, 2)


@pytest.mark.parametrize(
    ("of", "says"), [("sd15", "Stable Diffusion 1"), ("sd2", "Stable Diffusion 2"), ("sdxl", "SDXL")]
)
def test_a_lora_of_another_family_is_refused(of: str, says: str, tmp_path: Path) -> None:
    parts = real_parts(of)["unet"]
    weights = {
        key: torch.zeros(1, 1).expand(value.shape[:2]) for key, value in parts.weights.items() if "attn2.to_k" in key
    }
    file = write_kohya(tmp_path, {"unet": LoraPart(weights=weights, config=parts.config)}, 2, SPEC, facts_of(of))
    other = "sdxl" if of != "sdxl" else "sd15"
    with pytest.raises(BadInput, match=f"is a LoRA of {says}, and the base is"):
        read_lora(file, FAMILIES[other], adapted(other, targets=ATTENTION)[1], LAYERS_PER_BLOCK[other])


def test_a_lora_of_other_widths_is_refused_with_the_shapes(
    cat: Path, tmp_path: Path, start: dict[str, LoraPart]
) -> None:
    key = "unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q.lora_A.weight"
    file = change(cat, tmp_path, lambda tensors: tensors.update({key: torch.zeros(RANK, 99)}))
    with pytest.raises(
        BadInput, match=r"style\.safetensors does not fit the base: .*\(4, 99\), the base needs \(4, 64\)"
    ):
        read_lora(file, SD15, start, 2)


def test_values_that_are_no_numbers_are_refused(cat: Path, tmp_path: Path, start: dict[str, LoraPart]) -> None:
    key = "unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q.lora_B.weight"
    file = change(cat, tmp_path, lambda tensors: tensors[key][0].fill_(float("nan")))
    with pytest.raises(BadInput, match="not finite"):
        read_lora(file, SD15, start, 2)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PK\x03\x04archive", "is a pickle"),
        (b"\x80\x02}q\x00.", "is a pickle"),
        (b"nothing of the kind", "is not a safetensors file, or is damaged"),
        (
            save({"lora_unet_x.hada_w1_a": torch.zeros(2, 2)}),
            "is not a LoRA that training can continue from: it has lora_unet_x.hada_w1_a",
        ),
        (save({"model.diffusion_model.out.2.weight": torch.zeros(2, 2)}), "is not a LoRA"),
        (
            save(
                {"lora_unet_mid_block_attentions_0_transformer_blocks_0_attn1_to_q.lora_up.weight": torch.zeros(2, 2)}
            ),
            "is damaged",
        ),
    ],
)
def test_what_is_no_lora_is_refused_by_name(
    content: bytes, says: str, tmp_path: Path, start: dict[str, LoraPart]
) -> None:
    file = tmp_path / "style.safetensors"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=f"^style.safetensors {says}"):
        read_lora(file, SD15, start, 2)


def test_a_pickle_is_refused_before_anything_of_it_runs(tmp_path: Path, start: dict[str, LoraPart]) -> None:
    """`torch.save` makes one in a zip archive."""
    torch.save({"lora_unet_x.lora_up.weight": torch.zeros(2, 2)}, tmp_path / "style.safetensors")
    found = []
    listening = [True]
    sys.addaudithook(lambda event, _: found.append(event) if listening and event == "pickle.find_class" else None)
    with pytest.raises(BadInput, match="is a pickle"):
        read_lora(tmp_path / "style.safetensors", SD15, {}, 2)
    read_lora(write_diffusers(tmp_path, start), SD15, start, 2)
    listening.clear()
    assert not found


def test_a_lora_that_was_cut_off_is_refused(cat: Path, tmp_path: Path, start: dict[str, LoraPart]) -> None:
    (tmp_path / "style.safetensors").write_bytes(cat.read_bytes()[:-100])
    with pytest.raises(BadInput, match="is cut off"):
        read_lora(tmp_path / "style.safetensors", SD15, start, 2)


@pytest.mark.parametrize(
    "said",
    [
        {"unet.lora_alpha": "much"},
        {"unet.lora_alpha": [8]},
        {"unet.alpha_pattern": ["to_q"]},
        {"unet.alpha_pattern": {"(": 3.0}},
        {"unet.alpha_pattern": {"to_q": None}},
    ],
)
def test_settings_that_are_none_are_refused(
    said: dict[str, Any], cat: Path, tmp_path: Path, start: dict[str, LoraPart]
) -> None:
    save_file(load_file(cat), tmp_path / "style.safetensors", {SETTINGS: json.dumps(said)})
    with pytest.raises(BadInput, match=r"style\.safetensors has no valid alpha in its metadata"):
        read_lora(tmp_path / "style.safetensors", SD15, start, 2)
