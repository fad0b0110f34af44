"""Every snippet of the pages is understood by what would read it: each line of `gangline` by the real command line, each file by its
parser. So a page names no command, option or setting that is not there."""

import ast
import configparser
import json
import re
import subprocess
import tomllib
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import yaml

from gangline.cli.experiments.grid_file import read_grid
from gangline.core.errors import GanglineError
from gangline.core.estimates.outline import parse_outline
from gangline.core.server.settings import ServerSettings, merge_file
from gangline.core.specs.sections.previews import SamplePrompt
from gangline.core.specs.settings import settings_of
from gangline.sim.scenario import parse_scenario
from tests.conftest import BASE, ROOT, SUBJECT, Typed
from tests.docs.snippets import (
    PAGES,
    SHELL,
    Snippet,
    all_snippets,
    commands,
    gangline_commands,
    inline_commands,
    snippets,
    why_not_understood,
)

PLACEHOLDERS = {"N": "1", "USD": "1"}
WORKED_EXAMPLES = {"cli-noun.md": ["fleet", "ls"], "job-setting.md": ["train", "--blur", "2"]}
"""Commands that the example of a page adds, and that are not there without it."""

KNOWN_LANGUAGES = {"", "ini", "json", "mermaid", "python", "sh", "sql", "text", "toml", "txt", "yaml"}


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if any(s.language in SHELL for s in snippets(page))], ids=ids)
def test_every_line_of_gangline_is_understood_by_the_command_line(page: Path) -> None:
    refused = [
        f"line {each.line} and below: gangline {' '.join(words)}: {why}"
        for each in snippets(page)
        if each.language in SHELL
        for words in gangline_commands(each.text)
        if (why := why_not_understood(words))
    ]
    assert refused == []


def test_every_command_that_a_sentence_names_is_there_with_its_options() -> None:
    refused = [
        f"{ids(page)}: gangline {' '.join(words)}: {why}"
        for page in PAGES
        for words in inline_commands(page)
        if (why := why_not_understood([PLACEHOLDERS.get(word, word) for word in words], abbreviated=True))
        and words != WORKED_EXAMPLES.get(page.name)
    ]
    assert refused == []


def test_every_block_of_shell_is_shell() -> None:
    parser = ("bash", "-n")
    for each in all_snippets(*SHELL):
        ran = subprocess.run(parser, input=each.text, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, ""), each.place


def test_every_block_has_a_language_that_is_checked() -> None:
    assert {each.language for page in PAGES for each in snippets(page)} <= KNOWN_LANGUAGES


def test_every_block_of_json_is_json() -> None:
    for each in all_snippets("json"):
        json.loads(each.text)


def test_every_block_of_yaml_is_yaml() -> None:
    for each in all_snippets("yaml"):
        assert yaml.safe_load(each.text), each.place


def test_every_block_of_python_is_python() -> None:
    for each in all_snippets("python"):
        text = each.text.replace("…", "*()")
        try:
            ast.parse(text)
        except SyntaxError:
            ast.parse(f"{{{text}}}")  # an entry of a table


def test_every_unit_of_systemd_has_sections() -> None:
    for each in all_snippets("ini"):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.read_file(StringIO(each.text))
        assert {"Unit", "Service", "Install"} <= set(unit.sections()), each.place


# Files in TOML, by who reads them; those of a page that is not named here are settings of a server.


def as_settings(text: str, _: Path) -> None:
    without_login = re.sub(
        r"^user = .*", "", text, flags=re.MULTILINE
    )  # the password is in the environment, not in the file
    merge_file(ServerSettings, without_login, "gangline.toml")


def as_scenario(text: str, _: Path) -> None:
    parse_scenario(text, "the page's")


def as_grid(text: str, folder: Path) -> None:
    file = folder / "grid.toml"
    file.write_text(text if "photos =" in text else f'photos = "my-photos"\n{text}')
    read_grid(file)


def as_outline(text: str, _: Path) -> None:
    phase = {"samples": 1000, "gpus": [1], "images_per_second": [1.0]}
    parse_outline({"usd_per_gpu_hour": 1.0, "phases": [phase]} | tomllib.loads(text))


