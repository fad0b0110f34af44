"""Several subjects of one job: how often their photos are drawn, what their samples count, which class comes beside them; exactly."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from gangline.core.files import File
from gangline.core.models.families import SDXL
from gangline.core.models.lora_metadata import Facts, kohya_metadata, modelspec
from gangline.core.parsing import to_json
from gangline.core.runs import prepared as keys
from gangline.core.specs.lora import LoraSpec, parse_lora
from gangline.core.specs.sample import previews_of
from gangline.core.specs.sections.subjects import SubjectEntry
from gangline.train.lora.batches import ClassSource, ExampleSource, LoraBatch, step_batches
from gangline.train.lora.inputs import TrainingInputs, gather
from gangline.train.lora.trainer import base_of, sources
from gangline.train.model.base import LoadedBase
from gangline.train.run import numerics
from gangline.train.run.contract import Orders, RunDirectory
from tests.conftest import SUBJECT, file_at
from tests.train.conftest import finish, interrupt, lay_out, report_of, small_spec
from tests.train.learners import learner_of
from tests.train.lora.test_step_reference import OFF_BY_MAX, by_autograd, doubled, off_by, seen_by_the_optimiser

CPU = torch.device("cpu")
CAT = SubjectEntry(folder="cat", prompt="sks cat", class_prompt="a cat", class_images=3, repeats=2, weight=0.5)
DOG = SubjectEntry(folder="dog", prompt="zwx dog", class_prompt="a dog", class_images=5, prior_weight=0.25, weight=2.0)
BIRD = SubjectEntry(folder="bird", prompt="qrs bird", repeats=3)
SHAPES = {"square": (64, 64), "wide": (64, 40), "high": (40, 64)}
COUNTS = {"cat": 3, "dog": 4, "bird": 2}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each subject, whose photos have equal names; the dog has photos of its class, a caption and a photo to hold out."""
    root = tmp_path_factory.mktemp("photos")
    pictures = iter(sorted(SUBJECT.glob("*.png")) * 3)
    shapes = list(SHAPES.values())
    for folder, count in COUNTS.items():
        (root / folder).mkdir()
        names = [f"{number}.png" for number in range(count)] + ["class-0.png", "class-1.png", "held.png"] * (
            folder == "dog"
        )
        for number, name in enumerate(names):
            with Image.open(next(pictures)) as image:
                image.convert("RGB").resize(shapes[number % 3]).rotate(90 * number).save(root / folder / name)
    (root / "dog" / "0.txt").write_text("zwx dog, sad")
    return root


def spec_of(photos: Path, *subjects: SubjectEntry, **settings: Any) -> LoraSpec:
    def files(name: str) -> tuple[File, ...]:
        found = (path for entry in subjects for path in sorted((photos / entry.folder).glob(name)))
        return tuple(file_at(path, photos) for path in found)

    values: dict[str, Any] = {"steps": 7, "target_modules": ("to_k", "to_v"), "prompt": subjects[0].prompt}
    of_files = {"photos": files("[0-9].png"), "class_photos": files("class-*.png"), "held_out": files("held.png")}
    spec = small_spec(**(values | of_files | {"captions": files("*.txt"), "subjects": subjects} | settings))
    parse_lora(to_json(spec))
    return spec


def laid_out(folder: Path, spec: LoraSpec, photos: Path) -> RunDirectory:
    return lay_out(folder, spec, photos=photos, captions=photos)


def gathered(folder: Path, spec: LoraSpec, photos: Path) -> tuple[LoadedBase, TrainingInputs]:
    numerics.choose_kernels(repeatable=True)
    run = laid_out(folder, spec, photos)
    base = base_of(run, spec, CPU, torch.float32)
    found = gather(run, base, spec, numerics.fingerprint(CPU, torch.float32, spec), Orders())
    assert found is not None
    return base, found


def photos_of(spec: LoraSpec, source: ExampleSource, steps: range) -> Counter[tuple[int, int, int]]:
    """How often each photo is drawn, by its subject, bucket and place there."""
    found = Counter[tuple[int, int, int]]()
    for step in steps:
        of = source.examples(step)
        found.update((subject, of.which, photo) for subject, photo in zip(of.subjects, of.photos, strict=True))
    return found


