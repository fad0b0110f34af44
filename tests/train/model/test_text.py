"""Prompts, as the pipelines encode them, and beyond what one piece of an encoder holds."""

import pytest
import torch
from diffusers import StableDiffusionXLPipeline

from gangline.train.model.base import Base, load_base
from gangline.train.model.text import embed_all, tokenize
from tests.conftest import BASE

SHORT = "sks cat face, fluent emoji"
LONG = ", ".join(["sks cat face with heart eyes", "fluent emoji", "round", "yellow"] * 4)


@pytest.fixture(scope="module")
def base() -> Base:
    return load_base(BASE, torch.device("cpu"), torch.float32)


def test_a_short_prompt_is_encoded_as_the_pipeline_does(base: Base) -> None:
    pipeline = StableDiffusionXLPipeline.from_pretrained(BASE, local_files_only=True, torch_dtype=torch.float32)
    tokens, _, pooled, _ = pipeline.encode_prompt(SHORT, do_classifier_free_guidance=False)
    ours = embed_all(base, tokenize(base, [SHORT]))
    assert ours.pooled is not None
    assert torch.equal(ours.tokens, tokens) and torch.equal(ours.pooled, pooled)


def test_silence_is_what_the_pipeline_takes_for_no_negative_prompt(base: Base) -> None:
    pipeline = StableDiffusionXLPipeline.from_pretrained(BASE, local_files_only=True, torch_dtype=torch.float32)
    _, silence, _, pooled = pipeline.encode_prompt(SHORT, do_classifier_free_guidance=True)
    ours = embed_all(base, tokenize(base, [SHORT, ""]))[[1]]
    assert torch.equal(ours.tokens, silence) and ours.pooled is not None and torch.equal(ours.pooled, pooled)


def test_every_word_of_a_long_prompt_counts(base: Base) -> None:
    length = base.tokenizers[0].model_max_length
    texts = tokenize(base, [SHORT, LONG, LONG.replace("yellow", "green")])
    pieces = texts.ids[0].shape[1]
    assert pieces > 2
    ours = embed_all(base, texts)
    assert ours.tokens.shape[1] == pieces * length
    assert not torch.equal(ours.tokens[1], ours.tokens[2])
    first = embed_all(base, tokenize(base, [SHORT]))
    assert torch.equal(ours.tokens[:1, :length], first.tokens), "a text's first piece does not depend on longer ones"


def test_no_text_is_tokenised_twice(base: Base) -> None:
    assert tokenize(base, ["a", "b", "a"]).texts == ("a", "b")
