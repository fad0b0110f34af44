"""What has not changed is not sent again, and what was decided on an old answer is refused."""

from typing import Any

import pytest

from gangline.core.parsing import to_json
from gangline.ports.server import Beat
from gangline.service.jobs import renew, steer
from tests.service.conftest import OPERATOR, Service
from tests.service.lists.test_labels import label
from tests.service.test_http import problem

LISTS = ("/v1/jobs", "/v1/bases", "/v1/keys", "/v1/project", "/v1/nodes", "/v1/storage")


def ask(service: Service, method: str, path: str, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return service.http.request(method, path, headers={"Authorization": f"Bearer {OPERATOR}"} | named)


@pytest.mark.parametrize("path", LISTS)
def test_an_answer_that_has_not_changed_is_not_sent_again(service: Service, path: str) -> None:
    service.submit()
    first = ask(service, "GET", path)
    again = ask(service, "GET", path, If_None_Match=first.headers["etag"])
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    others = ask(service, "GET", path, If_None_Match='"other", W/' + first.headers["etag"])
    assert others.status_code == 304
    assert ask(service, "GET", path, If_None_Match='"other"').json() == first.json()


def test_a_list_has_another_tag_when_a_job_has_come(service: Service) -> None:
    before = ask(service, "GET", "/v1/jobs").headers["etag"]
    service.submit()
    after = ask(service, "GET", "/v1/jobs", If_None_Match=before)
    assert after.status_code == 200 and after.headers["etag"] != before


def test_a_job_has_another_tag_with_each_step_that_it_reports(service: Service) -> None:
    job = service.submit()
    node = service.join()
    hold = service.claim(node).hold
    first = ask(service, "GET", f"/v1/jobs/{job}")
    assert ask(service, "GET", f"/v1/jobs/{job}", If_None_Match=first.headers["etag"]).status_code == 304
    renew.renew(service.deployment, node, hold, Beat(phase="training", step=7), service.now_ms)
    second = ask(service, "GET", f"/v1/jobs/{job}", If_None_Match=first.headers["etag"])
    assert second.status_code == 200 and second.json()["summary"]["step"] == 7


@pytest.mark.parametrize(
    "change",
    [
        lambda service, job: ask(service, "POST", f"/v1/jobs/{job}/pause"),
        lambda service, job: label(service, job, {"team": "a"}),
        lambda service, job: service.claim(service.join()),
    ],
)
@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "finish", "labels"])
def test_what_was_decided_on_an_old_answer_is_refused_and_changes_nothing(
    service: Service, change: Any, verb: str
) -> None:
    job = service.submit()
    tag = ask(service, "GET", f"/v1/jobs/{job}").headers["etag"]
    change(service, job)
    before = service.look(f"SELECT state, version FROM job WHERE id = '{job}'")
    if verb == "labels":
        answer = label(service, job, {"mine": "x"}, **{"If-Match": tag})
    else:
        answer = ask(service, "POST", f"/v1/jobs/{job}/{verb}", If_Match=tag)
    found = problem(answer, 412, "changed")
    assert found["detail"] == f"{job} has changed since it was read" and found["hint"]
    assert service.look(f"SELECT state, version FROM job WHERE id = '{job}'") == before
    assert service.look("SELECT * FROM label WHERE key = 'mine'") == []


def test_what_was_decided_on_the_newest_answer_is_done(service: Service) -> None:
    job = service.submit()
    tag = ask(service, "GET", f"/v1/jobs/{job}").headers["etag"]
    labelled = label(service, job, {"team": "a"}, **{"If-Match": tag})
    assert labelled.status_code == 200
    paused = ask(service, "POST", f"/v1/jobs/{job}/pause", If_Match=f'"old", {labelled.headers["etag"]}')
    assert paused.json()["summary"]["state"] == "paused"
    canceled = ask(service, "POST", f"/v1/jobs/{job}/cancel", If_Match=paused.headers["etag"])
    assert canceled.json()["summary"]["state"] == "canceled"
    assert ask(service, "DELETE", f"/v1/jobs/{job}", If_Match=paused.headers["etag"]).status_code == 412
    assert ask(service, "DELETE", f"/v1/jobs/{job}", If_Match=canceled.headers["etag"]).status_code == 200


