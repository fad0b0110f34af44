"""A LoKr: the numbers of its definition, the files that tools read, and files to continue from."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import UNet2DConditionModel
from peft import LoKrConfig
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from gangline.core.errors import BadInput
from gangline.core.estimates.layers import unet_layers
from gangline.core.estimates.work import Trained, training_work
from gangline.core.models.families import SDXL
from gangline.core.models.kronecker import divided
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.models.lora_names import kohya_stem
from gangline.core.parsing import InvalidSpec, to_json
from gangline.core.specs.lora import parse_lora
from gangline.core.specs.sections.low_rank import LowRankSettings
from gangline.train.lora.adapter import Adapter
from gangline.train.lora.export import SETTINGS, write_diffusers, write_kohya
from gangline.train.lora.init_lora import read_lora
from gangline.train.lora.layers.kronecker import KroneckerConvolution, KroneckerLinear, KroneckerModel
from gangline.train.model.base import load_base
from tests.conftest import BASE
from tests.train.conftest import finish, lay_out, small_spec
from tests.train.estimates.test_work import META, SIDES, passes, shape, unet_on_meta
from tests.train.lora.test_blocks import as_if_trained
from tests.train.lora.test_export import facts_of
from tests.unit.specs.specs_of_every_setting import LORA

FORMS: dict[str, dict[str, Any]] = {
    "low rank": {"r": 2},
    "tucker": {"r": 2, "use_effective_conv2d": True},
    "full": {"r": 32, "alpha": 32},
    "another factor": {"r": 2, "decompose_factor": 2},
}
BASES: dict[str, Any] = {
    "linear": lambda: nn.Linear(24, 40),
    "convolution": lambda: nn.Conv2d(24, 40, 3, padding=1),
    "convolution that halves": lambda: nn.Conv2d(24, 40, 3, padding=1, stride=2, bias=False),
    "convolution of one pixel": lambda: nn.Conv2d(24, 40, 1),
}
OFF_BY_MAX = {torch.float32: 1e-5, torch.bfloat16: 4e-2}


class Layers(nn.Module):
    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.layer: Any = base


def adapted(base: str, dtype: torch.dtype, **settings: Any) -> Any:
    torch.manual_seed(0)
    layers = Layers(BASES[base]().to(dtype).requires_grad_(False))
    KroneckerModel(layers, LoKrConfig(**({"alpha": 3, "target_modules": ["layer"]} | settings)), "default")
    for name, weight in layers.named_parameters():
        if "lokr_" in name:
            weight.data = torch.randn(weight.shape)
    return layers.layer.train()


def delta_of(factors: Mapping[str, torch.Tensor], alpha: float, shape: torch.Size) -> torch.Tensor:
    """What LyCORIS, ComfyUI and A1111 add to a weight: the Kronecker product w1 ⊗ w2 (Edalati et al. 2022, eq. 3), times alpha / rank where
    w2 is a product of a rank, element by element in float64; w2 of a Tucker core as in Hyeon-Woo et al. 2022, proposition 3."""
    known = {role: tensor.double() for role, tensor in factors.items()}
    first, scale = known["lokr_w1"], 1.0
    pixels = shape[2:] or torch.Size((1, 1))
    if "lokr_w2" in known:
        second = known["lokr_w2"].reshape(*known["lokr_w2"].shape[:2], *pixels)
    else:
        scale = alpha / known["lokr_w2_b"].shape[0]
        if "lokr_t2" in known:
            second = torch.einsum("ijhw,ik,jn->knhw", known["lokr_t2"], known["lokr_w2_a"], known["lokr_w2_b"])
        else:
            second = (known["lokr_w2_a"] @ known["lokr_w2_b"]).reshape(len(known["lokr_w2_a"]), -1, *pixels)
    both = torch.einsum("lm,knhw->lkmnhw", first, second)
    return scale * both.reshape(shape)


def factors_in(layer: Any) -> dict[str, torch.Tensor]:
    names = {name.removesuffix(".default") for name, _ in layer.named_parameters() if name.endswith(".default")}
    return {name: getattr(layer, name)["default"] for name in names}


def by_definition(layer: Any, input: torch.Tensor, back: torch.Tensor, alpha: float) -> dict[str, torch.Tensor]:
    base = layer.get_base_layer()
    factors = {name: weight.detach().double().requires_grad_() for name, weight in factors_in(layer).items()}
    x = input.double().requires_grad_()
    weight = base.weight.double() + delta_of(factors, alpha, base.weight.shape)
    bias = None if base.bias is None else base.bias.double()
    places = () if isinstance(base, nn.Linear) else (base.stride, base.padding)
    y = (functional.conv2d if places else functional.linear)(x, weight, bias, *places)
    given = {"input": x} | factors
    gradients = torch.autograd.grad(y, list(given.values()), back.double())
    return {"output": y.detach()} | dict(zip(given, gradients, strict=True))


@pytest.mark.parametrize("dtype", OFF_BY_MAX)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("base", BASES)
def test_it_computes_what_is_defined(base: str, form: str, dtype: torch.dtype) -> None:
    layer = adapted(base, dtype, **FORMS[form])
    assert isinstance(layer, KroneckerLinear | KroneckerConvolution)
    size = (2, 7, 24) if base == "linear" else (2, 24, 7, 6)
    input = torch.randn(size, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        output = layer(input)
    back = torch.randn(output.shape, generator=torch.Generator().manual_seed(2)).to(output.dtype)
    given = {"input": input} | factors_in(layer)
    gradients = torch.autograd.grad(output, list(given.values()), back)
    found = {"output": output.detach()} | dict(zip(given, gradients, strict=True))
    alpha = FORMS[form].get("alpha", 3)
    for name, wanted in by_definition(layer, input.detach(), back, alpha).items():
        assert found[name].shape == wanted.shape
        assert (found[name].double() - wanted).norm() < OFF_BY_MAX[dtype] * wanted.norm(), name


@pytest.mark.parametrize("base", BASES)
def test_switched_off_it_is_the_base_alone(base: str) -> None:
    layer = adapted(base, torch.float32, r=2)
    input = torch.randn((2, 24) if base == "linear" else (2, 24, 5, 5))
    assert not torch.equal(layer(input), layer.get_base_layer()(input))
    layer.enable_adapters(False)
    assert torch.equal(layer(input), layer.get_base_layer()(input))


@pytest.mark.parametrize(
    ("width", "factor", "found"),
    [(1280, None, (32, 40)), (320, 8, (8, 40)), (250, 4, (2, 125)), (127, None, (1, 127)), (64, None, (8, 8))],
)
def test_widths_are_divided_as_lycoris_divides_them(width: int, factor: int | None, found: tuple[int, int]) -> None:
    """Its documentation has a table of them."""
    assert divided(width, factor) == found


# ------------------------------------------------------------------------------------------------------------- in a model

KINDS: dict[str, dict[str, Any]] = {
    "low rank": {"conv_rank": 2, "conv_alpha": 3.0, "train_text_encoder": True},
    "tucker": {"lokr_second_factor": "tucker", "conv_rank": 2, "lokr_factor": 4},
    "full": {"lokr_second_factor": "full", "lokr_factor": 4, "conv_rank": 2},
    "blocks": {"block_ranks": ("up_blocks.*=1:4", "mid_block.*=64"), "lokr_factor": 2},
}


def adapter_of(**settings: Any) -> Adapter:
    values: dict[str, Any] = {"algorithm": "lokr", "rank": 2, "alpha": 3.0}
    return Adapter(load_base(BASE, torch.device("cpu"), torch.float32), small_spec(**(values | settings)))


def spec_of(**settings: Any) -> Any:
    return small_spec(**({"algorithm": "lokr", "rank": 2, "alpha": 3.0} | settings))


def changes_of(adapter: Adapter) -> dict[str, torch.Tensor]:
    """What is added to each layer's weight, by part and module, from what the layers hold."""
    return {
        f"{part}.{module}": layer.get_delta_weight("default").detach().double()
        for part, model in adapter.parts.items()
        for module, layer in model.named_modules()
        if isinstance(layer, KroneckerLinear | KroneckerConvolution)
    }


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool((one.double() - other).norm() <= 1e-6 * other.norm()) and bool(other.any())


