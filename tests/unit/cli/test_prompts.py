"""Sample prompts that are typed, and those of files, as the settings of a job."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gangline.cli.jobs.plan.make import spec_of_settings
from gangline.cli.jobs.prompts import prompts_of_file
from gangline.cli.jobs.settings import with_settings
from gangline.core.errors import BadInput
from gangline.core.parsing import InvalidSpec
from gangline.core.specs.sections.previews import SamplePrompt

WIDE = {"prompt": "sks dog at sea", "negative_prompt": "blurry, bad", "width": "832", "height": "1216", "seeds": ["42"]}
TEXT = """# prompts of my dog

sks dog
 \t
  sks dog at sea --n blurry, bad --w 832 --h 1216 --d 42  \r
# the end"""
TOML = """
[prompt]
negative_prompt = "blurry"
width = 832
sample_steps = 28

[[prompt.subset]]
prompt = "sks dog"
seed = 1

[[prompt.subset]]
prompt = "sks dog at sea"
width = 1024
sample_sampler = "euler_a"
"""
JSON = """[
  "sks dog --s 5",
  {"prompt": "sks dog at sea", "seed": 42, "scale": 7.5}
]"""


def read(folder: Path, name: str, text: str) -> list[Any]:
    (folder / name).write_bytes(text.encode())
    return prompts_of_file(folder / name)


def test_a_file_has_a_prompt_on_each_line(tmp_path: Path) -> None:
    assert read(tmp_path, "prompts.txt", TEXT) == ["sks dog", WIDE]
    assert read(tmp_path, "prompts", "\ufeffsks dog") == ["sks dog"], "as Windows saves it"


def test_a_file_of_toml_has_what_prompts_share(tmp_path: Path) -> None:
    shared = {"negative_prompt": "blurry", "steps": 28}
    assert read(tmp_path, "prompts.toml", TOML) == [
        shared | {"prompt": "sks dog", "width": 832, "seeds": [1]},
        shared | {"prompt": "sks dog at sea", "width": 1024, "sampler": "euler_a"},
    ]


def test_a_file_of_json_is_a_list_of_lines_and_tables(tmp_path: Path) -> None:
    assert read(tmp_path, "prompts.JSON", JSON) == [
        {"prompt": "sks dog", "steps": "5"},
        {"prompt": "sks dog at sea", "seeds": [42], "guidance_scale": 7.5},
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.txt", "# nothing\n\n", "has no prompts"),
        ("a.txt", "sks dog\n\nsks dog --x 1", "a.txt, line 3: --x is not an option of a sample prompt"),
        ("a.toml", "prompt = 'sks dog'", "cannot be read: it has no [[prompt.subset]]"),
        ("a.toml", "prompt = ", "cannot be read: "),
        (
            "a.toml",
            "[[prompt.subset]]\nprompt = 'a'\nsample_sampler = 'lms'",
            "a.toml, prompt 1: there is no sampler lms",
        ),
        ("a.json", '{"prompt": "a"}', "cannot be read: it is not a list"),
        ("a.json", '["a", 5]', "a.json, prompt 2: 5 is neither a text nor a table"),
        ("a.json", '[{"prompt": "a", "enum": 5}]', "a.json, prompt 1: enum is not a key of a sample prompt"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(tmp_path, name, text)
    assert said in refused.value.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.txt cannot be read"):
        prompts_of_file(tmp_path / "none.txt")


def settings_of(*words: str) -> dict[str, Any]:
    heard: dict[str, Any] = {}
    app = typer.Typer()

    @app.command()
    @with_settings
    def command(*, settings: dict[str, Any], needs: dict[str, Any]) -> None:
        heard.update(settings)

    found = CliRunner().invoke(app, words, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return heard


def test_typed_prompts_come_first_and_then_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text(TEXT)
    line = "a dog --ss euler"
    found = settings_of(
        "--sample-prompt", "a cat", "--sample-prompts-file", str(tmp_path / "prompts.txt"), "--sample-prompt", line
    )
    assert found == {"sample_prompts": ["a cat", {"prompt": "a dog", "sampler": "euler"}, "sks dog", WIDE]}
    assert settings_of("--steps", "5") == {"steps": "5"}


def test_what_was_read_is_a_spec() -> None:
    found = settings_of(
        "--sample-prompt", "sks dog --n bad --w 832 --h 1216 --d 42 --s 28 --l 7.5 --ss euler_a", "--prompt", "a"
    )
    assert spec_of_settings(found).sample_prompts == (
        SamplePrompt(
            prompt="sks dog",
            negative_prompt="bad",
            width=832,
            height=1216,
            seeds=(42,),
            steps=28,
            guidance_scale=7.5,
            sampler="euler_a",
        ),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sks dog --w 500", "sample_prompts.0.width: should be a multiple of 8, not 500"),
        ("sks dog --d -1", "sample_prompts.0.seeds.0: must be 0 or more, not -1"),
        ("sks dog --s many", "sample_prompts.0.steps: must be a whole number, not many"),
    ],
)
def test_wrong_values_are_refused_as_a_specs(line: str, said: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        spec_of_settings(settings_of("--sample-prompt", line, "--prompt", "a"))
    assert refused.value.message == said
