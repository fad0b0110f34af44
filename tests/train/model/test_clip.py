"""The tokenizer that comes along gives the ids that CLIP was trained with."""

import pytest

from gangline.train.model.clip import clip_tokenizer

# From OpenAI's own tokenizer
KNOWN = {
    "a photo of a cat": [49406, 320, 1125, 539, 320, 2368, 49407],
    "Hello, world! it's 100% fine!!": [49406, 3306, 267, 1002, 256, 585, 568, 272, 271, 271, 260, 3797, 748, 49407],
    "a!, cat's ÜBER 日本 123 🐱": [
        49406,
        320,
        29325,
        2368,
        568,
        6522,
        1516,
        39121,
        19277,
        361,
        272,
        273,
        274,
        22979,
        49407,
    ],
    "": [49406, 49407],
}


@pytest.mark.parametrize("pad_id", [49407, 0])
@pytest.mark.parametrize("prompt", KNOWN)
def test_ids_are_clips_own(prompt: str, pad_id: int) -> None:
    tokenizer = clip_tokenizer(pad_id)
    assert tokenizer(prompt).input_ids == KNOWN[prompt]
    padded = tokenizer(prompt, padding="max_length", max_length=77, truncation=True).input_ids
    assert padded == KNOWN[prompt] + [pad_id] * (77 - len(KNOWN[prompt]))


def test_a_prompt_that_is_too_long_keeps_its_end_mark() -> None:
    ids = clip_tokenizer()("cat " * 100, padding="max_length", truncation=True).input_ids
    assert len(ids) == 77 and ids[-1] == 49407
