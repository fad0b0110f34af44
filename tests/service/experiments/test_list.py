"""The list of experiments: of those that have ended it reads sums alone, and says the same as when each job is looked at."""

from dataclasses import replace

from gangline.service.experiments.query import page_of_experiments
from tests.service.conftest import PROJECT, Service
from tests.service.experiments.at_work import PATH, runs_of, shown, submit, tick, work
from tests.service.lists.test_lists import Counting


def listed(service: Service) -> list[dict[str, object]]:
    return service.ask("GET", PATH).json()["experiments"]


def at_an_end(service: Service, **given: object) -> str:
    """An experiment of three jobs: one succeeded on its second node, one was canceled while it trained, one before its start."""
    made = submit(service, vary={"rank": [4, 8, 16]}, settings={"seed": 1}, at_once=1, **given)["id"]
    first = work(service, "a")
    first.train(40)
    first.save(40)
    first.hand_back()
    tick(service)
    again = work(service, "b")
    again.train(100)
    service.wait(30)
    again.end()
    tick(service)
    second = work(service, "c")
    second.train(60)
    service.ask("POST", f"/v1/jobs/{second.job}/cancel")
    service.ask("POST", f"/v1/jobs/{runs_of(service, made)[2]['job']}/cancel")
    tick(service)
    return made


def test_an_experiment_that_has_ended_is_listed_as_it_is_shown(service: Service) -> None:
    made, running = at_an_end(service), submit(service, name="second")["id"]
    assert shown(service, made)["state"] == "ended"
    assert listed(service) == [shown(service, running), shown(service, made)]
    service.execute("UPDATE attempt SET price_known = 0")
    service.execute("UPDATE experiment_run SET dropped = 1 WHERE number > 1")
    service.execute('UPDATE experiment SET halving = \'{"min_steps": 10, "eta": 2}\'')
    (_, found) = listed(service)
    assert found == shown(service, made) and found["saved"]["jobs"] == 2 and found["cost_lacks"]  # type: ignore[index]


def test_no_job_of_an_experiment_that_has_ended_is_read_for_the_list(service: Service) -> None:
    made = at_an_end(service)
    before = shown(service, made)
    service.execute("UPDATE experiment_run SET measured = 'unreadable'")
    assert listed(service) == [before]


def test_a_page_costs_as_many_statements_for_many_experiments_at_work_as_for_one(service: Service) -> None:
    made = [submit(service, name=f"number {number}", vary={"rank": [4, 8]})["id"] for number in range(4)]
    counted = Counting(service.store)
    deployment, asked = replace(service.deployment, store=counted), list[int]()
    for limit in (1, len(made)):
        counted.loads = 0
        page = page_of_experiments(deployment, PROJECT, service.now_ms, limit=limit, cursor=None)
        asked.append(counted.loads)
        assert [each.id for each in page.experiments] == made[::-1][:limit] and (page.next is None) == (limit == 4)
    assert asked[0] == asked[1] < 6
    assert listed(service) == [shown(service, each) for each in made[::-1]]
    assert {each.jobs for each in page.experiments} == {2}


def test_a_best_job_that_was_deleted_is_not_listed_as_the_best(service: Service) -> None:
    made = at_an_end(service)
    best = shown(service, made)["best"]
    assert best
    answer = service.ask("DELETE", f"/v1/jobs/{best['job']}")
    assert answer.status_code == 200, answer.text
    service.tick()
    assert shown(service, made)["best"] is None and listed(service) == [shown(service, made)]


def test_a_job_that_continues_after_the_end_is_read_as_it_is_now(service: Service) -> None:
    made = at_an_end(service)
    again = service.ask("POST", f"/v1/jobs/{runs_of(service, made)[0]['job']}/extend?steps=300")
    assert again.is_success, again.text
    assert listed(service)[-1] == shown(service, made)
