"""A sample prompt with settings of its own: what it may say, and what it leaves to the job."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gangline.core.files import File
from gangline.core.parsing import InvalidSpec, adapter, to_json
from gangline.core.runs.prepared import embeddings_key
from gangline.core.specs.fields import HubBase
from gangline.core.specs.lora import LoraSpec, parse_lora
from gangline.core.specs.sample import SampleSpec, previews_of, texts_to_show
from gangline.core.specs.scratch import parse_scratch
from gangline.core.specs.sections.previews import SamplePrompt
from gangline.core.specs.settings import EMBEDDINGS, deciding
from gangline.core.specs.spec import parse_task, spec_hash, without_defaults
from tests.unit.specs.specs_of_every_setting import UNET

SPEC = LoraSpec(
    base=HubBase(repo="a/b", revision="c" * 40),
    photos=(File(path="a.png", bytes=1, sha256="a" * 64),),
    prompt="sks dog",
    resolution=512,
)
OWN: dict[str, Any] = {
    "prompt": "sks dog at sea",
    "negative_prompt": "blurry",
    "width": 832,
    "height": 1216,
    "seeds": [42],
    "steps": 28,
    "guidance_scale": 7.5,
    "sampler": "euler_a",
}


def spec_of(*prompts: Any, **settings: Any) -> LoraSpec:
    return parse_lora(json.loads(json.dumps(to_json(SPEC))) | {"sample_prompts": list(prompts)} | settings)


def test_a_prompt_is_a_text_or_has_settings_of_its_own() -> None:
    first, second, third = previews_of(spec_of("sks dog", OWN, {"prompt": "sks dog", "width": 768}))
    assert (first.number, first.prompt, first.negative_prompt, first.width, first.height) == (
        0,
        "sks dog",
        "",
        512,
        512,
    )
    assert (first.seeds, first.steps, first.guidance_scale, first.sampler) == ((1, 2), 30, 5.0, "ddim")
    found = {name: getattr(second, name) for name in OWN}
    assert found == OWN | {"seeds": (42,)} and second.number == 1
    assert (third.width, third.height, third.seeds) == (768, 512, (1, 2)), "what it leaves out is the job's"


def test_guidance_may_be_switched_off_for_one_prompt() -> None:
    (preview,) = previews_of(spec_of({"prompt": "sks dog", "guidance_scale": 0}))
    assert preview.guidance_scale == 0


def test_a_model_that_is_trained_on_data_sets_has_them_too() -> None:
    spec = parse_scratch(json.loads(json.dumps(to_json(UNET))) | {"sample_prompts": ["a cat", OWN]})
    first, second = previews_of(spec)
    assert (first.width, first.height, second.width, second.height) == (128, 128, 832, 1216)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        (5, "sample_prompts.0: must be a text or an object, not 5"),
        (None, "sample_prompts.0: must be a text or an object"),
        ({"width": 512}, "sample_prompts.0.prompt: is missing"),
        (OWN | {"prompt": " "}, "sample_prompts.0.prompt: is not acceptable here"),
        (OWN | {"negative_prompt": "a\x00b"}, "sample_prompts.0.negative_prompt: is not acceptable here"),
        (OWN | {"width": 500}, "sample_prompts.0.width: should be a multiple of 8, not 500"),
        (OWN | {"height": 8192}, "sample_prompts.0.height: must be 4,096 or less, not 8192"),
        (OWN | {"seeds": []}, "sample_prompts.0.seeds: is empty"),
        (OWN | {"seeds": [True]}, "sample_prompts.0.seeds.0: must be a number"),
        (OWN | {"steps": "28"}, "sample_prompts.0.steps: must be a number, not 28"),
        (
            OWN | {"sampler": "heun"},
            "sample_prompts.0.sampler: must be 'ddim', 'euler', 'euler_a' or 'dpm++', not heun",
        ),
        (OWN | {"seed": 42}, "sample_prompts.0.seed: is not a known field"),
    ],
)
def test_a_wrong_prompt_is_refused_with_one_sentence(prompt: Any, said: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        spec_of(prompt)
    assert refused.value.message.startswith(said) and len(refused.value.problems) == 1


def test_it_is_stored_with_what_it_says_alone_and_read_back() -> None:
    spec = spec_of("sks dog", {"prompt": "b", "width": 768})
    stored = json.loads(json.dumps(to_json(spec)))
    assert stored["sample_prompts"] == ["sks dog", {"prompt": "b", "width": 768}]
    assert parse_lora(stored) == spec
    task = json.loads(json.dumps(to_json(SampleSpec(of=spec, job="job-1", checkpoint=None, step=1))))
    assert task["of"]["sample_prompts"] == stored["sample_prompts"]
    assert parse_task(without_defaults(task)).of == spec  # type: ignore[union-attr]


def test_texts_alone_leave_a_spec_as_it_was() -> None:
    plain = replace(SPEC, sample_prompts=("a", "b"))
    assert spec_of("a", "b") == plain
    assert spec_hash(spec_of("a", "b")) == spec_hash(plain) != spec_hash(spec_of("a", {"prompt": "b", "steps": 5}))


@pytest.mark.parametrize("name", OWN)
def test_each_setting_of_a_prompt_is_in_the_keys_of_what_it_decides(name: str) -> None:
    other = {
        "prompt": "another",
        "negative_prompt": "dark",
        "width": 64,
        "height": 64,
        "seeds": [7],
        "steps": 3,
        "guidance_scale": 2.0,
        "sampler": "euler",
    }
    before, now = spec_of(OWN), spec_of(OWN | {name: other[name]})
    assert spec_hash(before) != spec_hash(now)
    assert (embeddings_key(before, {}) != embeddings_key(now, {})) == (name in deciding(SamplePrompt, EMBEDDINGS))


def test_texts_are_named_once_each_with_the_empty_one() -> None:
    assert texts_to_show(spec_of("a", OWN, OWN | {"prompt": "a"})) == ("a", "sks dog at sea", "", "blurry")


def test_pictures_are_counted_by_their_own_seeds() -> None:
    spec = spec_of("a", OWN, {"prompt": "b", "seeds": [1, 2, 3]})
    assert SampleSpec(of=spec, job="job-1", checkpoint="checkpoint-1", step=1).pictures == 2 + 1 + 3
    assert SampleSpec(of=spec, job="job-1", checkpoint=None, step=1).pictures == 2 * 6


def test_the_schema_has_both_forms() -> None:
    items = adapter(LoraSpec).json_schema()["properties"]["sample_prompts"]["items"]
    assert [one.get("type", one.get("$ref")) for one in items["anyOf"]] == ["string", "#/$defs/SamplePrompt"]