@pytest.mark.parametrize("kind", KINDS)
def test_it_begins_as_the_base_and_every_factor_can_learn(kind: str) -> None:
    adapter = adapter_of(**KINDS[kind])
    changes = changes_of(adapter)
    assert changes and not any(change.any() for change in changes.values())
    first = [weight for name, weight in adapter.weights.items() if "lokr_w1" in name]
    assert len(first) == len(changes) and all(weight.any() for weight in first)
    assert all(weight.dtype == torch.float32 for weight in adapter.weights.values())


@pytest.mark.parametrize("kind", KINDS)
def test_tools_that_read_kohyas_file_add_what_was_trained(kind: str, tmp_path: Path) -> None:
    adapter = as_if_trained(adapter_of(**KINDS[kind]))
    spec = spec_of(**KINDS[kind])
    file = write_kohya(tmp_path, adapter.as_parts(), 1, spec, facts_of("sdxl"))
    tensors, left = load_file(file), set(load_file(file))
    for layer, change in changes_of(adapter).items():
        part, _, module = layer.partition(".")
        stem = kohya_stem(SDXL, part, module, 1)
        own = {name.removeprefix(f"{stem}."): tensor for name, tensor in tensors.items() if name.startswith(f"{stem}.")}
        left -= {f"{stem}.{role}" for role in own}
        alpha = float(own.pop("alpha"))
        assert close(delta_of(own, alpha, change.shape), change), stem
        assert own.keys() in ({"lokr_w1", "lokr_w2"}, {"lokr_w1", "lokr_w2_a", "lokr_w2_b"}), "ComfyUI fails on a core"
    assert not left
    with safe_open(file, framework="pt") as opened:
        said = opened.metadata()
    arguments = json.loads(said["ss_network_args"])
    assert said["ss_network_module"] == "lycoris.kohya"
    assert (arguments["algo"], arguments["factor"]) == ("lokr", spec.lokr_factor or -1)
    assert arguments.get("full_matrix", False) == (kind == "full")


