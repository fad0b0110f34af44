"""What goes wrong between the `salad` driver and SaladCloud: one sentence each, and nothing is half made."""

import pytest
from fastapi import Response

from gangline.adapters.pools.salad import driver
from gangline.adapters.pools.salad.driver import SaladPool
from gangline.core.errors import BadInput, Denied, GanglineError, NotFound, TooMany, Unreachable
from gangline.ports.pool import NoCapacity
from tests.contract.pools.salad import GROUPS, KEY, MARK, FakeSalad, SaladProvider, problem, web_page
from tests.contract.pools.suite import rental, start

LOOK, CREATE = f"GET {GROUPS}", f"POST {GROUPS}"


@pytest.fixture
def provider(cloud: FakeSalad, url: str) -> SaladProvider:
    return SaladProvider(cloud, url)


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (web_page(502), Unreachable, "Salad failed at containers (HTTP 502)"),
        (web_page(403), Unreachable, "a web page answers containers (HTTP 403) in place of Salad's API"),
        (web_page(404), Unreachable, "a web page answers containers (HTTP 404) in place of Salad's API"),
        (web_page(200), Unreachable, "Salad's answer to containers cannot be read: the answer is not JSON"),
        (Response(status_code=302, headers={"location": "/login"}), Unreachable, "in place of Salad's API"),
        (problem(403, "Forbidden", "You are not a member."), Denied, "(HTTP 403): Forbidden: You are not a member"),
        (problem(401, "Unauthorized", "The key is invalid."), Denied, "Salad refuses the key (HTTP 401)"),
        (problem(500, "Error", "Out of order."), Unreachable, "(HTTP 500): Error: Out of order"),
        (problem(400, "Bad\x1b[31m", "a\nb " * 500), BadInput, "Salad refuses containers (HTTP 400)"),
        (Response('{"items": [{"name": "gl-a"}]}'), Unreachable, "items[0].current_state is missing"),
        (Response('{"items": null}'), Unreachable, "cannot be read"),
        (Response("[]"), Unreachable, "cannot be read"),
        (Response(b"\xff\xfe"), Unreachable, "cannot be read"),
    ],
)
def test_an_answer_that_is_no_list_is_one_sentence_of_its_kind(
    provider: SaladProvider, cloud: FakeSalad, answer: Response, kind: type[GanglineError], said: str
) -> None:
    before = start(provider, "node-a")
    cloud.answers[LOOK] = answer
    with pytest.raises(kind) as error:
        provider.driver.list()
    assert said in error.value.message and type(error.value) is kind
    assert error.value.message.isprintable() and len(error.value.message) < 500
    assert KEY not in error.value.message + error.value.hint
    cloud.answers.clear()
    assert provider.driver.list() == [before]


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7), ("", 5), ("soon", 5), ("9" * 400, 120), ("Fri, 01 Jan 2021 00:00:00 GMT", 1)]
)
def test_after_too_many_requests_none_is_sent_until_salad_allows_it(
    provider: SaladProvider, cloud: FakeSalad, header: str, seconds: int
) -> None:
    before, offer = start(provider, "node-a"), provider.driver.offers()[0].id
    refusal = problem(429, "Too Many Requests", "Slow down.")
    refusal.headers["Retry-After"] = header
    cloud.answers[LOOK] = refusal
    with pytest.raises(TooMany) as error:
        provider.driver.list()
    assert error.value.wait_whole_s == seconds
    cloud.answers.clear()
    cloud.requests.clear()
    cloud.advance(seconds - 0.5)
    for ask in (
        provider.driver.list,
        lambda: provider.driver.start(offer, rental("node-b")),
        lambda: provider.driver.stop(before.id),
    ):
        with pytest.raises(TooMany):
            ask()
    assert cloud.requests == []
    cloud.advance(0.5)
    assert provider.driver.list() == [before]


