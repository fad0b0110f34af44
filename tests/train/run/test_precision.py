"""Which precision `auto` takes, on cards that are made up: what PyTorch says of them is replaced, not what we make of it."""

from types import SimpleNamespace

import pytest
import torch

from gangline.train.run.numerics import choose_kernels, differences, dtype_of, fingerprint
from tests.train.conftest import small_spec

CARDS = {
    "GTX 1080": ((6, 1), torch.float32),
    "P100": ((6, 0), torch.float32),
    "V100": ((7, 0), torch.float16),
    "T4": ((7, 5), torch.float16),
    "A100": ((8, 0), torch.bfloat16),
    "RTX 4090": ((8, 9), torch.bfloat16),
    "H200": ((9, 0), torch.bfloat16),
    "RTX 5090": ((12, 0), torch.bfloat16),
}


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> torch.device:
    """Like a real one it makes bfloat16 tensors even where it only emulates them."""
    major, minor = request.param
    properties = SimpleNamespace(major=major, minor=minor)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: properties)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (major, minor))
    monkeypatch.setattr(torch.cuda, "_check_bf16_tensor_supported", lambda device: True)
    return torch.device("cuda", 0)


@pytest.mark.parametrize(("card", "dtype"), CARDS.values(), ids=CARDS, indirect=["card"])
def test_auto_takes_what_the_card_computes_in_and_never_what_it_emulates(
    card: torch.device, dtype: torch.dtype
) -> None:
    assert dtype_of("auto", card) == dtype


@pytest.mark.parametrize("card", [(7, 5)], indirect=True)
def test_a_precision_that_is_named_is_taken_on_any_card(card: torch.device) -> None:
    assert [dtype_of(name, card) for name in ("fp32", "bf16", "fp16")] == [torch.float32, torch.bfloat16, torch.float16]


def test_tf32_is_for_those_who_ask_and_fp32_has_none_of_it() -> None:
    def allowed(precision: str) -> tuple[bool, bool]:
        choose_kernels(repeatable=True, precision=precision)
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    assert {name: allowed(name) for name in ("auto", "fp32", "tf32")} == {
        "auto": (False, True),
        "fp32": (False, False),
        "tf32": (True, True),
    }
    assert dtype_of("tf32", torch.device("cpu")) == torch.float32
    prints = [fingerprint(torch.device("cpu"), torch.float32, small_spec(precision=name)) for name in ("fp32", "tf32")]
    assert differences(*prints) == "dtype float32 → tf32"


def test_auto_is_float32_on_a_processor() -> None:
    assert dtype_of("auto", torch.device("cpu")) == torch.float32