@pytest.mark.parametrize("kind", KINDS)
def test_diffusers_loads_the_unets_back(kind: str, tmp_path: Path) -> None:
    adapter = as_if_trained(adapter_of(**KINDS[kind]))
    file = write_diffusers(tmp_path, adapter.as_parts())
    unet: Any = UNet2DConditionModel.from_pretrained(BASE / "unet", local_files_only=True)
    unet.load_lora_adapter(tmp_path, weight_name=file.name, prefix="unet")
    found = {name: layer for name, layer in unet.named_modules() if hasattr(layer, "lokr_w1")}
    wanted = {name: change for name, change in changes_of(adapter).items() if name.startswith("unet.")}
    assert {f"unet.{name}" for name in found} == wanted.keys()
    for name, layer in found.items():
        assert close(layer.get_delta_weight(layer.active_adapters[0]).detach(), wanted[f"unet.{name}"]), name


@pytest.mark.parametrize(
    ("kind", "form"),
    [(kind, form) for kind in KINDS for form in ("kohya", "diffusers") if (kind, form) != ("tucker", "kohya")],
)
def test_what_was_written_is_read_to_the_bit(kind: str, form: str, tmp_path: Path) -> None:
    parts = as_if_trained(adapter_of(**KINDS[kind])).as_parts()
    spec = spec_of(**KINDS[kind])
    kohya = form == "kohya"
    file = write_kohya(tmp_path, parts, 1, spec, facts_of("sdxl")) if kohya else write_diffusers(tmp_path, parts)
    back = read_lora(file, SDXL, adapter_of(**KINDS[kind]).as_parts(), 1)
    for part, one in parts.items():
        assert back[part].keys() == one.weights.keys()
        assert all(torch.equal(back[part][name], weight) for name, weight in one.weights.items())


