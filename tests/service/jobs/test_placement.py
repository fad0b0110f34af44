"""A plan asks where a job could run: what is told is what would happen, and nothing changes."""

import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

from gangline.adapters.store.session import PARAMETER
from gangline.adapters.store.sqlite import SqliteStore
from gangline.adapters.store.statements import statements
from gangline.core.parsing import to_json
from gangline.core.specs.fields import HubBase
from gangline.core.specs.spec import workload
from gangline.ports.store import write
from gangline.service.fleet import operating
from tests.hub import COMMIT, REPO
from tests.service.conftest import PRICE, PROJECT, Service


def asked(service: Service, token: str | None = None, **settings: Any) -> dict[str, Any]:
    answer = service.ask(
        "POST", "/v1/plans", *([token] if token else []), json={"spec": to_json(service.spec(**settings))}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def tried(service: Service, *machines: tuple[str, str, float], **settings: Any) -> None:
    """As if such work had been done there: GPU, machine, seconds per step."""
    which = workload(service.spec(**settings))
    for gpu, machine, seconds in machines:
        pace = {"gpu": gpu, "machine": machine, "seconds_per_step": seconds}
        service.store.apply(write("set_pace", workload=which, **pace, now=service.now_ms))


def test_a_plan_changes_nothing_and_needs_no_file_to_be_here(service: Service) -> None:
    service.join()
    asked(service)  # that a key was used is noted once an hour
    before = service.dump()
    found = asked(service, photos=(replace(service.photo, sha256="f" * 64),))
    assert [node["name"] for node in found["fitting"]] == ["node-a"]
    assert service.dump() == before


def test_what_the_plan_says_is_what_the_job_would_say(service: Service) -> None:
    node = service.join(gpu="T4", gpu_memory_gb=16)
    needs = {"gpu": "RTX 4090", "gpu_memory_gb": 24.0}
    value = to_json(service.spec()) | {"needs": needs}
    found = service.ask("POST", "/v1/plans", json={"spec": value}).json()
    job = service.ask("POST", "/v1/jobs", json={"spec": value}).json()["summary"]
    assert found["because"] == job["because"] != ""
    assert found["unfit"][0]["because"] in found["because"]
    assert service.claim_nothing(node)


def test_nodes_have_the_price_of_their_pool_and_are_busy_while_others_train(service: Service) -> None:
    node = service.join(gpu="T4", gpu_memory_gb=16)
    (free,) = asked(service)["fitting"]
    assert (free["price_usd_per_hour"], free["busy"], free["gpu"], free["gpu_memory_gb"]) == (
        PRICE / 1e6,
        False,
        "T4",
        16,
    )
    service.submit()
    service.claim(node)
    (busy,) = asked(service)["fitting"]
    assert busy["busy"]


def test_what_goes_before_it_in_the_queue_is_counted(service: Service) -> None:
    service.add_project("other")
    ready: tuple[dict[str, Any], ...] = ({}, {"priority": 5}, {"priority": -5}, {"project": "other"})
    for settings in ready:
        service.submit(**settings)
    assert asked(service)["ahead"] == 2
    assert asked(service, priority=-5)["ahead"] == 3


def test_what_this_workload_took_is_told_whoever_did_it(service: Service) -> None:
    tried(service, ("T4", "m1", 2.0), ("T4", "m2", 4.0), ("A100", "m3", 0.5))
    tried(service, ("T4", "m1", 99.0), rank=64)
    found = asked(service)["took"]
    assert [(took["gpu"], took["seconds_per_step"]) for took in found] == [("A100", [0.5]), ("T4", [2.0, 4.0])]
    assert [took["seconds_per_step"] for took in asked(service, rank=64)["took"]] == [[99.0]]
    assert asked(service, rank=65)["took"] == []


def test_a_viewer_asks_for_its_own_project_and_its_budget(service: Service) -> None:
    service.add_project("other", budget_usd=3.0)
    assert asked(service, service.key("viewer", "other"))["budget_left_usd"] == 3.0
    assert asked(service, service.key("viewer"))["budget_left_usd"] is None


def test_a_project_that_has_no_job_yet_is_answered(service: Service) -> None:
    service.execute(f"DELETE FROM blob WHERE project = '{PROJECT}'", f"DELETE FROM project WHERE id = '{PROJECT}'")
    assert asked(service)["budget_left_usd"] is None


def test_a_copy_of_a_gated_base_is_told(service: Service) -> None:
    base = HubBase(repo=REPO, revision=COMMIT)
    assert asked(service, base=base)["copies"] == {}
    which = {"project": PROJECT, "base": base.id, "role": "base", "repo": REPO, "revision": COMMIT}
    service.store.apply(write("begin_mirror", **which, files="[]", bytes=2_000_000_000))
    assert asked(service, base=base)["copies"] == {"base": "0.00 of 2.00 GB are copied"}
    service.execute("UPDATE mirror SET state = 'ready'")
    assert asked(service, base=base)["copies"] == {"base": "ready"}


def test_a_spec_that_is_none_is_refused_with_all_that_is_wrong(service: Service) -> None:
    answer = service.ask("POST", "/v1/plans", json={"spec": to_json(service.spec()) | {"rank": 0, "steps": 0}})
    assert answer.status_code == 422
    assert {"rank", "steps"} <= {problem["field"] for problem in answer.json()["problems"]}


def test_the_nodes_of_a_plan_are_those_that_users_see(service: Service) -> None:
    for name in ("node-a", "node-b"):
        service.join(name)
    shown = {node.name for node in operating.nodes(service.deployment, PROJECT, service.now_ms)}
    assert {node["name"] for node in asked(service)["fitting"]} == shown


def test_no_statement_of_a_plan_looks_through_the_jobs_of_the_past(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "db.sqlite").close()
    connection = sqlite3.connect(tmp_path / "db.sqlite")
    for name in ("nodes_here", "slots_in_use", "jobs_before", "paces_of_workload", "project", "mirrors"):
        text = statements()[name]
        values = dict.fromkeys(PARAMETER.findall(text), 0)
        steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", values)]
        assert [step for step in steps if re.match(r"SCAN (job|attempt|pace|event|ledger)\b(?! USING)", step)] == [], (
            name
        )
