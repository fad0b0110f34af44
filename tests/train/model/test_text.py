"""Prompts, as the pipelines encode them, and beyond what one piece of an encoder holds."""

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import StableDiffusionPipeline, StableDiffusionXLPipeline

from gangline.core.errors import BadInput
from gangline.core.models.families import FamilyName
from gangline.train.model.base import LoadedBase, load_base
from gangline.train.model.text import embed_all, tokenize
from tests.conftest import BASE
from tests.train.bases import save_tiny

SHORT = "sks cat face, fluent emoji"
LONG = ", ".join(["sks cat face with heart eyes", "fluent emoji", "round", "yellow"] * 4)


@pytest.fixture(scope="module")
def base() -> LoadedBase:
    return load_base(BASE, torch.device("cpu"), torch.float32)


def test_a_short_prompt_is_encoded_as_the_pipeline_does(base: LoadedBase) -> None:
    pipeline = StableDiffusionXLPipeline.from_pretrained(BASE, local_files_only=True, torch_dtype=torch.float32)
    tokens, _, pooled, _ = pipeline.encode_prompt(SHORT, do_classifier_free_guidance=False)
    ours = embed_all(base, tokenize(base, [SHORT]))
    assert ours.pooled is not None
    assert torch.equal(ours.tokens, tokens) and torch.equal(ours.pooled, pooled)


def test_silence_is_what_the_pipeline_takes_for_no_negative_prompt(base: LoadedBase) -> None:
    pipeline = StableDiffusionXLPipeline.from_pretrained(BASE, local_files_only=True, torch_dtype=torch.float32)
    _, silence, _, pooled = pipeline.encode_prompt(SHORT, do_classifier_free_guidance=True)
    ours = embed_all(base, tokenize(base, [SHORT, ""]))[[1]]
    assert torch.equal(ours.tokens, silence) and ours.pooled is not None and torch.equal(ours.pooled, pooled)


def test_every_word_of_a_long_prompt_counts(base: LoadedBase) -> None:
    length = base.tokenizers[0].model_max_length
    texts = tokenize(base, [SHORT, LONG, LONG.replace("yellow", "green")])
    pieces = texts.ids[0].shape[1]
    assert pieces > 2
    ours = embed_all(base, texts)
    assert ours.tokens.shape[1] == pieces * length
    assert not torch.equal(ours.tokens[1], ours.tokens[2])
    first = embed_all(base, tokenize(base, [SHORT]))
    assert torch.equal(ours.tokens[:1, :length], first.tokens), "a text's first piece does not depend on longer ones"


@pytest.mark.parametrize("skip", [1, 2])
@pytest.mark.parametrize("family", ["sd15", "sd2"])
def test_with_clip_skip_an_earlier_layer_is_read_as_the_pipeline_does(
    tmp_path: Path, family: FamilyName, skip: int
) -> None:
    """diffusers counts the layers that are skipped: its 1 is 2 for kohya's scripts, A1111 and here."""
    folder = save_tiny(tmp_path, family)
    base = load_base(folder, torch.device("cpu"), torch.float32, clip_skip=skip)
    pipeline: Any = StableDiffusionPipeline.from_pretrained(folder, local_files_only=True, torch_dtype=torch.float32)
    pipeline.text_encoder.__dict__.setdefault("text_model", pipeline.text_encoder)  # where diffusers looks for the norm
    theirs, none = pipeline.encode_prompt(SHORT, torch.device("cpu"), 1, True, clip_skip=skip - 1 or None)
    ours = embed_all(base, tokenize(base, [SHORT, ""]))
    assert torch.equal(ours.tokens[:1], theirs)
    if skip == 1:
        assert torch.equal(ours.tokens[1:], none)


def test_a_layer_that_is_not_there_is_refused(tmp_path: Path) -> None:
    base = load_base(save_tiny(tmp_path, "sd15"), torch.device("cpu"), torch.float32, clip_skip=3)
    with pytest.raises(BadInput, match="clip_skip 3 is more than the 2 layers"):
        embed_all(base, tokenize(base, [SHORT]))


def test_sdxl_always_reads_the_last_layer_but_one() -> None:
    with pytest.raises(BadInput, match="clip_skip 2 is for Stable Diffusion 1 and 2"):
        load_base(BASE, torch.device("cpu"), torch.float32, clip_skip=2)


def test_texts_have_the_tokens_that_each_has_alone(base: LoadedBase) -> None:
    """Long ones, too, of which all have as many pieces as the longest needs."""
    texts = ["", "a red house", "!", "wow! " * 60, "日本の家 🏠", "word " * 75, "word " * 76]
    found = tokenize(base, texts)
    for tokenizer, ids in zip(base.tokenizers, found.ids, strict=True):
        assert ids.shape[0] == len(texts) and ids.dtype == torch.int64
        for text, row in zip(texts, ids, strict=True):
            own = tokenizer(text, add_special_tokens=False, truncation=False, verbose=False).input_ids
            framed = [token for piece in row.tolist() for token in piece[1 : tokenizer.model_max_length - 1]]
            assert framed[: len(own)] == own
            assert set(framed[len(own) :]) <= {tokenizer.eos_token_id, tokenizer.pad_token_id}
            assert all(piece[0] == tokenizer.bos_token_id for piece in row.tolist())


def test_no_text_is_tokenised_twice(base: LoadedBase) -> None:
    assert tokenize(base, ["a", "b", "a"]).texts == ("a", "b")
