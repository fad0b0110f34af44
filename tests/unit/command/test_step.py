"""A checkpoint's step is what surely is one; a number that may be anything else is none."""

import pytest

from gangline.core.command.candidate import ROOT, CheckpointCandidate, SeenFile
from gangline.core.command.step import step_of, step_of_name

STEPS = {
    "checkpoint-100": 100,
    "checkpoint-20-rolling": 20,
    "step_7": 7,
    "000100": 100,
    "epoch=0-step=400.ckpt": 400,
    "timber-step00000100-state": 100,
    "dog_000000100.safetensors": 100,
    "model010000.pt": 10_000,
    "ema_0.9999_010000.pt": 10_000,
    "2026-11-25_run-backup-30-4-2": 30,
}
NO_STEPS = (
    "latest.pt",
    "last-state",
    "last-v1.ckpt",
    "timber_v1",
    "timber_v2-state",
    "sd15-last.ckpt",
    "sd15.safetensors",
    "epoch_3.pt",
    "timber-000001-state",
    "timber-000001.safetensors",
)


@pytest.mark.parametrize(("name", "step"), [*STEPS.items(), *((name, None) for name in NO_STEPS)])
def test_a_name_tells_a_step_or_nothing(name: str, step: int | None) -> None:
    assert step_of_name(name) == step


def test_what_it_says_itself_goes_before_its_name() -> None:
    told = SeenFile(bytes=1, sound=True, told={"current_step": 101})
    candidate = CheckpointCandidate(name="timber-step00000100-state", folder=True, files={"train_state.json": told})
    assert step_of(candidate) == 101


@pytest.mark.parametrize(
    ("pattern", "name", "paths", "step"),
    [
        ("run_{step}_*", "run_5_of_9", ("a",), 5),
        ("run_{step}_*", "other_5", ("a",), None),
        ("epoch_{step}.pt", ROOT, ("epoch_3.pt", "optim.pt"), 3),
        ("*/iter-{step}.bin", "state", ("iter-12.bin",), 12),
    ],
)
def test_a_pattern_says_where_it_stands(pattern: str, name: str, paths: tuple[str, ...], step: int | None) -> None:
    files = {path: SeenFile(bytes=1, sound=True) for path in paths}
    assert step_of(CheckpointCandidate(name=name, folder=True, files=files), pattern) == step
