"""Which budgets there are, and what the fleet costs an hour now."""

from typing import Any

from tests.service.conftest import OPERATOR, PRICE, PROJECT, Service
from tests.service.experiments import at_work
from tests.service.experiments.at_work import work
from tests.service.fleet.test_pools import add, join, look, rented

HOUR = PRICE / 1e6


def ask(service: Service, path: str, token: str = OPERATOR) -> dict[str, Any]:
    answer = service.ask("GET", path, token)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_budgets_of_projects_and_of_open_experiments_are_one_answer(service: Service) -> None:
    service.add_project("other", budget_usd=5)
    made = at_work.submit(service, budget_usd=3, at_once=1)["id"]
    ended = at_work.submit(service, budget_usd=4)["id"]
    at_work.submit(service)  # without a budget
    service.ask("POST", f"{at_work.PATH}/{ended}/stop").raise_for_status()
    for run in at_work.runs_of(service, ended):
        service.ask("POST", f"/v1/jobs/{run['job']}/cancel").raise_for_status()
    at_work.tick(service)
    node = work(service, "a")
    service.wait(30)
    node.train(100)
    node.end()
    found = ask(service, "/v1/budgets")
    budgets = {each["project"]: each["budget_usd"] for each in found["projects"]}
    assert budgets == {PROJECT: None, "other": 5}
    (open_one,) = found["experiments"]
    assert (open_one["experiment"], open_one["name"], open_one["budget_usd"]) == (made, "ranks", 3)
    assert open_one["spent_usd"] == at_work.shown(service, made)["spent_usd"] > 0
    theirs = ask(service, "/v1/budgets", service.key("viewer", "other"))
    assert ([each["project"] for each in theirs["projects"]], theirs["experiments"]) == (["other"], [])


def test_the_fleet_costs_its_price_of_which_free_slots_are_idle(service: Service) -> None:
    assert ask(service, "/v1/fleet") == {
        "pools": [],
        "nodes": 0,
        "unpriced": 0,
        "usd_per_hour": 0,
        "idle_usd_per_hour": 0,
        "starting_usd_per_hour": 0,
    }
    service.submit()
    service.claim(service.join("four", slots=4))
    service.join("one")
    assert service.join_with(service.join_token(pool="unpriced")["secret"]).is_success
    found = ask(service, "/v1/fleet")
    pools = {pool["pool"]: pool for pool in found["pools"]}
    assert (pools["default"]["nodes"], pools["default"]["slots"], pools["default"]["slots_free"]) == (2, 5, 4)
    assert (pools["default"]["usd_per_hour"], pools["default"]["idle_usd_per_hour"]) == (2 * HOUR, 1.75 * HOUR)
    assert (pools["unpriced"]["unpriced"], pools["unpriced"]["usd_per_hour"]) == (1, 0)
    assert (found["nodes"], found["unpriced"], found["usd_per_hour"]) == (3, 1, 2 * HOUR)


def test_a_rented_node_starts_before_it_is_idle_and_costs_nothing_once_it_is_gone(service: Service) -> None:
    add(service, nodes_min=1, offers=["small"])
    look(service)
    (node,) = rented(service)
    (pool,) = ask(service, "/v1/fleet")["pools"]
    assert (pool["usd_per_hour"], pool["starting_usd_per_hour"], pool["idle_usd_per_hour"]) == (0.1, 0.1, 0)
    join(service, node)
    (pool,) = ask(service, "/v1/fleet")["pools"]
    assert (pool["usd_per_hour"], pool["starting_usd_per_hour"], pool["idle_usd_per_hour"]) == (0.1, 0, 0.1)
    service.execute("UPDATE node SET state = 'gone'")
    assert ask(service, "/v1/fleet")["pools"] == []
