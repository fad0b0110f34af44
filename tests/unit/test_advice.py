"""Advice comes where it may help, says why, and never holds a job up."""

from dataclasses import fields, replace

import pytest

from gangline.core.advice import PhotoFacts, advise, words_of_the_subject
from gangline.core.models.families import SD15
from gangline.core.models.recognition import RecognisedModel
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sections.subjects import SubjectEntry
from tests.unit.specs.test_spec import SPEC

GOOD = replace(SPEC, prompt="a photo of sks dog", train_text_encoder=True, resolution=512)
PICTURES = tuple(
    PhotoFacts(name=f"{number}.jpg", width=800, height=700, caption="a photo of sks dog") for number in range(8)
)
CAPTIONED = tuple(replace(picture, caption="sks dog, beach", own=True) for picture in PICTURES)
SMALL = (*PICTURES, replace(PICTURES[0], name="small.jpg", width=300))
WIDE = tuple(replace(picture, width=1600) for picture in PICTURES)
REPEATED = (replace(PICTURES[0], repeats=10), *PICTURES[1:])


def advised(spec: LoraSpec, pictures: tuple[PhotoFacts, ...] = PICTURES) -> dict[str, str]:
    return {advice.setting: advice.because for advice in advise(spec, pictures)}


def test_a_good_job_is_not_talked_to() -> None:
    assert advised(GOOD) == {}
    assert advised(replace(GOOD, train_text_encoder=False, prompt="sks"), CAPTIONED) == {}
    assert advised(replace(GOOD, aspect_buckets=True), WIDE) == {}


@pytest.mark.parametrize("prompt", ["sks", "a photo of timber", "The portrait of a PRZ", "photo"])
def test_a_name_without_its_kind(prompt: str) -> None:
    assert len(words_of_the_subject(prompt)) < 2
    assert "much better than the name alone" in advised(replace(GOOD, prompt=prompt))["prompt"]


@pytest.mark.parametrize("prompt", ["sks dog", "timber the husky", "фото собаки sks", "a 犬 sks"])
def test_a_name_with_its_kind(prompt: str) -> None:
    assert "prompt" not in advised(replace(GOOD, prompt=prompt))


@pytest.mark.parametrize(
    ("change", "pictures", "setting", "because"),
    [
        ({"train_text_encoder": False}, PICTURES, "train_text_encoder", "share one prompt"),
        ({"class_prompt": "a photo of a cat"}, PICTURES, "class_prompt", "no word in common"),
        ({"caption_shuffles": 4}, PICTURES, "caption_shuffles", "no caption has tags"),
        ({}, PICTURES[:2], "photos", "learns the background"),
        ({}, SMALL, "resolution", "learns the blur"),
        ({}, WIDE, "aspect_buckets", "more than a quarter of 0.jpg, 1.jpg, 2.jpg and 5 more"),
        ({"optimizer": "prodigy"}, PICTURES, "learning_rate", "multiplies it by 0.0001"),
        (
            {"train_text_encoder": False},
            (*PICTURES, CAPTIONED[0]),
            "train_text_encoder",
            "8 of 9 photos share one prompt",
        ),
        ({"schedule": "cosine_with_restarts"}, PICTURES, "schedule_cycles", "with one cycle there is no restart"),
        ({"learning_rate": 1e-3}, PICTURES, "learning_rate", "better results"),
        ({"learning_rate": 5.0}, PICTURES, "learning_rate", "becomes NaN"),
        ({"steps": 60}, PICTURES, "steps", "each photo is seen 8 times"),
        ({"steps": 60}, REPEATED, "steps", "on average a photo is seen 8 times"),
        ({"rank": 256}, PICTURES, "rank", "64 times the usual size"),
        ({"alpha": 400.0}, PICTURES, "alpha", "alpha / rank, which is 25"),
        ({"steps": 20_000}, PICTURES, "steps", "each photo is seen 2500 times"),
        ({"batch_size": 9}, PICTURES, "batch_size", "twice"),
        ({"warmup_steps": 500}, PICTURES, "warmup_steps", "never reached"),
        ({"zero_terminal_snr": True, "noise_offset": 0.05}, PICTURES, "noise_offset", "without it"),
        ({"dora": True}, PICTURES, "dora", "computes a DoRA differently"),
        ({"class_images": 7}, PICTURES, "class_images", "there is a class_prompt"),
        ({"prior_weight": 0.5}, PICTURES, "prior_weight", "there is a class_prompt"),
        ({"crops": 7}, PICTURES, "crops", "crop is random"),
        ({"caption_keep": 2}, PICTURES, "caption_keep", "caption_shuffles or caption_tag_dropout_rate is not 0"),
        ({"caption_separator": ";"}, PICTURES, "caption_separator", "caption_shuffles or caption_tag_dropout_rate"),
        ({"caption_variants": 2}, PICTURES, "caption_variants", "enable_wildcard is set and caption_shuffles is 0"),
        ({"caption_tag_dropout_rate": 0.1}, PICTURES, "caption_tag_dropout_rate", "tags with commas between them"),
        (
            {"caption_tag_dropout_rate": 0.1, "caption_separator": ";"},
            CAPTIONED,
            "caption_tag_dropout_rate",
            "tags with ';' between them",
        ),
        ({"enable_wildcard": True}, PICTURES, "enable_wildcard", "no caption has words in braces"),
        (
            {"enable_wildcard": True, "prompt": "a {big|small} sks dog"},
            tuple(replace(picture, caption="a {big|small} sks dog") for picture in PICTURES),
            "sample_prompts",
            "drawn from their prompt as it is",
        ),
    ],
)
def test_each_piece_of_advice_comes_alone_and_says_why(
    change: dict[str, object], pictures: tuple[PhotoFacts, ...], setting: str, because: str
) -> None:
    found = advised(replace(GOOD, **change), pictures)
    assert list(found) == [setting]
    assert because in found[setting]


