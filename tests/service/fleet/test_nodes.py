"""Single nodes in an operator's hands: what is known of one, and to drain, quarantine and release it."""

from typing import Any

import pytest

from gangline.service.fleet.fleet import tend
from tests.service.conftest import PROJECT, Service
from tests.service.fleet.test_pools import add, join, look, rented
from tests.service.test_http import problem
from tests.service.test_rules import a_contrast, advance, quarantined, release, succeed


def ask(service: Service, node: str, what: str) -> dict[str, Any]:
    answer = service.ask("POST", f"/v1/nodes/{node}/{what}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def a_rented_node(service: Service) -> str:
    add(service)
    service.submit()
    look(service)
    (node,) = rented(service)
    return join(service, node)


def test_a_node_is_shown_with_its_jobs_its_machine_and_what_its_provider_knows(service: Service) -> None:
    node = a_rented_node(service)
    job = service.claim(node).job
    shown = service.ask("GET", f"/v1/nodes/{node}").json()
    assert (shown["offer"], shown["rental"], shown["instance"]) == ("small", node, None)
    look(service)
    shown = service.ask("GET", f"/v1/nodes/{node}").json()
    assert (shown["instance"], shown["slots_taken"]) == ("instance-0", 1)
    assert [each["job"] for each in shown["jobs"]] == [job]
    assert shown["machine"]["strikes"] == 0 and shown["machine"]["quarantined_until_ms"] is None
    stranger = service.key("viewer", service.add_project("others"))
    assert service.ask("GET", f"/v1/nodes/{node}", stranger).json()["jobs"] == []
    assert service.ask("GET", f"/v1/nodes/{node}/logs").json()["text"] == "instance-0 is ready"
    problem(service.ask("GET", "/v1/nodes/none"), 404, "not-found")


def test_a_node_of_several_jobs_is_listed_once_with_all_of_them(service: Service) -> None:
    node, jobs = service.join(slots=2), {service.submit(), service.submit()}
    assert {service.claim(node).job, service.claim(node).job} == jobs
    (shown,) = service.ask("GET", "/v1/nodes").json()
    assert {each["job"] for each in shown["jobs"]} == jobs


def test_a_drained_node_finishes_what_it_has_and_gets_no_more(service: Service) -> None:
    node, first = service.join(), service.submit()
    hold = service.claim(node).hold
    assert ask(service, node, "drain")["state"] == "draining"
    service.submit()
    advance(service, node, hold)
    succeed(service, node, hold)
    assert service.state(first) == "succeeded" and "drained by an operator" in service.claim_nothing(node)


def test_with_stop_it_hands_its_jobs_back(service: Service) -> None:
    node, job = service.join(), service.submit()
    hold = service.claim(node).hold
    ask(service, node, "drain?stop=true")
    release(service, node, hold)
    assert service.state(job) == "queued"


def test_a_rented_node_that_is_drained_is_given_back_at_once_if_it_is_idle(service: Service) -> None:
    node = a_rented_node(service)
    look(service)
    ask(service, node, "drain")
    assert all(found.billed_to_ms for found in service.till.instances.values())
    tend(service.deployment, service.now_ms)
    refused = problem(service.ask("POST", f"/v1/nodes/{node}/drain"), 422, "bad-input")
    assert refused["detail"].endswith("is gone")


def test_a_node_that_has_not_joined_is_given_back_and_its_instance_ends_whenever_it_appears(service: Service) -> None:
    add(service)
    service.submit(PROJECT)
    look(service)
    (node,) = rented(service)
    assert ask(service, node, "drain")["state"] == "gone"
    service.execute("UPDATE job SET state = 'canceled'")
    look(service)
    assert rented(service) == [] and all(found.billed_to_ms for found in service.till.instances.values())


def test_the_bill_of_a_rental_is_what_its_provider_bills_by_cause(service: Service) -> None:
    node = a_rented_node(service)
    look(service)
    hold = service.claim(node).hold
    service.wait(100)
    advance(service, node, hold)
    succeed(service, node, hold)
    assert service.ask("GET", f"/v1/nodes/{node}/bill").json()["settled"] is False
    service.wait(3600)
    service.till.now_ms = service.now_ms
    ask(service, node, "drain")
    look(service)
    look(service)
    bill = service.ask("GET", f"/v1/nodes/{node}/bill").json()
    (billed,) = bill["billed"]
    hours = (billed["to_ms"] - billed["from_ms"]) / 3_600_000
    assert bill["settled"] and bill["cost_usd"] == pytest.approx(0.1 * hours, abs=2e-6)
    assert {"download", "idle"} <= {time["cause"] for time in bill["times"]}
    assert bill["cost_usd"] == pytest.approx(sum(time["cost_usd"] for time in bill["times"]))
    refused = problem(service.ask("GET", f"/v1/nodes/{service.join()}/bill"), 422, "bad-input")
    assert refused["detail"].endswith("was not rented")


def test_a_machine_in_quarantine_gets_no_work_as_any_node_and_is_then_on_trial(service: Service) -> None:
    node = service.join("node-a")
    assert ask(service, node, "quarantine?lasts_s=60")["state"] == "quarantined"
    service.submit()
    assert service.claim_nothing(node)
    again = service.join("node-a")
    shown = service.ask("GET", f"/v1/nodes/{again}").json()
    assert shown["state"] == "quarantined" and shown["machine"]["because"] == "quarantined by an operator"
    service.wait(61)
    service.tick()
    assert service.ask("GET", f"/v1/nodes/{again}").json()["state"] == "on_trial"


def test_a_released_machine_works_again_and_its_strikes_are_forgotten(service: Service) -> None:
    a_contrast(service)
    node = quarantined(service)
    assert service.ask("GET", f"/v1/nodes/{node}").json()["state"] == "quarantined"
    shown = ask(service, node, "release")
    assert (shown["state"], shown["because"], shown["machine"]["strikes"]) == ("ready", "released by an operator", 0)
    service.wait(10)
    service.tick()
    job = service.submit()
    assert service.claim(node).job == job


@pytest.mark.parametrize("what", ["quarantine", "release"])
def test_what_has_not_joined_or_is_gone_is_refused(service: Service, what: str) -> None:
    add(service)
    service.submit(PROJECT)
    look(service)
    (node,) = rented(service)
    refused = problem(service.ask("POST", f"/v1/nodes/{node}/{what}"), 422, "bad-input")
    assert refused["detail"].endswith("has not joined yet")
    problem(service.ask("POST", f"/v1/nodes/none/{what}"), 404, "not-found")