@pytest.mark.parametrize("settings", [{}, {"aspect_buckets": True, "batch_size": 3}])
def test_each_photo_is_drawn_as_often_as_its_subject_repeats(
    tmp_path: Path, photos: Path, settings: dict[str, Any]
) -> None:
    spec = spec_of(photos, CAT, DOG, BIRD, **settings)
    photos_source, _ = sources(*_sourced(tmp_path, spec, photos))
    assert isinstance(photos_source, ExampleSource)
    examples = sum(COUNTS[entry.folder] * entry.repeats for entry in spec.subjects)
    passes = 2 * spec.batch_size
    drawn = photos_of(spec, photos_source, range(1, 2 * examples + 1))
    assert len(drawn) == sum(COUNTS.values())
    for (subject, _, _), times in drawn.items():
        assert times == passes * spec.subjects[subject].repeats


def _sourced(folder: Path, spec: LoraSpec, photos: Path) -> tuple[LoadedBase, LoraSpec, TrainingInputs]:
    base, inputs = gathered(folder / "run", spec, photos)
    return base, spec, inputs


@pytest.mark.parametrize("settings", [{}, {"aspect_buckets": True, "batch_size": 3}])
def test_each_photo_comes_with_an_image_of_its_own_class(
    tmp_path: Path, photos: Path, settings: dict[str, Any]
) -> None:
    spec = spec_of(photos, CAT, DOG, BIRD, train_text_encoder=True, **settings)
    photos_source, classes = sources(*_sourced(tmp_path, spec, photos))
    assert isinstance(photos_source, ExampleSource) and isinstance(classes, ClassSource)
    said = {0: "a cat", 1: "a dog"}
    _, inputs = gathered(tmp_path / "again", spec, photos)
    ids = {subject: tuple(inputs.words.batch([text])["ids"][0].flatten().tolist()) for subject, text in said.items()}
    noises = Counter[tuple[float, ...]]()
    for step in range(1, 31):
        of = photos_source.examples(step)
        wanted = Counter(ids[subject] for subject in of.subjects if subject in said)
        batches = classes.batches(step)
        assert Counter(tuple(row.flatten().tolist()) for batch in batches for row in batch.ids[0]) == wanted
        noises.update(tuple(noise.flatten()[:4].tolist()) for batch in batches for noise in batch.noise)
    assert set(noises.values()) == {1}, "no two samples have the same noise"


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_how_many_samples_of_a_subject_came_before_a_step_is_known_from_its_number(
    tmp_path: Path, photos: Path, batch_size: int
) -> None:
    spec = spec_of(photos, CAT, DOG, BIRD, aspect_buckets=True, batch_size=batch_size)
    source, _ = sources(*_sourced(tmp_path, spec, photos))
    assert isinstance(source, ExampleSource)
    counted = Counter[int]()
    for step in range(1, 50):
        assert +source.seen(step) == +counted
        counted.update(source.examples(step).subjects)


def test_images_of_a_class_are_seen_equally_often_whatever_other_subjects_do(tmp_path: Path, photos: Path) -> None:
    """The dog's class has five: two photos and three that the base draws."""
    spec = spec_of(photos, CAT, DOG, BIRD)
    _, classes = sources(*_sourced(tmp_path, spec, photos))
    assert isinstance(classes, ClassSource)
    own = classes.classes[1]
    drawn = photos_of(spec, own, range(1, 2 * 5 + 1))
    assert len(drawn) == 5 and set(drawn.values()) == {2}


def shares_of(spec: LoraSpec, batches: list[LoraBatch]) -> list[float]:
    return sorted(round(share, 6) for batch in batches for share in batch.share.tolist())


def test_a_sample_counts_its_subjects_weight_and_one_of_its_class_that_times_the_prior_weight(
    tmp_path: Path, photos: Path
) -> None:
    spec = spec_of(photos, CAT, DOG, BIRD, batch_size=4, prior_weight=0.6)
    every = sources(*_sourced(tmp_path, spec, photos))
    photos_source = every[0]
    assert isinstance(photos_source, ExampleSource)
    counts = {0: [0.5, 0.5 * 0.6], 1: [2.0, 2.0 * 0.25], 2: [1.0]}
    for step in range(1, 9):
        wanted = sorted(round(each / 4, 6) for of in photos_source.examples(step).subjects for each in counts[of])
        assert shares_of(spec, step_batches(every, step)) == wanted