@pytest.fixture
def as_recipe(typed: Typed, tmp_path: Path) -> Callable[[str, Path], None]:
    """A recipe, read by the command that trains with it, up to its plan; kohya's file of prompts as an option of it."""

    def photos(folder: Path, names: dict[str, str]) -> None:
        folder.mkdir(parents=True)
        for name, of in names.items():
            (folder / name).write_bytes((SUBJECT / of).read_bytes())

    photos(tmp_path / "cat", {"1.png": "cat-face.png"})
    photos(tmp_path / "dog", {"1.png": "crying-cat.png", "7.jpg": "cat-face.png"})
    photos(tmp_path / "regularisation" / "dogs", {"1.png": "crying-cat.png"})

    def read(text: str, _: Path) -> None:
        file = tmp_path / "given.toml"
        file.write_text(text)
        words = ["--sample-prompts-file", str(file)] if text.startswith("# prompts.toml") else ["--recipe", str(file)]
        below = tmp_path if "[[subjects]]" in text else SUBJECT
        prompt = [] if "[[subjects]]" in text else ["--prompt", "sks"]
        words += ["--var", "subject=sks dog"] if "[variables]" in text else []
        code, _out, said = typed("train", str(below), "--base", str(BASE), *words, *prompt, "--plan", "-o", "json")
        assert code == 0, said

    return read


@pytest.mark.parametrize("block", all_snippets("toml"), ids=lambda block: block.place)
def test_every_file_in_toml_is_read_by_its_parser(
    block: Snippet, as_recipe: Callable[[str, Path], None], tmp_path: Path
) -> None:
    readers = {"simulator.md": as_scenario, "estimate.md": as_outline, "training.md": as_recipe}
    readers |= {"choosing.md": as_recipe, "experiments.md": as_grid}
    readers.get(block.page.name, as_settings)(block.text, tmp_path)


# The checks can fail.


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("train photos --stepz 3", "train: No such option: --stepz"),
        ("train photos --steps many", "--steps: Input should be a valid integer"),
        ("train photos --rank 0", "--rank: Input should be greater than"),
        ("run --grace-s soon -- true", "--grace-s: Input should be a valid number"),
        ("jobs extend last --steps many", "Input should be a valid integer"),
        ("jobz ls", "there is no command jobz"),
        ("jobs frobnicate", "jobs has no command frobnicate"),
        ("jobs show", "Missing argument"),
        ("jobs ls -o yaml", "'yaml' is not one of"),
        ("jobs ls more", "unexpected extra argument"),
        ("exec --to s3://b/x --nowhere -- python train.py", "No such option: --nowhere"),
    ],
)
def test_a_wrong_line_is_found(words: str, why: str) -> None:
    assert why in why_not_understood(words.split())


def test_a_line_that_leaves_something_out_is_still_checked_for_what_it_has() -> None:
    assert why_not_understood(["jobs", "show", "…"]) == ""
    assert "--stepz" in why_not_understood(["train", "…", "--stepz", "3"])
    assert "--cache" in why_not_understood(["train", "--cache", "…"])


def test_lines_of_a_shell_are_read_as_it_reads_them() -> None:
    code = """export A=1 B='x y'   # gangline not this
A=1 gangline train a \\
    --prompt "a # b" > log 2>&1 &
curl x | gangline jobs ls && echo 'gangline
jobs' # a 'comment
for d in a b; do gangline data encode $d.lance; done; if true; then gangline data ls; fi
gangline docs a#b
"""
    assert list(gangline_commands(code)) == [
        ["train", "a", "--prompt", "a # b"],
        ["jobs", "ls"],
        ["data", "encode", "$d.lance"],
        ["data", "ls"],
        ["docs", "a#b"],
    ]
    assert ["echo", "gangline\njobs"] in list(commands(code))


def test_a_wrong_file_is_found(tmp_path: Path) -> None:
    for reader in (as_settings, as_scenario, as_outline):
        with pytest.raises(GanglineError):
            reader("nothing = 1\n", tmp_path)


def test_a_recipe_with_an_unknown_setting_is_found(as_recipe: Callable[[str, Path], None], tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="stepz"):
        as_recipe("stepz = 1\n", tmp_path)
    assert "width" in settings_of(SamplePrompt)
