"""Endpoints as members of a project add, change and remove them: what is refused is refused with a sentence, and nothing is lost."""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from gangline.adapters.sealing import JweSealer
from gangline.api.notices.notice_tests import TESTS_MAX, NoticeTests
from gangline.cli.main import app
from gangline.core.errors import BadInput, TooMany
from gangline.core.places.urls import URL_MAX
from gangline.ports.store import guard
from gangline.service.notices.endpoints import reseal_endpoints
from tests.servers import served
from tests.service.conftest import OPERATOR, PROJECT
from tests.service.notices.conftest import ENDPOINTS, Notifying


def refused(notifying: Notifying, method: str, path: str = "", **rest: Any) -> str:
    """Return the sentence of a refusal, with the field that it is about."""
    answer = notifying.service.ask(method, f"{ENDPOINTS}{path}", **rest)
    assert answer.status_code == 422, answer.text
    return answer.text


def named(notifying: Notifying) -> set[str]:
    return {each["name"] for each in notifying.ask("GET")}


# ------------------------------------------------------------------------------------------------- names and addresses


def test_an_address_may_be_as_long_as_a_url(notifying: Notifying) -> None:
    path = "/workflows?sig=".ljust(URL_MAX - len(notifying.site.url), "x")
    notifying.to(path, "submitted", name="long")
    notifying.submit()
    notifying.tell()
    assert [each.path for each in notifying.site.heard] == [path]
    address = f"{notifying.site.url}{path}x"
    assert "address" in refused(notifying, "POST", json={"address": address, "name": "longer"})


@pytest.mark.parametrize("name", ["a/b", "/"])
def test_a_name_that_no_path_can_have_is_refused(notifying: Notifying, name: str) -> None:
    wanted = {"address": f"{notifying.site.url}/hook", "name": name}
    assert "slash" in refused(notifying, "POST", json=wanted)
    endpoint = notifying.to("/hook")
    assert "slash" in refused(notifying, "PATCH", f"/{endpoint}", json={"name": name})
    assert named(notifying) == {"hook"}


def test_removing_an_endpoint_by_its_id_leaves_one_that_has_this_id_as_its_name(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "submitted")
    notifying.to("/other", "submitted", name=endpoint)
    notifying.ask("DELETE", f"/{endpoint}")
    assert named(notifying) == {endpoint}
    notifying.submit()
    notifying.tell()
    assert [each.path for each in notifying.site.heard] == ["/other"]


