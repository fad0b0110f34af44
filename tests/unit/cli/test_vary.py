"""`--vary` names settings and their values; what is none is one sentence."""

from typing import Any

import pytest

from gangline.cli.jobs.submitting.vary import ExperimentOptions
from gangline.core.errors import BadInput
from gangline.core.experiments.typed import parse_vary


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["rank=8,16"], {"rank": [8, 16]}),
        (["learning_rate=1e-4, .0003"], {"learning_rate": [1e-4, 3e-4]}),
        (["rank=8", "seed=1", "rank=16"], {"rank": [8, 16], "seed": [1]}),
        (['prompt="a dog, at night",a cat'], {"prompt": ["a dog, at night", "a cat"]}),
        (["prompt='a, b'", "prompt=a dog's bed"], {"prompt": ["a, b", "a dog's bed"]}),
        (['prompt="say \\"a, b\\"",x'], {"prompt": ['say "a, b"', "x"]}),
        (['output_name="",a dog'], {"output_name": ["", "a dog"]}),
        (["sample_seeds=[1,2],[3]"], {"sample_seeds": [[1, 2], [3]]}),
        (["flip=true,false"], {"flip": [True, False]}),
        (["min_snr_gamma=none,5"], {"min_snr_gamma": [None, 5.0]}),
        (["needs.pool=home,cloud"], {"needs.pool": ["home", "cloud"]}),
        (["schedule=constant,cosine"], {"schedule": ["constant", "cosine"]}),
    ],
)
def test_values_between_commas_are_those_of_the_setting(texts: list[str], values: dict[str, list[Any]]) -> None:
    assert parse_vary("lora", texts) == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rank=", "has an empty value"),
        ("rank=8,,16", "has an empty value"),
        ("rank=8,", "has an empty value"),
        ("rank", "does not name a setting"),
        ("=8", "does not name a setting"),
        ("rnak=8,16", "--vary rnak: there is no such setting"),
        ("rank=8,many", "--vary rank=many: must be a whole number"),
    ],
)
def test_a_list_of_values_that_is_none_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_vary("lora", [text])
    assert said in refused.value.message and refused.value.message.count("\n") == 0


def test_one_job_is_no_experiment_and_takes_no_option_of_one() -> None:
    assert not ExperimentOptions().wanted and not ExperimentOptions(seeds=1).wanted
    assert ExperimentOptions(seeds=2).wanted and ExperimentOptions(vary=["rank=8"]).wanted
    for options in (ExperimentOptions(at_once=2), ExperimentOptions(budget=1.0), ExperimentOptions(halving=3)):
        with pytest.raises(BadInput, match="is for an experiment, and this is one job"):
            assert options.wanted


def test_halving_begins_where_the_held_out_loss_is_first_measured() -> None:
    spec = {"kind": "lora", "held_out_every_steps": 50}
    assert ExperimentOptions(vary=["rank=8,16"], halving=3).asked(spec, {})["halving"] == {"eta": 3, "min_steps": 50}
    given = ExperimentOptions(halving=3, halving_from=100).asked(spec, {})
    assert given["halving"] == {"eta": 3, "min_steps": 100}
    with pytest.raises(BadInput, match="measure none"):
        ExperimentOptions(halving=3).asked({"kind": "lora"}, {})
    with pytest.raises(BadInput, match="has no --halving"):
        ExperimentOptions(halving_from=3).asked(spec, {})
