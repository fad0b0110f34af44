"""What a node costs is what its join token says, else its pool; a price that nobody said is unknown, and never nothing."""

import threading
from typing import Any

import pytest
from tests.service.conftest import PROJECT, Service
from tests.service.jobs.test_samples import EVERY, commit, train
from tests.service.test_http import problem
from tests.service.test_rules import beat

from gangline.core.server.settings import PoolSettings
from gangline.ports.server import Assignment
from gangline.ports.store import guard
from gangline.service.jobs import query, samples

HOUR_S = 3600


def here(service: Service) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in service.ask("GET", "/v1/nodes").json()}


def summary(service: Service, job: str) -> dict[str, Any]:
    return service.ask("GET", f"/v1/jobs/{job}").json()["summary"]


def joined(service: Service, name: str = "m", **wanted: Any) -> str:
    """The id of a node that joins with a new token."""
    return service.join_with(service.join_token(**wanted)["secret"], name).json()["node"]


def test_a_node_has_the_price_and_the_trust_of_its_join_token_else_of_its_pool_whatever_it_says(
    service: Service,
) -> None:
    settings: Any = service.deployment.settings_of_pools
    settings["cloud"] = PoolSettings(price_usd_per_hour=0.5, trust=2)
    joined(service, "of the token", pool="cloud", price_usd_per_hour=0.25, trust=1)
    joined(service, "of the pool", pool="cloud")
    joined(service, "free", pool="cloud", price_usd_per_hour=0, trust=0)
    joined(service, "unknown", pool="nobody said")
    service.join_with(service.join_token(pool="nobody said")["secret"], "claims", price_usd_per_hour=9, trust=9)
    found = {
        name: (node["price_known"], node["price_usd_per_hour"], node["trust"]) for name, node in here(service).items()
    }
    assert found == {
        "of the token": (True, 0.25, 1),
        "of the pool": (True, 0.5, 2),
        "free": (True, 0.0, 0),
        "unknown": (False, 0.0, 0),
        "claims": (False, 0.0, 0),
    }


def test_a_job_that_asks_for_trust_goes_where_there_is_some(service: Service) -> None:
    job = service.submit(needs={"trust": 1})
    plain, trusted = joined(service, "plain"), joined(service, "trusted", trust=1)
    service.claim_nothing(plain)
    assert service.claim(trusted).job == job


def test_an_hour_costs_what_the_token_said(service: Service) -> None:
    job, node = service.submit(), joined(service, price_usd_per_hour=0.25)
    service.claim(node)
    service.wait(HOUR_S)
    assert summary(service, job)["cost_usd"] == pytest.approx(0.25)
    assert "node time" not in summary(service, job)["cost_lacks"]


def test_a_cost_says_what_it_lacks(service: Service) -> None:
    job = service.submit()
    assert summary(service, job)["cost_lacks"] == []  # nothing was spent yet
    service.claim(joined(service, pool="nobody said"))
    assert summary(service, job)["cost_lacks"] == ["node time", "storage", "egress"]
    assert service.ask("GET", "/v1/project").json()["cost_lacks"] == ["node time", "storage", "egress"]
    service.change_policy(storage_usd_per_gb_month=0.0, egress_usd_per_gb=0.02)
    assert query.job(service.deployment, PROJECT, job, service.now_ms).summary.cost_lacks == ("node time",)
    (attempt,) = service.ask("GET", f"/v1/jobs/{job}").json()["attempts"]
    assert attempt["cost_lacks"] == ["node time"]


def test_a_project_with_a_budget_gets_no_node_whose_price_is_not_known_and_is_told_why(service: Service) -> None:
    service.ask("PUT", f"/v1/projects/{PROJECT}", json={"budget_usd": 1e9})
    job, node = service.submit(), joined(service, "m", pool="nobody said")
    service.claim_nothing(node)
    because = summary(service, job)["because"]
    assert f"the price of m is not known, so it could not be counted against the budget of {PROJECT}" in because
    assert "give its join token or its pool a price" in because
    others = service.submit(project=service.add_project("without-a-budget"))
    assert service.claim(node).job == others
    assert service.claim(joined(service, "n", price_usd_per_hour=0.1)).job == job