def test_removing_an_endpoint_twice_changes_nothing(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook")
    for _ in range(2):
        notifying.ask("DELETE", f"/{endpoint}")
    assert named(notifying) == set()


def test_a_change_to_no_kinds_is_refused(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "submitted")
    assert "kinds" in refused(notifying, "PATCH", f"/{endpoint}", json={"kinds": []})
    assert notifying.ask("GET", f"/{endpoint}")["kinds"] == ["submitted"]


def test_of_two_that_take_one_name_the_second_is_refused_also_in_the_same_moment(notifying: Notifying) -> None:
    notifying.to("/a")
    second = notifying.to("/b")
    assert "has an endpoint a already" in refused(notifying, "PATCH", f"/{second}", json={"name": "a"})
    store = notifying.service.store
    change = guard("change_endpoint", id=second, project=PROJECT, version=1, name="a", interval_ms=0, quiet="")
    assert not store.apply(change), "the name was taken after it had been looked up"
    assert named(notifying) == {"a", "b"}


# ---------------------------------------------------------------------------------------------------------- test messages


def test_an_endpoint_has_one_test_at_a_time_and_no_project_takes_them_all() -> None:
    tests = NoticeTests()
    with tests.one("p", "a"), tests.one("p", "b"):
        for endpoint, says in (("a", "is being tested already"), ("c", "other endpoints of this project")):
            with pytest.raises(TooMany, match=says), tests.one("p", endpoint):
                pass
        with tests.one("q", "a of q"):
            pass
    with tests.one("p", "c"):
        pass


def test_a_server_sends_a_bounded_number_of_tests() -> None:
    tests = NoticeTests()
    with ExitStack() as under_way:
        for number in range(TESTS_MAX):
            under_way.enter_context(tests.one(f"p{number}", f"e{number}"))
        with pytest.raises(TooMany, match="the server"), tests.one("p", "e"):
            pass
    with tests.one("p", "e"):
        pass


# ----------------------------------------------------------------------------------------------------------------- replay


@pytest.fixture
def five(notifying: Notifying) -> str:
    """An endpoint that was disabled while five facts happened, and for which at most three notices may wait."""
    service = notifying.service
    bounded = replace(service.deployment.notices, backlog_max=3)
    service.deployment = service.app.state.deployment = replace(service.deployment, notices=bounded)
    notifying.restart()
    endpoint = notifying.to("/hook", "submitted")
    notifying.ask("PATCH", f"/{endpoint}", json={"state": "disabled"})
    for seed in range(5):
        notifying.submit(seed=seed)
    service.tick()
    notifying.ask("PATCH", f"/{endpoint}", json={"state": "active"})
    return endpoint


def test_a_replay_stops_where_it_would_drop_what_it_promised(notifying: Notifying, five: str) -> None:
    found = notifying.ask("POST", f"/{five}/replay", json={"after": 0})
    assert found == {"replayed": 3, "through": 3, "more": True}
    found = notifying.ask("POST", f"/{five}/replay", json={"after": found["through"]})
    assert found == {"replayed": 0, "through": 3, "more": True}
    notifying.service.tick()
    notifying.send()
    assert sorted(notifying.site.facts("/hook")) == [1, 2, 3]
    found = notifying.ask("POST", f"/{five}/replay", json={"after": found["through"]})
    assert found == {"replayed": 2, "through": 5, "more": False}
    notifying.send()
    assert sorted(notifying.site.facts("/hook")) == [1, 2, 3, 4, 5]
    assert {each["state"] for each in notifying.log(five)} == {"delivered"}


def test_the_command_says_how_the_rest_is_sent_again(notifying: Notifying, five: str) -> None:
    with served(notifying.service.app) as url:
        there = ["--server", url, "--token", OPERATOR]
        words = ["notify", "replay", "hook"]
        first = CliRunner().invoke(app, [*words, "--after", "0", *there])
        assert first.exit_code == 0, first.output
        assert "3 notices are sent again to hook" in first.stderr
        assert "gangline notify replay hook --after 3" in first.stderr
        notifying.send()
        second = CliRunner().invoke(app, [*words, "--after", "3", *there])
        assert "2 notices are sent again to hook" in second.stderr and "gangline notify" not in second.stderr
        both = CliRunner().invoke(app, [*words, "msg_1", "--after", "3", *there])
    assert isinstance(both.exception, BadInput) and "contradict each other" in both.exception.message


# ------------------------------------------------------------------------------------------------------ repeated requests


def keyed(notifying: Notifying, key: str, path: str = "", **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {OPERATOR}", "Gangline-Project": PROJECT, "Idempotency-Key": key}
    return notifying.service.http.post(f"{ENDPOINTS}{path}", json=body, headers=headers)


def test_a_repeated_request_adds_no_second_webhook_and_does_not_show_its_secret_again(notifying: Notifying) -> None:
    wanted = {"address": f"{notifying.site.url}/hook"}
    first, again = (keyed(notifying, "once", **wanted) for _ in range(2))
    assert first.status_code == 201
    assert again.status_code == 422 and first.json()["endpoint"]["id"] in again.json()["detail"]
    assert "notify rotate" in again.json()["hint"] and first.json()["secret"] not in again.text
    assert named(notifying) == {"webhook"}
    other = keyed(notifying, "once", **wanted, name="other")
    assert other.status_code == 422 and "was used for another request" in other.text
    assert keyed(notifying, "twice", **wanted).status_code == 201
    assert named(notifying) == {"webhook", "webhook-2"}


def test_a_repeated_request_for_people_is_answered_with_the_endpoint_as_it_is_now(notifying: Notifying) -> None:
    wanted = {"address": f"{notifying.site.url}/chat", "channel": "slack"}
    first = keyed(notifying, "once", **wanted)
    notifying.ask("PATCH", "/slack", json={"name": "team"})
    again = keyed(notifying, "once", **wanted)
    assert first.status_code == again.status_code == 201
    assert again.json()["endpoint"] == notifying.ask("GET", "/team")
    assert named(notifying) == {"team"}


def test_a_repeated_rotation_makes_no_second_secret(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "submitted")
    first = keyed(notifying, "once", f"/{endpoint}/rotate", old_s=60).json()["secret"]
    again = keyed(notifying, "once", f"/{endpoint}/rotate", old_s=60)
    assert again.status_code == 422 and "has made a secret already" in again.json()["detail"]
    notifying.submit()
    notifying.tell()
    for secret in (first, notifying.secrets[endpoint]):
        notifying.site.heard[0].verify(secret)
    assert keyed(notifying, "twice", f"/{endpoint}/rotate", old_s=60).json()["secret"] not in (first, "")


def test_a_refused_request_leaves_its_key_free(notifying: Notifying) -> None:
    notifying.to("/hook", name="taken")
    wanted = {"address": f"{notifying.site.url}/hook", "name": "taken"}
    assert "already" in keyed(notifying, "once", **wanted).text
    notifying.ask("DELETE", "/taken")
    assert keyed(notifying, "once", **wanted).status_code == 201


# ------------------------------------------------------------------------------------------------- keys of the deployment


def test_before_an_old_key_goes_the_start_and_the_list_say_which_webhooks_are_signed_with_it(
    notifying: Notifying, caplog: pytest.LogCaptureFixture
) -> None:
    service = notifying.service
    endpoint = notifying.to("/hook", "submitted")
    notifying.to("/chat", channel="slack")
    first, second = "a key of 32 characters, or longer", "another key of 32 characters, or longer"

    def start(*keys: str) -> str:
        """Start with these keys, and return what the log says."""
        caplog.clear()
        service.deployment = service.app.state.deployment = replace(service.deployment, sealer=JweSealer(keys))
        reseal_endpoints(service.deployment)
        return caplog.text

    assert start(first) == ""
    assert notifying.ask("GET", f"/{endpoint}")["because"] == ""
    assert f"webhooks follow from an older key: {PROJECT}/hook. Keep that key" in start(second, first)
    assert "rotate its secret before that key is removed" in notifying.ask("GET", f"/{endpoint}")["because"]
    assert notifying.ask("GET", "/chat")["because"] == ""
    notifying.ask("POST", f"/{endpoint}/rotate")
    assert notifying.ask("GET", f"/{endpoint}")["because"] == ""
    assert start(second, first) == ""
