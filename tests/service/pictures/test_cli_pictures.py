"""`gangline jobs pictures`, and `client.pictures`: the real command line and the real client against a real server."""

import json

import pytest

from gangline import Client, NotFound
from gangline.core.runs.contract import picture_name
from tests.service.conftest import OPERATOR
from tests.service.datasets.conftest import picture
from tests.service.pictures.conftest import PROMPTS, Album, sha256_of
from tests.service.retention.test_cli_retention import Run, run
from tests.service.served import serving

__all__ = ["run"]


def test_pictures_are_listed_and_the_best_step_is_chosen(album: Album, run: Run) -> None:
    album.save(10)
    album.show_all(10, 20)
    listed = run("jobs", "pictures", album.job)
    assert listed.returncode == 0, listed.stderr
    assert PROMPTS[1] in listed.stdout and "checkpoint" in listed.stdout
    chosen = run("jobs", "pictures", album.job, "--winner", "10")
    assert chosen.returncode == 0 and "step 10 is chosen" in chosen.stderr
    assert "checkpoint, pinned" in chosen.stdout
    rows = json.loads(run("jobs", "pictures", album.job, "-o", "json").stdout)
    assert {row["step"]: (row["winner"], row["pinned"]) for row in rows} == {10: (True, True), 20: (False, False)}
    assert album.job in run("jobs", "ls", "--label", "winner").stdout
    undone = json.loads(run("jobs", "pictures", album.job, "--no-winner", "-o", "json").stdout)
    assert not any(row["winner"] or row["pinned"] for row in undone)


def test_a_step_without_weights_is_refused_with_those_that_have_some(album: Album, run: Run) -> None:
    album.save(10)
    album.show_all(20)
    refused = run("jobs", "pictures", album.job, "--winner", "20")
    assert refused.returncode == 2
    assert f"the weights of step 20 of {album.job} are not stored" in refused.stderr and "10" in refused.stderr
    both = run("jobs", "pictures", album.job, "--winner", "10", "--no-winner")
    assert (both.returncode, "contradict" in both.stderr) == (2, True)


def test_python_lists_all_pages_and_reads_thumbnails(album: Album, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.wire.client.runs.PAGE", 3)
    album.save(10)
    album.show_all(10, 20)
    with serving(album.service.app) as served, Client(served.url, OPERATOR) as client:
        assert [each.path for each in client.pictures.list(album.job)] == [row["path"] for row in album.rows()]
        small = sha256_of(picture(1000))
        with pytest.raises(NotFound, match="no thumbnail of samples/step-000010/" + picture_name(0, 1)[:9]):
            client.pictures.thumbnail(album.job, next(client.pictures.list(album.job)).sha256)
        album.make_thumbnails()
        assert client.pictures.thumbnail(album.job, next(client.pictures.list(album.job)).sha256)[:3] == b"\xff\xd8\xff"
        with pytest.raises(NotFound, match="has no picture"):
            client.pictures.thumbnail(album.job, small)
        assert client.pictures.choose(album.job, 10).weights == "checkpoint"
        assert client.pictures.undo_choice(album.job).step is None
