"""Before anything is handed in it is known what will be done, and whether it can be."""

import json
import math
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gangline.cli.jobs.plan.files import LocalFiles
from gangline.cli.jobs.plan.lora import CaptionCounts, LoraDocument, SizeCount, lora_document
from gangline.cli.jobs.plan.make import JobInputs, LoraPlan, find_lora, make_plan
from gangline.cli.jobs.train import plan_lora, read_recipe
from gangline.core.errors import BadInput
from gangline.core.models import families
from gangline.core.models.recognition import RecognisedModel
from gangline.core.parsing import InvalidSpec
from gangline.core.plans.document import Answer
from gangline.core.plans.rows import base_rows
from gangline.core.specs.fields import FilesBase, HubBase
from tests.conftest import BASE

HUB = "somebody/model@v1"
SD15 = RecognisedModel(
    family=families.SD15, prediction_type="epsilon", zero_terminal_snr=False, layout="diffusers", because=""
)
SETTINGS: dict[str, Any] = {"prompt": "a photo of sks dog", "resolution": 512}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three photos of several shapes, one of them in a folder that counts twice; one caption, one mask, something else."""
    photos = tmp_path / "photos"
    for name, size in (("a.jpg", (800, 800)), ("b.png", (1200, 800)), ("2_sks dog/c.png", (800, 1600))):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, "red").save(photos / name)
    (photos / "a.txt").write_text("sks dog on a beach")
    (photos / "film.mp4").write_bytes(b"film")
    (tmp_path / "masks").mkdir()
    Image.new("L", (400, 400), 255).save(tmp_path / "masks" / "a.png")
    return photos


def planned(photos: Path, base: str = HUB, **given: Any) -> LoraPlan:
    settings = SETTINGS | {name: given.pop(name) for name in list(given) if name not in JobInputs.__dataclass_fields__}
    return make_plan(JobInputs(photos=photos, base=base, **given), settings)


def rows(plan: LoraPlan) -> dict[str, str]:
    return dict(plan.rows())


def test_a_plan_says_what_will_be_done(folder: Path) -> None:
    plan = planned(folder, aspect_buckets=True, steps=40, flip=True, train_text_encoder=True)
    assert rows(plan) == {
        "photos": "3 to train on",
        "captions": "their own for 2 photos and the prompt for 1 photo",
        "cut to": "384 × 640 (1), 512 × 512 (1), 640 × 384 (1), mirrored too",
        "steps": "40 steps, batch size 1 (photos are seen 10 to 20 times)",
        "LoRA": "rank 16 in the U-Net and the text encoders",
    }
    assert plan.notes == ("film.mp4 is skipped: not an image",)


def document(plan: LoraPlan) -> LoraDocument:
    return lora_document(plan, Answer(placed=None, why_not="nobody was asked"))


def test_a_base_on_this_machine_is_said_to_be_what_it_is(folder: Path) -> None:
    found = document(planned(folder, base=str(BASE)))
    assert (found.base.family, found.base.prediction_type, found.base.gated) == ("sdxl", "v_prediction", None)
    assert dict(base_rows(found))["base"].startswith("SDXL, 7.7 MB, licence apache-2.0, predicts v_prediction (")


def test_a_plan_as_data_has_numbers_where_numbers_are(folder: Path) -> None:
    found = document(planned(folder, aspect_buckets=True, steps=40, batch_size=3, hold_out=("b.png",)))
    assert (found.photos, found.held_out, found.captions) == (2, 1, CaptionCounts(own=2, prompt=0))
    assert found.sizes == (SizeCount(width=384, height=640, photos=1), SizeCount(width=512, height=512, photos=1))
    assert (found.steps, found.batch_size, found.seen_least, found.seen_most) == (40, 3, 40, 80)
    assert (found.asked, found.nodes, found.time, found.usd) == ("nobody was asked", (), None, None)


def test_a_hub_that_does_not_answer_is_said_in_one_row_and_holds_nothing_up(folder: Path) -> None:
    found = document(planned(folder))
    assert "HF_HUB_OFFLINE is set" in found.base.unknown
    assert base_rows(found) == [("base", f"somebody/model at v1 (it could not be looked up: {found.base.unknown})")]


def test_the_spec_of_a_plan_names_every_file(folder: Path) -> None:
    spec = planned(folder, hold_out=("b.png",)).spec
    assert spec.base == HubBase(repo="somebody/model", revision="v1")
    assert [file.path for file in spec.photos] == ["2_sks dog/c.png", "a.jpg"]
    assert [file.path for file in spec.held_out] == ["b.png"]
    assert [file.path for file in spec.captions] == ["a.txt"]


def test_photos_of_the_class_are_uploaded_with_their_captions_and_the_base_draws_the_rest(
    folder: Path, tmp_path: Path
) -> None:
    of_class = tmp_path / "dogs"
    of_class.mkdir()
    for name in ("x.jpg", "y.png"):
        Image.new("RGB", (600, 600), "blue").save(of_class / name)
    (of_class / "x.txt").write_text("a brown dog")
    (of_class / "notes.pdf").write_bytes(b"%PDF")
    plan = planned(folder, class_photos=str(of_class), class_prompt="a photo of a dog", class_images=10)
    assert rows(plan)["class"] == "2 photos of your own and 8 pictures that the base makes of 'a photo of a dog'"
    assert [file.path for file in plan.spec.class_photos] == ["x.jpg", "y.png"]
    assert [file.path for file in plan.spec.class_captions] == ["x.txt"]
    assert "notes.pdf is skipped: not an image" in plan.notes
    assert plan.files_count == 3 + 1 + 2 + 1
    enough = planned(folder, class_photos=str(of_class), class_prompt="a photo of a dog", class_images=2)
    assert rows(enough)["class"] == "2 photos of your own"
    with pytest.raises(InvalidSpec, match="need a class_prompt: set it to what the photos show"):
        planned(folder, class_photos=str(of_class))
    with pytest.raises(BadInput, match="there is no folder"):
        planned(folder, class_photos=str(tmp_path / "nowhere"), class_prompt="a dog")


def test_masks_are_found_by_the_names_of_photos(folder: Path) -> None:
    (folder.parent / "masks" / "z.png").write_bytes(b"nobody's")
    plan = planned(folder, masks=str(folder.parent / "masks"))
    assert (plan.spec.mask, [file.path for file in plan.spec.masks]) == ("files", ["a.png"])
    assert set(plan.notes) >= {"b.png has no mask, so the loss counts all of it", "z.png does not belong to any photo"}
    assert rows(plan)["masks"] == "1 for 3 photos"


def test_a_mask_that_is_no_picture_or_has_another_shape_is_refused(folder: Path) -> None:
    masks = folder.parent / "masks"
    Image.new("L", (400, 300)).save(masks / "a.png")
    with pytest.raises(BadInput, match=r"the mask a\.png is 400 × 300, its photo 800 × 800"):
        planned(folder, masks=str(masks))
    (masks / "a.png").write_bytes(b"")
    with pytest.raises(BadInput, match=r"a\.png is not an image"):
        planned(folder, masks=str(masks))
    (masks / "a.png").unlink()
    for nowhere in (masks, masks / "none"):
        with pytest.raises(BadInput, match="mask"):
            planned(folder, masks=str(nowhere))


def test_of_opaque_photos_it_is_told_that_all_of_them_counts(folder: Path) -> None:
    picture = Image.new("RGBA", (600, 600), (255, 0, 0, 0))
    picture.save(folder / "d.png")
    told = planned(folder, mask="alpha").notes
    assert [sentence.split(" ")[0] for sentence in told if "is opaque" in sentence] == ["c.png", "a.jpg", "b.png"]


def safetensors(path: Path, **shapes: tuple[int, ...]) -> Path:
    """Tensors of zeros, by names with `__` for a dot."""
    entries: dict[str, object] = {}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * math.prod(shape)
        entries[name.replace("__", ".")] = {"dtype": "F16", "shape": shape, "data_offsets": [start, end]}
    header = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(end))
    return path


def test_a_lora_to_go_on_from_is_one_of_the_bases_family(folder: Path) -> None:
    name = "unet__down_blocks__0__attn2__to_k__lora_A__weight"
    file = safetensors(folder.parent / "old.safetensors", **{name: (4, 768)})
    assert find_lora(file, None) == find_lora(file, SD15) == LocalFiles(folder.parent, [file])
    with pytest.raises(BadInput, match=r"old\.safetensors is a LoRA of Stable Diffusion 1, and the base is SDXL"):
        find_lora(file, replace(SD15, family=families.SDXL))
    lora = planned(folder, init_lora=str(file)).spec.init_lora
    assert lora is not None
    assert lora.path == "old.safetensors"


def test_what_is_no_lora_is_refused_by_name(folder: Path) -> None:
    safetensors(folder / "base.safetensors", unet__weight=(1, 1))
    safetensors(folder / "loha.safetensors", lora_unet_x__hada_w1_a=(2, 2), lora_unet_x__alpha=())
    (folder / "old.pt").write_bytes(b"0")
    (folder / "cut.safetensors").write_bytes(b"0")
    for wrong in ("old.pt", "none.safetensors", "base.safetensors", "loha.safetensors", "cut.safetensors"):
        with pytest.raises(BadInput, match=wrong) as refused:
            find_lora(folder / wrong, None)
        assert refused.value.hint


def test_what_the_trainer_would_refuse_of_a_known_base_is_refused_before(folder: Path) -> None:
    with pytest.raises(BadInput, match="zero_terminal_snr needs a base that predicts velocity"):
        planned(folder, base=str(BASE), zero_terminal_snr=True, prediction_type="epsilon")
    with pytest.raises(BadInput, match="clip_skip 2 is for Stable Diffusion 1 and 2: SDXL always reads"):
        planned(folder, base=str(BASE), clip_skip=2)
    assert planned(folder, zero_terminal_snr=True).spec.zero_terminal_snr
    assert planned(folder, base=str(BASE), zero_terminal_snr=True)


def test_a_vae_of_its_own_is_uploaded_too(folder: Path) -> None:
    vae = folder.parent / "vae"
    vae.mkdir()
    (vae / "config.json").write_text("{}")
    safetensors(vae / "diffusion_pytorch_model.safetensors", weight=(1,))
    plan = planned(folder, vae=str(vae))
    assert isinstance(plan.spec.vae, FilesBase)
    assert isinstance(plan.models["vae"], LocalFiles)
    assert isinstance(planned(folder, vae=HUB).spec.vae, HubBase)


def test_a_wrong_setting_is_told_before_photos_are_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="steps"):
        planned(tmp_path / "nowhere", steps=0)


def test_a_lora_for_several_gpus_is_refused_before_photos_are_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="a LoRA trains on one GPU") as refused:
        planned(tmp_path / "nowhere", needs={"slots": "4"})
    assert "leave slots out" in refused.value.hint


def test_a_caption_that_is_wrong_is_told_by_file_and_line(folder: Path) -> None:
    (folder / "metadata.jsonl").write_text('{"file_name": "a.jpg", "text": "x"}\n{')
    with pytest.raises(BadInput, match=r"line 2 of metadata\.jsonl is not JSON"):
        planned(folder)


def test_not_every_photo_is_held_out(folder: Path) -> None:
    with pytest.raises(BadInput, match="all photos are held out"):
        planned(folder, hold_out=("a.jpg", "b.png", "2_sks dog/c.png"))
    with pytest.raises(BadInput, match=r"the photo to hold out, x\.png, is not in"):
        planned(folder, hold_out=("x.png",))


def test_a_recipe_may_name_what_lies_in_files(folder: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        f'class_prompt = "dog"\nclass_photos = "{folder}"\n'
        f'prompt = "sks dog"\nbase = "{HUB}"\nmasks = "{folder.parent / "masks"}"\nhold_out = ["b.png"]\n'
    )
    spec = plan_lora(folder, read_recipe(recipe)).spec
    assert (spec.mask, len(spec.held_out), spec.base.id) == ("files", 1, "hub:somebody/model@v1")
    assert len(spec.class_photos) == 3


@pytest.mark.parametrize(
    "wrong", [{"base": 3}, {"hold_out": "b.png"}, {"hold_out": [1]}, {"masks": ["x"]}, {"class_photos": 1}, {"vae": {}}]
)
def test_a_recipe_whose_paths_are_none_is_refused(folder: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        plan_lora(folder, SETTINGS | {"base": HUB} | wrong)


@pytest.mark.parametrize("name", ["photos/b.txt", "masks/b.png"])
def test_a_plan_follows_no_link_out_of_the_folder(folder: Path, name: str) -> None:
    Image.new("L", (600, 400)).save(folder.parent / "elsewhere.png")
    (folder.parent / name).symlink_to(folder.parent / "elsewhere.png")
    with pytest.raises(BadInput, match=f"{name.rpartition('/')[2]} is a link that leads out of"):
        planned(folder, masks=str(folder.parent / "masks"))


@pytest.mark.parametrize("name", ["model_index.json", "unet/config.json"])
def test_a_base_whose_configuration_is_nested_too_deeply_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    base = shutil.copytree(BASE, tmp_path / "base")
    (base / name).write_text('{"a": ' * 100_000)
    with pytest.raises(BadInput, match=f"{name.rpartition('/')[2]} of the base cannot be read"):
        planned(folder, str(base))


def test_a_lora_whose_header_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    header = b'{"a": ' * 100_000
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(BadInput, match=r"x\.safetensors is not a safetensors"):
        find_lora(tmp_path / "x.safetensors", None)


def test_a_loss_of_held_out_photos_can_be_measured_while_training(folder: Path) -> None:
    settings = {"base": str(BASE), "prompt": "p", "hold_out": ["b.png"], "held_out_every_steps": 10, "resolution": 64}
    spec = plan_lora(folder, settings).spec
    assert ([file.path for file in spec.held_out], spec.held_out_every_steps) == (["b.png"], 10)
    with pytest.raises(InvalidSpec, match="needs held-out photos"):
        plan_lora(folder, {name: value for name, value in settings.items() if name != "hold_out"})
