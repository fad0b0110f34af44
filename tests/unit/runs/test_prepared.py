"""Keys of what is prepared once: equal for jobs that may share it, and for no others."""

from dataclasses import replace

import pytest

from gangline.core.files import File
from gangline.core.runs.prepared import KEY, class_images_key, embeddings_key, latents_key, subject_of, subjects
from gangline.core.specs.fields import HubBase
from gangline.core.specs.lora import LoraSpec

PHOTOS = tuple(File(path=f"{name}.png", bytes=3, sha256=name * 64) for name in "ab")
SPEC = LoraSpec(base=HubBase(repo="a/b", revision="c" * 40), photos=PHOTOS, prompt="a photo of sks dog")
WITH_CLASS = replace(SPEC, class_prompt="a photo of a dog")
BITS = {"torch": "2", "device": "A100", "microbatch": "1", "ranks": "1"}


def keys(spec: LoraSpec, bits: dict[str, str] = BITS) -> dict[str, str]:
    made = (
        latents_key(spec, bits),
        embeddings_key(spec, bits),
        class_images_key(spec),
    )
    return dict(zip(("latents", "embeddings", "class_images"), made, strict=True))


def changed_by(bits: dict[str, str] = BITS, **settings: object) -> set[str]:
    before, now = keys(WITH_CLASS), keys(replace(WITH_CLASS, **settings), bits)
    return {kind for kind in before if before[kind] != now[kind]}


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"rank": 4, "steps": 7, "learning_rate": 0.1, "microbatch": 1, "priority": 3}, set()),
        ({"photos": PHOTOS[:1]}, {"latents", "embeddings"}),
        ({"photos": PHOTOS[::-1]}, {"latents", "embeddings"}),
        ({"prompt": "a photo of sks cat"}, {"embeddings"}),
        ({"sample_prompts": ("sks dog at sea",)}, {"embeddings"}),
        ({"resolution": 512}, {"latents", "class_images"}),
        ({"flip": True}, {"latents"}),
        ({"seed": 7}, set()),
        ({"seed": 7, "crop": "random"}, {"latents"}),
        ({"caption_shuffles": 2}, {"embeddings"}),
        ({"caption_tag_dropout_rate": 0.1}, {"embeddings"}),
        ({"enable_wildcard": True}, {"embeddings"}),
        ({"class_prompt": "a dog"}, {"embeddings", "class_images"}),
        ({"vae": HubBase(repo="a/vae", revision="d" * 40)}, {"latents", "class_images"}),
        ({"base": HubBase(repo="a/b", revision="d" * 40)}, {"latents", "embeddings", "class_images"}),
    ],
)
def test_a_setting_changes_the_keys_of_what_it_decides(settings: dict[str, object], kinds: set[str]) -> None:
    assert changed_by(**settings) == kinds


@pytest.mark.parametrize(
    "settings", [{"caption_shuffles": 2}, {"caption_tag_dropout_rate": 0.1}, {"enable_wildcard": True}]
)
@pytest.mark.parametrize("decides", [{"seed": 7}, {"caption_keep": 2}, {"caption_variants": 3}])
def test_what_draws_the_texts_of_a_photo_is_in_the_key_of_its_embeddings(
    settings: dict[str, object], decides: dict[str, object]
) -> None:
    drawn = replace(WITH_CLASS, **settings)
    assert keys(drawn)["embeddings"] != keys(replace(drawn, **decides))["embeddings"]


def test_latents_and_embeddings_are_shared_under_equal_numerics_only_and_class_images_by_all() -> None:
    assert changed_by(BITS | {"torch": "3"}) == {"latents", "embeddings"}


def test_how_a_step_is_divided_does_not_matter_to_what_is_prepared() -> None:
    assert changed_by(BITS | {"microbatch": "4", "ranks": "2"}) == set()


def test_a_spec_alone_tells_of_what_a_run_may_use_what_others_made() -> None:
    made = keys(WITH_CLASS)
    assert all(KEY.fullmatch(key) for key in made.values())
    assert set(subjects(WITH_CLASS)) == {subject_of(key) for key in made.values()}
    assert {name.split("-")[0] for name in subjects(SPEC)} == {"latents", "embeddings"}
