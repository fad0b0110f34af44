"""The screen of a job's pictures: its grid, its stream, one picture, and the files of a step."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gangline.core.pictures.names import picture_place
from gangline.core.pictures.views import PictureView
from gangline.core.runs.contract import picture_name
from gangline.service.pictures.last import last_pictures
from gangline.web.frame.rendering import digest_of_html
from gangline.web.live.feed import Changes
from gangline.web.pictures.followed import PicturesScreen
from gangline.web.pictures.grid import SHOWN_MAX, picture_grid
from tests.service.conftest import Service
from tests.service.datasets.conftest import InspectorHere, picture
from tests.service.jobs.test_samples import train
from tests.service.pictures.conftest import Album, sha256_of
from tests.service.pictures.many import write_pictures
from tests.service.web.conftest import Browser
from tests.service.web.test_keys import ESCAPED, HOSTILE


@pytest.fixture
def album(page: Service, tmp_path: Path) -> Album:
    """A job of the page's service with a hostile prompt, on whose pictures the server looks."""
    page.deployment = replace(page.deployment, inspector=InspectorHere(tmp_path / "inspected", ()))
    page.app.state.deployment = page.deployment
    node = page.join()
    prompts = (HOSTILE, "sks dog on the beach")
    return Album(page, train(page, node, sample_prompts=prompts, sample_seeds=(1, 2)), node)


def view(path: str, text: str = "a dog", result_step: int = 300) -> PictureView:
    place = picture_place(path, result_step)
    assert place is not None
    return PictureView(
        path=path,
        of=place.of,
        step=place.step,
        prompt=place.prompt,
        text=text,
        seed=place.seed,
        width=0,
        height=0,
        bytes=1,
        sha256="0" * 64,
        url="",
        thumbnail="ready",
        because="",
        weights="none",
        pinned=False,
        winner=False,
    )


def test_the_base_is_the_first_column_and_the_result_the_last_and_seeds_stand_beside_each_other() -> None:
    paths = [
        "samples/step-000300/prompt-00-seed-7.png",
        "samples/prompt-00-base-seed-7.png",
        "samples/prompt-00-lora-seed-7.png",
        "samples/step-000100/prompt-01-seed-3.png",
        "samples/step-000100/prompt-01-seed-9.png",
    ]
    grid = picture_grid([view(path) for path in paths])
    assert [column.name for column in grid.columns] == ["base", "100", "300", "result"]
    assert grid.columns_told == "2 steps, the base and the result"
    first, second = grid.rows
    assert grid.seeds == 2 and second.seeds == (3, 9)
    assert [cell and cell.path for cell in first.cells] == [paths[1], None, None, None, paths[0], None, paths[2], None]
    assert [cell and cell.path for cell in second.cells] == [None, None, paths[3], paths[4], None, None, None, None]


def test_the_column_of_the_result_says_its_step_and_not_twice_what_it_is() -> None:
    found = replace(view("samples/prompt-00-lora-seed-7.png"), weights="result", step=300)
    (column,) = picture_grid([found]).columns
    assert (column.name, column.state) == ("result", "step 300")
    assert column.told == "These are the weights of the result."
    (column,) = picture_grid([replace(found, weights="none")]).columns
    assert (column.name, column.state) == ("result", "no weights")


def test_a_grid_says_how_many_pictures_it_leaves_out() -> None:
    pictures = [view(f"samples/step-000100/prompt-{number:02d}-seed-1.png") for number in range(SHOWN_MAX + 3)]
    assert (picture_grid(pictures).pictures, picture_grid(pictures).left_out) == (SHOWN_MAX, 3)


def test_prompts_are_shown_as_text_and_each_picture_has_its_place(
    album: Album, signed_in: Callable[[str], Browser]
) -> None:
    album.show_all(10, 20)
    found = signed_in("viewer").get(f"/jobs/{album.job}/pictures").text
    assert ESCAPED in found and HOSTILE not in found
    assert found.count('role="gridcell"') == 8 and found.count(">soon<") == 8 and "Choose this step" not in found
    album.make_thumbnails()
    found = signed_in("member").get(f"/jobs/{album.job}/pictures").text
    assert found.count("/thumbnail") == 8 and ">soon<" not in found and "Choose this step" in found


def test_a_job_without_pictures_says_how_to_get_some(album: Album, signed_in: Callable[[str], Browser]) -> None:
    assert "No picture yet" in signed_in("viewer").get(f"/jobs/{album.job}/pictures").text


def test_a_picture_in_full_size_is_found_by_its_content(album: Album, signed_in: Callable[[str], Browser]) -> None:
    content = picture(7)
    album.show(10, {picture_name(0, 1): content})
    answer = signed_in("viewer").get(f"/jobs/{album.job}/pictures/{sha256_of(content)}")
    assert answer.status_code == 307 and "private" in answer.headers["cache-control"]
    assert album.service.http.get(answer.headers["location"]).content == content
    assert signed_in("viewer").get(f"/jobs/{album.job}/pictures/{'0' * 64}").status_code == 404


