"""Lists of jobs: every filter, every page and every index, on both engines."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gangline.adapters.store.session import PARAMETER
from gangline.adapters.store.sqlite import SqliteStore
from gangline.adapters.store.statements import statements
from gangline.core.jobs.claim import ClaimCandidate
from gangline.core.jobs.lists.filters import JobFilters
from gangline.core.jobs.lists.paths import WINDOW
from gangline.core.jobs.why import Fit, fit_of
from gangline.core.parsing import to_json
from gangline.service.jobs.lists import page as pages
from gangline.service.jobs.lists import summaries
from gangline.service.jobs.lists.page import AFTER_ALL, OWNERS_MAX, page_of_jobs
from gangline.service.retention.removal import remove
from tests.service.conftest import OPERATOR, PROJECT, ClockedPostgres, Service
from tests.service.lists.many import NAMED, Given, write_many
from tests.service.lists.worked import work_on_all, write_nodes
from tests.service.test_http import problem

COUNT = 2 * WINDOW + 1500


def listed(service: Service, **params: Any) -> Iterator[dict[str, Any]]:
    """Each page of a list."""
    while True:
        page = service.ask("GET", "/v1/jobs", params=params)
        assert page.status_code == 200, page.text
        yield page.json()
        if page.json()["next"] is None:
            return
        params["cursor"] = page.json()["next"]


def ids(service: Service, **params: Any) -> list[str]:
    return [job["id"] for page in listed(service, **params) for job in page["jobs"]]


@pytest.fixture
def keys(service: Service) -> list[dict[str, Any]]:
    return [service.make_key("member", name=name)["key"] for name in ("ada", "grace")]


@pytest.fixture
def many(service: Service, keys: list[dict[str, Any]]) -> list[Given]:
    return write_many(service, COUNT, tuple(key["id"] for key in keys))


FILTERS: list[tuple[dict[str, Any], Callable[[Given], bool]]] = [
    ({}, lambda job: True),
    ({"state": "failed"}, lambda job: job.state == "failed"),
    ({"state": ["queued", "canceled"]}, lambda job: job.state in ("queued", "canceled")),
    ({"state": "canceled"}, lambda job: job.state == "canceled"),
    ({"kind": "command"}, lambda job: job.kind == "command"),
    ({"label": "seldom"}, lambda job: "seldom" in job.labels),
    ({"label": "seldom=x"}, lambda job: job.labels.get("seldom") == "x"),
    ({"label": ["parity=odd", "third"]}, lambda job: job.labels["parity"] == "odd" and "third" in job.labels),
    ({"label": ["parity=odd", "parity=even"]}, lambda job: False),
    ({"label": "third="}, lambda job: "third" in job.labels),
    ({"named": NAMED, "state": "failed"}, lambda job: job.name == NAMED and job.state == "failed"),
    ({"named": "run 1100"}, lambda job: job.name == "run 1100"),
    ({"named": "job-0003"}, lambda job: True),
    ({"named": "0003", "state": "failed"}, lambda job: job.state == "failed"),
    ({"named": "0000000b"}, lambda job: job.id.endswith("0000000b")),
    ({"named": "00b"}, lambda job: job.id.endswith("00b")),
    (
        {"state": "failed", "kind": "scratch", "label": "third"},
        lambda job: (job.state, job.kind) == ("failed", "scratch") and "third" in job.labels,
    ),
    (
        {"state": "canceled", "label": "parity=even"},
        lambda job: job.state == "canceled" and job.labels["parity"] == "even",
    ),
]


@pytest.mark.parametrize(("params", "meets"), FILTERS, ids=[json.dumps(params) for params, _ in FILTERS])
def test_a_list_has_every_job_that_meets_its_filters_once_and_in_order(
    service: Service, many: list[Given], params: dict[str, Any], meets: Callable[[Given], bool]
) -> None:
    assert ids(service, **params, limit=200) == [job.id for job in many if meets(job)]


def test_each_owner_has_a_list_by_id_and_by_name(
    service: Service, many: list[Given], keys: list[dict[str, Any]]
) -> None:
    ada, grace = (key["id"] for key in keys)
    wanted = [job.id for job in many if job.owner == grace]
    assert ids(service, owner=grace, limit=200) == ids(service, owner="grace", limit=200) == wanted
    both = [job.id for job in many if job.owner == ada and job.state == "canceled"]
    assert ids(service, owner="ada", state="canceled", limit=200) == both


def test_a_list_of_a_time_begins_with_it_and_ends_before_it(service: Service, many: list[Given]) -> None:
    first, last = many[3000].submitted_ms, many[1000].submitted_ms
    span = {"since": _written(first), "until": _written(last)}
    assert ids(service, **span, limit=200) == [job.id for job in many if first <= job.submitted_ms < last]
    queued = [job.id for job in many if first <= job.submitted_ms < last and job.state == "queued"]
    assert ids(service, **span, state="queued", label="parity", limit=200) == [
        job for job in queued if job in set(queued)
    ]


def _written(ms: int) -> str:
    seconds, rest = divmod(ms, 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"1970-01-{day + 1:02d}T{hour:02d}:{minute:02d}:{second:02d}.{rest:03d}Z"


def test_pages_of_any_size_have_the_same_jobs(service: Service) -> None:
    made = write_many(service, 60, ("key-1", "key-2"))
    for size, (params, meets) in product((1, 3, 7, 60), FILTERS):
        assert ids(service, **params, limit=size) == [job.id for job in made if meets(job)], (size, params)


def test_a_page_of_two_common_filters_that_seldom_meet_is_short_and_leads_on(
    service: Service, many: list[Given]
) -> None:
    """It reads a bounded number of jobs, and not all that one of the two has."""
    found = list(listed(service, label=["low", "high"]))
    assert [page["jobs"] for page in found] == [[], []]
    assert found[0]["next"] is not None


def test_jobs_that_come_while_a_list_is_read_move_nothing(service: Service) -> None:
    made = write_many(service, 30, ("key-1", "key-2"))
    seen = list[str]()
    for page in listed(service, limit=7):
        seen += [job["id"] for job in page["jobs"]]
        service.submit()
    assert seen == [job.id for job in made]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda cursor: cursor[:-1],
        lambda cursor: cursor[1:],
        lambda cursor: ("A" if cursor[5] != "A" else "B").join((cursor[:5], cursor[6:])),
        lambda cursor: "1000000000.job-000001",
        lambda cursor: f"{2**70}.x",
        lambda cursor: "é\x00'; DROP TABLE job; --",
    ],
)
def test_a_tampered_cursor_is_refused_with_one_sentence_and_nothing_is_lost(
    service: Service, spoil: Callable[[str], str]
) -> None:
    made = write_many(service, 20, ("key-1",))
    cursor = service.ask("GET", "/v1/jobs", params={"limit": 5}).json()["next"]
    found = problem(service.ask("GET", "/v1/jobs", params={"cursor": spoil(cursor)}), 422, "bad-input")
    assert "cursor" in found["detail"] and "\n" not in found["detail"] and found["hint"]
    assert ids(service, cursor=cursor, limit=200) == [job.id for job in made[5:]]


def test_a_cursor_of_another_list_is_refused(service: Service) -> None:
    write_many(service, 20, ("key-1",))
    cursor = service.ask("GET", "/v1/jobs", params={"limit": 5, "state": "failed"})
    assert cursor.json()["next"] is None
    cursor = service.ask("GET", "/v1/jobs", params={"limit": 2, "state": "failed"}).json()["next"]
    found = problem(service.ask("GET", "/v1/jobs", params={"cursor": cursor, "state": "queued"}), 422, "bad-input")
    assert "of a list with other filters" in found["detail"]


def test_a_cursor_of_another_project_shows_nothing_of_it(service: Service) -> None:
    write_many(service, 20, ("key-1",))
    cursor = service.ask("GET", "/v1/jobs", params={"limit": 5}).json()["next"]
    service.add_project("other")
    mine = service.submit("other")
    other = service.key("viewer", "other")
    assert service.ask("GET", "/v1/jobs", other, params={"cursor": cursor}).json()["jobs"] == []
    assert [job["id"] for job in service.ask("GET", "/v1/jobs", other).json()["jobs"]] == [mine]


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"state": "done"}, "state"),
        ({"kind": "sample"}, "kind"),
        ({"owner": "nobody"}, "nobody"),
        ({"label": "Team"}, "label"),
        ({"since": "yesterday"}, "since"),
        ({"until": "2026-01-31"}, "until"),
        ({"limit": 0}, "limit"),
        ({"limit": 201}, "limit"),
    ],
)
def test_a_wrong_filter_is_refused_by_its_name(service: Service, params: dict[str, Any], says: str) -> None:
    answer = service.ask("GET", "/v1/jobs", params=params)
    assert answer.status_code == 422 and says in answer.text


def test_a_page_names_the_next_one_in_its_header(service: Service) -> None:
    made = write_many(service, 20, ("key-1",))
    first = service.ask(
        "GET",
        "/v1/jobs",
        params={"limit": 15, "label": ["parity", "parity=odd"], "state": ["failed", "queued", "succeeded"]},
    )
    link = re.fullmatch(
        r'<(\?.*)>; rel="next"', service.ask("GET", "/v1/jobs?limit=3&label=parity%3Dodd").headers["link"]
    )
    assert link is not None and "link" not in first.headers
    second = service.ask("GET", f"/v1/jobs{link[1]}").json()["jobs"]
    assert [job["id"] for job in second] == [job.id for job in made if job.labels["parity"] == "odd"][3:6]


def test_a_job_that_was_deleted_is_in_no_list_and_its_labels_are_gone(service: Service) -> None:
    body = {"spec": to_json(service.spec()), "labels": {"team": "a"}}
    job = service.ask("POST", "/v1/jobs", json=body).json()["summary"]["id"]
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    assert ids(service, label="team") == [job]
    remove(service.deployment, job, service.now_ms)
    for params in ({}, {"label": "team"}, {"state": "canceled"}, {"owner": "me"}, {"named": job}, {"kind": "lora"}):
        assert ids(service, **params) == []
    assert service.look("SELECT * FROM label") == []


@pytest.mark.parametrize("params", [{"label": "team"}, {"label": "team=a"}])
def test_a_job_that_an_older_server_has_deleted_is_in_no_list_and_its_labels_go(
    service: Service, params: dict[str, Any]
) -> None:
    body = {"spec": to_json(service.spec()), "labels": {"team": "a"}}
    kept, deleted = (service.ask("POST", "/v1/jobs", json=body).json()["summary"]["id"] for _ in range(2))
    service.execute(f"UPDATE job SET removed_ms = {service.now_ms}, version = version + 1 WHERE id = '{deleted}'")
    assert ids(service, **params) == [kept]
    service.tick()
    assert [row["job"] for row in service.look("SELECT job FROM label")] == [kept]


def test_an_owner_of_more_keys_than_a_list_can_ask_for_is_refused_and_none_is_left_out(service: Service) -> None:
    def write_keys(numbers: range) -> None:
        rows = ",".join(f"('key-{n}', 'h{n}', 'member', 'robot', '{PROJECT}', {n})" for n in numbers)
        service.execute(f"INSERT INTO credential (id, hash, role, name, project, made_ms) VALUES {rows}")

    write_keys(range(OWNERS_MAX))
    (job,) = write_many(service, 1, ("key-0",))
    service.execute(f"UPDATE job SET owner = 'key-{OWNERS_MAX - 1}'")
    assert ids(service, owner="robot") == [job.id]
    write_keys(range(OWNERS_MAX, OWNERS_MAX + 1))
    found = problem(service.ask("GET", "/v1/jobs", params={"owner": "robot"}), 422, "bad-input")
    assert f"more than {OWNERS_MAX} keys" in found["detail"] and "label" in found["hint"]
    assert ids(service, owner=f"key-{OWNERS_MAX - 1}") == [job.id]


def test_what_ends_the_ids_of_one_beginning_is_a_letter_after_their_digits() -> None:
    """Where a database sorts as a language does, signs such as ~ come before digits, and letters after them."""
    assert AFTER_ALL.isalpha() and max("0123456789abcdef") < AFTER_ALL


def test_a_page_costs_as_many_statements_for_many_jobs_as_for_few(service: Service, many: list[Given]) -> None:
    counted = Counting(service.store)
    deployment = service.deployment
    object.__setattr__(deployment, "store", counted)
    asked = list[int]()
    for limit in (2, 200):
        counted.loads = 0
        page_of_jobs(deployment, PROJECT, JobFilters(), service.now_ms, limit=limit)
        asked.append(counted.loads)
    object.__setattr__(deployment, "store", service.store)
    assert asked[0] <= asked[1] <= asked[0] + 4 < 15


def test_jobs_of_equal_needs_are_compared_with_the_nodes_once(
    service: Service, many: list[Given], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_nodes(service, 20)
    compared = list[str]()

    def noted(job: ClaimCandidate, *rest: Any) -> Fit:
        compared.append(job.kind)
        return fit_of(job, *rest)

    monkeypatch.setattr(summaries, "fit_of", noted)
    filters = JobFilters(states=("queued",))
    found = page_of_jobs(service.deployment, PROJECT, filters, service.now_ms, limit=100).jobs
    assert len(found) == 100 and sorted(compared) == sorted({job.kind for job in found})


def test_a_page_of_jobs_whose_photos_are_fetched_costs_as_many_statements_as_one_of_them(service: Service) -> None:
    made = [job for job in write_many(service, 60, ("key-0",)) if job.state == "queued"]
    service.execute(
        "UPDATE job SET fetching = 1 WHERE state = 'queued'",
        "INSERT INTO photo_import (job, state, asked, places, done, files, because, server, turn_ends_ms, tries) "
        "SELECT id, 'fetching', '', '[]', 3, 7, '', '', 0, 0 FROM job WHERE state = 'queued'",
    )
    counted = Counting(service.store)
    deployment, asked = replace(service.deployment, store=counted), list[int]()
    for limit in (1, len(made)):
        counted.loads = 0
        page = page_of_jobs(deployment, PROJECT, JobFilters(states=("queued",)), service.now_ms, limit=limit)
        asked.append(counted.loads)
        assert {job.because for job in page.jobs} == {"its photos are being fetched: 3 of 7"}
    assert asked[0] == asked[1] and len(made) > 10


class Counting:
    """A store that counts what it is asked."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.loads = 0

    def load(self, name: str, /, **values: object) -> Any:
        self.loads += 1
        return self._store.load(name, **values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


# The indexes

VALUES = {
    "project": PROJECT, "before_ms": 2**62, "before_id": "", "from_ms": -1, "from_id": "",
    "states": "", "kind": "", "owners": "",
    "named": "", "filters": 1, "labels": "", "labelled": 0, "break": "\n", "limit": 51, "passed": WINDOW - 1, "window": WINDOW,
    "key": "seldom",
    "of_end": AFTER_ALL,
}  # fmt: skip
INDEXES = {
    "time": ("job_listed", ""),
    "state": ("job_state", "canceled"),
    "kind": ("job_kind", "command"),
    "owner": ("job_owner", "key-1"),
    "name": ("job_name", "run 1100"),
    "end_of_id": ("job_id_end", "0001"),
    "label": ("label_value", "x"),
    "label_key": ("label_key", ""),
}


@pytest.mark.parametrize("by", INDEXES)
def test_a_list_is_read_from_its_index_without_sorting(service: Service, many: list[Given], by: str) -> None:
    index, value = INDEXES[by]
    for name in (f"jobs_by_{by}", f"edge_by_{by}"):
        if name not in statements():
            continue
        plan = explained(service, name, VALUES | {"of": value})
        assert index in plan, plan
        if by != "end_of_id":
            assert "TEMP B-TREE FOR ORDER BY" not in plan and "Sort" not in plan, plan


def test_jobs_whose_id_begins_so_are_read_by_their_ids(service: Service, many: list[Given]) -> None:
    plan = explained(
        service, "jobs_by_beginning_of_id", VALUES | {"of": many[7].id[:12], "of_end": many[7].id[:12] + AFTER_ALL}
    )
    assert "job_pkey" in plan or "sqlite_autoindex_job_1" in plan, plan


@pytest.mark.parametrize("name", ["job_summaries", "labels_of_jobs", "bans_of_jobs", "stored_of_jobs"])
def test_what_a_page_shows_is_read_job_by_job_from_indexes(service: Service, many: list[Given], name: str) -> None:
    work_on_all(service)
    width = len(many[0].id)
    plan = explained(service, name, {"ids": "".join(job.id for job in many[:50]), "width": width, "count": 50})
    whole = r"SCAN (job|label|attempt|ban|checkpoint|artifact|lease|ledger)\b|Seq Scan on (?!node)|Hash Join|Merge Join"
    assert not re.search(whole, plan), plan


def explained(service: Service, name: str, values: dict[str, Any]) -> str:
    """How the engine runs a statement, as the store runs it."""
    text = statements()[name]
    if isinstance(service.store, SqliteStore):
        rows = service.store._connection().execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
        return "\n".join(row["detail"] for row in rows)
    assert isinstance(service.store, ClockedPostgres)
    names = tuple(dict.fromkeys(PARAMETER.findall(text)))
    numbered = PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
    settings = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off"
    with psycopg.connect(service.database, options=settings, autocommit=True) as there:
        there.execute(f"PREPARE s AS {numbered}".encode())
        given = ", ".join(_quoted(values[name]) for name in names)
        return "\n".join(row[0] for row in there.execute(f"EXPLAIN EXECUTE s ({given})".encode()).fetchall())


def _quoted(value: Any) -> str:
    return f"E'{value}'".replace("\n", "\\n") if isinstance(value, str) else str(value)


def test_every_index_that_a_path_may_name_has_a_statement() -> None:
    source = Path(str(pages.__file__)).read_text()
    assert {f"jobs_by_{by}" for by in INDEXES} | {"jobs_by_beginning_of_id"} == set(
        re.findall(r'"(jobs_by_\w+)"', source)
    )


def test_an_operator_asks_for_its_own(service: Service) -> None:
    mine = service.ask("POST", "/v1/jobs", json={"spec": to_json(service.spec())}).json()["summary"]["id"]
    service.ask("POST", "/v1/jobs", service.key("member"), json={"spec": to_json(service.spec(seed=3))})
    assert [job["id"] for job in service.ask("GET", "/v1/jobs?owner=me", OPERATOR).json()["jobs"]] == [mine]
