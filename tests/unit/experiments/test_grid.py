"""What an experiment asks for becomes the settings of each of its jobs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.errors import BadInput
from gangline.core.experiments.grid import combinations, varied, with_combination
from gangline.core.experiments.terms import RUNS_MAX, ExperimentAsked
from gangline.core.parsing import InvalidSpec, parse_as
from gangline.core.specs.lora import LoraSpec


def asked(**given: Any) -> ExperimentAsked:
    return parse_as(ExperimentAsked, {"spec": {}} | given)


def expanded(**given: Any) -> list[dict[str, Any]]:
    return [dict(each) for each in combinations(asked(**given), LoraSpec)]


def test_every_combination_of_the_values_comes_once_in_the_order_in_which_they_are_given() -> None:
    assert expanded(vary={"rank": [8, 4], "learning_rate": [1e-4, 2e-4]}) == [
        {"rank": 8, "learning_rate": 1e-4},
        {"rank": 8, "learning_rate": 2e-4},
        {"rank": 4, "learning_rate": 1e-4},
        {"rank": 4, "learning_rate": 2e-4},
    ]


def test_a_list_is_taken_as_it_is_and_its_jobs_may_differ_in_different_settings() -> None:
    listed = [{"rank": 4}, {"learning_rate": 2e-4}]
    assert expanded(list=listed) == listed
    assert varied(combinations(asked(list=listed), LoraSpec)) == ("rank", "learning_rate")


def test_a_setting_below_another_one_is_named_with_a_dot() -> None:
    spec = {"needs": {"pool": "home"}, "rank": 4}
    (found,) = combinations(asked(vary={"needs.gpu": ["A100"]}), LoraSpec)
    assert with_combination(spec, found) == {"needs": {"pool": "home", "gpu": "A100"}, "rank": 4}
    assert spec == {"needs": {"pool": "home"}, "rank": 4}


def test_another_base_brings_its_own_vae_prediction_type_and_licence_unless_they_are_given_with_it() -> None:
    spec = {"base": "a", "vae": "of-a", "prediction_type": "v_prediction", "base_licence": "mit", "rank": 4}
    assert with_combination(spec, {"base": "b"}) == {"base": "b", "rank": 4}
    assert with_combination(spec, {"base": "b", "vae": "mine"}) == {"base": "b", "rank": 4, "vae": "mine"}
    assert with_combination(spec, {"rank": 8}) == spec | {"rank": 8}


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"vary": {"rnk": [4]}}, "rnk is not a setting of this kind of job"),
        ({"vary": {"needs.gpus": [4]}}, "needs.gpus is not a setting of this kind of job"),
        ({"vary": {"photos": [[]]}}, "the jobs of an experiment cannot differ in photos"),
        ({"vary": {"rank": []}}, "vary: rank has no value"),
        ({"vary": {"rank": [4, 8, 4]}}, "the combination rank=4 comes twice"),
        ({"list": [{"rank": 4}, {"rank": 4}]}, "the combination rank=4 comes twice"),
        ({"vary": {"rank": [4]}, "list": [{"rank": 4}]}, "vary and list both say how the jobs differ"),
        ({}, "nothing says how the jobs differ"),
        ({"random": {"draws": 2, "vary": {}}}, "random: no setting is drawn"),
        ({"random": {"draws": 2, "vary": {"rank": {"min": 4}}}}, "random: rank has no range"),
        (
            {"random": {"draws": 2, "vary": {"rank": {"min": 0, "max": 4, "log": True}}}},
            "a logarithmic scale that begins at 0",
        ),
        (
            {"random": {"draws": 9, "vary": {"rank": {"choices": [4, 8]}}}},
            "there are only 2 different combinations, not 9",
        ),
        ({"vary": {"rank": list(range(4, 104))}, "seeds": 11}, f"1,100 jobs, and the most is {RUNS_MAX:,}"),
    ],
)
def test_what_cannot_be_expanded_is_refused_in_one_sentence(wanted: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput) as refused:
        expanded(**wanted)
    assert says in refused.value.message


def test_the_nearest_names_are_offered_for_a_setting_that_does_not_exist() -> None:
    with pytest.raises(BadInput) as refused:
        expanded(vary={"lerning_rate": [1e-4]})
    assert "learning_rate" in refused.value.hint


def test_a_grid_of_billions_is_refused_by_counting_it() -> None:
    names = ["rank", "alpha", "steps", "batch_size", "dropout", "weight_decay"]
    with pytest.raises(BadInput, match=r"would have 1,000,000,000,000,000,000 jobs"):
        expanded(vary={name: list(range(1000)) for name in names})


@pytest.mark.parametrize("name", ["", "rank ", "needs..gpu", "a\x1b[31m", "x" * 101, "rang\u00e9"])
def test_what_cannot_be_a_name_is_no_setting(name: str) -> None:
    with pytest.raises(InvalidSpec):
        asked(vary={name: [1]})


@given(seed=st.integers(0, 2**31 - 1), draws=st.integers(1, 50))
def test_drawn_values_are_different_in_their_range_and_the_same_for_the_same_seed(seed: int, draws: int) -> None:
    vary = {
        "learning_rate": {"min": 1e-5, "max": 1e-2, "log": True},
        "rank": {"min": 1, "max": 4},
        "dropout": {"min": 0, "max": 0.5},
    }
    wanted = {"random": {"draws": draws, "seed": seed, "vary": vary}}
    found = expanded(**wanted)
    assert found == expanded(**wanted)
    assert len({repr(each) for each in found}) == draws
    for each in found:
        assert 1e-5 <= each["learning_rate"] <= 1e-2 and 0 <= each["dropout"] <= 0.5
        assert isinstance(each["rank"], int) and 1 <= each["rank"] <= 4


def test_every_whole_number_of_a_range_is_drawn() -> None:
    found = expanded(random={"draws": 4, "seed": 1, "vary": {"rank": {"min": 1, "max": 4}}})
    assert sorted(each["rank"] for each in found) == [1, 2, 3, 4]
