"""Small copies of sample pictures: made once, many at a time, by a program that survives what nodes send; deleted with their pictures."""

import io
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gangline.adapters.places.inspector import ProgramInspector
from gangline.compose.places import INSPECT
from gangline.core.errors import Unreachable
from gangline.core.runs.contract import picture_name
from gangline.ports.places.inspector import InspectedPicture
from gangline.service.jobs import steer
from gangline.service.pictures import thumbnails
from tests.service.datasets.conftest import InspectorHere, picture
from tests.service.pictures.conftest import Album, sha256_of

DAY_S = 86_400
NAME = picture_name(0, 1)


class Counted:
    """An inspector that remembers what it was asked."""

    def __init__(self, inspector: Any) -> None:
        self._inspector, self.asked = inspector, list[int]()

    def pictures(self, files: Mapping[str, Any]) -> Mapping[str, InspectedPicture]:
        self.asked.append(len(files))
        return self._inspector.pictures(files)


def with_inspector(album: Album, inspector: Any) -> Any:
    album.service.deployment = replace(album.service.deployment, inspector=inspector)
    album.service.app.state.deployment = album.service.deployment
    return inspector


def later(album: Album, days: float) -> None:
    album.service.wait(days * DAY_S)
    album.service.tick()
    album.service.wait(61)
    album.service.tick()


