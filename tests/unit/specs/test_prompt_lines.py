"""Sample prompts in the notation of kohya's sd-scripts: what they become, and what is refused."""

from typing import Any

import pytest

from gangline.core.errors import BadInput
from gangline.core.specs.prompt_lines import prompt_of_line, prompt_of_table


def test_each_letter_is_a_setting() -> None:
    line = "a photo of sks dog --n blurry, bad --w 832 --h 1216 --d 42 --s 28 --l 7.5 --ss euler_a"
    assert prompt_of_line(line) == {
        "prompt": "a photo of sks dog",
        "negative_prompt": "blurry, bad",
        "width": "832",
        "height": "1216",
        "seeds": ["42"],
        "steps": "28",
        "guidance_scale": "7.5",
        "sampler": "euler_a",
    }


@pytest.mark.parametrize(
    "text",
    [
        "sks dog",
        " sks dog ",
        "a well--known dog",
        "a dog -- at sea",
        "a dog --",
        "-- a dog",
        "a dog ---",
        "a dog -n x",
        "--5 dogs",
    ],
)
def test_a_prompt_without_options_is_left_as_it_is(text: str) -> None:
    assert prompt_of_line(text) == text


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a well--known dog --s 5", {"prompt": "a well--known dog", "steps": "5"}),
        ("a dog -- at sea --s 5", {"prompt": "a dog -- at sea", "steps": "5"}),
        ("a dog --n low--quality, -- --s 5", {"prompt": "a dog", "negative_prompt": "low--quality, --", "steps": "5"}),
        ("a dog\t--S  5 ", {"prompt": "a dog", "steps": "5"}),
        ("a dog --d -1", {"prompt": "a dog", "seeds": ["-1"]}),
        ("a dog --ss K_euler_A".lower(), {"prompt": "a dog", "sampler": "euler_a"}),
        ("a dog --ss dpmsolver++", {"prompt": "a dog", "sampler": "dpm++"}),
    ],
)
def test_options_end_where_the_next_begins(line: str, found: dict[str, Any]) -> None:
    assert prompt_of_line(line) == found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "a dog --x 5",
            "--x is not an option of a sample prompt: known are --n (negative prompt), --w (width), --h (height), --d (seed), "
            "--s (steps), --l (guidance scale) and --ss (sampler)",
        ),
        ("a dog --w=512", "--w=512 is not an option of a sample prompt: known are --n"),
        ("a dog --detailed, at sea", "--detailed, is not an option of a sample prompt"),
        ("a dog --cn face.png", "--cn is not an option"),
        ("a dog --n", "--n of a sample prompt has no value"),
        ("a dog --n --w 512", "--n of a sample prompt has no value"),
        ("a dog --w 512 --w 768", "--w is twice in a sample prompt"),
        ("--n blurry", "'--n blurry' has no prompt before its options"),
        ("a dog --ss heun", "there is no sampler heun: there are ddim, euler, euler_a and dpm++"),
        ("a dog --ss dpmsolver", "there is no sampler dpmsolver: "),
    ],
)
def test_what_is_not_known_is_refused_with_what_is(line: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        prompt_of_line(line)
    assert refused.value.message.startswith(said)


def test_a_table_has_kohyas_keys() -> None:
    table = {
        "prompt": "a dog --n x",
        "negative_prompt": "blurry",
        "width": 832,
        "height": 1216,
        "seed": 42,
        "sample_steps": 28,
        "scale": 7.5,
        "sample_sampler": "k_euler",
    }
    assert prompt_of_table(table) == {
        "prompt": "a dog --n x",
        "negative_prompt": "blurry",
        "width": 832,
        "height": 1216,
        "seeds": [42],
        "steps": 28,
        "guidance_scale": 7.5,
        "sampler": "euler",
    }
    with pytest.raises(
        BadInput, match="flow_shift is not a key of a sample prompt: known are prompt, negative_prompt, width"
    ):
        prompt_of_table({"prompt": "a dog", "flow_shift": 3})