def test_photos_of_which_most_have_captions_of_their_own_are_not_said_to_share_a_prompt() -> None:
    assert advised(replace(GOOD, train_text_encoder=False), (PICTURES[0], *CAPTIONED)) == {}


def test_rates_that_are_right_for_a_tiny_base_are_not_talked_about() -> None:
    assert advised(replace(GOOD, learning_rate=1e-3, resolution=64)) == {}


def test_a_side_that_the_base_was_not_trained_on() -> None:
    old = RecognisedModel(
        family=SD15, prediction_type="epsilon", zero_terminal_snr=False, layout="diffusers", because=""
    )
    large = tuple(replace(picture, width=1600, height=1500) for picture in PICTURES)
    found = advise(replace(GOOD, resolution=1024), large, old)
    assert [(advice.setting, advice.message) for advice in found] == [("resolution", "consider 768 at the most")]
    assert advise(GOOD, large, old) == ()


def test_what_follows_the_advice_is_not_advised_again() -> None:
    followed = {
        "optimizer": "prodigy",
        "learning_rate": 1.0,
        "class_prompt": "a photo of a dog",
        "class_images": 7,
        "prior_weight": 0.5,
        "crop": "random",
        "crops": 7,
        "caption_shuffles": 4,
        "caption_keep": 2,
        "caption_tag_dropout_rate": 0.1,
        "schedule": "cosine_with_restarts",
        "schedule_cycles": 2,
        "zero_terminal_snr": True,
    }
    assert advised(replace(GOOD, **followed), CAPTIONED) == {}


def test_advice_names_settings_that_there_are() -> None:
    names = {field.name for field in fields(LoraSpec)}
    worst = replace(
        SPEC, prompt="sks", crops=7, optimizer="prodigy", warmup_steps=500, caption_shuffles=2, batch_size=99
    )
    found = advise(worst, SMALL)
    assert len(found) > 6
    assert {advice.setting for advice in found} <= names


def test_subjects_of_one_job_are_talked_about_one_by_one() -> None:
    entries = (
        SubjectEntry(folder="dogs", prompt="a photo of sks dog", class_prompt="a dog"),
        SubjectEntry(folder="cats", prompt="zwx"),
    )
    pictures = (*PICTURES, *(replace(picture, name=f"cats/{picture.name}", subject=1) for picture in PICTURES[:3]))
    spec = replace(GOOD, prompt="a photo of sks dog", subjects=entries)
    assert advised(spec, pictures) == {
        "subjects.1.prompt": "the model learns a name together with its class much better than the name alone",
        "subjects.1.class_prompt": "others have one, but nothing keeps the model from forgetting the class of 'zwx'",
        "subjects.1.repeats": "steps show the most frequent subject 2.7 times as often as 'zwx'",
        "subjects.1.photos": "from few photos the model learns the background as a part of the subject",
    }
    even = replace(spec, subjects=(entries[0], replace(entries[1], prompt="zwx cat", class_prompt="a cat", repeats=3)))
    assert advised(even, tuple(replace(each, repeats=3 if each.subject else 1) for each in pictures)).keys() == {
        "subjects.1.photos"
    }