MODES: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"precision": "bf16"},
    "several sizes, a microbatch of one": {"aspect_buckets": True, "microbatch": 1},
    "text encoders": {"train_text_encoder": True},
}


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_of_weighted_subjects_is_the_definitions(tmp_path: Path, photos: Path, mode: str) -> None:
    spec = spec_of(photos, CAT, DOG, BIRD, batch_size=5, gradient_norm_max=1e6, **MODES[mode])
    learner, batches = learner_of(laid_out(tmp_path / "run", spec, photos))
    samples, dtype = list(batches.step(1)), learner.dtype
    network: Any = learner.network
    for weight in learner.weights.values():
        weight.data += 0.01 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
    learner.buffers.refresh()
    wanted = by_autograd(learner, *doubled(network.base, spec), samples)
    most = OFF_BY_MAX[dtype] * (3 if spec.train_text_encoder else 1)
    assert off_by(seen_by_the_optimiser(learner, samples), wanted) < most * torch.finfo(dtype).eps


EXACT: dict[str, dict[str, Any]] = {
    "as they are": {},
    "several sizes, text encoders": {"aspect_buckets": True, "train_text_encoder": True, "batch_size": 3},
    "accumulation": {"batch_size": 5, "microbatch": 2, "ema_decay": 0.9, "flip": True},
    "captions drawn": {"caption_drop": 0.3, "caption_shuffles": 2},
}


@pytest.mark.tenths
@pytest.mark.parametrize("mode", EXACT)
def test_interrupted_a_job_of_several_subjects_ends_with_the_same_bits(tmp_path: Path, photos: Path, mode: str) -> None:
    spec = spec_of(photos, CAT, DOG, BIRD, steps=6, **EXACT[mode])
    whole = finish(laid_out(tmp_path / "whole", spec, photos))
    resumed = finish(interrupt(tmp_path / "resumed", spec, after=4, photos=photos, captions=photos))
    assert report_of(whole)["exact"] and report_of(resumed)["exact"]
    assert report_of(whole)["weights_digest"] == report_of(resumed)["weights_digest"]


@pytest.mark.tenths
def test_it_ends_with_the_same_bits_if_it_is_interrupted_before_a_step_of_fewer_samples(
    tmp_path: Path, photos: Path
) -> None:
    spec = spec_of(photos, CAT, BIRD, steps=12, batch_size=3, seed=2)
    every = sources(*_sourced(tmp_path, spec, photos))
    counts = [sum(len(each) for each in step_batches(every, step)) for step in range(1, 13)]
    after = counts.index(min(counts), 1)
    assert counts[after] < counts[0], "else there is nothing to get wrong"
    whole = finish(laid_out(tmp_path / "whole", spec, photos))
    resumed = finish(interrupt(tmp_path / "resumed", spec, after=after, photos=photos, captions=photos))
    assert report_of(whole)["weights_digest"] == report_of(resumed)["weights_digest"]
    assert {report_of(run)["fingerprint"]["microbatch"] for run in (whole, resumed)} == {str(spec.samples_per_step)}


@pytest.mark.parametrize("settings", [{}, {"aspect_buckets": True, "class_prompt": "a dog", "class_images": 5}])
def test_one_subject_of_a_list_is_trained_to_the_bits_of_a_job_without_one(
    tmp_path: Path, photos: Path, settings: dict[str, Any]
) -> None:
    own = {name: value for name, value in settings.items() if name != "aspect_buckets"}
    entry = SubjectEntry(folder="dog", prompt="zwx dog", **own)
    files = {} if own else {"class_photos": ()}
    listed = spec_of(photos, entry, **({"aspect_buckets": True} if settings else {}), **files)

    def flat(files: tuple[File, ...]) -> tuple[File, ...]:
        return tuple(replace(file, path=file.path.removeprefix("dog/")) for file in files)

    kinds = ("photos", "held_out", "captions", "class_photos")
    alone = replace(listed, subjects=(), **settings, **{kind: flat(getattr(listed, kind)) for kind in kinds})
    runs = (
        finish(laid_out(tmp_path / "list", listed, photos)),
        finish(laid_out(tmp_path / "one", alone, photos / "dog")),
    )
    assert len({report_of(run)["weights_digest"] for run in runs}) == 1