@pytest.mark.parametrize("kind", ["low rank", "tucker", "blocks"])
def test_a_lokr_is_continued_with_the_effect_that_it_had_at_another_alpha_and_a_higher_rank(
    kind: str, tmp_path: Path
) -> None:
    adapter = as_if_trained(adapter_of(**KINDS[kind]))
    file = write_diffusers(tmp_path, adapter.as_parts())
    more = {"alpha": 7.0, "rank": 3} | ({"conv_rank": 3, "conv_alpha": 1.0} if kind != "blocks" else {})
    other = adapter_of(**(KINDS[kind] | more))
    other.start_from(file, load_base(BASE, torch.device("cpu"), torch.float32))
    wanted = changes_of(adapter)
    for layer, change in changes_of(other).items():
        assert close(change, wanted[layer]), layer


def test_one_that_is_whole_in_the_job_takes_products_of_any_rank(tmp_path: Path) -> None:
    adapter = as_if_trained(adapter_of(lokr_factor=4, conv_rank=1, lokr_second_factor="tucker"))
    file = write_diffusers(tmp_path, adapter.as_parts())
    whole = adapter_of(lokr_factor=4, conv_rank=1, lokr_second_factor="full")
    whole.start_from(file, load_base(BASE, torch.device("cpu"), torch.float32))
    wanted = changes_of(adapter)
    assert all(close(change, wanted[layer]) for layer, change in changes_of(whole).items())


def test_kohyas_file_of_one_with_cores_is_continued_as_a_product(tmp_path: Path) -> None:
    """Its cores are multiplied in, which keeps the rank."""
    adapter = as_if_trained(adapter_of(**KINDS["tucker"]))
    file = write_kohya(tmp_path, adapter.as_parts(), 1, spec_of(**KINDS["tucker"]), facts_of("sdxl"))
    with pytest.raises(BadInput, match="of the kind low_rank"):
        read_lora(file, SDXL, adapter_of(**KINDS["tucker"]).as_parts(), 1)
    other = adapter_of(**(KINDS["tucker"] | {"lokr_second_factor": "low_rank"}))
    other.start_from(file, load_base(BASE, torch.device("cpu"), torch.float32))
    wanted = changes_of(adapter)
    assert all(close(change, wanted[layer]) for layer, change in changes_of(other).items())


def test_a_first_factor_of_two_matrices_is_multiplied_out(tmp_path: Path) -> None:
    """As LyCORIS writes one with decompose_both."""
    adapter = as_if_trained(adapter_of(lokr_factor=4, target_modules=("to_q",)))
    tensors = load_file(write_kohya(tmp_path, adapter.as_parts(), 1, spec_of(), facts_of("sdxl")))
    for name in [name for name in tensors if name.endswith(".lokr_w1")]:
        first, rank = tensors.pop(name), 4
        tensors[f"{name}_a"], tensors[f"{name}_b"] = first, torch.eye(rank)
    save_file(tensors, tmp_path / "lycoris.safetensors")
    other = adapter_of(lokr_factor=4, target_modules=("to_q",))
    other.start_from(tmp_path / "lycoris.safetensors", load_base(BASE, torch.device("cpu"), torch.float32))
    wanted = changes_of(adapter)
    assert all(close(change, wanted[layer]) for layer, change in changes_of(other).items())


