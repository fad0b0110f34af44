"""On a card: a step that is replayed as a CUDA graph is the step that its kernels, launched one by one, would have made."""

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from gangline.core.specs.lora import LoraSpec
from gangline.train.learning.learner import Learner
from gangline.train.learning.prefetch import Prefetcher
from gangline.train.lora.batches import LoraBatch
from tests.conftest import SUBJECT, file_at
from tests.train.conftest import lay_out, small_spec
from tests.train.learners import learner_of, take_step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a card")

STEPS = 8
FEATURES: dict[str, dict[str, Any]] = {
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "fp32": {"precision": "fp32"},
    "dropout": {"dropout": 0.1},
    "dora": {"dora": True},
    "masks, buckets and views": {"aspect_buckets": True, "flip": True, "crops": 2},
    "prior preservation": {"class_prompt": "cat face", "class_images": 4},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "microbatch": {"batch_size": 4, "microbatch": 2},
    "min snr": {"min_snr_gamma": 5.0},
    "huber": {"loss_type": "huber"},
    "8 bits": {"base_precision": "8bit"},
    "4 bits": {"base_precision": "4bit"},
    "not exact": {"exact": "off"},
}
ONE_BY_ONE: dict[str, dict[str, Any]] = {
    "text encoders": {"train_text_encoder": True},
    "gradient checkpointing with dropout": {"gradient_checkpointing": True, "dropout": 0.1},
    "compile": {"compile": True},
}


def learner(folder: Path, spec: LoraSpec, *, photos: Path = SUBJECT) -> tuple[Learner, Prefetcher[LoraBatch]]:
    return learner_of(lay_out(folder, spec, photos=photos))


def trained(folder: Path, spec: LoraSpec, *, graphs: bool, photos: Path = SUBJECT) -> Learner:
    lora, batches = learner(folder, spec, photos=photos)
    if not graphs:
        lora.graphs = None
    for step in range(1, STEPS + 1):
        take_step(lora, batches, step)
    return lora


@pytest.mark.parametrize("features", FEATURES)
def test_a_replayed_step_is_the_step_of_its_kernels_one_by_one(tmp_path: Path, features: str) -> None:
    spec = small_spec(**FEATURES[features])
    replayed, launched = (trained(tmp_path / str(graphs), spec, graphs=graphs) for graphs in (True, False))
    assert replayed.graphs and replayed.graphs.replayed > 0
    if spec.exact != "off":
        assert all(torch.equal(weight, launched.weights[name]) for name, weight in replayed.weights.items())


@pytest.mark.parametrize("features", ONE_BY_ONE)
def test_what_no_replay_was_seen_to_compute_alike_is_launched_kernel_by_kernel(tmp_path: Path, features: str) -> None:
    assert learner(tmp_path / "run", small_spec(**ONE_BY_ONE[features]))[0].graphs is None


def test_each_shape_has_a_graph_of_its_own(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, (name, size) in enumerate({"wide": (64, 40), "high": (40, 64), "square": (64, 64)}.items()):
        Image.new("RGB", size, (40 * number, 90, 120)).save(photos / f"{name}.png")
    spec = small_spec(aspect_buckets=True, photos=tuple(file_at(path, photos) for path in sorted(photos.iterdir())))
    replayed, launched = (
        trained(tmp_path / str(graphs), spec, graphs=graphs, photos=photos) for graphs in (True, False)
    )
    assert replayed.graphs and replayed.graphs.replayed > 1
    assert all(torch.equal(weight, launched.weights[name]) for name, weight in replayed.weights.items())


def test_graphs_that_were_forgotten_are_captured_anew_and_change_nothing(tmp_path: Path) -> None:
    lora, batches = learner(tmp_path / "run", small_spec())
    other, feed_of_other = learner(tmp_path / "other", small_spec())
    for step in range(1, STEPS + 1):
        if step == STEPS // 2:
            assert lora.graphs and lora.graphs.replayed == 1
            lora.forget_graphs()
            assert lora.graphs.replayed == 0
        take_step(lora, batches, step)
        take_step(other, feed_of_other, step)
    assert lora.graphs and lora.graphs.replayed == 1
    assert all(torch.equal(weight, other.weights[name]) for name, weight in lora.weights.items())


def test_where_memory_has_no_room_for_graphs_steps_go_on_without_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lora, batches = learner(tmp_path / "run", small_spec())
    for step in range(1, 4):
        take_step(lora, batches, step)
    assert lora.graphs and lora.graphs.replayed == 1
    lora.graphs.stop("out of memory")
    microbatch = lora.microbatch
    for step in range(4, STEPS + 1):
        take_step(lora, batches, step)
    assert lora.graphs.replayed == 0 and lora.microbatch == microbatch and lora.identity.exact
    assert "not as a CUDA graph: out of memory" in capfd.readouterr().err
