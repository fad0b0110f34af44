"""The forms of previews on the page are read as the page says."""

import shlex
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.jobs.plan.make import spec_of_settings
from gangline.cli.jobs.prompts import given_prompts, prompts_of_file
from gangline.cli.main import COMMANDS
from gangline.core.specs.prompt_lines import LETTERS, SAMPLERS, SAMPLERS_OF_KOHYA
from gangline.core.specs.sample import Preview, previews_of
from tests.conftest import ROOT
from tests.docs.pages import FENCE

PAGE = (ROOT / "docs" / "training.md").read_text()
SECTION = PAGE.partition("## Previews\n")[2].partition("\n## ")[0]
BLOCKS = FENCE.findall(SECTION)


def block(language: str, number: int = 0) -> str:
    return [code for found, code in BLOCKS if found == language][number]


def options_of(command: str) -> set[str]:
    return {option for parameter in COMMANDS[command].load(command).params for option in parameter.opts}


def previews(prompts: list[Any]) -> tuple[Preview, Preview]:
    moon, photo = previews_of(spec_of_settings({"prompt": "a photo of sks dog", "sample_prompts": prompts}))
    assert (moon.prompt, moon.width, moon.height, moon.seeds) == ("sks dog on the moon", 1024, 1024, (1, 2))
    assert (photo.prompt, photo.width, photo.height) == ("a photo of sks dog", 832, 1216)
    assert photo.negative_prompt.startswith("blurry")
    return moon, photo


def test_the_command_of_the_page_draws_what_it_says() -> None:
    words = shlex.split(block("sh").replace("\\\n", " "))
    lines = [value for option, value in pairwise(words) if option == "--sample-prompt"]
    options = {word for word in words if word.startswith("--")}
    assert {*options, "--sample-prompts-file"} <= options_of("train") and "--sample-prompts-file" in options_of(
        "scratch"
    )
    moon, photo = previews(given_prompts(lines, None)["sample_prompts"])
    assert (moon.negative_prompt, moon.steps, moon.sampler) == ("", 30, "ddim")
    assert (photo.seeds, photo.steps, photo.guidance_scale, photo.sampler) == ((42,), 28, 7.5, "euler_a")
    assert photo.negative_prompt == "blurry, bad anatomy"


@pytest.mark.parametrize("language", ["txt", "toml", "json"])
def test_each_file_of_the_page_is_read(tmp_path: Path, language: str) -> None:
    path = tmp_path / f"prompts.{language}"
    path.write_text(block(language))
    _, photo = previews(prompts_of_file(path))
    assert photo.seeds == (42,) and photo.steps == (28 if language == "toml" else 30)


def test_the_recipe_of_the_page_is_a_spec() -> None:
    _, photo = previews(tomllib.loads(block("toml", 1))["sample_prompts"])
    assert (photo.seeds, photo.steps) == ((42, 43), 28)


def test_the_page_names_every_option_and_sampler() -> None:
    assert all(f"`--{letter}`" in SECTION for letter in LETTERS)
    assert all(f"`{name}`" in SECTION for name in (*SAMPLERS, *SAMPLERS_OF_KOHYA))
