"""What a step of a LoRA keeps for its backward pass is what `gangline.core.estimates.memory` counts. The tensors have no numbers."""

from typing import Any

import pytest
import torch
from benchmarks.kernels import counting
from diffusers import UNet2DConditionModel

from gangline.core.estimates.layers import unet_layers
from gangline.core.estimates.memory import kept
from gangline.core.estimates.work import Trained
from gangline.core.models.families import SDXL
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec
from gangline.train.learning.learner import Learner
from tests.train.estimates.test_work import META, PUBLISHED
from tests.train.learners import imagined_learner


def storage(tensor: torch.Tensor) -> tuple[int, int]:
    whole = tensor.untyped_storage()
    return whole._cdata, whole.nbytes()


def kept_by(learner: Learner, batch: Any) -> int:
    """The bytes that autograd keeps, but for weights: each storage once."""
    weights = [*learner.network.parameters(), *learner.buffers.low.values()]
    known = {storage(weight)[0] for weight in weights}
    alive, found = [], {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        alive.append(tensor)
        found.update([storage(tensor)])
        return tensor

    with counting(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        learner._passes_of([batch])
    return sum(size for place, size in found.items() if place not in known)


@pytest.mark.tenths
@pytest.mark.parametrize(("side", "conv_rank", "off_by"), [(512, None, 0.06), (1024, None, 0.06), (512, 4, 0.09)])
def test_a_step_keeps_what_is_counted_and_little_less(side: int, conv_rank: int | None, off_by: float) -> None:
    """A frozen convolution keeps its input, too, so a LoRA on it adds less than is counted."""
    with META:
        unet = UNet2DConditionModel.from_config(PUBLISHED["sdxl"])
    values: dict[str, Any] = {"steps": 1, "resolution": side, "precision": "bf16", "conv_rank": conv_rank}
    spec = LoraSpec(base=FilesBase(files=()), photos=(), prompt="", **values)
    counted = kept(list(unet_layers(SDXL.unet, side)), Trained(lora=spec), again=False, autocast=False)
    assert counted == pytest.approx(kept_by(*imagined_learner(unet, spec)), rel=off_by)
