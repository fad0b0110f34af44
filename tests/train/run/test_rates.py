"""The learning rates that steps are taken with."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.optimization import get_cosine_with_hard_restarts_schedule_with_warmup

from gangline.core.runs.metrics import MEANING
from gangline.core.runs.schedule import rate_factor
from gangline.train.learning.learner import Learner
from gangline.train.tensors import Tensors
from tests.train.conftest import lay_out, small_spec
from tests.train.learners import learner_of, take_step


def test_restarts_come_where_diffusers_has_them() -> None:
    """Its warm-up begins with a rate of 0, ours with the first share; powers of two, as it counts cycles in rounded numbers."""
    warmup, steps, cycles = 10, 10 + 64, 4
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_cosine_with_hard_restarts_schedule_with_warmup(optimizer, warmup, steps, cycles).lr_lambdas[0]
    settings = {"schedule": "cosine_with_restarts", "schedule_cycles": cycles, "warmup_steps": warmup}
    spec = replace(small_spec(steps=steps), **settings)
    ours = [rate_factor(spec, step) for step in range(warmup + 1, steps + 1)]
    assert ours == pytest.approx([theirs(step - 1) for step in range(warmup + 1, steps + 1)])


KINDS = ("lora_A", "lora_B", "magnitude")


def stepped(folder: Path, **settings: Any) -> tuple[Learner, Tensors]:
    """A learner after its first step, with what that changed of each weight."""
    spec = small_spec(weight_decay=0.0, train_text_encoder=True, text_encoder_learning_rate=2e-4, **settings)
    learner, batches = learner_of(lay_out(folder, spec))
    for weight in learner.weights.values():  # B begins as 0, where A has no gradient
        weight.data += 0.01 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
    learner.buffers.refresh()
    before = {name: weight.detach().clone() for name, weight in learner.weights.items()}
    take_step(learner, batches, 1)
    batches.close()
    return learner, {name: weight.detach() - before[name] for name, weight in learner.weights.items()}


@pytest.mark.parametrize("optimizer", ["adamw", "adamw8bit", "schedule_free"])
def test_with_lora_plus_a_step_changes_b_by_a_multiple_and_everything_else_as_without(
    tmp_path: Path, optimizer: str
) -> None:
    """Hayou et al. 2024: η_B = λ η_A. A first step is proportional to its learning rate."""
    _, plain = stepped(tmp_path / "plain", optimizer=optimizer)
    _, plus = stepped(tmp_path / "plus", optimizer=optimizer, lora_plus_ratio=8.0)
    of_b = {name for name in plain if ".lora_B." in name}
    assert {name.split(".")[0] for name in of_b if plain[name].any()} == {"unet", "text_encoder", "text_encoder_2"}
    for name in plain:
        factor = 8.0 if name in of_b else 1.0
        assert torch.allclose(plus[name].double(), factor * plain[name].double(), rtol=1e-3, atol=1e-7), name


def test_with_lora_plus_a_doras_norms_keep_the_learning_rate(tmp_path: Path) -> None:
    learner, _ = stepped(tmp_path / "run", dora=True, lora_plus_ratio=8.0)
    rates = {name: group.learning_rate for group in learner.groups for name in group.weights}
    assert rates.keys() == learner.weights.keys()
    parts = {
        (name.split(".")[0].removesuffix("_2"), kind): rate
        for name, rate in rates.items()
        for kind in KINDS
        if kind in name
    }
    assert parts == {
        ("unet", "lora_A"): 1e-3,
        ("unet", "lora_B"): 8e-3,
        ("unet", "magnitude"): 1e-3,
        ("text_encoder", "lora_A"): 2e-4,
        ("text_encoder", "lora_B"): 16e-4,
        ("text_encoder", "magnitude"): 2e-4,
    }


def test_each_learning_rate_is_reported_by_its_own_name(tmp_path: Path) -> None:
    plus, _ = stepped(tmp_path / "plus", lora_plus_ratio=4.0, warmup_steps=2)
    rates = {name: value for name, value in plus.gauges().items() if "learning_rate" in name}
    assert rates == {
        "learning_rate": pytest.approx(5e-4),
        "lora_b_learning_rate": pytest.approx(2e-3),
        "text_encoder_learning_rate": pytest.approx(1e-4),
        "text_encoder_lora_b_learning_rate": pytest.approx(4e-4),
    }
    assert rates.keys() <= MEANING.keys()
    plain, _ = stepped(tmp_path / "plain")
    assert [name for name in plain.gauges() if "rate" in name] == ["learning_rate", "text_encoder_learning_rate"]
