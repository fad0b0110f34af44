"""`gangline scratch --plan`: what is checked before anything is handed in."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from gangline.cli.jobs.scratch import plan_scratch
from gangline.data.dataset import DataSet, open_data_set
from gangline.data.place import DataPlace
from tests.conftest import ROOT, Typed
from tests.train.bases import save_tiny
from tests.train.sets import data_set

RECIPE = """
kind = "scratch"
new = ["unet"]
[[phases]]
steps = 6
resolution = 32
batch_size = 8
"""

LATER = "{steps = 1, resolution = 32, batch_size = 4, where = 'widht > 3'}]"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    return data_set(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "sd2", "sd2")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path / "recipe.toml"


NOBODY = "http://127.0.0.1:1"


def test_a_plan_tells_what_is_trained_on_what_and_how_often(
    typed: Typed, recipe: Path, data: DataSet, base: Path
) -> None:
    code, printed, _ = typed(
        "scratch", recipe, "--data", data.place.uri, "--base", base, "--server", NOBODY, "--plan", "-o", "json"
    )
    assert code == 0
    found = json.loads(printed)
    assert (found["trains"], found["new"], found["gpus"], found["steps"]) == ("unet", ["unet"], 1, 6)
    assert found["data"] == [{"place": "data/0-shapes.lance", "rows": 48, "where": "", "weight": 1.0}]
    assert found["phases"] == [{"resolution": 32, "steps": 6, "batch_size": 8, "seen": 48, "where": ""}]
    assert found["base"]["family"] == "sd2" and "no Gangline server" in found["asked"]


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("a cat --w 64 --d 42", 0, ""),
        ("a cat --w 500", 2, "sample_prompts.0.width: should be a multiple of 8, not 500"),
        ("a cat --ss lms", 2, "line 1: there is no sampler lms"),
    ],
)
def test_prompts_of_a_file_replace_those_of_the_recipe(
    typed: Typed, recipe: Path, data: DataSet, base: Path, tmp_path: Path, line: str, code: int, said: str
) -> None:
    (tmp_path / "prompts.txt").write_text(line)
    options = (
        "--data",
        data.place.uri,
        "--base",
        base,
        "--server",
        NOBODY,
        "--plan",
        "--set",
        'sample_prompts=["a dog"]',
    )
    found = typed("scratch", recipe, *options, "--sample-prompts-file", tmp_path / "prompts.txt")
    assert found[0] == code and said in " ".join(found[2].split())


def test_a_plan_on_the_terminal_has_a_row_for_each_phase(typed: Typed, recipe: Path, data: DataSet, base: Path) -> None:
    code, _, said = typed("scratch", recipe, "--data", data.place.uri, "--base", base, "--server", NOBODY, "--plan")
    assert code == 0
    for words in (
        "32 × 32, 6 steps, batch size 8: 48 images",
        "unknown: there is no Gangline server",
        "data/0-shapes.lance: 48 rows",
    ):
        assert words in " ".join(said.split()), said


def test_only_what_the_version_names_is_uploaded_and_it_is_all_that_is_read(base: Path, tmp_path: Path) -> None:
    data = data_set(tmp_path)
    data.table.delete("width > 43")
    data = open_data_set(data.place)
    for name in (".tmpOwV5jj", "unnamed.lance"):
        data.place.below("data").write(name, b"")
    plan = plan_scratch(tomllib.loads(RECIPE) | {"data": [data.place.uri], "base": str(base)})
    (handed,) = plan.sets.values()
    assert not [name for name in handed.names if "tmp" in name or "unnamed" in name]
    assert len([name for name in handed.names if name.startswith("_versions/")]) == 1
    for name in handed.names:
        (tmp_path / "there" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(data.place.uri) / name, tmp_path / "there" / name)
    there = open_data_set(DataPlace(str(tmp_path / "there")), version=data.version, id=data.info.id)
    assert there.table.to_table() == data.table.to_table()


ONE_SET = """
[[data]]
place = "s3://BUCKET/pictures.lance"
where = "width > 40"
weight = 3
"""
ANOTHER_SET = """
[[data]]
place = "s3://BUCKET/more.lance"
where = "width > 41"
weight = 0.5
"""


@pytest.mark.parametrize(
    ("sets", "words", "wanted"),
    [
        (ONE_SET, (), [("width > 40", 3.0)]),
        (ONE_SET, ("--where", "width > 42"), [("width > 42", 3.0)]),
        (ONE_SET, ("--where", ""), [("", 3.0)]),
        (ONE_SET, ("SECOND",), [("width > 40", 1.0), ("width > 40", 1.0)]),
        (ONE_SET + ANOTHER_SET, ("SECOND",), [("width > 40", 3.0), ("width > 41", 0.5)]),
        (ONE_SET + ANOTHER_SET, ("--where", ""), [("", 1.0)]),
    ],
)
def test_data_in_the_place_of_the_recipes_keeps_its_conditions_and_weights(
    typed: Typed,
    recipe: Path,
    data: DataSet,
    base: Path,
    tmp_path: Path,
    sets: str,
    words: tuple[str, ...],
    wanted: list[tuple[str, float]],
) -> None:
    recipe.write_text(RECIPE + sets)
    more = data_set(tmp_path).place.uri
    given = [word for each in words for word in (("--data", more) if each == "SECOND" else (each,))]
    line = ("scratch", recipe, "--data", data.place.uri, "--base", base, *given, "--server", NOBODY, "--plan")
    code, printed, _ = typed(*line, "-o", "json")
    assert code == 0
    assert [(each["where"], each["weight"]) for each in json.loads(printed)["data"]] == wanted
    shown = " ".join(typed(*line)[2].split())
    for where, weight in wanted:
        assert f"where {where}" in shown or not where
        assert f"weight {weight:g}" in shown or len(wanted) == 1


def test_another_number_of_data_sets_than_have_conditions_of_their_own_is_refused(
    typed: Typed, recipe: Path, data: DataSet, base: Path
) -> None:
    recipe.write_text(RECIPE + ONE_SET + ANOTHER_SET)
    code, _, said = typed("scratch", recipe, "--data", data.place.uri, "--base", base, "--server", NOBODY, "--plan")
    said = " ".join(said.split())
    assert code == 2
    assert "the recipe has 2 data sets with different conditions, but --data names 1" in said and "--where" in said


def test_a_condition_of_the_recipe_that_the_data_has_no_column_for_says_how_to_leave_it_out(
    typed: Typed, recipe: Path, data: DataSet, base: Path
) -> None:
    recipe.write_text(RECIPE + ONE_SET.replace("width > 40", "AESTHETIC_SCORE >= 4.5"))
    code, _, said = typed("scratch", recipe, "--data", data.place.uri, "--base", base, "--server", NOBODY, "--plan")
    assert code == 2
    assert "`AESTHETIC_SCORE >= 4.5` cannot be used" in " ".join(said.split()) and "--where ''" in said


def test_any_setting_of_a_recipe_is_given_anew_as_toml(typed: Typed, recipe: Path, data: DataSet, base: Path) -> None:
    words = ("--set", "train_text_encoders=true", "--set", "parallel=fsdp", "--set", "needs.slots=2")
    code, _, said = typed("scratch", recipe, "--data", data.place.uri, "--base", base, *words, "--plan")
    assert code == 0
    assert "U-Net and text encoders" in said
    assert "2, fsdp" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--set", "steps"), "does not name a setting"),
        (("--set", "seed.slots=3"), "seed: must be a whole number"),
        (("--set", "seed=x"), "seed: must be a whole number"),
        (("--set", "lerning_rate=1"), "lerning_rate"),
        (("--set", "needs={slots = 3}"), "is not a multiple of the 3 GPUs"),
        (("--base", "./nowhere"), "there is no base"),
        (("--data", "nowhere.lance"), "there is no data set at"),
        (("--set", "held_out = 'colour = 1'"), "the condition `colour = 1` cannot be used"),
        (("--set", "held_out = 'width < 3'"), "matches `(width < 3)`"),
        (
            ("--set", "phases = [{steps = 1, resolution = 32, batch_size = 4}, " + LATER),
            "the condition `widht > 3` cannot be used",
        ),
        (("--set", "phases = [{steps = 1, resolution = 32, batch_size = 4, latents = 'required'}]"), "has no latents"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(
    typed: Typed, recipe: Path, data: DataSet, base: Path, words: tuple[str, ...], told: str
) -> None:
    code, _, said = typed("scratch", recipe, "--data", data.place.uri, "--base", base, *words, "--plan")
    assert code == 2
    assert told in said.replace("\n", " ")


def test_without_a_data_set_it_says_how_one_is_given(typed: Typed, recipe: Path, base: Path) -> None:
    code, _, said = typed("scratch", recipe, "--base", base, "--plan")
    assert code == 2
    assert "there is no data set" in said and "--data" in said


def test_a_recipe_of_another_kind_is_told_its_command(typed: Typed) -> None:
    recipes = ROOT / "recipes"
    assert typed("scratch", recipes / "tiny_subject.toml", "--plan")[0] == 2
    code, _, said = typed("train", ROOT / "examples" / "subject", "--recipe", recipes / "tiny_vae.toml", "--plan")
    assert code == 2
    assert "gangline scratch" in said


def test_a_vae_begins_where_nothing_else_has_weights_and_a_unet_does_not(
    typed: Typed, recipe: Path, data: DataSet, base: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(base, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    words = ("scratch", recipe, "--data", data.place.uri, "--base", bare, "--plan")
    assert typed(*words, "--set", 'part="vae"', "--set", 'new=["vae"]')[0] == 0
    code, _, said = typed(*words)
    assert code == 2
    assert "lacks text_encoder, vae" in said
