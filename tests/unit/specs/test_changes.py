"""Settings are changed by what people type: each value has the type of its setting, and a wrong name is told with the one that is near."""

import pytest

from gangline.core.errors import BadInput
from gangline.core.specs.changes import parse_changes_of, parse_value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("rank", "16", 16),
        ("learning_rate", "3e-4", 3e-4),
        ("flip", "true", True),
        ("prompt", "a photo of sks dog", "a photo of sks dog"),
        ("prompt", '"quoted"', "quoted"),
        ("prompt", "16", "16"),
        ("output_name", "2026-01-31", "2026-01-31"),
        ("schedule", "cosine", "cosine"),
        ("needs.pool", "home", "home"),
        ("needs.gpu_memory_gb", "20", 20.0),
        ("sample_prompts", '["a", "b"]', ["a", "b"]),
        ("sample_seeds", "[1, 2]", [1, 2]),
        ("base", "some/base@main", "some/base@main"),
        ("learning_rate", ".5", 0.5),
        ("min_snr_gamma", "none", None),
        ("output_name", "none", "none"),
    ],
)
def test_a_value_has_the_type_of_its_setting(name: str, text: str, value: object) -> None:
    found = parse_value("lora", name, text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("rnak", "rank"),
        ("learning-rate", "learning_rate"),
        ("needs.gpu_memory", "needs.gpu_memory_gb"),
        ("zzzz", "docs"),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_one_that_is_near(name: str, near: str) -> None:
    with pytest.raises(BadInput, match="there is no such setting") as refused:
        parse_value("lora", name, "1")
    assert near in refused.value.hint


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(BadInput, match="rank has no value"):
        parse_changes_of("lora", ["rank"])


def test_of_one_setting_the_last_value_counts() -> None:
    assert parse_changes_of("lora", ["rank=8", "seed=1", "rank=16"]) == {"rank": 16, "seed": 1}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("rank=many", "--set rank=many: must be a whole number"),
        ("rank=2.5", "--set rank=2.5: must be a whole number"),
        ("rank=nan", "--set rank=nan: must be a whole number"),
        ("rank=2026-01-31", "--set rank=2026-01-31: must be a whole number"),
        ("rank=", "--set rank=: must be a whole number"),
        ("rank=0", "--set rank=0: must be 1 or more"),
        ("rank=none", "--set rank=none: must be a whole number"),
        ("schedule=round", "--set schedule=round: must be "),
        ("flip=perhaps", "--set flip=perhaps: must be true or false"),
        ("prompt=", "--set prompt=: "),
    ],
)
def test_a_value_that_its_setting_does_not_take_is_refused_in_the_words_of_a_submission(
    setting: str, said: str
) -> None:
    with pytest.raises(BadInput) as refused:
        parse_changes_of("lora", [setting])
    assert refused.value.message.startswith(said)
