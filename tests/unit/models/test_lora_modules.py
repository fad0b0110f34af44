"""A module is found by each name that a tool gives it."""

import pytest

from gangline.core.models.families import FAMILIES, FamilyName
from gangline.core.models.lora_modules import Module, family_of_header, module_of
from gangline.core.models.lora_names import CONVOLUTIONS, stems, text_path
from gangline.core.models.recognition import Header, TensorHeader

ATTENTION = [f"{attn}.{to}" for attn in ("attn1", "attn2") for to in ("to_q", "to_k", "to_v", "to_out.0")]
IN_TRANSFORMER = [f"transformer_blocks.9.{name}" for name in (*ATTENTION, "ff.net.0.proj", "ff.net.2")]
IN_ATTENTIONS = [*IN_TRANSFORMER, "proj_in", "proj_out"]
IN_RESNETS = ["conv1", "conv2", "conv_shortcut", "time_emb_proj"]
OUTSIDE = ["conv_in", "conv_out", "time_embedding.linear_1", "time_embedding.linear_2"]
TEXT = [f"self_attn.{name}_proj" for name in ("q", "k", "v", "out")] + ["mlp.fc1", "mlp.fc2"]


def unet_modules(layers_per_block: int) -> list[str]:
    found = [*OUTSIDE, "add_embedding.linear_1", "add_embedding.linear_2"]
    for level in range(4):
        found += [f"down_blocks.{level}.downsamplers.0.conv", f"up_blocks.{level}.upsamplers.0.conv"]
        for layer in range(layers_per_block):
            found += [f"down_blocks.{level}.attentions.{layer}.{inner}" for inner in IN_ATTENTIONS]
            found += [f"down_blocks.{level}.resnets.{layer}.{inner}" for inner in IN_RESNETS]
        for layer in range(layers_per_block + 1):
            found += [f"up_blocks.{level}.attentions.{layer}.{inner}" for inner in IN_ATTENTIONS]
            found += [f"up_blocks.{level}.resnets.{layer}.{inner}" for inner in IN_RESNETS]
    found += [f"mid_block.attentions.0.{inner}" for inner in IN_ATTENTIONS]
    return found + [f"mid_block.resnets.{layer}.{inner}" for layer in (0, 1) for inner in IN_RESNETS]


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_module_is_found_by_every_tools_name_of_it(family: FamilyName, layers: int) -> None:
    kind = FAMILIES[family]
    modules = [("unet", module) for module in unet_modules(layers)]
    modules += [(part, f"encoder.layers.{n}.{name}") for part in kind.text_parts for n in (0, 11) for name in TEXT]
    assert {name.split(".")[-1] for name in CONVOLUTIONS} <= {module.split(".")[-1] for _, module in modules}
    for part, module in modules:
        wanted = Module(part, module if part == "unet" else text_path(module))
        for stem in stems(kind, part, module, layers):
            assert module_of(stem, layers) == wanted, stem


@pytest.mark.parametrize("stem", ["model.layers.0", "transformer.single_blocks.0.x", "lora_unet_input_blocks_4", ""])
def test_names_of_other_models_are_no_module(stem: str) -> None:
    assert module_of(stem, 2) is None


def header(*names: str, width: int = 64, **metadata: str) -> Header:
    entry = TensorHeader(dtype="F16", shape=(4, width), start=0, end=0)
    said = {name.replace("__", "."): value for name, value in metadata.items()}
    return Header(name="x.safetensors", data_start=0, tensors=dict.fromkeys(names, entry), metadata=said)


@pytest.mark.parametrize(
    ("found", "family"),
    [
        (header("unet.down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.lora_A.weight", width=768), "sd15"),
        (
            header("lora_unet_mid_block_attentions_0_transformer_blocks_0_attn2_to_v.lora_down.weight", width=1024),
            "sd2",
        ),
        (header("lora_unet_middle_block_1_proj_in.lora_down.weight"), "sdxl"),
        (header("lora_te2_text_model_encoder_layers_0_mlp_fc1.lora_down.weight"), "sdxl"),
        (header("lora_te_x.lora_down.weight", ss_base_model_version="sd_v1"), "sd15"),
        (header("lora_te_x.lora_down.weight", modelspec__architecture="stable-diffusion-v2-768-v/lora"), "sd2"),
        (header("lora_te_x.lora_down.weight"), None),
    ],
)
def test_the_family_is_known_by_shapes_by_names_or_by_metadata(found: Header, family: str | None) -> None:
    known = family_of_header(found)
    assert (known.name if known else None) == family


def test_the_block_of_a_module_is_named() -> None:
    assert Module("unet", "up_blocks.1.attentions.0.proj_in").block == "unet.up_blocks.1"
    assert Module("unet", "mid_block.resnets.0.conv1").block == "unet.mid_block"
    assert Module("text_encoder_2", "text_model.encoder.layers.0.mlp.fc1").block == "text_encoder_2"
    assert Module("unet", "conv_in").block == "unet"
