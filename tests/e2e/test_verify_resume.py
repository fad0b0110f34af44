"""`gangline verify-resume` finds an exact trainer exact, whoever wrote it, and says what is wrong with one that is not."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from gangline.train.run.compare import compare_folders
from tests.conftest import BASE, ROOT, SUBJECT

SMALL_TRAINER = str(Path(__file__).with_name("small_trainer.py"))


def verify(*options: object, command: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    given = [sys.executable, "-m", "gangline.cli.main", "verify-resume", *map(str, options)]
    return subprocess.run([*given, "--", *command] if command else given, capture_output=True, text=True, check=False)


def verify_small(tmp_path: Path, **spec: Any) -> tuple[int, dict[str, Any]]:
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    ended = verify(
        "--spec", tmp_path / "spec.json", "--times", 1, "-o", "json", command=(sys.executable, SMALL_TRAINER)
    )
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def test_a_trainer_that_goes_on_where_it_was_is_exact_by_each_way_of_interruption(tmp_path: Path) -> None:
    code, said = verify_small(tmp_path)
    assert (code, said["equal"], said["steps"]) == (0, True, 60)
    assert [outcome["interruption"] for outcome in said["outcomes"]] == [
        {"way": "SIGTERM", "after": 20},
        {"way": "SIGKILL", "after": 40},
    ]
    for outcome in said["outcomes"]:
        assert outcome["resumed_from"] >= outcome["interruption"]["after"]
        assert outcome["says"] == "all tensors are equal; these files without tensors differ: made-in.txt"
    assert said["outcomes"][1]["interrupted_at"] > said["outcomes"][1]["resumed_from"], "steps were lost"


def test_a_trainer_that_forgets_its_optimizer_is_found_out_with_the_tensor_and_the_distance(tmp_path: Path) -> None:
    code, said = verify_small(tmp_path, forgets="optimizer")
    assert (code, said["equal"]) == (1, False)
    for outcome in said["outcomes"]:
        (difference,) = outcome["comparison"]["differences"]
        assert difference["tensor"] == "weights" and 0 < difference["relative_l2"] < 1
        assert "1 of 1 differ, relative L2 0." in outcome["says"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"forgets": "everything"}, "it started at step 0 and ignored the checkpoint"),
        ({"saves_torn": True}, "differs from the manifest"),
        ({"ignores_sigterm": True}, "it ended with exit code 0 after SIGTERM, not with exit code 75"),
    ],
)
def test_a_trainer_that_does_not_keep_the_contract_hears_what_it_did(
    tmp_path: Path, wrong: dict[str, Any], says: str
) -> None:
    code, said = verify_small(tmp_path, steps=40, **wrong)
    assert code == 1 and says in said["outcomes"][0]["says"]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(
        'prompt = "sks cat face"\nsteps = 240\nresolution = 64\nbatch_size = 2\nlearning_rate = 1e-3\nrank = 4\n'
        "sample_steps = 2\nsample_seeds = [1]\n"
    )
    return path


def test_photos_and_a_base_make_the_inputs_of_a_run(tmp_path: Path, recipe: Path) -> None:
    shows = "import pathlib, shutil, sys; run = pathlib.Path(sys.argv[1]); sys.exit(' '.join(sorted(str(path.relative_to(run)) "
    shows += "for path in (run / 'inputs').rglob('*') if path.is_file())))"
    ended = verify("--photos", SUBJECT, "--base", BASE, "--recipe", recipe, command=(sys.executable, "-c", shows, "{}"))
    assert ended.returncode == 2
    for name in ("inputs/base/unet/config.json", "inputs/photos/cat-face.png"):
        assert name in ended.stderr.replace("\n", " ")


@pytest.mark.nightly
def test_our_own_trainer_is_exact(recipe: Path) -> None:
    ended = verify("--photos", SUBJECT, "--base", BASE, "--recipe", recipe, "--times", 1)
    assert ended.returncode == 0, ended.stderr
    rows = ended.stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["interruption", "SIGTERM", "SIGKILL"]
    assert all("equal" in row for row in rows[1:])


@pytest.mark.parametrize(
    ("options", "command", "says"),
    [
        ((), (), "there is nothing to run"),
        (("--spec", "none.json"), (), "none.json cannot be read"),
        (
            ("--photos", "nowhere", "--base", BASE, "--recipe", ROOT / "recipes" / "tiny_subject.toml"),
            (),
            "there is no folder nowhere",
        ),
        ((), (sys.executable, "-c", "import sys; sys.exit('no such model')"), "exit code 1\nhint: no such model"),
    ],
)
def test_a_mistake_is_told_as_one(options: tuple[object, ...], command: tuple[str, ...], says: str) -> None:
    ended = verify(*options, command=command)
    assert ended.returncode == 2 and says in ended.stderr and not ended.stdout


def test_results_are_compared_by_names_types_shapes_and_bytes_of_tensors(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    ones = np.ones((2, 2), np.float32)
    save_file({"a": ones, "b": ones, "c": ones, "d": ones}, tmp_path / "one" / "w.safetensors", {"made": "monday"})
    changed = {"a": ones, "b": ones * 1.5, "c": ones.reshape(4), "e": ones}
    save_file(changed, tmp_path / "other" / "w.safetensors", {"made": "tuesday"})
    found = compare_folders(tmp_path / "one", tmp_path / "other")
    assert [(difference.tensor, difference.because) for difference in found.differences] == [
        ("b", "the bytes differ"),
        ("c", "F32 [2, 2] became F32 [4]"),
        ("d", "not in the interrupted run's result"),
        ("e", "not in the uninterrupted run's result"),
    ]
    assert found.differences[0].relative_l2 == 0.5
    assert compare_folders(tmp_path / "one", tmp_path / "one").equal


def test_the_distance_of_half_precision_weights_is_that_of_their_numbers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    for name, value in (("one", 1.0), ("other", 1.25)):
        (tmp_path / name).mkdir()
        save_torch({"w": torch.full((3,), value, dtype=torch.bfloat16)}, tmp_path / name / "w.safetensors")
    assert compare_folders(tmp_path / "one", tmp_path / "other").relative_l2 == 0.25


def test_a_result_without_tensors_is_compared_by_the_bytes_of_its_files(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights.bin").write_text(name)
    found = compare_folders(tmp_path / "one", tmp_path / "other")
    assert not found.equal and str(found.differences[0]) == "weights.bin (the bytes differ)"
