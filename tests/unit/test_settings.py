"""No setting without its sentence and its option."""

from dataclasses import fields
from pathlib import Path

import typer
from typer.testing import CliRunner

from gangline.cli.settings import option_name, with_settings
from gangline.core.lora_spec import LoraSpec
from gangline.core.settings import GROUPS, HANDED_IN, NEEDS, default_of
from gangline.core.spec_fields import Needs

TRAINING = Path(__file__).parents[2] / "docs" / "training.md"


def test_every_setting_of_a_spec_has_one_sentence_in_one_group() -> None:
    explained = [name for names in GROUPS.values() for name in names]
    assert sorted([*explained, *HANDED_IN]) == sorted(field.name for field in fields(LoraSpec))
    assert sorted(NEEDS) == sorted(field.name for field in fields(Needs))


def rows(of: type, settings: dict[str, str]) -> str:
    lines = [f"| `{option_name(of, name)}` | {default_of(of, name)} | {says} |" for name, says in settings.items()]
    return "\n".join(["| option | default | |", "|---|---|---|", *lines])


def test_the_page_on_training_has_every_setting_as_the_command_line_has_it() -> None:
    page = TRAINING.read_text()
    tables = {
        group: rows(LoraSpec, {name: says for name, says in names.items() if name != "needs"})
        for group, names in GROUPS.items()
    }
    for group, table in (tables | {"What it asks of a node": rows(Needs, NEEDS)}).items():
        assert f"### {group}\n\n{table}\n" in page, f"### {group}\n\n{table}\n"


def test_options_are_passed_on_as_they_were_typed() -> None:
    heard: dict[str, object] = {}
    app = typer.Typer()

    @app.command()
    @with_settings
    def command(photos: str, *, settings: dict[str, object], needs: dict[str, object]) -> None:
        heard.update(photos=photos, settings=settings, needs=needs)

    words = [
        "p",
        "--steps",
        "many",
        "--flip",
        "--no-dora",
        "--sample-prompt",
        "a",
        "--sample-prompt",
        "b",
        "--gpu",
        "T4",
    ]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert heard == {
        "photos": "p",
        "settings": {"steps": "many", "flip": True, "dora": False, "sample_prompts": ["a", "b"]},
        "needs": {"gpu": "T4"},
    }