def test_nothing_is_entered_in_a_budget_whose_price_is_not_known(service: Service) -> None:
    """The budget may have been set since the claim looked."""
    entry = {"id": PROJECT, "micro_usd": 0, "usage": 0.0, "now": service.now_ms}
    assert service.store.apply(guard("enter", **entry, price_known=0))
    service.ask("PUT", f"/v1/projects/{PROJECT}", json={"budget_usd": 5})
    assert not service.store.apply(guard("enter", **entry, price_known=0))
    assert service.store.apply(guard("enter", **entry, price_known=1))


def test_a_join_token_lets_in_as_many_nodes_at_once_as_it_says(service: Service) -> None:
    made = service.join_token(nodes_max=2)
    tokens = [service.join_with(made["secret"], name).json()["token"] for name in ("a", "b")]
    answer = service.join_with(made["secret"], "c")
    told = problem(answer, 429, "too-many")
    assert (
        told["detail"]
        == "2 nodes that joined with the token machines at home are active, and it admits no more at once"
    )
    assert int(answer.headers["Retry-After"]) > 0
    [_, listed] = service.ask("GET", "/v1/join-tokens").json()
    assert (listed["nodes"], listed["nodes_max"], listed["nodes_per_hour"]) == (2, 2, None)
    service.ask("DELETE", "/v1/nodes/self", tokens[0])
    assert service.join_with(made["secret"], "c").status_code == 201
    assert sorted(here(service)) == ["b", "c"]


def test_a_join_token_lets_in_as_many_nodes_an_hour_as_it_says(service: Service) -> None:
    secret = service.join_token(nodes_per_hour=2)["secret"]
    for name in ("a", "b"):
        token = service.join_with(secret, name).json()["token"]
        service.ask("DELETE", "/v1/nodes/self", token)
        service.wait(600)
    answer = service.join_with(secret, "c")
    problem(answer, 429, "too-many")
    assert answer.headers["Retry-After"] == str(HOUR_S - 1200)
    service.wait(HOUR_S - 1200)
    assert service.join_with(secret, "c").status_code == 201


def test_of_those_that_join_at_once_no_more_are_let_in(service: Service) -> None:
    secret, answers = service.join_token(nodes_max=3)["secret"], list[int]()
    begin = threading.Barrier(8)

    def join(number: int) -> None:
        begin.wait()
        answers.append(service.join_with(secret, f"m{number}").status_code)

    threads = [threading.Thread(target=join, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201] * 3 + [429] * 5 and len(here(service)) == 3


def test_pictures_for_a_project_with_a_budget_go_to_no_node_whose_price_is_not_known(service: Service) -> None:
    """Nobody would ever render them there: the node that trains does."""
    service.ask("PUT", f"/v1/projects/{PROJECT}", json={"budget_usd": 1e9})
    trains = joined(service, "trains", price_usd_per_hour=0.1)
    held = train(service, trains)
    joined(service, "unknown", pool="nobody said")
    assert commit(service, trains, held, EVERY).render
    joined(service, "known", price_usd_per_hour=0.1)
    assert not commit(service, trains, held, 2 * EVERY).render


@pytest.mark.parametrize("terms", [{}, {"price_usd_per_hour": 1.0}], ids=["unknown", "beyond the budget"])
def test_nobody_stops_rendering_for_training_that_its_budget_does_not_let_in(
    service: Service, terms: dict[str, float]
) -> None:
    trains, renders = joined(service, "trains"), joined(service, "renders", pool="nobody said", **terms)
    held = train(service, trains)
    commit(service, trains, held, EVERY)
    rendering = service.claim(renders)
    assert rendering.kind == "sample"
    service.submit(project=service.add_project("poor", budget_usd=0.2))  # less than a quarter of an hour there
    beats_for(service, [(trains, held), (renders, rendering)], 20)
    samples.give_way(service.deployment, service.now_ms)
    assert stop_of(service, rendering) == ""
    service.ask("PUT", "/v1/projects/poor", json={"budget_usd": None})
    samples.give_way(service.deployment, service.now_ms)
    assert stop_of(service, rendering) == "training waits for this node"


def beats_for(service: Service, held: list[tuple[str, Assignment]], seconds: float) -> None:
    service.wait(seconds)
    for node, assignment in held:
        beat(service, node, assignment.hold, 5)


def stop_of(service: Service, assignment: Assignment) -> str:
    return service.store.load("attempt", id=assignment.hold.attempt)[0]["stop"]
