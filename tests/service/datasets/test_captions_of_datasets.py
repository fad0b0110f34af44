"""`gangline captions` on a data set: a changed caption makes a new version, which shares the photos."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from gangline import Client
from gangline.core.files import File
from gangline.ports.server import Done, Stale, Succeeded, Uploads
from gangline.service.jobs import checkpoint
from gangline.service.jobs.finish import finish
from tests.conftest import ROOT, Typed, as_upload
from tests.service.conftest import PROJECT
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


def detached(typed: Typed, *words: object) -> str:
    code, job, err = typed("captions", "write", *words, "--model", TAGGER, "--detach")
    again = " ".join(map(str, (*words[:1], "--job", job.strip(), *words[1:])))
    assert code == 0 and f"gangline captions import {again}" in err, err
    return job.strip()


def finished(sets: Sets, captions: dict[str, str]) -> None:
    """A node claims the oldest job, and its result has these captions."""
    service, lines = sets.service, (json.dumps({"photo": photo, "caption": text}) for photo, text in captions.items())
    content = "".join(f"{line}\n" for line in lines).encode()
    node = service.join()
    hold = service.claim(node).hold
    file = File(path="captions.jsonl", bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    asked = Uploads(folder="output", files=(as_upload(file, content),))
    grants = checkpoint.sign_uploads(service.deployment, node, hold, asked, service.now_ms)
    assert not isinstance(grants, Stale)
    service.put(grants.files[0], content)
    assert finish(service.deployment, node, hold, Succeeded(output=(file,)), service.now_ms) == Done()


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


def test_the_model_that_comes_with_gangline_is_found_from_any_folder(
    timber: Sets, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, job, err = typed("captions", "write", "timber", "--model", "assets/tiny-tagger", "--detach")
    assert code == 0, err
    assert "assets/tiny-tagger is not in this folder, so the one that comes with Gangline is used" in err
    spec = json.loads(timber.service.look(f"SELECT spec FROM job WHERE id = '{job.strip()}'")[0]["spec"])
    assert [file["path"] for file in spec["model"]["files"]] == ["model.onnx", "selected_tags.csv"]


def test_captions_that_are_the_same_make_no_version(timber: Sets, typed: Typed, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(exported(typed, "timber@1"))
    assert "0 captions changed" in typed("captions", "import", "timber", table)[2]
    assert typed("captions", "export", "timber@2")[0] == 2


def test_a_job_of_captions_names_the_version_and_the_photos_that_have_none(timber: Sets, typed: Typed) -> None:
    code, job, err = typed("captions", "write", "timber", "--model", TAGGER, "--detach")
    assert code == 0, err
    assert f"gangline captions import timber --job {job.strip()}" in err
    spec = json.loads(timber.service.look(f"SELECT spec FROM job WHERE id = '{job.strip()}'")[0]["spec"])
    assert spec["kind"] == "caption" and [photo["path"] for photo in spec["photos"]] == ["c.png"]
    assert "has written no captions for these photos" in typed("captions", "import", "timber", "--job", job.strip())[2]
    assert "timber@1" in typed("jobs", "show", job.strip())[1]
    code, _, err = typed("datasets", "rm", "timber@1", "--yes")
    assert code == 2 and job.strip() in err


def test_captions_of_a_job_are_taken_over_into_a_new_version(timber: Sets, typed: Typed) -> None:
    job = detached(typed, "timber")
    finished(timber, {"c.png": "mostly red"})
    code, _, err = typed("captions", "import", "timber", "--job", job)
    assert code == 0 and "1 caption changed" in err
    assert exported(typed, "timber@2") == "photo,caption\na.png,a dog\nb.png,a cat\nc.png,mostly red\n"


def test_captions_of_a_job_leave_those_that_a_person_wrote_meanwhile(
    timber: Sets, typed: Typed, tmp_path: Path
) -> None:
    job = detached(typed, "timber", "--overwrite")
    (tmp_path / "t.csv").write_text("photo,caption\na.png,\nc.png,mine\n")
    assert typed("captions", "import", "timber", tmp_path / "t.csv")[0] == 0
    finished(timber, {"a.png": "one", "b.png": "two", "c.png": "three"})
    code, _, err = typed("captions", "import", "timber", "--job", job)
    assert code == 0 and "2 photos have captions by now and keep them; --overwrite replaces them" in err
    assert exported(typed, "timber@3") == "photo,caption\na.png,one\nb.png,a cat\nc.png,mine\n"
    code, _, err = typed("captions", "import", "timber", "--job", job, "--overwrite")
    assert code == 0 and "2 captions changed" in err
    assert exported(typed, "timber@4") == "photo,caption\na.png,one\nb.png,two\nc.png,three\n"


def test_captions_of_a_job_leave_files_that_a_person_wrote_meanwhile(
    served: Sets, typed: Typed, tmp_path: Path
) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, name in enumerate(("a.png", "b.png")):
        (folder / name).write_bytes(picture(number))
    job = detached(typed, folder)
    (folder / "a.txt").write_text("mine\n")
    finished(served, {"a.png": "one", "b.png": "größer"})
    code, _, err = typed("captions", "import", folder, "--job", job)
    assert code == 0 and "1 photo has a caption by now and keeps it" in err and "1 caption changed" in err
    assert (folder / "a.txt").read_text() == "mine\n"
    assert (folder / "b.txt").read_text(encoding="utf-8") == "größer\n"
    assert typed("captions", "import", folder, "--job", job, "--overwrite")[0] == 0
    assert (folder / "a.txt").read_text() == "one\n"


def test_a_job_of_another_kind_has_no_captions(timber: Sets, typed: Typed) -> None:
    job = timber.submit(photos="timber").json()["summary"]["id"]
    code, _, err = typed("captions", "import", "timber", "--job", job)
    assert code == 2 and f"{job} is of the kind lora: it writes no captions" in err


def test_a_caption_that_stands_in_metadata_is_not_said_to_be_gone(timber: Sets, typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("photo,caption\nb.png,\n")
    code, _, err = typed("captions", "import", "timber", tmp_path / "t.csv")
    assert code == 0 and "0 captions changed" in err and "captions export timber@1" in err
    assert "note: b.png keeps the caption that" in err and "metadata.jsonl" in err
    assert typed("captions", "export", "timber@2")[0] == 2, "nothing differs, so there is no new version"


def test_many_changed_files_make_the_version_that_few_would(timber: Sets) -> None:
    content = b"a dog"
    timber.upload(content)
    put = [File(**named(f"{number:05}{'x' * 200}.txt", content)) for number in range(3_200)]
    with Client() as client:
        assert sum(len(file.path) + len(file.sha256) for file in put) > 850_000
        made = client.datasets.change("timber", 1, put=put, remove=["a.txt"])
        assert (made.number, made.photos, made.captions) == (2, 3, 3_201)
        few = client.datasets.change("timber", 1, put=put[:2], remove=["a.txt"])
        assert (few.number, few.captions) == (3, 3)


def test_a_job_of_captions_may_be_for_some_photos_of_a_data_set_only(timber: Sets) -> None:
    files = {"model.onnx": b"tagger", "tags.csv": b"name,category"}
    timber.upload(*files.values())
    model = {"files": [named(path, content) for path, content in files.items()]}

    def submitted(**wanted: object) -> Any:
        wanted = {"kind": "caption", "photos": "timber", "model": model} | wanted
        return timber.service.ask("POST", "/v1/jobs", json=wanted)

    answer = submitted(only=["c.png", "a.png", "c.png"])
    assert answer.status_code == 201 and answer.json()["dataset"] == "timber@1", answer.text
    assert [photo["path"] for photo in answer.json()["spec"]["photos"]] == ["c.png", "a.png"]
    assert len(submitted(only=[]).json()["spec"]["photos"]) == 3
    for only, says in (
        (["z.png"], "only: z.png is not a photo of timber@1"),
        ("a.png", "only: it is not a list of paths"),
    ):
        answer = submitted(only=only)
        assert answer.status_code == 422 and says in answer.json()["detail"]
    assert submitted(only=["a.png"], photos=[named("a.png", picture(0))]).status_code == 422


def test_a_job_of_captions_may_name_a_data_set(timber: Sets) -> None:
    files = {"model.onnx": b"tagger", "tags.csv": b"name,category"}
    timber.upload(*files.values())
    model = {"files": [named(path, content) for path, content in files.items()]}
    answer = timber.service.ask("POST", "/v1/jobs", json={"kind": "caption", "photos": "timber@1", "model": model})
    assert answer.status_code == 201, answer.text
    assert [photo["path"] for photo in answer.json()["spec"]["photos"]] == ["a.png", "b.png", "c.png"]
    assert answer.json()["dataset"] == "timber@1"


def test_an_operator_says_in_which_project_the_captions_and_the_jobs_are(
    timber: Sets, typed: Typed, tmp_path: Path
) -> None:
    timber.service.add_project("other")
    (tmp_path / "t.csv").write_text("photo,caption\nc.png,mine\n")
    for words in (("export", "timber@1"), ("import", "timber@1", tmp_path / "t.csv"), ("edit", "timber@1")):
        code, _, err = typed("captions", *words, "--project", "other")
        assert code == 2 and "there is no data set timber" in err
    code, _, err = typed("captions", "import", "timber@1", tmp_path / "t.csv", "--project", PROJECT)
    assert code == 0 and f"gangline captions export timber@2 --project {PROJECT}" in err
    timber.submit(photos="timber@1")
    found = {of: json.loads(typed("report", "-o", "json", "--project", of)[1])["jobs"] for of in (PROJECT, "other")}
    assert found == {PROJECT: {"queued": 1}, "other": {}}
