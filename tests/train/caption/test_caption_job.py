"""A job that writes captions: by a tagger, by a captioner, interrupted, and with files that are not a model."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import AutoProcessor, BlipForConditionalGeneration

from gangline.core.errors import BadInput
from gangline.core.parsing import to_json
from gangline.core.runs.contract import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STOPPED, PROGRESS
from gangline.core.specs.caption import CaptionSpec
from gangline.core.specs.fields import FilesBase
from gangline.ports.server import RESULTS_MAX
from gangline.train.caption.captioner import after_prompt, whole_sentences
from gangline.train.caption.job import write_captions
from gangline.train.run.contract import Orders, RunDirectory
from tests.conftest import file_at
from tests.train.caption.models import TINY, WORDS, write_blip, write_llava, write_tagger

COLOURS = {"a.png": "red", "b.png": (0, 255, 0), "sub/c.jpg": "blue", "d.png": "white"}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name, colour in COLOURS.items():
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), colour).save(path)
    return tmp_path / "photos"


def lay_out(folder: Path, photos: Path, model: Path, **settings: Any) -> RunDirectory:
    files = tuple(file_at(path, photos) for path in sorted(photos.rglob("*.*")))
    of_model = FilesBase(files=tuple(file_at(path, model) for path in sorted(model.rglob("*")) if path.is_file()))
    spec = CaptionSpec(photos=files, model=of_model, **settings)
    (folder / "inputs").mkdir(parents=True)
    (folder / "inputs" / "photos").symlink_to(photos)
    (folder / "inputs" / "base").symlink_to(model)
    (folder / "spec.json").write_text(json.dumps(to_json(spec)))
    return RunDirectory(folder)


def captions(run: RunDirectory) -> dict[str, str]:
    assert [path.name for path in run.output.rglob("*")] == ["captions.jsonl"]
    lines = (run.output / "captions.jsonl").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return {line["photo"]: line["caption"] for line in map(json.loads, lines)}


def test_a_tagger_writes_the_tags_that_are_probable_enough_for_each_photo(tmp_path: Path, photos: Path) -> None:
    run = lay_out(tmp_path / "run", photos, TINY, prefix="sks, ", exclude=("o_o",))
    assert write_captions(run, Orders()) == EXIT_DONE
    assert captions(run) == {
        "a.png": "sks, mostly red",
        "b.png": "sks, mostly green",
        "d.png": "sks, mostly red, mostly green, mostly blue, papa smurf",
        "sub/c.jpg": "sks, mostly blue, papa smurf",
    }


def test_faces_keep_their_underscores_and_ratings_are_no_tags(tmp_path: Path, photos: Path) -> None:
    run = lay_out(tmp_path / "run", photos, TINY)
    write_captions(run, Orders())
    assert captions(run)["a.png"] == "mostly red, o_o"


def test_the_tiny_tagger_is_what_its_script_writes(tmp_path: Path) -> None:
    made = write_tagger(tmp_path)
    assert {path.name: path.read_bytes() for path in made.iterdir()} == {
        path.name: path.read_bytes() for path in TINY.iterdir()
    }


def test_an_interrupted_job_goes_on_after_the_photos_of_its_checkpoint(tmp_path: Path, photos: Path) -> None:
    run = lay_out(tmp_path / "run", photos, TINY)
    assert write_captions(run, Orders(stop=True)) == EXIT_STOPPED
    assert not run.output.exists() and [path.name for path in run.checkpoints.iterdir()] == ["000001"]
    (run.path / "resume").mkdir()
    (run.checkpoints / "000001").rename(run.path / "resume" / "000001")
    again = RunDirectory(run.path)
    (photos / "a.png").unlink()  # it is not read again
    assert write_captions(again, Orders()) == EXIT_DONE
    assert captions(again).keys() == set(COLOURS)


@pytest.mark.parametrize("damage", [lambda text: text[:-3], lambda text: text.replace("a.png", "z.png")])
def test_a_damaged_checkpoint_is_rejected(tmp_path: Path, photos: Path, damage: Callable[[str], str]) -> None:
    run = lay_out(tmp_path / "run", photos, TINY)
    write_captions(run, Orders(stop=True))
    file = run.checkpoints / "000001" / "captions.json"
    file.write_text(damage(file.read_text()))
    assert write_captions(RunDirectory(run.path), Orders()) == EXIT_DONE
    assert len(captions(run)) == len(COLOURS)


def test_a_job_that_is_to_finish_writes_the_captions_that_it_has(tmp_path: Path, photos: Path) -> None:
    run = lay_out(tmp_path / "run", photos, TINY)
    assert write_captions(run, Orders(stop=True)) == EXIT_STOPPED
    (run.path / "finish").touch()
    assert write_captions(RunDirectory(run.path), Orders()) == EXIT_DONE
    assert captions(run).keys() == {"a.png"}


def test_a_captioner_that_never_ends_is_stopped_after_its_tokens(tmp_path: Path, photos: Path) -> None:
    run = lay_out(tmp_path / "run", photos, write_blip(tmp_path / "blip"), tokens_max=7)
    assert write_captions(run, Orders()) == EXIT_DONE
    written = captions(run)
    assert len(written) == len(COLOURS)
    assert all(set(text.split()) <= set(WORDS) and 1 <= len(text.split()) <= 7 for text in written.values())


def test_the_result_is_one_file_also_of_more_photos_than_a_result_may_have_files(tmp_path: Path) -> None:
    names = [f"{number:04}.png" for number in range(RESULTS_MAX + 1)]
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8), "red").save(tmp_path / "photos" / names[0])
    for name in names[1:]:
        os.link(tmp_path / "photos" / names[0], tmp_path / "photos" / name)
    run = lay_out(tmp_path / "run", tmp_path / "photos", TINY, prefix="größer, ")
    assert write_captions(run, Orders()) == EXIT_DONE
    assert captions(run) == dict.fromkeys(names, "größer, mostly red, o_o")


def test_a_captioner_that_goes_on_with_a_text_loses_none_of_its_words(tmp_path: Path, photos: Path) -> None:
    model = write_blip(tmp_path / "blip")
    run = lay_out(tmp_path / "run", photos, model, tokens_max=6, instruction="a cat")
    assert write_captions(run, Orders()) == EXIT_DONE
    processor, loaded = AutoProcessor.from_pretrained(model), BlipForConditionalGeneration.from_pretrained(model).eval()
    inputs = processor(images=Image.new("RGB", (40, 40), "red"), text="a cat", return_tensors="pt")
    tokens = loaded.generate(**inputs, max_new_tokens=6, do_sample=False, num_beams=1)[0]
    whole = processor.decode(tokens, skip_special_tokens=True)
    assert len(whole.split()) == 2 + 6 and whole == f"a cat {captions(run)['a.png']}"


def test_a_captioner_is_loaded_once(tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, loaded = write_blip(tmp_path / "blip"), list[Path]()
    load = BlipForConditionalGeneration.from_pretrained

    def counting(folder: Path, **options: Any) -> Any:
        loaded.append(folder)
        return load(folder, **options)

    monkeypatch.setattr(BlipForConditionalGeneration, "from_pretrained", counting)
    assert write_captions(lay_out(tmp_path / "run", photos, model, tokens_max=2), Orders()) == EXIT_DONE
    assert len(loaded) == 1


@pytest.mark.parametrize(
    ("tokens", "prompt", "left"),
    [
        ([1, 2, 3, 7, 8], [1, 2, 3], [7, 8]),
        ([1, 2, 7, 8], [1, 2, 3], [7, 8]),
        ([7, 8], [1, 2, 3], [7, 8]),
        ([1], [1, 2], []),
    ],
)
def test_what_repeats_the_prompt_is_no_caption(tokens: list[int], prompt: list[int], left: list[int]) -> None:
    assert after_prompt(torch.tensor(tokens), torch.tensor(prompt)).tolist() == left


def test_a_captioner_takes_instructions_by_its_own_template(tmp_path: Path, photos: Path) -> None:
    model = write_llava(tmp_path / "llava")
    said = {}
    for number, instruction in enumerate(("", "red blue")):
        run = lay_out(tmp_path / f"run-{number}", photos, model, tokens_max=6, instruction=instruction)
        assert write_captions(run, Orders()) == EXIT_DONE
        said[instruction] = captions(run)
    assert said[""] != said["red blue"]
    assert "<image>" not in str(said)


def test_a_caption_that_was_cut_ends_with_its_last_whole_sentence() -> None:
    assert whole_sentences("A cat sits. It is red. The dog") == "A cat sits. It is red."
    assert whole_sentences("A cat at 3.5 m") == "A cat at 3.5 m"


def test_a_model_that_hangs_ends_the_run_with_a_sentence(tmp_path: Path, photos: Path) -> None:
    run = lay_out(tmp_path / "run", photos, TINY, photo_s=0.5)
    (photos / "a.png").unlink()
    os.mkfifo(photos / "a.png")  # whoever opens it waits for ever
    program = (sys.executable, "-m", "gangline.train.caption", str(run.path))
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ended.returncode == EXIT_BAD_INPUT, ended.stderr
    last = json.loads((run.path / PROGRESS).read_text().splitlines()[-1])
    assert last == {"failure": {"kind": "bad data", "because": "the model took longer than 0.5 s for a.png"}}


def test_a_tagger_of_another_shape_is_refused(tmp_path: Path, photos: Path) -> None:
    model = write_tagger(tmp_path / "model", shape=("N", "H", "W", 3))
    with pytest.raises(BadInput, match="inputs of another shape"):
        write_captions(lay_out(tmp_path / "run", photos, model), Orders())


def test_a_tagger_with_too_few_tags_or_no_table_is_refused(tmp_path: Path, photos: Path) -> None:
    model = write_tagger(tmp_path / "model")
    (model / "selected_tags.csv").write_text("tag_id,name,category\n1,a,0\n")
    with pytest.raises(BadInput, match="gives 6 probabilities, but its table has 1 tags"):
        write_captions(lay_out(tmp_path / "run", photos, model), Orders())
    (model / "selected_tags.csv").write_text("1,a,0\n2,b,0\n")
    with pytest.raises(BadInput, match=r"the table of tags selected_tags.csv cannot be read"):
        write_captions(lay_out(tmp_path / "again", photos, model), Orders())


def test_files_that_are_not_a_model_are_refused_with_a_sentence(tmp_path: Path, photos: Path) -> None:
    model = write_tagger(tmp_path / "model")
    (model / "model.onnx").write_bytes(b"no model")
    with pytest.raises(BadInput, match="the tagger cannot be used: "):
        write_captions(lay_out(tmp_path / "run", photos, model), Orders())
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    (other / "model.safetensors").write_bytes(b"none")
    with pytest.raises(BadInput, match="the captioner cannot be used: "):
        write_captions(lay_out(tmp_path / "third", photos, other), Orders())