def test_a_class_that_two_subjects_share_is_drawn_once(tmp_path: Path, photos: Path) -> None:
    puppy = replace(BIRD, class_prompt="a cat", class_images=3)
    spec = spec_of(photos, CAT, puppy)
    _, inputs = gathered(tmp_path / "run", spec, photos)
    one, other = inputs.class_images
    assert torch.equal(one.latents.mean, other.latents.mean)
    drawn = [path.name for path in (tmp_path / "run" / "prepared").iterdir() if path.name.startswith("class_images-")]
    assert drawn == [keys.class_images_key(spec)]
    alone = replace(spec, subjects=(), class_prompt="a cat", class_images=3)
    assert keys.class_images_key(alone) == drawn[0], "jobs of one subject share it, too"
    assert len(keys.subjects(spec)) == 3


def test_what_only_weighs_subjects_prepares_nothing_anew(photos: Path) -> None:
    spec = spec_of(photos, CAT, DOG)
    heavier = replace(spec, subjects=(replace(CAT, weight=9.0, repeats=9, prior_weight=0.1), DOG))
    assert keys.subjects(spec) == keys.subjects(heavier)
    renamed = replace(spec, subjects=(replace(CAT, prompt="sks kitten"), DOG))
    assert keys.latents_key(spec, {}) == keys.latents_key(renamed, {})
    assert keys.embeddings_key(spec, {}) != keys.embeddings_key(renamed, {})


def test_the_result_says_which_subjects_it_has(tmp_path: Path, photos: Path) -> None:
    spec = spec_of(photos, CAT, DOG, BIRD, steps=1)
    run = finish(laid_out(tmp_path / "run", spec, photos))
    report = report_of(run)
    assert [(each["folder"], each["photos"], each["class_images_drawn"]) for each in report["subjects"]] == [
        ("cat", 3, 3),
        ("dog", 4, 3),
        ("bird", 2, 0),
    ]
    assert [each["photo"] for each in report["held_out"]] == ["dog/held.png"]
    card = (run.output / "README.md").read_text()
    assert "trained by Gangline on 9 photos of 3 subjects" in card
    assert "| dog | zwx dog | 4 | 1 | 2 | a dog: 5 images, weight 0.5 |" in card
    assert "| bird | qrs bird | 2 | 3 | 1 | none |" in card
    assert [preview.prompt for preview in previews_of(spec)] == ["sks cat", "zwx dog", "qrs bird"]


def test_held_out_photos_are_measured_with_the_prompt_of_their_subject(tmp_path: Path, photos: Path) -> None:
    _, inputs = gathered(tmp_path / "run", spec_of(photos, CAT, DOG), photos)
    assert [(photo.photo, photo.caption) for photo in inputs.held_out] == [("dog/held.png", "zwx dog")]
    assert {texts for bucket in inputs.photos for texts in bucket.texts} == {
        ("sks cat",),
        ("zwx dog",),
        ("zwx dog, sad",),
    }


def test_tools_are_told_the_folders_of_all_subjects_as_kohyas_script_does(photos: Path) -> None:
    spec = spec_of(photos, CAT, DOG, BIRD)
    facts = Facts(name="x", family=SDXL, prediction_type="epsilon", precision="fp32", microbatch=1)
    found = kohya_metadata(spec, facts, conv=False)
    assert json.loads(found["ss_dataset_dirs"]) == {
        "cat": {"n_repeats": 2, "img_count": 3},
        "dog": {"n_repeats": 1, "img_count": 4},
        "bird": {"n_repeats": 3, "img_count": 2},
    }
    assert {name: each["img_count"] for name, each in json.loads(found["ss_reg_dataset_dirs"]).items()} == {
        "cat": 3,
        "dog": 5,
    }
    assert json.loads(found["ss_tag_frequency"]) == {"cat": {"sks cat": 3}, "bird": {"qrs bird": 2}}
    assert (found["ss_num_train_images"], found["ss_num_reg_images"]) == ("16", "8")
    assert modelspec(spec, facts, "0")["modelspec.trigger_phrase"] == "sks cat, zwx dog, qrs bird"
