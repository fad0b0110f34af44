"""The texts of a photo are drawn from its caption before training, and which of them a sample has is a function of its number."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sections.objective import ObjectiveSettings
from gangline.data.chance import stream
from gangline.data.images.captions import Caption
from gangline.train.lora.batches import ExampleSource, TextBatches
from gangline.train.lora.prepare import AspectBucket, Latents, caption_variants, plan_held_out
from gangline.train.model.text import Texts
from gangline.train.model.timesteps import TimestepSampler
from tests.conftest import SUBJECT, file_at
from tests.train.conftest import lay_out, small_spec

CAPTION = Caption(text="sks dog, beach, sunny, {red|blue} ball")


def texts(caption: Caption = CAPTION, number: int = 0, **settings: Any) -> tuple[str, ...]:
    return caption_variants(small_spec(**settings), number, caption)


def test_a_caption_is_trained_on_as_it_is_unless_a_setting_changes_it() -> None:
    assert texts() == texts(caption_variants=4, caption_keep=3, caption_separator=";") == (CAPTION.text,)


def test_shuffles_alone_are_those_of_every_release_so_far() -> None:
    found = texts(Caption(text="sks dog, beach, ,sunny , ball"), 3, caption_shuffles=4)
    for variant, text in enumerate(found):
        rest = ["beach", "sunny", "ball"]
        order = stream(0, "caption shuffle", variant, 3).permutation(3)
        assert text == ", ".join(["sks dog", *(rest[place] for place in order)])


def test_tags_are_dropped_after_the_first_ones_in_a_number_of_texts() -> None:
    found = texts(caption_tag_dropout_rate=0.5)
    assert len(found) == 8 and len(texts(caption_tag_dropout_rate=0.5, caption_variants=3)) == 3
    assert all(text.split(", ")[0] == "sks dog" for text in found) and len(set(found)) > 2
    tags = CAPTION.text.split(", ")
    assert all(text == ", ".join(tag for tag in tags if tag in text.split(", ")) for text in found)
    assert texts(caption_tag_dropout_rate=1.0, caption_keep=2, caption_variants=1) == ("sks dog, beach",)
    assert texts(caption_tag_dropout_rate=1.0, caption_keep=0, caption_variants=1) == ("",)


def test_tags_of_another_separator_are_joined_with_commas() -> None:
    caption = Caption(text="sks dog; on a beach, in the sun; ball")
    settings: dict[str, Any] = {"caption_separator": ";", "caption_shuffles": 6}
    assert {*texts(caption, **settings)} == {
        "sks dog, on a beach, in the sun, ball",
        "sks dog, ball, on a beach, in the sun",
    }


def test_wildcards_are_chosen_without_a_change_to_the_rest() -> None:
    assert {*texts(enable_wildcard=True)} == {f"sks dog, beach, sunny, {colour} ball" for colour in ("red", "blue")}
    every = {"enable_wildcard": True, "caption_shuffles": 5, "caption_tag_dropout_rate": 0.2}
    assert all("{" not in text and text.startswith("sks dog") for text in texts(**every))


def test_texts_are_a_function_of_the_seed_and_the_photos_number() -> None:
    settings: dict[str, Any] = {"enable_wildcard": True, "caption_tag_dropout_rate": 0.5}
    assert texts(**settings) == texts(**settings) != texts(**settings, seed=1)
    assert texts(**settings) != texts(number=1, **settings)
    assert texts(**settings, caption_variants=3) == texts(**settings)[:3]


def test_a_held_out_photo_has_the_first_choice_and_all_tags(tmp_path: Path) -> None:
    held_out = (file_at(SUBJECT / "crying-cat.png", SUBJECT),)
    spec = small_spec(held_out=held_out, prompt=CAPTION.text, enable_wildcard=True, caption_tag_dropout_rate=0.9)
    run = lay_out(tmp_path / "run", spec)
    captions = [example.caption.text for _, example in plan_held_out(spec, run.inputs, 8)]
    assert captions == ["sks dog, beach, sunny, red ball"]
    plain = replace(spec, enable_wildcard=False)
    assert [example.caption.text for _, example in plan_held_out(plain, run.inputs, 8)] == [CAPTION.text]


def source(spec: LoraSpec, variants: tuple[str, ...]) -> ExampleSource:
    """Of two photos with the same texts. A text's token is its place in `variants`, and the last one is the empty text's."""
    latents = Latents(mean=torch.zeros(2, 4, 8, 8), deviation=torch.ones(2, 4, 8, 8), sizes=torch.zeros(2, 6))
    bucket = AspectBucket(latents, 1, (0, 1), (variants, variants), (0, 0))
    tokens = torch.arange(len(variants) + 1)[:, None, None]
    words = TextBatches(Texts((*variants, ""), (tokens,)), None)
    at_all = TimestepSampler(ObjectiveSettings(), 1000)
    return ExampleSource(
        spec, [bucket], words, seed=spec.seed, timesteps=at_all, weights=[1.0], at_a_time=spec.batch_size
    )


@pytest.mark.parametrize("drop", [0.0, 0.25])
def test_which_text_a_sample_has_is_a_function_of_seed_step_and_sample(drop: float) -> None:
    spec, variants = small_spec(caption_drop=drop, caption_tag_dropout_rate=0.5, batch_size=3), ("a", "b", "c", "d")
    seen, steps = source(spec, variants), range(1, 401)
    found = {step: seen.batches(step)[0].ids[0].flatten().tolist() for step in steps}
    for step in steps:
        for place, sample in enumerate(range(3 * (step - 1), 3 * step)):
            rng = stream(spec.seed, "caption", step, sample)
            dropped = rng.random() < drop
            assert found[step][place] == (4 if dropped else int(rng.integers(4)))
    resumed = source(spec, variants)
    assert all(resumed.batches(step)[0].ids[0].flatten().tolist() == found[step] for step in (250, 399))
    often = Counter(text for row in found.values() for text in row)
    expected = 1200 * (1 - drop) / 4
    assert all(often[text] == pytest.approx(expected, abs=5 * expected**0.5) for text in range(4))
