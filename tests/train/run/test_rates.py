"""The learning rates that steps are taken with."""

from dataclasses import replace

import pytest
import torch
from diffusers.optimization import get_cosine_with_hard_restarts_schedule_with_warmup

from gangline.core.runs.schedule import rate_factor
from tests.train.conftest import small_spec


def test_restarts_come_where_diffusers_has_them() -> None:
    """Its warm-up begins with a rate of 0, ours with the first share; powers of two, as it counts cycles in rounded numbers."""
    warmup, steps, cycles = 10, 10 + 64, 4
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_cosine_with_hard_restarts_schedule_with_warmup(optimizer, warmup, steps, cycles).lr_lambdas[0]
    settings = {"schedule": "cosine_with_restarts", "schedule_cycles": cycles, "warmup_steps": warmup}
    spec = replace(small_spec(steps=steps), **settings)
    ours = [rate_factor(spec, step) for step in range(warmup + 1, steps + 1)]
    assert ours == pytest.approx([theirs(step - 1) for step in range(warmup + 1, steps + 1)])
