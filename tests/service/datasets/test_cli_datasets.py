"""`gangline datasets`, and `gangline train NAME@VERSION`: typed on a terminal, over a real socket."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from gangline import Client, train_lora
from gangline.core.errors import BadInput, Damaged, Unreachable
from gangline.core.files import Signed
from gangline.core.specs.spec import parse_spec
from tests.conftest import BASE, Typed
from tests.service.conftest import OPERATOR
from tests.service.datasets.conftest import Sets, picture
from tests.service.served import serving

PROMPT = ("--prompt", "a photo of sks dog", "--steps", "5", "--resolution", "64")


@pytest.fixture
def served(sets: Sets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sets]:
    with serving(sets.service.app) as at:
        monkeypatch.setenv("GANGLINE_SERVER", at.url)
        monkeypatch.setenv("GANGLINE_TOKEN", OPERATOR)
        monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "client"))
        yield sets


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "timber"
    (folder / "10_sks dog").mkdir(parents=True)
    (folder / "masks" / "10_sks dog").mkdir(parents=True)
    (folder / "a.png").write_bytes(picture(1))
    (folder / "a.txt").write_text("sks dog on a lawn")
    (folder / "10_sks dog" / "b.png").write_bytes(picture(2))
    (folder / "masks" / "10_sks dog" / "b.png").write_bytes(picture(3))
    (folder / "notes.pdf").write_bytes(b"not for training")
    return folder


def pushed(typed: Typed, photos: Path, *words: str) -> tuple[str, str]:
    code, out, err = typed("datasets", "push", photos, "--detach", *words)
    assert code == 0, err
    return out.strip(), err


def test_a_push_says_what_it_sent_and_the_next_one_sends_what_is_new(served: Sets, typed: Typed, photos: Path) -> None:
    out, err = pushed(typed, photos)
    assert out == "timber@1: 2 photos, 1 caption file, 1 mask, 441 B; 4 uploaded, 0 were stored already", out
    assert "notes.pdf is skipped: not an image" in err and "nothing was added" not in err
    assert "timber@1 has these photos already; nothing was added" in pushed(typed, photos)[1]
    (photos / "c.png").write_bytes(picture(4))
    assert pushed(typed, photos)[0].endswith("; 1 uploaded, 4 were stored already")
    assert pushed(typed, photos)[0].startswith("timber@2: 3 photos") and pushed(typed, photos, "--name", "other")[
        0
    ].startswith("other@1")


def test_a_push_waits_for_the_check_and_says_what_it_found(
    served: Sets, typed: Typed, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.wire.client.datasets.sleep", lambda _seconds: served.check())
    (photos / "d.png").write_bytes(picture(1))
    code, out, err = typed("datasets", "push", photos)
    assert code == 0, err
    assert "1 pair of photos look alike: a.png with d.png" in err
    assert "3 photos are smaller than 512 pixels: 10_sks dog/b.png (16), a.png (16) and d.png (16)" in err
    assert "gangline train timber@1 --prompt" in err
    (photos / "d.png").write_bytes(b"words")
    code, out, err = typed("datasets", "push", photos, "-o", "json")
    assert code == 2 and "timber@2 cannot be used: d.png is not an image" in err
    assert json.loads(out)["version"]["state"] == "refused"


def test_a_zip_is_pushed_as_its_folder_and_one_that_escapes_is_refused(
    served: Sets, typed: Typed, photos: Path, tmp_path: Path
) -> None:
    first = pushed(typed, photos)[0]
    with ZipFile(tmp_path / "packed.zip", "w") as packed:
        for path in photos.rglob("*.*"):
            packed.write(path, f"timber/{path.relative_to(photos)}")
    again = pushed(typed, tmp_path / "packed.zip", "--name", "timber")[0]
    assert again.startswith(first.partition(";")[0]) and "0 uploaded, 4 were" in again
    with ZipFile(tmp_path / "bad.zip", "w") as packed:
        packed.writestr("../a.png", picture(1))
    code, _, err = typed("datasets", "push", tmp_path / "bad.zip")
    assert code == 2 and "leads out of it" in err


def test_a_data_set_is_listed_shown_and_removed(
    served: Sets, typed: Typed, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    pushed(typed, photos)
    served.check()
    code, out, _ = typed("datasets", "ls")
    assert code == 0 and "timber@1" in out and "ready" in out
    assert json.loads(typed("datasets", "ls", "-o", "json")[1])[0]["newest"]["photos"] == 2
    assert "timber@1" in typed("datasets", "show", "timber")[1]
    shown = typed("datasets", "show", "timber@1")[1]
    assert "2 photos, 1 caption file, 1 mask" in shown and "smaller than 512 pixels" in shown
    code, _, err = typed("datasets", "rm", "timber@7")
    assert code == 2 and "there is no version timber@7" in err
    code, _, err = typed("datasets", "rm", "timber")
    assert code == 2 and "timber@1: 4 files, 441 B" in err and "--yes" in err
    code, out, err = typed("datasets", "rm", "timber", "--yes")
    assert code == 0 and "timber is removed" in err
    code, _, err = typed("datasets", "show", "timber")
    assert code == 2 and "there is no data set timber" in err


def test_a_pull_brings_every_file_as_it_was_and_none_twice(
    served: Sets, typed: Typed, photos: Path, tmp_path: Path
) -> None:
    pushed(typed, photos)
    served.check()
    code, out, err = typed("datasets", "pull", "timber", tmp_path / "pulled")
    assert code == 0, err
    assert "4 files, 441 B; 4 downloaded, 0 were there already" in out
    (photos / "notes.pdf").unlink()
    for path in photos.rglob("*.*"):
        assert (tmp_path / "pulled" / path.relative_to(photos)).read_bytes() == path.read_bytes()
    (tmp_path / "pulled" / "a.png").write_bytes(b"damaged".ljust(len(picture(1))))
    assert "1 downloaded, 3 were there already" in typed("datasets", "pull", "timber@1", tmp_path / "pulled")[1]
    assert pushed(typed, tmp_path / "pulled", "--name", "timber")[0].startswith("timber@1"), "it is the same version"


def test_a_pull_writes_nothing_outside_its_folder(served: Sets, typed: Typed, photos: Path, tmp_path: Path) -> None:
    pushed(typed, photos)
    served.check()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "pulled").mkdir()
    (tmp_path / "pulled" / "10_sks dog").symlink_to(tmp_path / "elsewhere")
    code, _, err = typed("datasets", "pull", "timber", tmp_path / "pulled")
    assert code == 2 and "is a link that leads out of" in err
    assert list((tmp_path / "elsewhere").iterdir()) == []
    served.service.execute("UPDATE dataset_file SET path = '../outside.png' WHERE path = 'a.png'")
    with Client() as client, pytest.raises(Damaged, match="cannot be the name of a file"):
        client.datasets.pull("timber", 1, tmp_path / "other")
    assert not (tmp_path / "outside.png").exists()


def test_a_lora_is_trained_on_the_version_that_its_command_names(served: Sets, typed: Typed, photos: Path) -> None:
    pushed(typed, photos)
    served.check()
    code, out, err = typed("train", "timber", "--base", BASE, *PROMPT, "--detach")
    assert code == 0, err
    assert "timber is timber@1, the newest version that is ready" in err
    job = served.get(f"/v1/jobs/{out.strip()}").json()
    spec = parse_spec(job["spec"])
    assert job["dataset"] == "timber@1" and [file.path for file in spec.photos] == ["10_sks dog/b.png", "a.png"]  # type: ignore[union-attr]
    assert "timber@1" in typed("jobs", "show", out.strip())[1]
    code, out, err = typed("train", "timber@1", "--base", BASE, *PROMPT, "--plan", "-o", "json", "--hold-out", "a.png")
    assert code == 0, err
    found = json.loads(out)
    assert (found["photos"], found["trained_on"], found["held_out"]) == (["timber@1"], 1, 1)
    assert (found["captions"], found["seen_least"]) == ({"own": 1, "prompt": 0}, 5)
    code, _, err = typed("train", "timber@4", "--base", BASE, *PROMPT, "--detach")
    assert code == 2 and "there is no version timber@4" in err
    code, _, err = typed("train", "limber", "--base", BASE, *PROMPT, "--detach")
    assert code == 2 and "there is no folder limber" in err and "gangline datasets ls" in err


def test_the_plan_of_a_version_says_of_its_photos_what_that_of_their_folder_says(
    served: Sets, typed: Typed, photos: Path
) -> None:
    (photos / "c.png").write_bytes(picture(4))
    (photos / "d.png").write_bytes(picture(5))
    pushed(typed, photos)
    served.check()
    given = ("--base", BASE, *PROMPT, "--plan", "--batch-size", "4", "--hold-out", "d.png")
    of_folder, of_version = (
        [line.rstrip() for line in typed("train", named, *given)[2].splitlines()] for named in (photos, "timber@1")
    )
    told = [line for line in of_folder if line.startswith(("captions", "steps", "tip: batch_size", "tip: resolution"))]
    assert len(told) == 4 and {*told} <= {*of_version}, (told, of_version)
    assert "photos    timber@1: 3 to train on, 1 held out" in of_version
    assert "captions  their own for 2 photos and the prompt for 1 photo" in of_version
    (photos / "metadata.jsonl").write_text('{"file_name": "c.png", "text": "sks dog at night", "repeats": 2}')
    pushed(typed, photos)
    served.check()
    said = typed("train", "timber@2", *given)[2]
    assert "their own for 2 photos and metadata.jsonl or the prompt for 1 photo" in said
    assert "5 steps, batch size 4\n" in "\n".join(map(str.rstrip, said.splitlines())) + "\n"


def test_an_experiment_is_trained_on_the_version_that_its_command_or_its_file_names(
    served: Sets, typed: Typed, photos: Path
) -> None:
    pushed(typed, photos)
    served.check()
    grid = photos.parent / "grids" / "grid.toml"  # else its `timber` would be the folder beside it
    grid.parent.mkdir()
    lines = ["photos = 'timber'", "[settings]", f"base = '{BASE}'", "prompt = 'sks dog'", "[vary]", "rank = [2, 4]"]
    grid.write_text("\n".join(lines))
    by_command = ("train", "timber@1", "--base", BASE, *PROMPT, "--vary", "rank=2,4", "--experiment", "ranks")
    for command in (by_command, ("experiments", "run", grid)):
        code, out, err = typed(*command, "--detach")
        assert code == 0, err
        runs = served.get(f"/v1/experiments/{out.strip()}/runs").json()
        assert [served.get(f"/v1/jobs/{run['job']}").json()["dataset"] for run in runs] == ["timber@1", "timber@1"]


def test_python_trains_on_a_data_set_by_its_name(served: Sets, photos: Path) -> None:
    with Client() as client:
        made = client.datasets.push("timber", {"a.png": photos / "a.png"})
        assert (made.sent, made.stored, made.version.reference) == (1, 0, "timber@1")
        served.check()
        job = train_lora(client, "timber@1", base=str(BASE), prompt="sks dog", steps=5, resolution=64, hold_out=[])
        assert job.dataset == "timber@1"
        assert (
            client.datasets.thumbnail("timber", 1, next(iter(client.datasets.files("timber", 1))).sha256)[:2]
            == b"\xff\xd8"
        )
        changed = client.datasets.change(
            "timber", 1, put=client.datasets.upload({"b.png": photos / "10_sks dog" / "b.png"}).files
        )
        assert (changed.number, changed.photos) == (2, 2)


def test_a_long_list_of_files_goes_ahead_of_the_request(
    served: Sets, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.wire.client.datasets.LISTED_BYTES_MAX", 10)
    monkeypatch.setattr("gangline.wire.client.datasets.BATCH", 1)
    files = {path.name: path for path in (photos / "a.png", photos / "10_sks dog" / "b.png")}
    with Client() as client:
        first = client.datasets.push("timber", files)
        again = client.datasets.push("timber", dict(reversed(files.items())))
        assert (first.version.made, again.version.made) == (True, False)
        assert first.version.digest == again.version.digest and again.sent == 0


def test_a_file_that_changes_while_it_is_uploaded_is_refused(served: Sets, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(picture(1))

    def change(_progress: object) -> None:
        path.write_bytes(picture(2))

    with Client() as client:
        upload = client.datasets._missing

        def changing(files: object) -> object:
            path.write_bytes(picture(2))
            return upload(files)  # type: ignore[arg-type]

        client.datasets._missing = changing  # type: ignore[method-assign,assignment]
        with pytest.raises(BadInput, match=r"a\.png changed while it was uploaded"):
            client.datasets.push("timber", {"a.png": path}, progress=change)


def test_a_store_that_refuses_an_upload_is_named_with_its_status(
    served: Sets, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = served.service.objects.sign_put

    def refusing(*given: Any, **named: Any) -> Signed:
        signed = sent(*given, **named)
        return replace(signed, url=f"{signed.url}0")  # no signature of the store's

    monkeypatch.setattr(served.service.objects, "sign_put", refusing)
    with Client() as client, pytest.raises(Unreachable, match=r"the object store refused a\.png with status 403"):
        client.datasets.push("timber", {"a.png": photos / "a.png"})


def test_a_large_file_that_is_stored_already_is_not_counted_as_sent(
    served: Sets, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.wire.client.datasets.PART_BYTES", 10)
    with Client() as client:
        assert client.datasets.upload({"a.png": photos / "a.png"}).sent == 1
        again = client.datasets.upload({"a.png": photos / "a.png"})
        assert (again.sent, again.stored) == (0, 1)


def test_a_removal_that_was_confirmed_removes_no_version_that_came_since(
    served: Sets, typed: Typed, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed(typed, photos)
    served.check()

    def confirmed(_what: str, shown: str) -> bool:
        assert shown.startswith("timber@1: 4 files")
        served.ready("timber", {"a.png": picture(8)})
        return True

    monkeypatch.setattr("gangline.cli.data.datasets.is_confirmed", confirmed)
    code, _, err = typed("datasets", "rm", "timber")
    assert code == 2 and "timber has other versions than were shown: now timber@1 and timber@2" in err
    assert len(served.get("/v1/datasets/timber").json()) == 2


def test_who_waits_looks_ever_less_often_and_never_where_nothing_checks(
    served: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 9:
            served.check()

    monkeypatch.setattr("gangline.wire.client.datasets.sleep", pause)
    served.add("timber", {"a.png": picture(1)})
    with Client() as client:
        assert client.datasets.wait("timber", 1).state == "ready"
        assert pauses[:2] == [0.5, 0.75] and pauses[-1] == 5.0 == max(pauses)
        served.add("timber", {"a.png": picture(2)})
        served.service.app.state.deployment = replace(served.service.deployment, inspector=None)
        with pytest.raises(Unreachable, match="timber@2 waits for its check, but this server checks no data sets"):
            client.datasets.wait("timber", 2)
        assert len(pauses) == 9


def test_all_versions_are_listed_page_by_page(served: Sets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.wire.client.datasets.PAGE", 2)
    for number in range(5):
        served.add("timber", {"a.png": picture(number)})
    with Client() as client:
        assert [version.number for version in client.datasets.versions("timber")] == [5, 4, 3, 2, 1]
