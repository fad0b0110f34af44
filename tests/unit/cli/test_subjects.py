"""Several subjects are read as people have them: tables of a recipe, options, folders as kohya's scripts name them."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gangline.cli.jobs.plan.lora import lora_document
from gangline.cli.jobs.plan.make import LoraPlan
from gangline.cli.jobs.subjects import parse_subject
from gangline.cli.jobs.train import folder_of_subjects, plan_lora, read_recipe
from gangline.cli.tools.estimate.computed import lora_of
from gangline.core.errors import BadInput
from gangline.core.parsing import to_json
from gangline.core.plans.document import Answer
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import parse_spec

HUB = "somebody/model@v1"
RECIPE = """
resolution = 512
class_images = 10
[[subjects]]
photos = "cat"
prompt = "a photo of sks cat"
class_prompt = "a cat"
repeats = 2
masks = "masks/cat"
[[subjects]]
photos = "dog"
prompt = "a photo of zwx dog"
class_prompt = "a dog"
class_photos = "regularisation/dogs"
class_images = 3
weight = 0.5
hold_out = ["2.jpg"]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two folders whose photos have equal names, with a caption, a mask and photos of a class; and a recipe beside them."""
    for name, size in (
        ("cat/1.jpg", 512),
        ("cat/2.jpg", 600),
        ("dog/1.jpg", 512),
        ("dog/2.jpg", 640),
        ("dog/3.jpg", 700),
    ):
        draw(tmp_path / name, size)
    for name in ("regularisation/dogs/1.jpg", "regularisation/dogs/2.jpg", "masks/cat/1.png"):
        draw(tmp_path / name, 512)
    (tmp_path / "dog" / "1.txt").write_text("zwx dog on a beach")
    (tmp_path / "regularisation" / "dogs" / "1.txt").write_text("a brown dog")
    (tmp_path / "two.toml").write_text(RECIPE)
    return tmp_path


def draw(path: Path, side: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (side, side), "red").save(path)


def planned(root: Path, settings: dict[str, Any]) -> LoraPlan:
    return plan_lora(root, {"base": HUB, "resolution": 512} | settings)


def of_recipe(root: Path) -> LoraPlan:
    return planned(root, read_recipe(str(root / "two.toml")))


def names(spec: LoraSpec, field: str) -> list[str]:
    return [file.path for file in getattr(spec, field)]


def test_a_recipe_with_two_subjects_names_the_files_of_each_below_its_folder(root: Path) -> None:
    plan = of_recipe(root)
    spec = plan.spec
    assert names(spec, "photos") == ["cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/3.jpg"]
    assert names(spec, "held_out") == ["dog/2.jpg"]
    assert names(spec, "captions") == ["dog/1.txt"]
    assert names(spec, "class_photos") == ["dog/1.jpg", "dog/2.jpg"]
    assert names(spec, "class_captions") == ["dog/1.txt"]
    assert (spec.mask, names(spec, "masks")) == ("files", ["cat/1.png"])
    cat, dog = spec.all_subjects
    assert (cat.prompt, cat.class_prompt, cat.repeats, cat.weight, cat.class_images_drawn) == (
        "a photo of sks cat",
        "a cat",
        2,
        1.0,
        10,
    )
    assert (dog.prompt, dog.class_prompt, dog.repeats, dog.weight, dog.class_images_drawn) == (
        "a photo of zwx dog",
        "a dog",
        1,
        0.5,
        1,
    )
    assert spec.title == "a photo of sks cat and 1 other subject"
    assert len(spec.input_files()) == plan.files_count == 4 + 1 + 1 + 2 + 1 + 1
    assert parse_spec(to_json(spec)) == spec


def test_the_plan_has_a_row_and_counts_for_each_subject(root: Path) -> None:
    plan = of_recipe(root)
    rows = dict(plan.rows())
    assert rows["subjects.0"] == (
        "'a photo of sks cat': 2 photos in cat, each photo is seen 167 times; class: 10 pictures that the base makes of 'a cat'"
    )
    assert rows["subjects.1"] == (
        "'a photo of zwx dog': 2 photos in dog, each photo is seen 83 times, weight 0.5; class: 2 photos of your own and 1 "
        "picture that the base makes of 'a dog'"
    )
    assert "cat: 2.jpg has no mask, so the loss counts all of it" in plan.notes
    cat, dog = lora_document(plan, Answer(placed=None, why_not="")).subjects
    assert (cat.photos, cat.held_out, cat.seen_least, cat.seen_most, cat.class_images_drawn) == (2, 0, 167, 167, 10)
    assert (dog.photos, dog.held_out, dog.class_photos, dog.folder) == (2, 1, 2, "dog")


def test_options_name_subjects_as_a_recipe_does(root: Path) -> None:
    typed = [
        "photos=cat,prompt=a photo of sks cat, sitting,repeats=3",
        "photos=dog, prompt=zwx dog, class_prompt=a dog, class_photos=regularisation/dogs, weight=0.25, hold_out=3.jpg",
    ]
    spec = planned(root, {"subjects": typed}).spec
    cat, dog = spec.all_subjects
    assert (cat.prompt, cat.repeats, dog.prompt, dog.weight) == ("a photo of sks cat, sitting", 3, "zwx dog", 0.25)
    assert names(spec, "held_out") == ["dog/3.jpg"]


def test_photos_of_any_subject_are_held_out_by_name(root: Path) -> None:
    subjects = ["photos=cat,prompt=sks cat", "photos=dog,prompt=zwx dog"]
    found = planned(root, {"subjects": subjects, "hold_out": ["3.jpg", "cat/1.jpg"]}).spec
    assert names(found, "held_out") == ["cat/1.jpg", "dog/3.jpg"]
    with pytest.raises(BadInput, match=r"the photo to hold out, 1\.jpg, is in more than one folder") as refused:
        planned(root, {"subjects": subjects, "hold_out": ["1.jpg"]})
    assert refused.value.hint == "write FOLDER/NAME, such as cat/1.jpg"
    with pytest.raises(BadInput, match="is in none of the folders cat, dog"):
        planned(root, {"subjects": subjects, "hold_out": ["9.jpg"]})


def test_folders_of_one_name_in_two_places_stay_two(root: Path) -> None:
    draw(root / "more" / "cat" / "1.jpg", 512)
    subjects = ["photos=cat,prompt=sks cat", "photos=more/cat,prompt=zwx cat"]
    spec = planned(root, {"subjects": subjects}).spec
    assert names(spec, "photos") == ["cat/1.jpg", "cat/2.jpg", "cat-2/1.jpg"]
    assert [len(subject.photos) for subject in spec.all_subjects] == [2, 1]


CAT = {"photos": "cat", "prompt": "sks cat"}
DOG = {"photos": "dog", "prompt": "zwx dog"}


@pytest.mark.parametrize(
    ("subjects", "message"),
    [
        ([CAT, DOG | {"photos": "bird"}], r"there is no folder .*bird"),
        ([CAT, DOG | {"prompt": "SKS cat"}], r"subjects\.1\.prompt: is 'SKS cat', as that of subjects\.0"),
        ([CAT, DOG | {"photos": "cat"}], r"subjects\.1\.photos is cat, as that of subjects\.0"),
        ([CAT, DOG | {"repeats": 0}], r"subjects\.1\.repeats: must be 1 or more, not 0"),
        ([CAT, DOG | {"weight": 0}], r"subjects\.1\.weight: must be more than 0, not 0"),
        ([CAT, DOG | {"weight": -1.5}], r"subjects\.1\.weight: must be more than 0, not -1\.5"),
        ([CAT, DOG | {"colour": "red"}], r"subjects\.1 has no field colour"),
        ([CAT, DOG | {"folder": "dog"}], r"subjects\.1 has no field folder"),
        ([CAT, {"prompt": "zwx dog"}], r"subjects\.1\.photos is missing"),
        ([CAT, {"photos": "dog"}], r"subjects\.1\.prompt: is missing"),
        ([CAT, DOG | {"class_photos": "regularisation/dogs"}], r"class_photos: in dog/ need a class_prompt"),
        ([CAT, DOG | {"photos": 3}], r"subjects\.1\.photos must be the path of a file or folder, not 3"),
        ([CAT, DOG | {"hold_out": [1]}], r"subjects\.1\.hold_out must be the path"),
        ([CAT, DOG | {"hold_out": ["1.jpg", "2.jpg", "3.jpg"]}], "all photos are held out"),
        ([CAT, 3], r"subjects\.1 must be a table, not 3"),
        ({"photos": "cat"}, "subjects must be a list"),
        ([CAT, "a dog"], "the subject 'a dog' is not understood"),
        ([CAT, "photos=dog,prompt=a,prompt=b"], "has two of prompt"),
        ([CAT, "photos=dog,prompt=zwx dog,f=1.8"], r"subjects\.1 has no field f"),
    ],
)
def test_what_is_wrong_with_a_subject_is_said_by_its_number(root: Path, subjects: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        planned(root, {"subjects": subjects})


@pytest.mark.parametrize("name", ["prompt", "class_prompt", "masks", "class_photos"])
def test_what_each_subject_has_of_its_own_is_refused_for_all(root: Path, name: str) -> None:
    with pytest.raises(BadInput, match=f"{name}:? must be left out with subjects"):
        planned(root, {"subjects": [CAT, DOG], name: "cat"})


def test_a_comma_belongs_to_a_value_unless_a_name_follows() -> None:
    assert parse_subject("photos=a,b,prompt=x, y = z,weight=1") == {
        "photos": "a,b",
        "prompt": "x, y = z",
        "weight": "1",
    }


def test_folders_of_subjects_are_below_that_of_their_recipe_or_the_current_one(root: Path) -> None:
    assert folder_of_subjects({"subjects": [CAT]}, str(root / "two.toml")) == str(root)
    assert folder_of_subjects({"subjects": [CAT]}, None) == "."
    with pytest.raises(BadInput, match="there are no photos"):
        folder_of_subjects({}, None)


@pytest.fixture
def kohya(tmp_path: Path) -> Path:
    photos = tmp_path / "kohya"
    for name in ("10_sks dog/1.jpg", "5_zwx cat/1.jpg", "5_zwx cat/2.jpg"):
        draw(photos / name, 512)
    return photos


def test_folders_named_like_kohyas_are_a_subject_each(kohya: Path) -> None:
    plan = planned(kohya, {})
    dog, cat = plan.spec.all_subjects
    assert [(each.folder, each.prompt, each.repeats) for each in (dog, cat)] == [
        ("sks dog", "sks dog", 10),
        ("zwx cat", "zwx cat", 5),
    ]
    assert names(plan.spec, "photos") == ["sks dog/1.jpg", "zwx cat/1.jpg", "zwx cat/2.jpg"]
    assert plan.notes == (
        f"each folder of {kohya} is a subject, with the repeats and the prompt of its name: 'sks dog' (10 repeats), "
        "'zwx cat' (5 repeats)",
    )
    assert plan.seen == (125, 250)


def test_with_a_prompt_they_are_photos_of_one_subject_as_before(kohya: Path) -> None:
    plan = planned(kohya, {"prompt": "a photo of sks dog"})
    assert not plan.spec.subjects and plan.notes == ()
    assert names(plan.spec, "photos") == ["10_sks dog/1.jpg", "5_zwx cat/1.jpg", "5_zwx cat/2.jpg"]


def test_class_photos_in_folders_like_kohyas_belong_to_the_subjects_of_their_words(kohya: Path, tmp_path: Path) -> None:
    for name in ("1_dog/1.jpg", "1_cat/1.jpg"):
        draw(tmp_path / "reg" / name, 512)
    spec = planned(kohya, {"class_photos": str(tmp_path / "reg"), "class_images": 1}).spec
    assert [(each.class_prompt, len(each.class_photos)) for each in spec.all_subjects] == [("dog", 1), ("cat", 1)]
    draw(tmp_path / "reg" / "1_bird" / "1.jpg", 512)
    with pytest.raises(BadInput, match="no folder of photos has the words 'bird'"):
        planned(kohya, {"class_photos": str(tmp_path / "reg")})


@pytest.mark.parametrize("other", ["loose.jpg", "birds/1.jpg", "0_bird/1.jpg", "3_/1.jpg"])
def test_where_folders_do_not_say_it_clearly_a_prompt_is_asked_for(kohya: Path, other: str) -> None:
    draw(kohya / other, 512)
    with pytest.raises(BadInput, match=f"such as 10_sks dog, but also {other.partition('/')[0]}") as refused:
        planned(kohya, {})
    assert "pass --prompt" in refused.value.hint


def test_two_folders_of_the_same_words_are_refused(kohya: Path) -> None:
    draw(kohya / "2_SKS dog" / "1.jpg", 512)
    with pytest.raises(BadInput, match=r"the folders 10_sks dog and 2_SKS dog of .* have the same words") as refused:
        planned(kohya, {})
    assert "--prompt" in refused.value.hint


def test_an_estimate_counts_the_classes_of_all_subjects(root: Path) -> None:
    spec = lora_of(read_recipe(str(root / "two.toml")), 9)
    assert [len(subject.photos) for subject in spec.all_subjects] == [5, 4]
    assert spec.class_images_drawn == 10 + 3 and spec.samples_per_step == 2
