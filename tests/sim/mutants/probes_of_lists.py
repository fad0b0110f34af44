"""Races and rules about labels of jobs, and about requests that are sent twice."""

from gangline.core.errors import BadInput, Changed, InProgress
from gangline.core.jobs.lists.labels import LABELS_MAX
from gangline.core.jobs.lists.seen import Seen
from gangline.core.server.idempotency import KEPT_S
from gangline.service.access import access, projects
from gangline.service.access.requests import KeyedRequest, forget_requests
from gangline.service.jobs import steer
from gangline.service.jobs.lists.labels import change_labels, labels_of
from tests.sim.mutants.bench import PROJECT, Bench, probe, refused

ONCE = KeyedRequest(project=PROJECT, endpoint="POST /v1/keys", key="once", fingerprint="f")


def make_key(bench: Bench, name: str) -> str:
    known = {"name": name, "lasts_s": None, "now_ms": bench.now_ms, "request": ONCE}
    return access.create_key(bench.deployment, "admin", PROJECT, "member", **known).key.id


@probe()
def two_who_label_a_job_at_once_give_it_no_more_labels_than_it_may_have(bench: Bench) -> None:
    job = bench.submit()
    change_labels(bench.deployment, job, {f"key-{number}": "" for number in range(LABELS_MAX - 1)})
    bench.meanwhile("change_job", lambda: change_labels(bench.deployment, job, {"theirs": "x"}))
    assert refused(BadInput, lambda: change_labels(bench.deployment, job, {"mine": "x"}))
    assert len(labels_of(bench.deployment, job)) == LABELS_MAX


@probe()
def a_label_is_changed_and_removed_alone(bench: Bench) -> None:
    job, other = bench.submit(), bench.submit()
    for each in (job, other):
        change_labels(bench.deployment, each, {"team": "a", "old": "x"})
    change_labels(bench.deployment, job, {"team": "b", "old": None})
    assert labels_of(bench.deployment, job) == {"team": "b"}
    assert labels_of(bench.deployment, other) == {"team": "a", "old": "x"}


@probe()
def who_decided_on_an_older_version_cancels_nothing(bench: Bench) -> None:
    job = bench.submit()
    (row,) = bench.store.load("job", id=job)
    bench.meanwhile("set_job_state", lambda: change_labels(bench.deployment, job, {"team": "a"}))
    seen = Seen(frozenset({(job, row["version"])}))
    assert refused(Changed, lambda: steer.cancel(bench.deployment, job, bench.now_ms, seen))
    assert bench.store.load("job", id=job)[0]["state"] == "queued"


@probe()
def of_two_servers_that_get_the_same_request_one_makes_a_key(bench: Bench) -> None:
    made = list[str]()
    bench.meanwhile("add_credential", lambda: made.append(make_key(bench, "theirs")))
    assert refused(InProgress, lambda: make_key(bench, "mine"))
    assert bench.look("SELECT id FROM credential WHERE name IN ('mine', 'theirs')") == made


@probe()
def a_request_is_known_for_its_time_and_then_forgotten(bench: Bench) -> None:
    make_key(bench, "mine")
    forget_requests(bench.deployment, bench.now_ms + KEPT_S * 1000)
    assert refused(BadInput, lambda: make_key(bench, "again"))
    forget_requests(bench.deployment, bench.now_ms + KEPT_S * 1000 + 1)
    assert make_key(bench, "again")


@probe()
def a_request_for_a_project_makes_it_once(bench: Bench) -> None:
    request = KeyedRequest(project="", endpoint="POST /v1/projects", key="once", fingerprint="f")
    for _ in range(2):
        projects.create_project(bench.deployment, "new", bench.now_ms, request)
    assert len(bench.look("SELECT id FROM project WHERE id = 'new'")) == 1