def test_the_weights_of_a_step_are_listed_as_long_as_they_are_stored(
    album: Album, signed_in: Callable[[str], Browser]
) -> None:
    album.save(10)
    album.show(20, {"sks-dog.safetensors": b"a lora", picture_name(0, 1): picture(2)})
    browser = signed_in("viewer")
    assert browser.part(f"/jobs/{album.job}/weights/10").text.count("download>") > 0
    of_file = browser.part(f"/jobs/{album.job}/weights/20").text
    assert "samples/step-000020/sks-dog.safetensors" in of_file and of_file.count("download>") == 1
    assert browser.part(f"/jobs/{album.job}/weights/30").status_code == 404


def test_a_stream_sends_the_cells_that_changed_alone(album: Album) -> None:
    album.show_all(10)
    album.show(20, {picture_name(0, 1): picture(98)})
    album.make_thumbnails()
    followed, deployment = PicturesScreen("default", album.job, may=False), album.service.deployment
    followed.refresh(deployment, None)
    assert followed.refresh(deployment, Changes()) == ""
    album.show(20, {picture_name(1, 1): picture(99)})
    changed = followed.refresh(deployment, Changes())
    assert changed.count('id="cell-') == 1 and 'id="cell-1-step-20-0"' in changed and ">soon<" in changed
    album.make_thumbnails()
    assert ">soon<" not in followed.refresh(deployment, Changes())
    album.show(30, {picture_name(1, 1): picture(97)})
    changed = followed.refresh(deployment, Changes())
    assert (
        changed.count('id="cell-') == 4 and 'id="end-1" hx-swap-oob="beforebegin"' in changed and "step-30" in changed
    )


def test_a_page_says_what_its_stream_does_not_need_to_send(album: Album, signed_in: Callable[[str], Browser]) -> None:
    album.show_all(10)
    album.make_thumbnails()
    deployment, followed = album.service.deployment, PicturesScreen("default", album.job, may=False)
    followed.refresh(deployment, None)
    address = f"/jobs/{album.job}/pictures"
    assert f'data-shown="{digest_of_html(followed.whole())}"' in signed_in("viewer").get(address).text
    album.show(20, {picture_name(0, 1): picture(98)})
    followed.refresh(deployment, Changes())
    assert f'data-shown="{digest_of_html(followed.whole())}"' in signed_in("viewer").get(address).text


def test_a_stream_shows_the_choice_of_a_step_and_a_prompt_that_is_new(album: Album) -> None:
    album.save(10)
    album.show(10, {picture_name(0, 1): picture(1)})
    deployment, followed = album.service.deployment, PicturesScreen("default", album.job, may=False)
    followed.refresh(deployment, None)
    album.choose(10)
    assert "data-winner" in followed.refresh(deployment, Changes())
    album.show(10, {picture_name(1, 1): picture(2)})
    assert 'id="album"' in followed.refresh(deployment, Changes())
    album.undo()
    assert "data-winner" not in followed.whole() or "data-winner" not in followed.refresh(deployment, Changes())


def test_pictures_are_asked_for_where_the_screen_of_the_job_offers_it_as_long_as_it_does(
    album: Album, signed_in: Callable[[str], Browser]
) -> None:
    service, offers = album.service, 'value="sample"'

    def shown(job: str, role: str = "member") -> str:
        return signed_in(role).get(f"/jobs/{job}/pictures").text

    assert offers in shown(album.job) and offers not in shown(album.job, "viewer")
    assert offers not in shown(service.submit()), "it has nothing to show yet"
    followed = PicturesScreen("default", album.job, may=True)
    assert offers in followed.refresh(service.deployment, None)
    assert f'data-shown="{digest_of_html(followed.whole())}"' in shown(album.job)
    album.succeed()
    changed = followed.refresh(service.deployment, Changes(jobs=frozenset({album.job})))
    assert 'id="pictures-sampling"' in changed and offers not in changed
    assert offers not in shown(album.job)


def test_the_list_of_jobs_shows_the_newest_picture_of_each_job_that_has_a_small_copy(
    page: Service, signed_in: Callable[[str], Browser]
) -> None:
    training, bare = train(page, page.join(), sample_prompts=("a", "b")), page.submit()
    write_pictures(page, training.job, prompts=2, steps=[0, 10, 20])
    write_pictures(page, training.job, prompts=2, steps=[30], small=False)
    (row,) = page.look("SELECT sha256 FROM artifact WHERE path = 'samples/step-000020/prompt-00-seed-1.png'")
    assert last_pictures(page.deployment, "default", [training.job, bare]) == {training.job: row["sha256"]}
    found = signed_in("viewer").part(f"/jobs/curves?job={training.job}&job={bare}").json()
    address = f"/v1/jobs/{training.job}/pictures/{row['sha256']}/thumbnail"
    assert found == {training.job: {"losses": [], "picture": address}}
    page.add_project("other")
    assert last_pictures(page.deployment, "other", [training.job]) == {}
