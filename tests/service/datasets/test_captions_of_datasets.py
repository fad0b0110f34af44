"""`gangline captions` on a data set: a changed caption makes a new version, which shares the photos."""

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT, Typed
from tests.service.datasets.conftest import Sets, named, picture
from tests.service.datasets.test_cli_datasets import pushed, served

__all__ = ("served",)
TAGGER = ROOT / "assets" / "tiny-tagger"


@pytest.fixture
def timber(served: Sets, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sets:
    """A data set with a caption in a file, one in metadata.jsonl, and none."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, name in enumerate(("a.png", "b.png", "c.png")):
        (folder / name).write_bytes(picture(number))
    (folder / "a.txt").write_text("a dog")
    (folder / "metadata.jsonl").write_text('{"file_name": "b.png", "text": "a cat"}\n')
    pushed(typed, folder, "--name", "timber")
    served.check()
    monkeypatch.setattr("gangline.wire.client.datasets.sleep", lambda _seconds: served.check())
    return served


def exported(typed: Typed, reference: str) -> str:
    code, out, err = typed("captions", "export", reference)
    assert code == 0, err
    return out


def test_changed_captions_make_a_new_version_and_the_old_one_stays(timber: Sets, typed: Typed, tmp_path: Path) -> None:
    assert exported(typed, "timber@1") == "photo,caption\na.png,a dog\nb.png,a cat\nc.png,\n"
    table = tmp_path / "t.csv"
    table.write_text("photo,caption\na.png,\nb.png,a wolf\nc.png,'=1+1\n")
    code, _, err = typed("captions", "import", "timber", table)
    assert code == 0 and "3 captions changed; `gangline captions export timber@2` prints all" in err
    assert exported(typed, "timber@2") == "photo,caption\na.png,\nb.png,a wolf\nc.png,'=1+1\n"
    assert exported(typed, "timber@1").startswith("photo,caption\na.png,a dog\n")


def test_captions_of_an_older_version_say_which_newer_one_is_not_in_the_new_one(
    timber: Sets, typed: Typed, tmp_path: Path
) -> None:
    table = tmp_path / "t.csv"
    for caption in ("a wolf", "a fox"):
        table.write_text(f"photo,caption\na.png,{caption}\n")
        code, _, err = typed("captions", "import", "timber@1", table)
        assert code == 0, err
    assert "timber@3 begins from timber@1; timber@2 is not in it" in err


def test_captions_that_are_the_same_make_no_version(timber: Sets, typed: Typed, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(exported(typed, "timber@1"))
    assert "0 captions changed" in typed("captions", "import", "timber", table)[2]
    assert typed("captions", "export", "timber@2")[0] == 2


def test_a_job_of_captions_names_the_photos_that_have_none_and_sends_none_of_them(timber: Sets, typed: Typed) -> None:
    code, job, err = typed("captions", "write", "timber", "--model", TAGGER, "--detach")
    assert code == 0, err
    assert f"gangline captions import timber --job {job.strip()}" in err
    spec = json.loads(timber.service.look(f"SELECT spec FROM job WHERE id = '{job.strip()}'")[0]["spec"])
    assert spec["kind"] == "caption" and [photo["path"] for photo in spec["photos"]] == ["c.png"]
    assert "has written no captions for these photos" in typed("captions", "import", "timber", "--job", job.strip())[2]


def test_a_job_of_captions_may_name_a_data_set(timber: Sets) -> None:
    files = {"model.onnx": b"tagger", "tags.csv": b"name,category"}
    timber.upload(*files.values())
    model = {"files": [named(path, content) for path, content in files.items()]}
    answer = timber.service.ask("POST", "/v1/jobs", json={"kind": "caption", "photos": "timber@1", "model": model})
    assert answer.status_code == 201, answer.text
    assert [photo["path"] for photo in answer.json()["spec"]["photos"]] == ["a.png", "b.png", "c.png"]
    assert answer.json()["dataset"] == "timber@1"