def test_a_thumbnail_is_a_jpeg_of_at_most_256_pixels_that_a_browser_keeps(album: Album) -> None:
    content = picture(1, (600, 300))
    album.show(10, {NAME: content})
    assert album.thumbnail(sha256_of(content)).status_code == 404
    album.make_thumbnails()
    answer = album.thumbnail(sha256_of(content))
    assert answer.headers["content-type"] == "image/jpeg"
    assert "immutable" in answer.headers["cache-control"] and "private" in answer.headers["cache-control"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert Image.open(io.BytesIO(answer.content)).size == (256, 128)


def test_many_pictures_take_few_starts_of_the_program_and_none_is_looked_at_twice(album: Album, tmp_path: Path) -> None:
    counted = with_inspector(album, Counted(InspectorHere(tmp_path / "inspected", ())))
    album.show_all(*range(10, 200, 10))
    album.make_thumbnails()
    album.make_thumbnails()
    assert counted.asked == [64, 12]
    assert {row["thumbnail"] for row in album.rows()} == {"ready"}


def test_the_newest_pictures_come_first(album: Album, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thumbnails, "PICTURES_AT_ONCE", 4)
    album.show_all(10)
    album.service.wait(1)
    album.show_all(20)
    next(thumbnails.make_thumbnails(album.service.deployment))
    assert {row["step"] for row in album.rows() if row["thumbnail"] == "ready"} == {20}


def test_a_picture_that_is_none_has_no_thumbnail_and_says_why(album: Album) -> None:
    whole = picture(1, (64, 64))
    torn = whole[: len(whole) // 2]
    album.show(10, {NAME: b"<html>", picture_name(0, 2): torn, picture_name(1, 1): whole})
    album.make_thumbnails()
    found = {row["sha256"]: (row["thumbnail"], row["because"]) for row in album.rows()}
    assert found[sha256_of(b"<html>")] == ("none", "is not an image: it is a web page")
    assert found[sha256_of(torn)][0] == "none" and "cannot be read to its end" in found[sha256_of(torn)][1]
    assert found[sha256_of(whole)] == ("ready", "")
    answer = album.thumbnail(sha256_of(b"<html>"))
    assert answer.status_code == 404 and "web page" in answer.json()["hint"]


def test_a_picture_that_ends_its_decoder_costs_no_other_one_its_thumbnail(album: Album, tmp_path: Path) -> None:
    """The program is a real one, and dies of one of the pictures."""
    program = tmp_path / "inspected.py"
    program.write_text(
        "import os, sys\n"
        "from pathlib import Path\n"
        "from gangline.data.images.sets import inspected\n"
        "read = inspected._inspected\n"
        "inspected._inspected = lambda path, to: os.abort() if b'deadly' in path.read_bytes() else read(path, to)\n"
        "sys.exit(inspected.main())\n"
    )
    with_inspector(album, ProgramInspector(tmp_path / "looked", (sys.executable, str(program))))
    album.show(10, {NAME: b"deadly", picture_name(0, 2): picture(2), picture_name(1, 1): picture(3)})
    album.make_thumbnails()
    found = {row["path"].rpartition("/")[2]: (row["thumbnail"], row["because"]) for row in album.rows()}
    assert found[NAME] == ("none", thumbnails.NOT_NOW)
    assert [found[picture_name(*place)] for place in ((0, 2), (1, 1))] == [("ready", "")] * 2


def test_the_program_that_the_server_starts_makes_them(album: Album, tmp_path: Path) -> None:
    with_inspector(album, ProgramInspector(tmp_path / "looked", INSPECT))
    album.show(10, {NAME: picture(1)})
    album.make_thumbnails()
    assert [row["thumbnail"] for row in album.rows()] == ["ready"]


def test_a_picture_with_too_many_bytes_is_never_read(
    album: Album, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counted = with_inspector(album, Counted(InspectorHere(tmp_path / "inspected", ())))
    monkeypatch.setattr(thumbnails, "PICTURE_BYTES_MAX", 100)
    album.show(10, {NAME: b"1" * 101})
    album.make_thumbnails()
    (row,) = album.rows()
    assert (row["thumbnail"], row["because"], counted.asked) == ("none", thumbnails.TOO_LARGE, [])


def test_a_picture_that_is_lost_is_looked_for_three_times(album: Album, tmp_path: Path) -> None:
    counted = with_inspector(album, Counted(InspectorHere(tmp_path / "inspected", ())))
    album.show(10, {NAME: picture(1)})
    album.service.objects.delete(album.stored("samples"))
    album.make_thumbnails()
    assert (counted.asked, album.rows()[0]["because"]) == ([1, 1, 1], thumbnails.NOT_NOW)


def test_a_store_that_does_not_answer_costs_no_picture_its_thumbnail(album: Album, tmp_path: Path) -> None:
    class Away:
        def pictures(self, files: Any) -> Any:
            raise Unreachable("the store does not answer")

    album.show(10, {NAME: picture(1)})
    with_inspector(album, Away())
    for _ in range(thumbnails.TRIES_MAX + 1):
        with pytest.raises(Unreachable):
            album.make_thumbnails()
    with_inspector(album, InspectorHere(tmp_path / "inspected", ()))
    album.make_thumbnails()
    assert [row["thumbnail"] for row in album.rows()] == ["ready"]


def test_of_several_servers_the_one_that_ticks_makes_them(album: Album) -> None:
    album.show(10, {NAME: picture(1)})
    deployment = replace(album.service.deployment, server="another")
    assert list(thumbnails.make_thumbnails(deployment)) == []
    assert [row["thumbnail"] for row in album.rows()] == ["waiting"]


def test_a_server_without_the_program_makes_none(album: Album) -> None:
    with_inspector(album, None)
    album.show(10, {NAME: picture(1)})
    album.make_thumbnails()
    assert album.thumbnail(sha256_of(picture(1))).status_code == 404


def test_a_thumbnail_that_somebody_deleted_from_the_store_is_not_found(album: Album) -> None:
    album.show(10, {NAME: picture(1)})
    album.make_thumbnails()
    album.service.objects.delete(album.stored("thumbnails"))
    assert album.thumbnail(sha256_of(picture(1))).status_code == 404


def test_the_sweep_of_an_attempt_leaves_the_thumbnails_of_its_pictures(album: Album) -> None:
    album.show_all(10)
    album.make_thumbnails()
    album.succeed()
    later(album, 1)
    assert len(album.stored("thumbnails")) == 4
    assert album.thumbnail(album.rows()[0]["sha256"]).status_code == 200


def test_thumbnails_go_with_their_job(album: Album) -> None:
    album.show_all(10)
    album.make_thumbnails()
    steer.cancel(album.service.deployment, album.job, album.service.now_ms)
    album.remove()
    assert (album.stored("thumbnails"), album.stored("samples")) == ([], [])


def test_thumbnails_expire_with_the_pictures_of_steps(album: Album) -> None:
    album.show_all(10)
    album.make_thumbnails()
    album.succeed()
    later(album, 91)
    assert (album.rows(), album.stored("thumbnails")) == ([], [])


def test_a_job_that_is_deleted_while_its_pictures_are_looked_at_leaves_nothing(album: Album, tmp_path: Path) -> None:
    here = InspectorHere(tmp_path / "inspected", ())

    class Slow:
        def pictures(self, files: Any) -> Any:
            found = here.pictures(files)
            steer.cancel(album.service.deployment, album.job, album.service.now_ms)
            album.remove()
            return found

    album.show_all(10)
    with_inspector(album, Slow())
    album.make_thumbnails()
    later(album, 1)
    assert album.stored("thumbnails") == []


def test_what_is_stored_of_a_project_counts_its_thumbnails(album: Album) -> None:
    def size() -> int:
        kinds = album.service.ask("GET", "/v1/storage").json()["kinds"]
        return next(each["bytes"] for each in kinds if each["kind"] == "previews")

    album.show_all(10)
    before = size()
    album.make_thumbnails()
    small = sum(len(album.service.objects.read(key)) for key in album.stored("thumbnails"))
    assert size() == before + small > before
