"""The queue on the page: who waits, what would help as something to press, and all jobs of a group at once."""

import json
from collections.abc import Callable

import pytest

from gangline.core.specs.fields import Needs
from gangline.service.fleet import operating
from gangline.web.queue.followed import QueueScreen, QueueSeen
from gangline.web.queue.helps import help_step
from tests.service.conftest import Service
from tests.service.fleet.test_pools import add, look
from tests.service.web.conftest import Browser

LARGE_NEEDS = Needs(gpu_memory_gb=24)


def said(answer: object) -> str:
    return json.loads(answer.headers["hx-trigger"])["toast"]["text"]  # type: ignore[attr-defined]


def test_groups_say_why_they_wait_and_their_jobs_are_listed(page: Service, signed_in: Callable[[str], Browser]) -> None:
    jobs = [page.submit(needs=LARGE_NEEDS if number else Needs(), seed=number) for number in range(3)]
    html = signed_in("viewer").get("/queue").text
    assert all(f"/jobs/{job}" in html for job in jobs)
    assert "24 GB of GPU memory" in html and "any node will do" in html
    assert "hx-post" not in html.split("<main")[1]
    assert "Nobody waits" not in html
    assert "gangline worker" in html  # a viewer starts none from here


def test_an_empty_queue_says_what_to_do(page: Service, signed_in: Callable[[str], Browser]) -> None:
    assert "Nobody waits" in signed_in("viewer").get("/queue").text
    assert 'href="/new"' in signed_in("member").get("/queue").text


def test_a_pool_that_would_help_is_resumed_and_raised_from_the_queue(
    page: Service, signed_in: Callable[[str], Browser]
) -> None:
    page.change_policy(unmatched_s=10**6)
    page.app.state.deployment = page.deployment
    add(page, "full", nodes_max=1, nodes_min=1, offers=["large"])
    add(page, "resting", nodes_max=2, offers=["large"])
    look(page)
    page.ask("POST", "/v1/pools/resting/pause").raise_for_status()
    look(page)
    page.submit(needs=LARGE_NEEDS)
    page.claim_nothing(page.join("small", gpu="T4", gpu_memory_gb=16))
    page.execute("UPDATE node SET state = 'gone' WHERE rented = 0")
    operator = signed_in("operator")
    html = operator.get("/queue").text
    for address in ("/fleet/pools/full/change", "/fleet/pools/resting/resume"):
        assert f'hx-post="{address}"' in html
        assert f'hx-post="{address}"' not in signed_in("admin").get("/queue").text
    assert operator.post("/fleet/pools/full/change", nodes_max="2").status_code == 204
    assert operator.post("/fleet/pools/resting/resume").status_code == 204
    look(page)
    assert page.ask("GET", "/v1/queue").json()["groups"][0]["helps"] == []


@pytest.mark.parametrize(
    ("sentence", "label", "leads_to"),
    [
        ("let the pool a rent again: `gangline pools resume a`", "Resume a", "/fleet/pools/a/resume"),
        (
            "the pool a has its maximum of 4 nodes: `gangline pools set a --nodes 1..5`",
            "Allow 5 nodes",
            "/fleet/pools/a/change",
        ),
        ("let bear work again: `gangline nodes release node-1`", "Release", "/fleet/actions"),
        ("raise the budget: `gangline projects set poor --usd N`", "Change the budget", "/cost#budget-poor"),
        (
            "raise its budget of $3.00: `gangline experiments change e-1 --budget N`",
            "Open the experiment",
            "/experiments/e-1",
        ),
        ("start a worker that has 24 GB of GPU memory: `gangline worker`", "Add a machine", "/fleet#add-machine"),
        ("make the pool: `gangline pools add a`", "", ""),
        ("raise `nodes_max` of [pools.a] in the server's settings", "", ""),
    ],
)
def test_what_the_page_can_do_is_something_to_press(sentence: str, label: str, leads_to: str) -> None:
    step = help_step(sentence)
    assert (step.label, step.post or step.link) == (label, leads_to)
    assert sentence.startswith(step.says) and "gangline" not in step.says


