"""What comes with Gangline is found by the same names everywhere, and what the program refers to exists."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from gangline.adapters.package import bundled_presets
from gangline.cli.bundled.examples import ABOUT
from gangline.cli.bundled.place import here_or_bundled
from gangline.cli.bundled.recipes import read_presets
from gangline.cli.main import COMMANDS, app
from gangline.core.errors import BadInput, NotFound
from tests.conftest import BASE, ROOT, SUBJECT
from tests.docs.help_texts import help_texts

MENTIONED = re.compile(r"`gangline ([^`]+)`")
SOURCES = {path: path.read_text() for path in sorted((ROOT / "src" / "gangline").rglob("*.py"))}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_a_folder_of_the_checkout_is_found_by_its_name_from_anywhere(tmp_path: Path) -> None:
    assert Path(here_or_bundled("examples/subject")) == SUBJECT
    assert Path(here_or_bundled("assets/tiny-sdxl")) == BASE
    (tmp_path / "examples" / "subject").mkdir(parents=True)
    assert here_or_bundled("examples/subject") == "examples/subject"  # what is here comes first


def test_an_error_stands_without_a_note_and_a_plan_has_it() -> None:
    found = run("train", "nodata", "--base", "assets/tiny-sdxl", "--prompt", "sks cat", "--plan")
    assert "nodata" in str(found.exception) and found.stderr == ""
    found = run("train", "examples/subject", "--base", "assets/tiny-sdxl", "--prompt", "sks cat", "--plan")
    for name in ("examples/subject", "assets/tiny-sdxl"):
        assert f"note: {name} is not in this folder, so the one that comes with Gangline is used" in found.stderr


@pytest.mark.parametrize(
    "given",
    [
        "examples/none",
        "src/gangline",
        "examples/../src/gangline",
        "/examples/subject",
        "s3://examples/subject",
        "",
        ".",
    ],
)
def test_nothing_else_is_looked_for_elsewhere(given: str) -> None:
    assert here_or_bundled(given) == given


def test_a_recipe_is_taken_by_its_name_by_its_name_in_a_checkout_and_as_a_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(run("recipes", "show", "tiny_subject").stdout)
    plans = [plan("--recipe", recipe) for recipe in ("tiny_subject", "recipes/tiny_subject.toml", str(mine))]
    assert plans[0]["steps"] == 300
    assert plans[0] == plans[1] == plans[2]


def plan(*words: str) -> dict[str, Any]:
    ran = run("train", "examples/subject", "--base", "assets/tiny-sdxl", *words, "--plan", "-o", "json")
    return json.loads(ran.stdout)


@pytest.mark.parametrize("preset", bundled_presets())
def test_a_preset_gives_no_cause_for_advice(preset: str, tmp_path: Path) -> None:
    for number in range(8):
        Image.new("RGB", (1200, 1600), (number, 0, 0)).save(tmp_path / f"{number}.jpg")
        if preset == "style":
            (tmp_path / f"{number}.txt").write_text(f"a harbour at night, from hill {number}, sks style")
    words = ("--base", "assets/tiny-sdxl", "--prompt", "a photo of sks woman", "--preset", preset)
    ran = run("train", str(tmp_path), *words, *["--preset", "object"] * (preset == "8gb"), "--plan", "-o", "json")
    assert json.loads(ran.stdout)["tips"] == []


def test_presets_can_be_combined_and_what_a_user_writes_overrides_them() -> None:
    face, card = read_presets(["face"]), read_presets(["8gb"])
    assert face["train_text_encoder"] and not read_presets(["style"])["train_text_encoder"]
    assert read_presets(["face", "8gb"]) == face | card
    assert read_presets(["8gb", "face"])["rank"] == face["rank"] != card["rank"]
    recipe = Path("mine.toml")
    recipe.write_text("steps = 7\nrank = 4")
    words = ("--prompt", "sks cat", "--preset", "face", "--recipe", str(recipe), "--rank", "2")
    made = plan(*words)
    assert (made["steps"], made["rank"]) == (7, 2)
    refused = run("train", "examples/subject", "--preset", "faces").exception
    assert isinstance(refused, BadInput) and refused.message == "there is no preset faces"
    assert "8gb, face, object, style" in refused.hint


def test_a_recipe_that_does_not_exist_is_refused_with_where_to_look() -> None:
    refused = run("recipes", "show", "tiny").exception
    assert isinstance(refused, NotFound)
    assert refused.message == "there is no recipe tiny"
    assert "`gangline recipes ls`" in refused.hint


def test_every_recipe_and_every_example_is_listed_with_what_it_is_for() -> None:
    recipes = json.loads(run("recipes", "ls", "-o", "json").stdout)
    assert {recipe["name"] for recipe in recipes} == {path.stem for path in (ROOT / "recipes").rglob("*.toml")}
    assert all(recipe["about"].endswith(".") and len(recipe["about"]) <= 100 for recipe in recipes)
    assert {recipe["command"].split()[1] for recipe in recipes} == {"train", "scratch"}
    examples = json.loads(run("examples", "ls", "-o", "json").stdout)
    folders = [path for above in ("assets", "examples") for path in (ROOT / above).iterdir() if path.is_dir()]
    assert set(ABOUT) == {path.relative_to(ROOT).as_posix() for path in folders}
    assert {Path(example["path"]).relative_to(ROOT).as_posix() for example in examples} == {
        example["name"] for example in examples
    }


def test_examples_are_copied_once_under_their_names(tmp_path: Path) -> None:
    assert run("examples", "copy", "subject", "examples/other").exit_code == 0
    for name in ("subject", "other"):
        copied, own = tmp_path / "examples" / name, ROOT / "examples" / name
        assert {path.name: path.read_bytes() for path in copied.iterdir()} == {
            path.name: path.read_bytes() for path in own.iterdir()
        }
    assert "exists already" in str(run("examples", "copy", "tiny-sdxl", "examples/subject").exception)
    assert not (tmp_path / "assets").exists()  # all or nothing
    assert run("examples", "copy", "subject", "--to", "there").exit_code == 0
    assert (tmp_path / "there" / "examples" / "subject").is_dir()


def test_every_page_of_the_docs_is_listed_and_shown() -> None:
    pages = json.loads(run("docs", "-o", "json").stdout)
    here = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page["page"] for page in pages} == here
    assert run("docs", "reference/settings").stdout == (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert run("docs", "docs/training.md").stdout == run("docs", "training").stdout


def test_every_command_that_a_message_or_a_help_names_exists() -> None:
    named = {words for text in SOURCES.values() for words in MENTIONED.findall(text)}
    assert len(named) > 50
    assert sorted(words for words in named if not exists(words.split())) == []


def exists(words: list[str]) -> bool:
    """Whether these words begin with a command, and its options are among its own."""
    if words[0].startswith("-"):
        return words[0] in ("--help", "--version")
    if " ".join(words[:2]) in COMMANDS:
        words = [" ".join(words[:2]), *words[2:]]
    if words[0] not in COMMANDS:
        return False
    command = COMMANDS[words[0]].load(words[0])
    rest = words[1:]
    if hasattr(command, "commands"):
        if not rest:
            return True
        command, rest = command.commands.get(rest[0]), rest[1:]
    options = {option for parameter in getattr(command, "params", ()) for option in parameter.opts}
    return command is not None and {word for word in rest if word.startswith("--")} <= options | {"--"}


def test_every_page_that_a_message_or_a_help_names_exists() -> None:
    named = {words.split()[1] for text in SOURCES.values() for words in MENTIONED.findall(text) if words[:5] == "docs "}
    named -= {"PAGE"}
    assert named >= {"training", "scratch", "estimate", "reference/settings"}
    assert [page for page in sorted(named) if not (ROOT / "docs" / f"{page}.md").is_file()] == []


def test_nothing_that_a_user_reads_names_a_file_that_only_a_checkout_has() -> None:
    """Help texts and what settings say go to those who installed a wheel, too. Comments and docstrings of modules may name files."""
    only_in_checkouts = re.compile(r"\bdocs/|README\.md of|recipes/\w")
    assert [(place, text) for place, text in help_texts() if only_in_checkouts.search(text)] == []