def test_a_clock_that_is_set_back_keeps_no_node_from_being_asked_for(
    provider: SaladProvider, cloud: FakeSalad, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = start(provider, "node-a")
    monkeypatch.setattr(driver, "REQUESTS_MAX", 10)
    for _ in range(12):
        provider.driver.list()
    cloud.advance(-24 * 3600)
    cloud.place_anew("gl-node-a-p1", "Instance Interrupted (Priority)", "running")
    assert provider.driver.list()[0].place not in ("", before.place)


def test_offers_stay_as_they_were_while_salad_does_not_answer_about_them(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    before = provider.driver.offers()
    cloud.advance(3600)
    cloud.answers["/gpu-classes"] = cloud.answers["/sce-gpu-availability"] = web_page(502)
    assert provider.driver.offers() == before
    with pytest.raises(Unreachable):
        provider.restarted().offers()
    with pytest.raises(Unreachable):
        provider.driver.start(before[0].id, rental("node-a"))
    assert cloud.groups == {}


def test_too_many_requests_in_the_middle_of_a_look_leave_what_is_known(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    before = start(provider, "node-a")
    cloud.answers["/instances"] = problem(429, "Too Many Requests", "Slow down.")
    cloud.advance(120)
    assert provider.driver.list() == [before]
    cloud.requests.clear()
    with pytest.raises(TooMany):
        provider.driver.list()
    assert cloud.requests == []


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        ({"organization": "another"}, NotFound),
        ({"project": "cats"}, NotFound),
        ({"key": "wrong"}, Denied),
    ],
)
def test_another_organization_project_or_key_is_said_by_every_first_question(
    url: str, names: dict[str, str], kind: type[GanglineError]
) -> None:
    pool = SaladPool(**{"organization": "acme", "project": "dogs", "mark": MARK, "key": KEY, "endpoint": url} | names)
    with pytest.raises(kind) as error:
        pool.list()
    assert error.value.hint and KEY not in error.value.message


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"organization": "../acme"}, "../acme is no name of Salad's for the organization"),
        ({"organization": ""}, "an empty text is no name"),
        ({"project": "Dogs"}, "Dogs is no name of Salad's for the project"),
        ({"project": "dogs\x1b"}, r"dogs\x1b is no name"),
        ({"key": ""}, "the key of Salad is empty"),
        ({"key": "a\nb"}, "characters that HTTP does not allow"),
        ({"endpoint": "api.salad.com"}, "api.salad.com is no address"),
    ],
)
def test_what_cannot_be_right_is_refused_before_anything_is_asked(names: dict[str, str], said: str) -> None:
    with pytest.raises(BadInput) as error:
        SaladPool(
            **{"organization": "acme", "project": "dogs", "mark": MARK, "key": KEY, "endpoint": "http://127.0.0.1:9"}
            | names
        )
    assert said in error.value.message


def test_a_provider_that_is_away_names_its_host_and_not_the_key() -> None:
    pool = SaladPool(organization="acme", project="dogs", mark=MARK, key=KEY, endpoint="http://127.0.0.1:9")
    with pytest.raises(Unreachable, match=r"^Salad \(127\.0\.0\.1\) does not answer: ") as error:
        pool.list()
    assert KEY not in error.value.message


# A group that is refused


def test_a_quota_that_is_used_up_is_said_as_such_whatever_salads_words_are(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    cloud.replicas_quota = 0
    with pytest.raises(NoCapacity, match="the organization's quota of 0 replicas at Salad is used up"):
        provider.driver.start(provider.driver.offers()[0].id, rental("node-a"))


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (
            problem(400, "Bad Request", "The image is not valid."),
            BadInput,
            "(HTTP 400): Bad Request: The image is not valid",
        ),
        (problem(403, "Forbidden", "Add a payment method."), Denied, "Forbidden: Add a payment method"),
        (problem(404, "Not Found", "No such project."), NotFound, "Salad has no project dogs"),
        (web_page(400), Unreachable, "a web page answers"),
        (web_page(503), Unreachable, "Salad failed"),
    ],
)
def test_a_group_that_is_refused_for_another_reason_says_which(
    provider: SaladProvider, cloud: FakeSalad, answer: Response, kind: type[GanglineError], said: str
) -> None:
    offer = provider.driver.offers()[0].id
    cloud.answers[CREATE] = answer
    with pytest.raises(kind) as error:
        provider.driver.start(offer, rental("node-a"))
    assert said in error.value.message and cloud.groups == {}


def test_a_repeated_request_where_no_machine_is_free_any_more_finds_the_node_that_it_has(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    before, offer = start(provider, "node-a"), provider.driver.offers()[0].id
    cloud.free = dict.fromkeys(cloud.free, 0)
    provider.driver.start(offer, rental("node-a"))
    assert provider.driver.list() == [before] and len(cloud.created) == 1
