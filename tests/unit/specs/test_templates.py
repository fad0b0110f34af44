"""A recipe has variables, whose values stand in its texts; what is missing, unknown or no variable is one sentence."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.jobs.train import plan_lora, read_recipe
from gangline.core.errors import BadInput
from gangline.core.specs.templates import comments_of, filled, parse_variables
from tests.conftest import BASE
from tests.inputs import SUBJECT

RECIPE = """
prompt = "a photo of {subject}"
class_prompt = "a photo of a {kind}"
output_name = "{subject}-r{{16}}"
rank = 16
steps = "{steps}"
sample_prompts = ["{subject} in a forest", {prompt = "{ subject } at night", seeds = [1]}]

[variables]
subject = ""         # The rare word and the class, such as "sks dog".
kind = 'dog'
steps = "300" # how long
"""


def made(text: str = RECIPE, **given: str) -> dict[str, Any]:
    return filled(tomllib.loads(text), given, comments_of(text))


def test_values_of_variables_stand_in_every_text_of_a_recipe() -> None:
    assert made(subject="sks dog") == {
        "prompt": "a photo of sks dog",
        "class_prompt": "a photo of a dog",
        "output_name": "sks dog-r{16}",
        "rank": 16,
        "steps": "300",
        "sample_prompts": ["sks dog in a forest", {"prompt": "sks dog at night", "seeds": [1]}],
    }


def test_a_value_overrides_the_default_and_is_itself_no_template() -> None:
    assert made(subject="{kind} {x}", kind="cat")["prompt"] == "a photo of {kind} {x}"
    assert made(subject="x", kind="cat")["class_prompt"] == "a photo of a cat"


def test_a_recipe_without_variables_keeps_its_braces() -> None:
    assert made('prompt = "a {red|blue} ball"') == {"prompt": "a {red|blue} ball"}


@pytest.mark.parametrize(
    ("text", "given", "said", "hint"),
    [
        (RECIPE, {}, "needs a value of its variable subject", 'The rare word and the class, such as "sks dog"'),
        (RECIPE, {"subject": "x", "breed": "y"}, "breed: the recipe has no such variable", "subject, kind and steps"),
        ('prompt = "x"', {"subject": "y"}, "subject: the recipe has no variables", "variables"),
        ('prompt = "{x}"\n[variables]', {}, "prompt: {x} is no variable", "{{ and }}"),
        ('prompt = "a { b"\n[variables]', {}, "prompt: it has a single {", "{{ and }}"),
        ('sample_prompts = ["", "}"]\n[variables]', {}, "sample_prompts.1: it has a single }", "{{ and }}"),
        ('prompt = "{}"\n[variables]', {}, "prompt: {} is no variable", "{{ and }}"),
        ("variables = 5", {}, "is not a table", "[variables]"),
        ("[variables]\nsteps = 5", {}, "variables.steps must be a text, not 5", 'steps = "5"'),
        ('[variables]\n"a b" = ""', {}, "variables.a b", ""),
    ],
)
def test_what_no_recipe_can_mean_is_one_sentence(text: str, given: dict[str, str], said: str, hint: str) -> None:
    with pytest.raises(BadInput) as refused:
        made(text, **given)
    assert said in refused.value.message and hint in refused.value.hint


def test_a_variable_is_given_with_its_value() -> None:
    assert parse_variables(["subject=sks dog", "kind = a = b", "subject=x"]) == {"subject": "x", "kind": "a = b"}
    for wrong in ("subject", "=x", "a b=x"):
        with pytest.raises(BadInput, match="does not name a variable and its value"):
            parse_variables([wrong])


def test_a_job_is_planned_from_a_recipe_with_variables(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(RECIPE)
    settings = read_recipe(str(recipe), variables={"subject": "sks cat", "steps": "40"})
    spec = plan_lora(SUBJECT, settings | {"base": str(BASE), "resolution": 64}).spec
    assert (spec.prompt, spec.steps, spec.output_name) == ("a photo of sks cat", 40, "sks cat-r{16}")
