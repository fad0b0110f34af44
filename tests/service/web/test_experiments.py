"""The screens of experiments: what is compared, in which order, the pictures beside each other, and what members do."""

from collections.abc import Callable
from typing import Any

import pytest

from gangline.core.experiments.views import ExperimentRunView, ExperimentView
from gangline.service.experiments.query import experiment_view, runs_view
from gangline.service.pictures.together import pictures_of_jobs
from gangline.web.experiments.compared import compared
from gangline.web.experiments.followed import MANY_AGAIN_MS, ExperimentScreen, ExperimentsScreen
from gangline.web.experiments.matrix import PROMPT, SEED, MatrixAsked, PictureMatrix, picture_matrix
from gangline.web.live.feed import Changes
from tests.service.conftest import Service
from tests.service.experiments.at_work import shown, submit, tick, work
from tests.service.pictures.many import write_pictures
from tests.service.web.conftest import Browser
from tests.service.web.test_keys import ESCAPED, HOSTILE


def trained(page: Service, **given: Any) -> str:
    """An experiment of two ranks and two seeds, three of whose jobs have ended with pictures."""
    settings = {"sample_prompts": ("sks dog", HOSTILE), "steps": 100}
    made = submit(page, name=HOSTILE, settings=settings, seeds=2, **given)["id"]
    for number in range(3):
        worked = work(page, f"node-{number}")
        worked.train(100)
        steps = [0, 50, 100] if number < 2 else [0, 50]
        write_pictures(page, worked.job, prompts=2, steps=steps)
        worked.end()
        tick(page)
    return made


def read(page: Service, made: str) -> tuple[ExperimentView, list[ExperimentRunView]]:
    now_ms = page.store.now_ms()
    return experiment_view(page.deployment, "default", made, now_ms), runs_view(
        page.deployment, "default", made, now_ms
    )


def matrix_of(page: Service, made: str, **asked: Any) -> PictureMatrix:
    found, runs = read(page, made)
    pictures = pictures_of_jobs(page.deployment, {run.job: run.step for run in runs if run.step}, None)
    return picture_matrix(found, runs, MatrixAsked(**asked), pictures, 2)


def test_a_row_is_a_combination_with_its_mean_and_the_noise_of_its_seeds(page: Service) -> None:
    made = trained(page)
    found, runs = read(page, made)
    table = compared(found, runs)
    assert [[run.number for run in row.runs] for row in table.rows] == [[1, 2], [3, 4]]
    assert (table.settings, table.several, table.by_job) == (["rank"], True, False)
    first, second = table.rows
    assert (first.value, first.noise, first.is_best) == (0.5, 0.0, True)
    assert (second.value, second.noise, second.state) == (0.5, None, "1 succeeded, 1 queued")
    assert [len(row.runs) for row in compared(found, runs, by_job=True).rows] == [1, 1, 1, 1]


def test_an_experiment_that_has_ended_names_its_best_job_once_and_forecasts_nothing(
    page: Service, signed_in: Callable[[str], Browser]
) -> None:
    made, viewer = trained(page), signed_in("viewer")
    running = viewer.get(f"/experiments/{made}").text
    assert "<dt>At its end</dt>" in running
    assert [row.has_cost for row in compared(*read(page, made), by_job=True).rows] == [True, True, True, False]
    worked = work(page, "node-3")
    worked.train(100)
    worked.end()
    tick(page)
    found, _ = read(page, made)
    assert (found.state, found.because) == ("ended", "4 succeeded") and found.best
    shown = viewer.get(f"/experiments/{made}").text
    assert shown.count("the next combination has") == 1 and "<dt>At its end</dt>" not in shown


def test_rows_are_ordered_by_any_column_and_those_without_a_value_come_last(page: Service) -> None:
    made = trained(page)
    found, runs = read(page, made)

    def order(sort: str) -> list[int]:
        return [row.runs[0].number for row in compared(found, runs, sort=sort, by_job=True).rows]

    assert order("-rank")[:2] == [3, 4] and order("rank")[:2] == [1, 2]
    assert order("value")[-1] == order("-value")[-1] == 4
    assert order("no such column") == order("") == [1, 2, 3, 4]


def test_pictures_stand_by_settings_and_one_place_of_the_slider_shows_one_step(page: Service) -> None:
    made = trained(page)
    matrix = matrix_of(page, made)
    assert (matrix.down, matrix.across, list(matrix.rows)) == ("rank", SEED, [4, 8])
    assert list(matrix.stops) == ["base", "50", "100", "last"] and matrix.stop == 3

    def steps(**asked: Any) -> list[list[int | None]]:
        cells = matrix_of(page, made, **asked).cells
        return [[cell.picture.place.step if cell.picture else None for cell in row] for row in cells]

    assert steps() == [[100, 100], [50, None]]
    assert steps(stop=2, stops=4) == [[100, 100], [None, None]]
    assert steps(stop=0, stops=4) == [[0, 0], [0, None]]
    assert steps(stop=2, stops=3) == steps(), "what was the last place is the last one, whatever came since"
    assert matrix.cells[1][1].word == "queued"


