"""The loss of photos that are never trained on, on the way: the curve, its noise, and which step was the best."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from gangline.core.parsing import InvalidSpec, to_json
from gangline.core.runs.contract import checkpoint_name
from gangline.core.runs.extension import extended
from gangline.core.specs.lora import LoraSpec, parse_lora
from gangline.core.specs.sections.continuing import Continued
from gangline.core.specs.spec import spec_hash
from gangline.train.checkpoints.manifest import read_manifest
from gangline.train.learning.held_out import GROUPS, HeldOutCurve, standard_error
from gangline.train.run.contract import RunDirectory
from tests.conftest import SUBJECT, file_at
from tests.train.conftest import STEPS, finish, interrupt, lay_out, report_of, small_spec

EVERY = 3
HELD_OUT = tuple(file_at(path, SUBJECT) for path in sorted(SUBJECT.glob("crying*.png")))


def spec_of(**settings: Any) -> LoraSpec:
    return small_spec(**({"held_out": HELD_OUT, "held_out_every_steps": EVERY} | settings))


def measured(run: RunDirectory) -> dict[int, tuple[float, float]]:
    lines = [json.loads(line) for line in (run.path / "progress.jsonl").read_text().splitlines()]
    found = [(line["step"], line["metrics"]) for line in lines if "held_out_loss" in (line.get("metrics") or {})]
    return {step: (metrics["held_out_loss"], metrics["held_out_loss_noise"]) for step, metrics in found}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return finish(lay_out(tmp_path_factory.mktemp("whole") / "run", spec_of()))


def test_it_is_measured_at_each_interval_and_at_the_end(whole: RunDirectory) -> None:
    assert list(measured(whole)) == [3, 6, 9, 12]
    curve = report_of(whole)["held_out_curve"]
    assert [point["step"] for point in curve] == [0, 3, 6, 9, 12]
    assert curve[0]["noise"] == 0
    (photo,) = report_of(whole)["held_out"]
    assert curve[0]["held_out_loss"] == pytest.approx(photo["loss_before"], rel=1e-5)
    assert curve[-1]["held_out_loss"] == pytest.approx(photo["loss_after"], rel=1e-5)


def test_measuring_changes_no_bit_of_the_result(tmp_path: Path, whole: RunDirectory) -> None:
    left_alone = finish(lay_out(tmp_path / "run", spec_of(held_out_every_steps=None)))
    assert report_of(left_alone)["weights_digest"] == report_of(whole)["weights_digest"]


def test_the_best_step_has_a_checkpoint_that_says_so(tmp_path: Path) -> None:
    run = finish(lay_out(tmp_path / "run", spec_of(checkpoint_every_steps=None, learning_rate=1e-4)))
    report = report_of(run)
    value = {point["step"]: point["held_out_loss"] for point in report["held_out_curve"]}
    assert value[report["best_step"]] == min(value.values())
    best, lowest = [], value[0]
    for step in range(EVERY, STEPS, EVERY):
        if value[step] < lowest:
            best, lowest = [*best, step], value[step]
    assert best, "the example has a best step"
    found = {int(path.name): read_manifest(path).best for path in run.checkpoints.iterdir()}
    assert found == dict.fromkeys(best, True)


@pytest.mark.tenths
@pytest.mark.parametrize("after", [4, 6, 7])
def test_an_interruption_changes_neither_the_curve_nor_the_best_step(
    tmp_path: Path, whole: RunDirectory, after: int
) -> None:
    run = finish(interrupt(tmp_path / "run", spec_of(), after=after))
    told, expected = report_of(run), report_of(whole)
    assert {name: told[name] for name in ("held_out_curve", "best_step", "weights_digest")} == {
        name: expected[name] for name in ("held_out_curve", "best_step", "weights_digest")
    }


@pytest.mark.tenths
def test_averaged_weights_are_measured_where_they_are_the_result(tmp_path: Path) -> None:
    run = finish(lay_out(tmp_path / "run", spec_of(ema_decay=0.9)))
    (photo,) = report_of(run)["held_out"]
    assert report_of(run)["held_out_curve"][-1]["held_out_loss"] == pytest.approx(photo["loss_after"], rel=1e-5)


def test_a_manifest_says_best_only_where_it_is(whole: RunDirectory) -> None:
    for path in whole.checkpoints.iterdir():
        told = json.loads((path / "manifest.json").read_text())
        assert ("best" in told) == read_manifest(path).best
    assert not read_manifest(whole.checkpoints / checkpoint_name(8)).best, "step 8 was not measured"


def test_the_noise_is_what_two_measurements_differ_by_beyond_their_mean() -> None:
    """Groups that all move alike leave no doubt; groups that move as chance would have it do."""
    curve = HeldOutCurve()
    groups = [float(number) for number in range(GROUPS)]
    curve.add(0, 7.5, groups)
    assert curve.add(1, 7.4, [value - 0.1 for value in groups]).noise < 1e-12
    torch.manual_seed(0)
    drawn = torch.randn(GROUPS, dtype=torch.float64)
    noise = curve.add(2, 7.6, [value - 0.1 + by for value, by in zip(groups, drawn.tolist(), strict=True)]).noise
    assert noise == pytest.approx(float(drawn.std()) / GROUPS**0.5)
    assert (curve.best_step, curve.worse) == (1, 1)
    assert standard_error([1.0]) == 0.0


def test_a_higher_psnr_is_the_better_one() -> None:
    curve = HeldOutCurve(higher_is_better=True)
    for step, value in enumerate((20.0, 22.0, 21.0, 22.0)):
        curve.add(step, value, [value])
    assert (curve.best_step, curve.worse) == (1, 2)


def test_a_curve_is_stored_whole_and_that_of_older_checkpoints_is_read() -> None:
    curve, other = HeldOutCurve(), HeldOutCurve()
    for step, value in enumerate((3.0, 2.0, 2.5)):
        curve.add(step, value, [value, value + 1])
    other.restore(json.loads(json.dumps(curve.to_json())))
    assert other == curve
    older = HeldOutCurve()
    older.restore([[0, 3.0], [5, 2.0]])
    assert [(point.step, point.value) for point in older.points] == [(0, 3.0), (5, 2.0)] and older.best_step is None


def test_without_held_out_photos_there_is_nothing_to_measure() -> None:
    told = to_json(spec_of()) | {"held_out": []}
    with pytest.raises(InvalidSpec, match="held_out_every_steps: needs held-out photos"):
        parse_lora(told)


# A run that stops when it is worse


WORSE = {"held_out_every_steps": 1, "stop_when_worse": 2, "learning_rate": 1e-2, "checkpoint_every_steps": 1}
ENDED = ("steps", "steps_of_spec", "best_step", "weights_of_step", "weights_digest", "held_out_curve")


def ended(run: RunDirectory) -> dict[str, Any]:
    return {name: report_of(run).get(name) for name in ENDED}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return finish(lay_out(tmp_path_factory.mktemp("stopped") / "run", spec_of(**WORSE)))


@pytest.mark.tenths
def test_it_ends_after_as_many_measurements_without_a_better_one_with_the_weights_of_the_best_step(
    tmp_path: Path, stopped: RunDirectory
) -> None:
    told = report_of(stopped)
    best = told["best_step"]
    assert best > 0 and told["steps"] == best + 2 < told["steps_of_spec"] == STEPS
    assert told["weights_of_step"] == best and told["held_out_curve"][-1]["step"] == best + 2
    alone = finish(lay_out(tmp_path / "run", spec_of(learning_rate=1e-2, steps=best, held_out_every_steps=None)))
    assert report_of(alone)["weights_digest"] == told["weights_digest"]
    (photo,) = told["held_out"]
    value = {point["step"]: point["held_out_loss"] for point in told["held_out_curve"]}
    assert photo["loss_after"] == pytest.approx(value[best], rel=1e-5)
    (file,) = stopped.output.glob("sks-*.safetensors")
    with safe_open(file, framework="pt") as kohya:
        assert kohya.metadata()["ss_steps"] == str(best)


@pytest.mark.tenths
@pytest.mark.parametrize("since_the_best", [0, 1, 2])
def test_an_interruption_changes_neither_its_end_nor_its_weights(
    tmp_path: Path, stopped: RunDirectory, since_the_best: int
) -> None:
    """Also one after the last step, before the result is written."""
    after = report_of(stopped)["best_step"] + since_the_best
    run = lay_out(tmp_path / "run", spec_of(**WORSE))
    shutil.copytree(stopped.checkpoints / checkpoint_name(after), run.resume / checkpoint_name(after))
    assert ended(finish(run)) == ended(stopped)
    steps = [json.loads(line).get("step", 0) for line in (run.path / "progress.jsonl").read_text().splitlines()]
    assert max(steps) == report_of(stopped)["steps"]


def test_one_that_takes_all_of_its_steps_has_the_weights_of_the_best_one_too(
    tmp_path: Path, stopped: RunDirectory
) -> None:
    run = finish(lay_out(tmp_path / "run", spec_of(**WORSE | {"stop_when_worse": 1000, "steps": 9})))
    told, other = report_of(run), report_of(stopped)
    assert (told["steps"], told["best_step"]) == (9, other["best_step"]) and "steps_of_spec" not in told
    assert told["weights_digest"] == other["weights_digest"]


def test_the_best_weights_are_averaged_ones_where_the_result_is(tmp_path: Path) -> None:
    run = finish(lay_out(tmp_path / "run", spec_of(**WORSE | {"ema_decay": 0.5, "learning_rate": 3e-2})))
    told = report_of(run)
    value = {point["step"]: point["held_out_loss"] for point in told["held_out_curve"]}
    assert told["best_step"] < told["steps"]
    assert told["held_out"][0]["loss_after"] == pytest.approx(value[told["best_step"]], rel=1e-5)


def test_a_job_that_is_extended_is_measured_as_often_again_before_it_ends(
    tmp_path: Path, stopped: RunDirectory
) -> None:
    spec, told = stopped.read_training(), report_of(stopped)
    continues = Continued(job="job-old", step=told["steps"], spec_hash=spec_hash(spec))
    run = lay_out(tmp_path / "run", extended(spec, told["steps"] + 9, "stretch", continues))
    name = checkpoint_name(told["steps"])
    shutil.copytree(stopped.checkpoints / name, run.resume / name)
    now = report_of(finish(run))
    assert now["steps"] == max(now["best_step"], told["steps"]) + 2
    assert now["held_out_curve"][: len(told["held_out_curve"])] == told["held_out_curve"]


def test_it_needs_measurements() -> None:
    with pytest.raises(InvalidSpec, match="stop_when_worse: needs held_out_every_steps"):
        parse_lora(to_json(spec_of(stop_when_worse=2)) | {"held_out_every_steps": None})