def test_every_sentence_of_the_queue_has_a_step(page: Service) -> None:
    """The commands are those of the queue's own sentences: when one of them changes, its button goes with this test."""
    page.add_project("poor", budget_usd=0)
    page.submit("poor")
    node = page.join()
    page.submit()
    operating.quarantine(page.deployment, node, page.now_ms, lasts_s=60, stop=False)
    groups = page.ask("GET", "/v1/queue").json()["groups"]
    steps = [help_step(sentence) for group in groups for sentence in group["helps"]]
    assert {step.label for step in steps} == {"Change the budget", "Release"}


def test_all_jobs_of_a_group_are_paused_and_resumed(page: Service, signed_in: Callable[[str], Browser]) -> None:
    small = [page.submit(seed=number) for number in range(3)]
    large = [page.submit(needs=LARGE_NEEDS, seed=number) for number in range(2)]
    member = signed_in("member")
    assert said(member.post("/queue/actions", job=small[0], action="pause")) == "3 jobs paused"
    assert [page.state(job) for job in small + large] == ["paused"] * 3 + ["queued"] * 2
    assert "Resume all" in member.get("/queue").text
    assert said(member.post("/queue/actions", job=small[1], action="resume")) == "3 jobs waiting again"
    assert said(member.post("/queue/actions", job=large[0], action="cancel")) == "2 jobs canceled"
    assert [page.state(job) for job in small + large] == ["queued"] * 3 + ["canceled"] * 2
    assert said(member.post("/queue/actions", job=large[0], action="pause")) == "0 jobs paused"
    assert member.post("/queue/actions", job=small[0], action="explode").status_code == 422


def test_a_group_keeps_its_name_when_the_job_it_is_named_by_leaves(
    page: Service, signed_in: Callable[[str], Browser]
) -> None:
    jobs = [page.submit(seed=number) for number in range(3)]
    assert page.ask("GET", "/v1/queue").json()["groups"][0]["job"] == jobs[0]
    page.execute(f"UPDATE job SET state = 'canceled' WHERE id = '{jobs[0]}'")
    signed_in("member").post("/queue/actions", job=jobs[0], action="pause")
    assert [page.state(job) for job in jobs] == ["canceled", "paused", "paused"]


def test_nobody_acts_on_jobs_of_another_project(page: Service, signed_in: Callable[..., Browser]) -> None:
    page.add_project("other")
    job = page.submit("other")
    assert signed_in("member").post("/queue/actions", job=job, action="pause").status_code == 404
    assert signed_in("viewer", "other").post("/queue/actions", job=job, action="pause").status_code == 403
    assert page.state(job) == "queued"
    assert signed_in("operator").post("/queue/actions", job=job, action="pause").status_code == 204
    assert page.state(job) == "paused"


def test_operators_see_all_projects_or_one(page: Service, signed_in: Callable[..., Browser]) -> None:
    page.add_project("other")
    ours, theirs = page.submit(), page.submit("other")
    operator = signed_in("operator")
    for address, sees in (("/queue", {ours, theirs}), ("/queue?of=all", {ours, theirs}), ("/queue?of=project", {ours})):
        html = operator.get(address).text
        assert {job for job in (ours, theirs) if job in html} == sees
    assert theirs not in signed_in("viewer").get("/queue?of=all").text


def test_an_open_page_is_sent_what_changed(page: Service) -> None:
    first = page.submit()
    screen = QueueScreen(QueueSeen(project=None, after=0, member=True, operator=True))
    screen.refresh(page.deployment, None)
    assert first in screen.whole()
    page.wait(2)
    assert screen.refresh(page.deployment, None) == ""
    second = page.submit()
    sent = screen.refresh(page.deployment, None)
    assert second in sent and 'id="queue-jobs" hx-swap-oob="outerMorph"' in sent and "queue-paused" not in sent


def test_names_of_jobs_are_escaped(page: Service, signed_in: Callable[[str], Browser]) -> None:
    job = page.submit()
    page.execute(f"UPDATE job SET name = '<script>alert(1)</script>\"' WHERE id = '{job}'")
    html = signed_in("member").get("/queue").text
    assert "<script>alert" not in html and "&lt;script&gt;alert" in html


@pytest.mark.parametrize("before", ["nan", "inf", "-1", "1e300", "x"])
def test_a_count_of_jobs_that_is_no_number_is_refused(
    page: Service, signed_in: Callable[[str], Browser], before: str
) -> None:
    job, member = page.submit(), signed_in("member")
    for path in ("/queue/actions", "/jobs/actions"):
        assert member.post(path, job=job, action="pause", before=before).status_code == 422
    assert page.state(job) == "queued"