def test_a_prompt_can_be_an_axis_and_the_best_job_of_a_cell_is_shown(page: Service) -> None:
    matrix = matrix_of(page, trained(page), across=PROMPT)
    assert list(matrix.columns) == [0, 1]
    (first, second), _ = matrix.cells
    assert first.jobs == 2 and first.is_best and first.picture and second.picture
    assert (first.picture.place.prompt, second.picture.place.prompt) == (0, 1)


def test_the_screens_show_what_is_compared_and_escape_names(page: Service, signed_in: Callable[[str], Browser]) -> None:
    made = trained(page)
    browser = signed_in("viewer")
    listed, screen = browser.get("/experiments").text, browser.get(f"/experiments/{made}").text
    for found in (listed, screen):
        assert ESCAPED in found and HOSTILE not in found and made in found
    assert screen.count('scope="row"') == 4 and screen.count("/thumbnail") == 3
    assert "Stop" not in screen and "Stop" in signed_in("member").get(f"/experiments/{made}").text
    part = browser.part(f"/experiments/{made}/pictures?down=rank&across=the%20prompt&stop=0&stops=4")
    assert part.status_code == 200 and "the base" in part.text and ESCAPED in part.text
    assert browser.get("/experiments/experiment-none").status_code == 404
    assert browser.get(f"/experiments/{made}?sort=-cost_usd&by=job").text.count("<tr id=") == 4


def test_members_change_stop_and_resume(page: Service, signed_in: Callable[[str], Browser]) -> None:
    made, member = submit(page, at_once=1)["id"], signed_in("member")
    assert member.post(f"/experiments/{made}/change", at_once="2", budget_usd="7.5").status_code == 204
    assert (shown(page, made)["at_once"], shown(page, made)["budget_usd"]) == (2, 7.5)
    assert member.post(f"/experiments/{made}/change", at_once="", budget_usd="").status_code == 204
    assert (shown(page, made)["at_once"], shown(page, made)["budget_usd"]) == (None, None)
    assert member.post(f"/experiments/{made}/change", at_once="0", budget_usd="1").status_code == 422
    assert "Resumed" in member.post(f"/experiments/{made}/resume").headers["hx-trigger"]
    assert member.post(f"/experiments/{made}/stop").status_code == 204
    page.tick()
    assert shown(page, made)["state"] in ("stopped", "ended")
    assert member.post(f"/experiments/{made}/resume").status_code == 422
    assert signed_in("viewer").post(f"/experiments/{made}/stop").status_code == 403


def test_an_open_experiment_follows_its_jobs_and_its_rows_stay_where_they_are(page: Service) -> None:
    made = submit(page)["id"]
    followed = ExperimentScreen("default", made, by_job=False, may=True)
    followed.refresh(page.deployment, None)
    worked = work(page, "a")
    changes = Changes(frozenset({worked.job}), listed=True)
    assert followed.is_about(changes) and not followed.is_about(Changes(frozenset({"job-none"})))
    changed = followed.refresh(page.deployment, changes)
    assert 'id="run-1"' in changed and 'id="run-2"' not in changed and 'id="experiment-facts"' in changed
    assert 'id="run-2"' in followed.whole()


def test_an_open_list_gets_new_experiments_and_the_changed_one_alone(page: Service) -> None:
    first = submit(page)["id"]
    followed = ExperimentsScreen("default", None, may=True)
    followed.refresh(page.deployment, None)
    second = submit(page, name="another")["id"]
    found = followed.refresh(page.deployment, Changes(listed=True))
    assert found.index(second) < found.index(first)
    page.ask("POST", f"/v1/experiments/{first}/stop")
    changed = followed.refresh(page.deployment, Changes(listed=True))
    assert f'id="{first}"' in changed and f'id="{second}"' not in changed


@pytest.mark.parametrize("listed", [True, False])
def test_what_has_many_jobs_at_work_is_read_every_few_seconds_and_no_change_is_lost(
    page: Service, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    monkeypatch.setattr("gangline.web.experiments.followed.MANY_JOBS", 3)
    made = submit(page, seeds=2)["id"]
    screen = (
        ExperimentsScreen("default", None, may=True)
        if listed
        else ExperimentScreen("default", made, by_job=False, may=True)
    )
    screen.refresh(page.deployment, None)
    changes, none = Changes(frozenset({work(page, "a").job}), listed=True), Changes()
    assert not screen.is_about(none) and screen.is_about(changes)
    assert screen.refresh(page.deployment, changes) == ""
    assert screen.is_about(none) and screen.refresh(page.deployment, none) == ""
    page.wait(MANY_AGAIN_MS / 1000)
    assert "1 running" in screen.refresh(page.deployment, none) and not screen.is_about(none)


def test_jobs_of_experiments_that_have_ended_do_not_count_as_many(
    page: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.web.experiments.followed.MANY_JOBS", 3)
    trained(page)
    last = work(page, "node-3")
    last.train(100)
    last.end()
    tick(page)
    submit(page, name="another")
    screen = ExperimentsScreen("default", None, may=True)
    screen.refresh(page.deployment, None)
    changes = Changes(frozenset({work(page, "a").job}))
    assert "1 running" in screen.refresh(page.deployment, changes)