def test_a_step_that_a_job_has_taken_meanwhile_refuses_nothing(service: Service) -> None:
    job = service.submit()
    node = service.join()
    hold = service.claim(node).hold
    tag = ask(service, "GET", f"/v1/jobs/{job}").headers["etag"]
    renew.renew(service.deployment, node, hold, Beat(phase="training", step=7), service.now_ms)
    service.wait(5)
    assert ask(service, "POST", f"/v1/jobs/{job}/cancel", If_Match=tag).json()["summary"]["state"] == "canceled"


def test_a_job_that_changes_while_it_is_canceled_is_not_canceled(service: Service) -> None:
    """The node takes the job between the check and the write."""
    job, node = service.submit(), service.join()
    tag = ask(service, "GET", f"/v1/jobs/{job}").headers["etag"]
    store: Any = service.store
    store.__class__ = type("Meanwhile", (Meanwhile, type(store)), {"act": lambda: service.claim(node)})
    problem(ask(service, "POST", f"/v1/jobs/{job}/cancel", If_Match=tag), 412, "changed")
    assert service.state(job) == "running"


class Meanwhile:
    """The real store; before the first write, something else happens."""

    act: Any = None

    def apply(self, *writes: Any) -> bool:
        act, type(self).act = type(self).act, None
        if act and any(write.name == "set_job_state" for write in writes):
            act()
        elif act:
            type(self).act = act
        return super().apply(*writes)  # type: ignore[misc]


@pytest.mark.parametrize("header", ["abc", '"', '"a" "b"', ",", "*x"])
def test_what_is_no_tag_is_refused(service: Service, header: str) -> None:
    job = service.submit()
    found = problem(ask(service, "POST", f"/v1/jobs/{job}/cancel", If_Match=header), 422, "bad-input")
    assert "If-Match" in found["detail"] and service.state(job) == "queued"


@pytest.mark.parametrize("header", ['W/"1-abc"', '"other"', '"99999-abc"'])
def test_a_tag_of_another_answer_or_a_weak_one_matches_nothing(service: Service, header: str) -> None:
    job = service.submit()
    problem(ask(service, "POST", f"/v1/jobs/{job}/cancel", If_Match=header), 412, "changed")
    assert ask(service, "POST", f"/v1/jobs/{job}/cancel", If_Match="*").status_code == 200


def test_a_tag_of_another_job_of_the_same_version_refuses_the_request(service: Service) -> None:
    job, other = service.submit(), service.submit()
    tag = ask(service, "GET", f"/v1/jobs/{other}").headers["etag"]
    found = problem(ask(service, "POST", f"/v1/jobs/{job}/cancel", If_Match=tag), 412, "changed")
    assert found["detail"] == f"the entity tag is not one of {job}" and service.state(job) == "queued"
    assert ask(service, "POST", f"/v1/jobs/{other}/cancel", If_Match=tag).status_code == 200


def test_a_tag_that_a_proxy_has_made_weak_says_so(service: Service) -> None:
    job = service.submit()
    tag = ask(service, "GET", f"/v1/jobs/{job}").headers["etag"]
    found = problem(ask(service, "POST", f"/v1/jobs/{job}/cancel", If_Match=f"W/{tag}"), 412, "changed")
    assert "is weak" in found["detail"] and "proxy" in found["hint"] and service.state(job) == "queued"


def test_a_refusal_has_no_tag(service: Service) -> None:
    assert "etag" not in ask(service, "GET", "/v1/jobs/none").headers


def test_a_repeated_cancel_of_an_ended_job_stays_as_it_is(service: Service) -> None:
    job = service.submit()
    steer.cancel(service.deployment, job, service.now_ms)
    body = to_json(service.spec())
    assert body and ask(service, "POST", f"/v1/jobs/{job}/cancel").status_code == 200
