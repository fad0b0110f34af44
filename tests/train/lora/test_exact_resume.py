"""Promise 3: an interrupted run ends with the same bits as an uninterrupted one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.parsing import InvalidSpec
from gangline.core.runs.contract import EXIT_DONE
from gangline.train.checkpoints.manifest import read_manifest
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.program import failure_kind
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.numerics import OtherNumerics
from tests.train.conftest import STEPS, finish, interrupt, lay_out, report_of, small_spec


def tensors(run: RunDirectory) -> dict[str, tuple[list[int], bytes]]:
    with safe_open(run.output / DIFFUSERS_FILE, "numpy") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    return {name: (list(tensor.shape), tensor.tobytes()) for name, tensor in found.items()}


@pytest.mark.parametrize("after", [1, 3, 7, 11])
def test_an_interrupted_run_ends_with_the_same_bits(tmp_path: Path, uninterrupted: RunDirectory, after: int) -> None:
    resumed = finish(interrupt(tmp_path / "run", small_spec(), after=after))
    assert tensors(resumed) == tensors(uninterrupted)
    assert report_of(resumed)["weights_digest"] == report_of(uninterrupted)["weights_digest"]
    assert report_of(resumed)["exact"] is True


def test_another_seed_gives_other_bits(tmp_path: Path, uninterrupted: RunDirectory) -> None:
    other = finish(lay_out(tmp_path / "run", small_spec(seed=1)))
    assert report_of(other)["weights_digest"] != report_of(uninterrupted)["weights_digest"]


def test_a_resumed_run_says_when_its_numerics_changed(tmp_path: Path) -> None:
    run = interrupt(tmp_path / "run", small_spec(), after=4)
    made_under = read_manifest(run.checkpoints / "000004").fingerprint
    rewrite_manifest(run.checkpoints / "000004", fingerprint=made_under | {"torch": "1.0"})
    assert report_of(finish(run))["exact"] is False


def test_a_run_whose_bits_must_stay_the_same_does_not_go_on_under_other_numerics(tmp_path: Path) -> None:
    run = interrupt(tmp_path / "run", small_spec(exact="required"), after=4)
    made_under = read_manifest(run.checkpoints / "000004").fingerprint
    rewrite_manifest(run.checkpoints / "000004", fingerprint=made_under | {"torch": "1.0"})
    before = lines(run)
    with pytest.raises(OtherNumerics, match=r"was made with other numerics: torch 1\.0 → ") as told:
        run_lora_trainer(RunDirectory(run.path), Orders())
    assert failure_kind(told.value) == "other numerics"
    assert [line["phase"] for line in lines(run)[len(before) :]] == ["preparing"]


def test_a_job_with_a_setting_that_its_node_does_not_know_is_for_a_newer_node(tmp_path: Path) -> None:
    run = lay_out(tmp_path / "run", small_spec())
    path = run.path / "spec.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"of_next_year": True}))
    with pytest.raises(InvalidSpec, match="of_next_year") as told:
        run_lora_trainer(RunDirectory(run.path), Orders())
    assert failure_kind(told.value) == "too old"


def test_a_run_whose_bits_must_stay_the_same_goes_on_under_its_own_numerics(
    tmp_path: Path, uninterrupted: RunDirectory
) -> None:
    resumed = finish(interrupt(tmp_path / "run", small_spec(exact="required"), after=4))
    assert tensors(resumed) == tensors(uninterrupted) and report_of(resumed)["exact"] is True


def test_a_run_that_need_not_be_exact_may_use_any_kernel_and_promises_nothing(tmp_path: Path) -> None:
    run = finish(lay_out(tmp_path / "run", small_spec(exact="off")))
    assert not torch.are_deterministic_algorithms_enabled()
    assert report_of(run)["exact"] is False
    finish(lay_out(tmp_path / "repeatable", small_spec(steps=1)))
    assert torch.are_deterministic_algorithms_enabled()


def rewrite_manifest(checkpoint: Path, **changes: Any) -> None:
    manifest = replace(read_manifest(checkpoint), **changes)
    (checkpoint / "manifest.json").write_text(json.dumps(manifest.to_json()))


def test_asked_to_save_a_run_saves_and_goes_on(tmp_path: Path) -> None:
    run = lay_out(tmp_path / "run", small_spec(checkpoint_every_steps=None))
    assert run_lora_trainer(run, Orders(save=True)) == EXIT_DONE
    assert [path.name for path in run.checkpoints.iterdir()] == ["000001"]
    assert lines(run)[-1]["step"] == STEPS


def lines(run: RunDirectory) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run.path / "progress.jsonl").read_text().splitlines()]