@pytest.mark.parametrize(
    ("job", "says", "hint"),
    [
        ({"algorithm": "lora"}, "is a LoKr", "set algorithm to lokr"),
        ({"lokr_factor": 2}, "has a first factor of 4 × 4", "set lokr_factor to 4"),
        ({"rank": 1}, "has rank 2, but the job has rank 1", "set rank to 2"),
        ({"conv_rank": 1}, "has rank 2, but the job has rank 1", "set conv_rank to 2"),
        ({"conv_rank": None}, "does not train", "set conv_rank to 2"),
        ({"lokr_second_factor": "low_rank"}, "of the kind tucker", "set lokr_second_factor to tucker"),
    ],
    ids=str,
)
def test_a_job_that_does_not_fit_is_told_what_to_set(job: dict[str, Any], says: str, hint: str, tmp_path: Path) -> None:
    made = {"lokr_factor": 4, "conv_rank": 2, "lokr_second_factor": "tucker"}
    file = write_diffusers(tmp_path, as_if_trained(adapter_of(**made)).as_parts())
    lora = {"lokr_factor": None, "lokr_second_factor": "low_rank"} if "algorithm" in job else {}
    with pytest.raises(BadInput, match=says) as refused:
        read_lora(file, SDXL, adapter_of(**(made | lora | job)).as_parts(), 1)
    assert refused.value.hint == hint


def test_a_whole_factor_that_peft_scaled_is_refused(tmp_path: Path) -> None:
    file = write_diffusers(tmp_path, as_if_trained(adapter_of(lokr_second_factor="full")).as_parts())
    said = {"unet.r": 4, "unet.alpha": 8}
    save_file(load_file(file), tmp_path / "peft.safetensors", {SETTINGS: json.dumps(said)})
    with pytest.raises(BadInput, match="scales factors that are whole"):
        read_lora(tmp_path / "peft.safetensors", SDXL, adapter_of(lokr_second_factor="full").as_parts(), 1)


def test_the_result_of_a_run_is_what_its_pictures_are_made_from(tmp_path: Path) -> None:
    spec = small_spec(algorithm="lokr", conv_rank=2, steps=2, train_text_encoder=True)
    run = finish(lay_out(tmp_path / "run", spec))
    base = load_base(BASE, torch.device("cpu"), torch.float32)
    adapter = Adapter(base, spec)
    adapter.start_from(run.output / DIFFUSERS_FILE, base)
    tensors = load_file(run.output / DIFFUSERS_FILE)
    assert len(tensors) == len(adapter.weights)
    for name, weight in adapter.weights.items():
        ends = [
            tensor for key, tensor in tensors.items() if key.endswith(name.removesuffix(".default").partition(".")[2])
        ]
        assert any(each.shape == weight.shape and torch.equal(each, weight) for each in ends), name
    card = (run.output / "README.md").read_text()
    assert "A LoKr for" in card and "load_lora_adapter" in card and "load_lora_weights" not in card


@pytest.mark.parametrize("name", ["sd15", "tiny"])
@pytest.mark.parametrize("kind", ["low rank", "tucker", "full"])
def test_its_step_computes_what_torch_counts(name: str, kind: str) -> None:
    values = {"algorithm": "lokr", "rank": 4} | KINDS[kind] | {"train_text_encoder": False}
    unet = unet_on_meta(name).requires_grad_(False).train()
    base: Any = SimpleNamespace(unet=unet)
    with META:
        Adapter(base, small_spec(**values))
    trained, layers = Trained(lora=LowRankSettings(**values)), list(unet_layers(shape(name), SIDES[name]))
    assert trained.weights(layers) == sum(weight.numel() for weight in unet.parameters() if weight.requires_grad)
    with FlopCounterMode(display=False) as counter:
        passes(unet, SIDES[name])()
    assert training_work(layers, trained, again=False).flops == pytest.approx(counter.get_total_flops(), rel=0.02)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"algorithm": "lokr", "dora": True}, "dora: cannot be combined with algorithm = lokr"),
        ({"algorithm": "lokr", "dropout": 0.1}, "dropout: cannot be combined with algorithm = lokr"),
        ({"lokr_factor": 4}, "lokr_factor: needs algorithm = lokr"),
        ({"lokr_second_factor": "full"}, "lokr_second_factor: needs algorithm = lokr"),
        ({"conv_alpha": 4.0}, "conv_alpha: needs conv_rank"),
        ({"algorithm": "loha"}, "algorithm: must be 'lora' or 'lokr'"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSpec, match=says):
        parse_lora(to_json(LORA) | settings)
