"""What is done on buffers is what would be done on each weight by itself."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from gangline.train.learning.buffers import Buffers
from gangline.train.run.optimiser import (
    ParameterGroup,
    averaged,
    make_optimizer,
    optimizer_state,
    restore_optimizer,
    set_rates,
)
from tests.train.conftest import small_spec

SHAPES = {"unet.a": (4, 48), "unet.b": (32, 4), "text_encoder.c": (7, 5), "unet.d": (3,)}
OPTIMIZERS = ("adamw", "adamw8bit", "prodigy", "schedule_free")


def groups(rates: tuple[float, float]) -> list[ParameterGroup]:
    torch.manual_seed(0)
    weights = {name: torch.nn.Parameter(torch.randn(shape)) for name, shape in SHAPES.items()}
    text = {name: weight for name, weight in weights.items() if name.startswith("text")}
    return [
        ParameterGroup({name: weight for name, weight in weights.items() if name not in text}, rates[0]),
        ParameterGroup(text, rates[1]),
    ]


class Steps:
    """An optimiser that takes steps along made up gradients."""

    def __init__(self, optimizer: Any, *, flat: bool) -> None:
        self.groups = groups((1.0, 1.0) if optimizer == "prodigy" else (1e-2, 3e-3))
        self.weights = {name: weight for group in self.groups for name, weight in group.weights.items()}
        self.buffers = Buffers(self.groups, optimizer, torch.bfloat16, flat=flat)
        self.optimizer = make_optimizer(small_spec(optimizer=optimizer, weight_decay=0.1), self.buffers.stepped)
        set_rates(self.optimizer, self.groups, 1.0)

    def take(self, count: int, start: int = 0) -> "Steps":
        for step in range(start, start + count):
            self.buffers.clear_gradients()
            for number, weight in enumerate(self.weights.values()):
                drawn = torch.randn(weight.shape, generator=torch.Generator().manual_seed(100 * step + number))
                weight.grad = drawn if weight.grad is None else weight.grad.add_(drawn)
            self.optimizer.step()
            self.buffers.refresh()
        return self

    def results(self) -> dict[str, torch.Tensor]:
        shown = self.buffers.by_weight(averaged(self.optimizer, self.buffers.wholes))
        return {name: (shown or self.weights)[name].detach().clone() for name in self.weights}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_optimiser_steps_buffers_as_it_steps_weights(optimizer: str) -> None:
    flat, apart = Steps(optimizer, flat=True).take(5), Steps(optimizer, flat=False).take(5)
    for name, weight in apart.results().items():
        assert torch.allclose(flat.results()[name], weight, rtol=1e-5, atol=1e-6), name
    low = flat.buffers.low
    assert all(torch.equal(low[name], weight.detach().bfloat16()) for name, weight in flat.weights.items())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_its_state_goes_under_the_names_of_weights_and_back(optimizer: str) -> None:
    whole, first = Steps(optimizer, flat=True).take(6), Steps(optimizer, flat=True).take(3)
    state = first.buffers.state_by_weight(optimizer_state(first.optimizer, first.buffers.owners))
    elementwise = {key.rpartition("/")[0] for key, tensor in state.tensors.items() if tensor.ndim}
    assert elementwise == set(SHAPES)
    copied = replace(state, tensors={key: tensor.clone() for key, tensor in state.tensors.items()})
    second = Steps(optimizer, flat=True)
    for name, weight in first.weights.items():
        second.weights[name].data.copy_(weight.data)
    restore_optimizer(second.optimizer, second.buffers.owners, second.buffers.state_by_whole(copied))
    second.take(3, start=3)
    for name, result in whole.results().items():
        assert torch.equal(second.results()[name], result), name


def test_every_view_begins_where_products_read_it_at_full_speed() -> None:
    buffers = Steps("adamw", flat=True).buffers
    for views, bytes_each in ((buffers.low, 2), (buffers.sums, 4)):
        assert all(view.storage_offset() * bytes_each % 128 == 0 for view in views.values())
