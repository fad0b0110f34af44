"""A spec is checked before anything is spent, and every problem is named at once."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.errors import BadInput
from gangline.core.files import File, digest_of_files, is_safe_path
from gangline.core.parsing import PROBLEMS_MAX, InvalidSpec, to_json
from gangline.core.specs.fields import FilesBase, HubBase, Needs
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import (
    SampleSpec,
    parse_spec,
    parse_submitted,
    parse_task,
    spec_hash,
    with_defaults,
    without_defaults,
)

PHOTO = File(path="a.png", bytes=1, sha256="a" * 64)
SPEC = LoraSpec(base=FilesBase(files=(PHOTO,)), photos=(PHOTO,), prompt="sks dog")


def named(path: str) -> dict[str, Any]:
    return {"path": path, "bytes": 1, "sha256": "a" * 64}


CATS, DOGS = {"folder": "cats", "prompt": "sks cat"}, {"folder": "dogs", "prompt": "zwx dog"}
OF_TWO: dict[str, Any] = {"photos": [named("cats/a"), named("dogs/a")], "prompt": "sks cat", "subjects": [CATS, DOGS]}

WRONG: dict[str, dict[str, Any]] = {
    "negative steps": {"steps": -1},
    "no steps": {"steps": 0},
    "resolution 0": {"resolution": 0},
    "a resolution that no latent fits": {"resolution": 513},
    "an empty prompt": {"prompt": "   "},
    "a prompt with control characters": {"prompt": "dog\x00"},
    "no photos": {"photos": []},
    "a learning rate of 0": {"learning_rate": 0},
    "a learning rate that is not a number": {"learning_rate": float("nan")},
    "an infinite learning rate": {"learning_rate": float("inf")},
    "an unknown precision": {"precision": "fp8"},
    "a misspelt field": {"stepz": 3},
    "a path that leaves its folder": {"photos": [{"path": "../a", "bytes": 1, "sha256": "a" * 64}]},
    "an absolute path": {"photos": [{"path": "/etc/passwd", "bytes": 1, "sha256": "a" * 64}]},
    "a hash that is none": {"photos": [{"path": "a", "bytes": 1, "sha256": "A" * 64}]},
    "a negative length": {"photos": [{"path": "a", "bytes": -1, "sha256": "a" * 64}]},
    "two photos of one name": {"photos": [PHOTO, PHOTO]},
    "a held-out photo that is trained on": {"held_out": [PHOTO]},
    "an unknown base": {"base": {"source": "torrent"}},
    "another kind": {"kind": "video"},
    "photos of a class that nobody named": {"class_photos": [PHOTO]},
    "two photos of a class of one name": {"class_photos": [PHOTO, PHOTO], "class_prompt": "a dog"},
    "a subject without photos": {"subjects": [CATS, DOGS], "photos": [named("cats/a")], "prompt": "sks cat"},
    "a photo of no subject": OF_TWO | {"photos": [*OF_TWO["photos"], named("a")]},
    "a caption of no subject": {"captions": [named("birds/a.txt")]} | OF_TWO,
    "two subjects of one folder": {"subjects": 0} | OF_TWO | {"subjects": [CATS, DOGS | {"folder": "Cats"}]},
    "two subjects of one prompt": {"subjects": 0} | OF_TWO | {"subjects": [CATS, DOGS | {"prompt": "SKS cat"}]},
    "a subject in a folder of folders": {"subjects": [CATS, DOGS | {"folder": "dogs/a"}]},
    "a subject that never comes": {"subjects": [CATS, DOGS | {"repeats": 0}]},
    "a subject without weight": {"subjects": [CATS, DOGS | {"weight": 0}]},
    "a subject with a weight below 0": {"subjects": [CATS, DOGS | {"weight": -1}]},
    "a subject with a misspelt field": {"subjects": [CATS, DOGS | {"repeat": 2}]},
    "subjects beside another prompt": {"prompt": 0} | OF_TWO | {"prompt": "a cat"},
    "subjects beside a class of all": {"class_prompt": "a cat"} | OF_TWO,
    "class photos of a subject without a class": {"class_photos": [named("dogs/b")]} | OF_TWO,
    "steps that are words": {"steps": "many"},
    "steps that are a text of a number": {"steps": "5"},
    "steps that are a truth value": {"steps": True},
    "a number in a list that is a truth value": {"sample_seeds": [1, False]},
    "a length that is a text": {"photos": [{"path": "a", "bytes": "1", "sha256": "a" * 64}]},
    "a photo that is the folder of another": {"photos": [named("a"), named("a/b")]},
    "a caption that is the folder of another": {"captions": [named("x/a/b/c"), named("x/a")]},
    "a name of 256 bytes": {"photos": [named("\u00e4" * 128)]},
    "a file of the base that is the folder of another": {
        "base": {"source": "files", "files": [named("a/b"), named("a")]}
    },
    "a hub's name that leads elsewhere": {"base": {"source": "hub", "repo": "../../x", "revision": "a" * 40}},
    "a hub's name of three parts": {"base": {"source": "hub", "repo": "a/b/c"}},
    "a hub's name with --": {"base": {"source": "hub", "repo": "a/b--c"}},
    "a hub's name with a blank": {"base": {"source": "hub", "repo": "a/b c"}},
    "a hub's name that is too long": {"base": {"source": "hub", "repo": "a/" + "b" * 97}},
    "a revision that leads elsewhere": {"base": {"source": "hub", "repo": "a/b", "revision": "x/../../y"}},
    "a revision with control characters": {"base": {"source": "hub", "repo": "a/b", "revision": "main\n"}},
}


def test_a_new_lora_for_several_gpus_is_refused_and_a_stored_one_is_read() -> None:
    wide = to_json(replace(SPEC, needs=Needs(slots=4)))
    with pytest.raises(InvalidSpec, match=r"needs\.slots: is 4, but a LoRA trains on one GPU") as refused:
        parse_submitted(wide)
    assert "leave slots out" in refused.value.hint
    stored = parse_spec(wide)
    assert stored.needs.slots == 4 and parse_task(wide) == stored


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_spec_is_refused_with_the_field_named(what: str) -> None:
    change = WRONG[what]
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(to_json(SPEC) | change)
    assert any(next(iter(change)) in problem.field for problem in refused.value.problems), refused.value.problems


@pytest.mark.parametrize(
    ("repo", "revision"),
    [
        ("runwayml/stable-diffusion-v1-5", "main"),
        ("gpt2", "refs/pr/3"),
        ("a_b/C.d-e_f", "v1.0+fp16"),
        ("somebody/" + "x" * 96, "a" * 40),
    ],
)
def test_names_that_the_hub_has_are_taken(repo: str, revision: str) -> None:
    base = {"source": "hub", "repo": repo, "revision": revision}
    assert parse_spec(to_json(SPEC) | {"base": base}).base == HubBase(repo=repo, revision=revision)


def test_why_two_names_are_refused_is_said() -> None:
    with pytest.raises(InvalidSpec, match=r"^photos: a is a file, so it cannot also be the folder of a/b$"):
        parse_spec(to_json(SPEC) | {"photos": [named("a/b"), named("a")]})


@pytest.mark.parametrize("garbage", [None, 1, "x", [], {}, [[]], {"kind": {}}])
def test_garbage_is_refused_not_crashed_on(garbage: object) -> None:
    with pytest.raises(BadInput):
        parse_spec(garbage)


def test_a_hundred_thousand_unknown_fields_are_refused_at_once_and_fifty_are_named() -> None:
    """Comparing each problem with every other one took hours."""
    begun_s = time.process_time()
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(to_json(SPEC) | {f"unknown_{number}": number for number in range(100_000)})
    assert time.process_time() - begun_s < 5
    *named, rest = refused.value.problems
    assert len(named) == PROBLEMS_MAX and rest.message == "and 99950 more problems"


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(to_json(SPEC) | {"steps": -1, "resolution": 0, "rank": 0})
    assert {problem.field for problem in refused.value.problems} == {"steps", "resolution", "rank"}


def test_a_spec_survives_json() -> None:
    assert parse_spec(to_json(SPEC)) == SPEC


@pytest.mark.parametrize(
    "task", [SPEC, SampleSpec(of=SPEC, job="job-1", checkpoint=None, step=100)], ids=["job", "pictures"]
)
def test_a_node_is_told_only_what_is_not_by_default_and_understands_the_same(task: LoraSpec | SampleSpec) -> None:
    whole = json.loads(json.dumps(to_json(task)))
    told = without_defaults(whole)
    assert parse_task(told) == task and with_defaults(told) == whole
    of = told.get("of", told)
    assert set(of) == {"kind", "base", "photos", "prompt"}
    needy = replace(SPEC, needs=Needs(gpu_memory_gb=24), flip=True)
    assert without_defaults(json.loads(json.dumps(to_json(needy)))).keys() - of.keys() == {"needs", "flip"}


def test_when_to_save_does_not_change_what_is_asked_for() -> None:
    assert spec_hash(replace(SPEC, checkpoint_every_s=1.0, checkpoint_every_steps=7)) == spec_hash(SPEC)
    assert spec_hash(replace(SPEC, seed=1)) != spec_hash(SPEC)


def test_a_folder_has_one_hash_in_any_order() -> None:
    other = File(path="b.png", bytes=1, sha256="b" * 64)
    assert digest_of_files((PHOTO, other)) == digest_of_files((other, PHOTO))
    assert digest_of_files((PHOTO,)) != digest_of_files((replace(PHOTO, path="c.png"),))


@given(st.text(alphabet=st.sampled_from("ab./\\: \x00é"), max_size=12))
def test_a_safe_path_stays_below_its_folder(path: str) -> None:
    if is_safe_path(path):
        import os.path

        assert os.path.normpath(os.path.join("/root", path)).startswith("/root/")  # noqa: PTH118
        assert "\x00" not in path
