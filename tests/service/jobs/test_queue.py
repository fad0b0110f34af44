"""The queue: who waits, in the order in which nodes take the jobs, why, and what would help; for ten thousand jobs as for one."""

import time
from typing import Any

import pytest

from gangline.core.specs.fields import Needs
from gangline.ports.store import Row
from gangline.service.fleet import operating
from gangline.service.jobs.placing.queue import place_of
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.experiments import at_work
from tests.service.fleet.test_pools import add, look
from tests.service.test_rules import fail, release, succeed

LARGE_NEEDS = Needs(gpu_memory_gb=24)


def ask(service: Service, token: str = OPERATOR, **params: Any) -> dict[str, Any]:
    answer = service.ask("GET", "/v1/queue", token, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def row_of(service: Service, job: str) -> Row:
    return service.store.load("job", id=job)[0]


def places(found: dict[str, Any]) -> list[tuple[int | None, str]]:
    return [(job["place"], job["job"]) for job in found["page"]]


def used(service: Service, project: str, usd: float) -> None:
    service.execute(f"UPDATE project SET usage = {usd * 1e6}, usage_ms = {service.now_ms} WHERE id = '{project}'")


def test_an_empty_queue_has_nobody(service: Service) -> None:
    assert ask(service) == {"jobs": 0, "without_place": 0, "groups": [], "ungrouped": 0, "page": [], "next": None}


def test_places_are_those_of_the_claim(service: Service) -> None:
    """Interrupted jobs first, then the project that used least, then priority and age; nodes take the jobs in this very order."""
    service.add_project("thrifty")
    again = service.submit()
    node = service.join()
    release(service, node, service.claim(node).hold)
    low, high = service.submit(priority=0), service.submit(priority=5)
    service.wait(1)
    late = service.submit(priority=5)
    theirs = service.submit("thrifty")
    used(service, PROJECT, 50)
    expected = [again, theirs, high, late, low]
    found = ask(service)
    assert places(found) == list(enumerate(expected, 1))
    assert (found["jobs"], found["next"]) == (5, None)
    assert [place_of(service.deployment, row_of(service, job), service.now_ms) for job in expected] == [1, 2, 3, 4, 5]
    mine = ask(service, service.key("viewer"))
    assert places(mine) == [(1, again), (3, high), (4, late), (5, low)]
    assert places(ask(service, service.key("viewer", "thrifty"))) == [(2, theirs)]
    taken = list[str]()
    for _ in expected:
        assignment = service.claim(node)
        taken.append(assignment.job)
        used(service, PROJECT, 50)
        succeed(service, node, assignment.hold)
    assert taken == expected


def test_a_page_follows_the_other_without_a_gap(service: Service) -> None:
    service.add_project("other")
    node = service.join()
    for _ in range(3):
        service.submit("other")
        release(service, node, service.claim(node).hold)
        service.wait(3600)
    for project in (PROJECT, "other", PROJECT):
        service.submit(project)
    at_work.submit(service, at_once=1)
    whole = places(ask(service))
    assert [place for place, _ in whole] == [*range(1, len(whole)), None]
    for limit in (1, 2, 3):
        found, after = list[tuple[int | None, str]](), 0
        while after is not None:
            page = ask(service, limit=limit, after=after)
            found, after = found + places(page), page["next"]
        assert found == whole
    assert ask(service, after=10**6)["page"] == []


def test_jobs_that_ask_the_same_are_one_group(service: Service) -> None:
    for number in range(5):
        service.submit(needs=LARGE_NEEDS if number % 2 else Needs(), seed=number)
        service.wait(10)
    found = ask(service)
    assert [(group["jobs"], group["needs"], group["interrupted"], group["waited_s"]) for group in found["groups"]] == [
        (3, "", False, 50),
        (2, "24 GB of GPU memory", False, 40),
    ]
    assert found["ungrouped"] == 0
    assert {job["because"] for job in found["page"]} == {group["because"] for group in found["groups"]}


def test_why_a_job_waits_is_what_the_list_of_jobs_says(service: Service) -> None:
    service.join(gpu="T4", gpu_memory_gb=16)
    job = service.submit(needs=LARGE_NEEDS)
    (queued,) = ask(service)["page"]
    assert queued["because"] == service.ask("GET", f"/v1/jobs/{job}").json()["summary"]["because"]
    assert queued["helps"] == [
        "start a worker that has 24 GB of GPU memory: `gangline worker`",
        "make a pool that has 24 GB of GPU memory: `gangline pools add`",
    ]


def test_a_job_that_fits_a_busy_node_waits_for_its_turn_there(service: Service) -> None:
    service.submit()
    service.claim(service.join("node-a"))
    service.submit()
    (queued,) = ask(service)["page"]
    assert (queued["because"], queued["helps"]) == ("waits for its turn on node-a", [])


def test_a_full_pool_and_a_paused_one_say_how_they_let_the_job_in(service: Service) -> None:
    service.change_policy(unmatched_s=10**6)
    add(service, "full", nodes_min=1, nodes_max=1, offers=["large"])
    add(service, "resting", nodes_max=2, offers=["large"])
    look(service)
    service.ask("POST", "/v1/pools/resting/pause").raise_for_status()
    look(service)
    service.submit(needs=LARGE_NEEDS)
    service.claim_nothing(service.join("small", gpu="T4", gpu_memory_gb=16))
    service.execute("UPDATE node SET state = 'gone' WHERE rented = 0")
    (group,) = ask(service)["groups"]
    assert group["helps"] == [
        "the pool full has its maximum of 1 node: `gangline pools set full --nodes 2`",
        "let the pool resting rent again: `gangline pools resume resting`",
    ]


def test_a_budget_a_quarantine_and_a_pool_that_is_not_there_say_what_would_help(service: Service) -> None:
    service.add_project("poor", budget_usd=0)
    service.submit("poor")
    node = service.join()
    (group,) = ask(service)["groups"]
    assert "the budget of poor, $0.00, does not allow it" in group["because"]
    assert group["helps"] == ["raise the budget: `gangline projects set poor --usd N`"]
    service.submit()
    operating.quarantine(service.deployment, node, service.now_ms, lasts_s=60, stop=False)
    helps = {each["project"]: each["helps"] for each in ask(service)["groups"]}
    assert helps[PROJECT] == [f"let node-a work again: `gangline nodes release {node}`"]
    service.submit(needs=Needs(pool="nowhere"))
    found = {each["needs"]: each for each in ask(service)["groups"]}
    assert "its pool nowhere does not exist" in found["the pool nowhere"]["because"]
    assert found["the pool nowhere"]["helps"][0] == "make the pool: `gangline pools add nowhere`"


def test_a_job_that_its_experiment_holds_has_no_place_and_says_what_releases_it(service: Service) -> None:
    made = at_work.submit(service, at_once=1, budget_usd=3)["id"]
    found = ask(service)
    assert (found["jobs"], found["without_place"]) == (2, 1)
    held = found["page"][-1]
    assert place_of(service.deployment, row_of(service, held["job"]), service.now_ms) is None
    assert held["place"] is None and held["because"].startswith("waits for its experiment ranks: ")
    assert held["helps"] == [
        f"let more run at once: `gangline experiments change {made} --at-once 2`",
        f"raise its budget of $3.00: `gangline experiments change {made} --budget N`",
    ]
    assert [group["because"] == held["because"] for group in found["groups"]].count(True) == 1


def test_a_job_that_failed_waits_before_its_next_try_and_a_banned_machine_is_named(service: Service) -> None:
    service.submit()
    node = service.join()
    fail(service, node, service.claim(node).hold, "crashed")
    (queued,) = ask(service)["page"]
    assert "before its next try" in queued["because"] and queued["helps"] == []
    assert ask(service)["groups"][0]["interrupted"]
    service.execute(f"UPDATE job SET ready_ms = {service.now_ms}")
    assert "node-a failed it before" in ask(service)["page"][0]["because"]


def test_pictures_that_are_rendered_are_in_nobodys_queue(service: Service) -> None:
    service.submit()
    service.execute("UPDATE job SET kind = 'sample'")
    assert ask(service)["jobs"] == 0


def write_queue(service: Service, count: int) -> None:
    """Copy one waiting job so often, asking for one of ten memories, after another or for the first time."""
    (job,) = service.look("SELECT * FROM job")
    names = ", ".join(job)
    changed = {"id", "gpu_memory_gb", "fencing", "priority", "submitted_ms", "queued_ms", "request", "spec_hash"}
    same = {name: "NULL" if value is None else repr(value) for name, value in job.items() if name not in changed}
    for start in range(0, count, 500):
        rows = [
            same
            | {"id": f"'job-{number:08d}'", "gpu_memory_gb": f"{number % 10 * 4}", "fencing": f"{int(number % 7 == 0)}"}
            | {"priority": f"{number % 3}", "submitted_ms": f"{number}", "queued_ms": f"{number}"}
            | {"request": "NULL", "spec_hash": f"'{number}'"}
            for number in range(start, min(start + 500, count))
        ]
        values = ",".join(f"({', '.join(row[name] for name in job)})" for row in rows)
        service.execute(f"INSERT INTO job ({names}) VALUES {values}")
    service.execute("ANALYZE")


def test_ten_thousand_waiting_jobs_are_answered_in_150_ms_and_explained_once_each_kind(service: Service) -> None:
    service.submit()
    for number in range(20):
        service.join(f"node-{number}", gpu="T4", gpu_memory_gb=16)
    write_queue(service, 10_000)
    found = ask(service, limit=200)  # the first one also opens what the process needs
    assert (found["jobs"], len(found["page"]), found["ungrouped"]) == (10_001, 200, 0)
    assert sum(group["jobs"] for group in found["groups"]) == 10_001
    took = list[float]()
    for after in (0, 5000, 9900, 5000, 0):
        begun = time.process_time()  # of the processor: other tests share it
        found = ask(service, limit=100, after=after)
        took.append(time.process_time() - begun)
        assert len(found["page"]) == 100 and found["page"][0]["place"] == after + 1
    assert min(took) < 0.15, took


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_more_kinds_of_work_than_are_listed_are_counted(service: Service) -> None:
    service.submit()
    write_queue(service, 300)
    service.execute("UPDATE job SET gpu_memory_gb = queued_ms")
    found = ask(service)
    assert (len(found["groups"]), found["jobs"], found["ungrouped"]) == (100, 301, 201)
