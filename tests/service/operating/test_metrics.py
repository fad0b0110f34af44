"""The metrics of a server: what they count, who may read them, and that they grow with nothing that a user can make."""

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from gangline.api.app import make_app
from gangline.core.errors import Unreachable
from gangline.service.jobs.finish import finish
from gangline.service.operating.measure import RECOUNT_S, Kept, ServiceMetrics
from tests.service.conftest import OPERATOR, Service
from tests.service.jobs.test_one_at_a_time import result

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
TOKEN = "a" * 32


def parse(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(service: Service) -> Samples:
    answer = service.ask("GET", "/metrics")
    assert answer.status_code == 200, answer.text
    return parse(answer.text)


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((f"gangline_{name}", frozenset(labels.items())))


def test_jobs_nodes_attempts_and_money_are_those_of_the_database(service: Service) -> None:
    node = service.join()
    service.submit()
    assigned = service.claim(node)
    service.wait(10)
    service.submit()
    service.wait(30)
    before = scrape(service)
    assert value(before, "jobs", state="running") == value(before, "jobs", state="queued") == 1
    assert value(before, "jobs", state="failed") == value(before, "jobs", state="held") == 0
    assert value(before, "oldest_queued_seconds") == 30
    assert value(before, "leases") == value(before, "ready", check="objects") == 1
    assert value(before, "nodes", pool="default", state="ready") == 1
    assert value(before, "attempts_ended_total", pool="default", outcome="succeeded", failure="") is None
    finish(service.deployment, node, assigned.hold, result(service, node, assigned.hold), service.now_ms)
    after = scrape(service)
    assert value(after, "jobs", state="succeeded") == 1
    assert value(after, "attempts_ended_total", pool="default", outcome="succeeded", failure="") == 1
    spent = value(after, "cost_usd_total", pool="default", cause="download", useful="no")
    assert spent == pytest.approx(40 * 100 / 1e6)  # 100 micro-dollars a second
    assert value(after, "node_seconds_total", pool="default", cause="download", useful="no") == 40


def test_several_servers_count_the_same_of_what_is_in_the_database(service: Service) -> None:
    node = service.join()
    first, second = ServiceMetrics(service.deployment), ServiceMetrics(service.deployment)
    first.of_database(service.now_ms)  # one that counted everything long ago, and one that begins
    for _ in range(3):
        service.submit()
        assigned = service.claim(node)
        service.wait(100)
        finish(service.deployment, node, assigned.hold, result(service, node, assigned.hold), service.now_ms)
    kept = "gangline_object_store_bytes"  # for ten minutes, as said there
    one, other = (
        [each for each in metrics.of_database(service.now_ms) if each.name != kept] for metrics in (first, second)
    )
    assert one == other


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_bill_that_comes_late_is_counted_within_an_hour(service: Service) -> None:
    metrics = ServiceMetrics(service.deployment)
    metrics.of_database(service.now_ms)
    late = "INSERT INTO ledger VALUES ('n', '', 'start-up', 1, 2001, '', '', 7000000)"

    def dollars() -> float:
        found = next(each for each in metrics.of_database(service.now_ms) if each.name == "gangline_cost_usd_total")
        return sum(found.samples.values())

    service.execute(late)
    assert dollars() == 0  # its time was counted before
    service.wait(RECOUNT_S)
    dollars()  # which lets it be counted again, beside
    metrics.totals.settle()
    assert dollars() == 7


def test_neither_costs_nor_credits_fall_when_providers_correct_their_bills(service: Service) -> None:
    def dollars() -> tuple[float | None, float | None]:
        found = scrape(service)
        return (
            value(found, "cost_usd_total", pool="", cause="correction", useful="no"),
            value(found, "credits_usd_total", pool=""),
        )

    line = "INSERT INTO ledger VALUES ('{0}', '', 'correction', {2}, {2}, '', '', {1})"
    service.execute(line.format("node-a", -3_000_000, service.now_ms))
    before = dollars()
    service.execute(line.format("node-b", 1_000_000, service.now_ms))
    assert (before, dollars()) == ((0, 3), (1, 3))


def test_what_is_billed_for_a_rental_that_nobody_knows_is_an_orphan_until_it_has_ended(service: Service) -> None:
    bill = "INSERT INTO instance (id, node, billed_from_ms, settled) VALUES ('i/1', 'of-before-the-restore', 1, 0)"
    service.execute(bill)
    found = scrape(service)
    assert value(found, "orphan_instances") == 1
    assert value(found, "pool_instances_billed", pool="default") == 0
    service.execute("UPDATE instance SET billed_to_ms = 2")
    assert value(scrape(service), "orphan_instances") == 0


def test_a_recount_without_a_database_keeps_what_was_counted() -> None:
    answers = [3, Unreachable("the database does not answer"), 4]

    def find(_: int) -> int:
        answer = answers.pop(0)
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    kept = Kept(10, find)
    found = list[int]()
    for now_ms in (0, 9_999, 10_000, 10_001, 10_002):
        found.append(kept.get(now_ms))
        kept.settle()
    assert found == [3, 3, 3, 3, 4]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_node_that_falls_silent_is_a_lease_that_expired(service: Service) -> None:
    service.submit()
    service.claim(service.join())
    service.wait(1000)
    service.tick()
    found = scrape(service)
    assert value(found, "leases_expired_total", pool="default") == 1
    assert value(found, "leases") == 0


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_metrics_need_an_operators_key_or_their_own_token(service: Service) -> None:
    own = TestClient(make_app(service.deployment, None, metrics_token=TOKEN))

    def status(token: str) -> int:
        return own.get("/metrics", headers={"Authorization": f"Bearer {token}"}).status_code

    assert (status(TOKEN), status(OPERATOR), status("b" * 32), status("")) == (200, 200, 401, 401)
    assert status(service.key("admin")) == 403
    # The token opens nothing else, and no token at all is not one that is empty.
    assert own.get("/v1/jobs", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 401
    assert service.http.get("/metrics", headers={"Authorization": "Bearer "}).status_code == 401


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_requests_are_counted_by_the_template_of_their_route(service: Service) -> None:
    app = make_app(service.deployment, None)
    asked = TestClient(app, headers={"Authorization": f"Bearer {OPERATOR}"})
    for path in ("/v1/jobs/job-1", "/v1/jobs/job-2", "/nowhere/1", "/nowhere/2", "/v1/jobs"):
        asked.get(path)
    asked.request("BREW", "/v1/jobs")
    asked.post("/v1/attempts/attempt-1/heartbeats?fencing=1", json={})
    found = parse(asked.get("/metrics").text)

    def count(method: str, route: str, status: str) -> float | None:
        return value(found, "http_request_seconds_count", method=method, route=route, status=status)

    assert count("GET", "/v1/jobs/{job}", "4xx") == 2
    assert count("GET", "none", "4xx") == 2
    assert count("GET", "/v1/jobs", "2xx") == 1
    assert count("other", "/v1/jobs", "4xx") == 1
    assert count("POST", "/v1/attempts/{attempt}/heartbeats", "4xx") == 1


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_no_label_names_a_job_a_node_or_a_user(service: Service) -> None:
    project = service.add_project("a-project-of-mine")
    key = service.make_key("member", project, name="a-user-of-mine")
    assert service.ask("GET", "/v1/jobs", key["secret"]).status_code == 200
    job, node = service.submit(project), service.join("a-machine-of-mine")
    attempt = service.claim(node).hold.attempt
    text = service.ask("GET", "/metrics").text
    names = (
        job,
        node,
        attempt,
        project,
        "a-machine-of-mine",
        "a-user-of-mine",
        key["key"]["id"],
        key["secret"],
        OPERATOR,
    )
    assert [name for name in names if name in text] == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_labels_are_those_that_grow_with_pools_and_routes_alone(service: Service) -> None:
    node = service.join()
    service.submit()
    assigned = service.claim(node)
    service.wait(10)
    finish(service.deployment, node, assigned.hold, result(service, node, assigned.hold), service.now_ms)
    service.execute("INSERT INTO ledger VALUES ('n', '', 'correction', 1, 1, '', '', -1)")
    scrape(service)  # a request, whose labels the next one has
    labels = {label for _, labels in scrape(service) for label, _ in labels}
    of_pools, of_routes = {"pool", "cause", "useful", "outcome", "failure"}, {"method", "route", "status", "le"}
    assert labels == of_pools | of_routes | {"state", "check", "kind", "version", "protocol", "python"}


def test_without_its_database_the_metrics_of_the_process_say_so(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Unreachable("the database does not answer")

    own = TestClient(make_app(service.deployment, None, metrics_token=TOKEN))
    monkeypatch.setattr(service.store, "load", refuse)
    answer = own.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    found = parse(answer.text)
    assert (answer.status_code, value(found, "ready", check="database")) == (200, 0)
    assert value(found, "database_errors_total") is not None
    assert value(found, "leases") is None, "a gauge that nobody counted is not there, rather than old"
