"""The 3 × 3 convolutions with a LoRA: the numbers of the definition, in the node that training computes with."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import StableDiffusionXLPipeline
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import Conv2d as PeftConvolution
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from gangline.core.errors import BadInput
from gangline.core.models.families import SDXL
from gangline.core.models.lora_names import kohya_stem
from gangline.train.learning.flat import FlatWeights
from gangline.train.lora.adapter import Adapter
from gangline.train.lora.export import write_diffusers, write_kohya
from gangline.train.lora.init_lora import read_lora
from gangline.train.lora.layers.convolution import LowRankConvolution, _Convolution
from gangline.train.lora.layers.low_rank import LowRankViews
from gangline.train.model.base import load_base
from tests.conftest import BASE
from tests.train.conftest import small_spec
from tests.train.lora.test_blocks import as_if_trained
from tests.train.lora.test_export import effects, facts_of

OFF_BY_MAX = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
SHAPES: dict[str, dict[str, Any]] = {
    "a resnet's": {"kernel_size": 3, "padding": 1},
    "a downsampler's": {"kernel_size": 3, "padding": 1, "stride": 2},
    "of one pixel": {"kernel_size": 1},
}
RANK, ALPHA = 4, 10.0


class Layers(nn.Module):
    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.conv = base


def adapted(base: nn.Conv2d, **settings: Any) -> Any:
    values: dict[str, Any] = {"r": RANK, "lora_alpha": ALPHA, "target_modules": ["conv"], "init_lora_weights": False}
    config = LoraConfig(**(values | settings))
    config._register_custom_module({nn.Conv2d: LowRankConvolution})
    torch.manual_seed(1)
    layers: Any = inject_adapter_in_model(config, Layers(copy.deepcopy(base)))
    for name, weight in layers.named_parameters():
        weight.data = weight.data.float() if "lora_" in name else weight.data
    return layers.train()


def base_of(shape: str, dtype: torch.dtype, bias: bool = True) -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(6, 8, bias=bias, **SHAPES[shape]).to(dtype).requires_grad_(False)


def by_definition(layer: Any, input: torch.Tensor, back: torch.Tensor) -> list[torch.Tensor]:
    """Output and gradients in float64: a convolution by W + alpha / rank · B A, where A has a row for each channel and pixel."""
    base = layer.get_base_layer()
    down, up = (part["default"].weight.detach().double().requires_grad_() for part in (layer.lora_A, layer.lora_B))
    x = input.double().requires_grad_()
    weight = base.weight.double() + ALPHA / RANK * (up.flatten(1) @ down.flatten(1)).reshape(base.weight.shape)
    bias = None if base.bias is None else base.bias.double()
    y = functional.conv2d(x, weight, bias, base.stride, base.padding, base.dilation)
    return [y.detach(), *torch.autograd.grad(y, [x, down, up], back.double())]


@pytest.mark.parametrize("dtype", OFF_BY_MAX)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_computes_what_is_defined(shape: str, bias: bool, dtype: torch.dtype) -> None:
    layer = adapted(base_of(shape, dtype, bias)).conv
    input = torch.randn(2, 6, 9, 7, generator=torch.Generator().manual_seed(2)).to(dtype).requires_grad_()
    output = layer(input)
    back = torch.randn(output.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    weights = [part["default"].weight for part in (layer.lora_A, layer.lora_B)]
    found = [output.detach(), *torch.autograd.grad(output, [input, *weights], back)]
    for one, other in zip(found, by_definition(layer, input.detach(), back), strict=True):
        assert one.shape == other.shape
        assert (one.double() - other).norm() < OFF_BY_MAX[dtype] * other.norm()


@pytest.mark.parametrize("dtype", OFF_BY_MAX)
def test_with_views_it_adds_its_gradient_to_them_for_each_pass(dtype: torch.dtype) -> None:
    apart, ours = (adapted(base_of("a resnet's", dtype)) for _ in range(2))
    flat = FlatWeights({name: weight for name, weight in ours.named_parameters() if weight.requires_grad}, dtype)
    low, sums = flat.views(flat.low), flat.views(flat.gradient)
    down, up = (f"conv.lora_{which}.default.weight" for which in "AB")
    ours.conv.views = LowRankViews(low[down], low[up], sums[down], sums[up])
    input = torch.randn(2, 6, 5, 5).to(dtype)
    for _ in range(2):
        for layers in (apart, ours):
            layers.conv(input).float().square().sum().backward()
    for name, weight in apart.named_parameters():
        if weight.requires_grad:
            assert (sums[name] - weight.grad).norm() < OFF_BY_MAX[dtype] * weight.grad.norm()
            assert ours.get_parameter(name).grad.data_ptr() == sums[name].data_ptr()


def test_to_the_numbers_of_the_definition() -> None:
    """Against finite differences, in double precision."""
    base = base_of("a downsampler's", torch.float64)
    shapes = ((2, 6, 5, 4), (3, 6, 3, 3), (8, 3, 1, 1))
    given = tuple(torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    assert torch.autograd.gradcheck(lambda *tensors: _Convolution.apply(*tensors, 0.5, base), given)


@pytest.mark.parametrize("settings", [{"use_dora": True}, {"lora_dropout": 0.5}], ids=str)
def test_dora_and_dropout_are_left_to_peft(settings: dict[str, Any]) -> None:
    layer = adapted(base_of("a resnet's", torch.float32), **settings).conv
    input = torch.randn(2, 6, 5, 5)
    torch.manual_seed(5)
    found = layer(input)
    torch.manual_seed(5)
    assert torch.equal(found, PeftConvolution.forward(layer, input))


# ------------------------------------------------------------------------------------------------------------- in a model

SETTINGS: dict[str, Any] = {"rank": 4, "alpha": 2.0, "conv_rank": 3, "conv_alpha": 7.5}


def adapter_of(**settings: Any) -> Adapter:
    return Adapter(load_base(BASE, torch.device("cpu"), torch.float32), small_spec(**(SETTINGS | settings)))


def test_all_3_by_3_convolutions_of_resnets_and_samplers_have_their_own_rank() -> None:
    adapter = adapter_of()
    layers = dict(adapter.as_parts()["unet"].layers())
    unet: Any = load_base(BASE, torch.device("cpu"), torch.float32).unet
    wide = {
        name
        for name, layer in unet.named_modules()
        if isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3) and name not in ("conv_in", "conv_out")
    }
    assert wide == {name for name, layer in layers.items() if layer.down.dim() == 4}
    assert {"down_blocks.0.resnets.0.conv1", "down_blocks.0.downsamplers.0.conv"} <= wide
    for name, layer in layers.items():
        assert (layer.down.shape[0], layer.alpha) == ((3, 7.5) if name in wide else (4, 2.0))
    scaled = dict(adapter_of(conv_alpha=None).as_parts()["unet"].layers())
    assert {layer.scale for layer in scaled.values()} == {0.5}, "by default as the others"


def test_tools_find_them_in_both_files_and_a_job_reads_them_back(tmp_path: Path) -> None:
    adapter = as_if_trained(adapter_of())
    parts = adapter.as_parts()
    diffusers = write_diffusers(tmp_path, parts)
    kohya = write_kohya(tmp_path, parts, 1, small_spec(**SETTINGS), facts_of("sdxl"))
    tensors = load_file(kohya)
    with safe_open(kohya, framework="pt") as opened:
        said = opened.metadata()
    assert json.loads(said["ss_network_args"]) == {"conv_dim": 3, "conv_alpha": 7.5}
    assert (said["ss_network_dim"], said["ss_network_alpha"]) == ("4", "2.0")
    pipeline = StableDiffusionXLPipeline.from_pretrained(BASE, local_files_only=True, torch_dtype=torch.float32)
    originals = {
        name: layer.weight.detach().clone() for name, layer in pipeline.unet.named_modules() if hasattr(layer, "weight")
    }
    pipeline.load_lora_weights(diffusers.parent, weight_name=diffusers.name)
    loaded = effects(pipeline, "unet", pipeline.get_active_adapters()[0])
    for module, layer in parts["unet"].layers():
        stem = kohya_stem(SDXL, "unet", module, 1)
        down, up = tensors[f"{stem}.lora_down.weight"], tensors[f"{stem}.lora_up.weight"]
        assert down.shape == layer.down.shape and up.shape == layer.up.shape
        change = float(tensors[f"{stem}.alpha"]) / down.shape[0] * (up.flatten(1).double() @ down.flatten(1).double())
        wanted = originals[module].double() + change.reshape(originals[module].shape)
        torch.testing.assert_close(loaded[module].double(), wanted, atol=1e-6, rtol=1e-5)
    for file in (diffusers, kohya):
        back = read_lora(file, SDXL, adapter_of().as_parts(), 1)["unet"]
        assert all(torch.equal(back[name], weight) for name, weight in parts["unet"].weights.items())


def test_a_job_without_them_says_which_rank_to_set(tmp_path: Path) -> None:
    file = write_diffusers(tmp_path, as_if_trained(adapter_of()).as_parts())
    with pytest.raises(BadInput, match="modules that this job does not train") as refused:
        read_lora(file, SDXL, adapter_of(conv_rank=None, conv_alpha=None).as_parts(), 1)
    assert refused.value.hint == "set conv_rank to 3"
    with pytest.raises(BadInput, match="has rank 3, but the job has rank 2") as refused:
        read_lora(file, SDXL, adapter_of(conv_rank=2).as_parts(), 1)
    assert refused.value.hint == "set conv_rank to 3"
