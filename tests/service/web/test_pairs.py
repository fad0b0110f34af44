"""The page gives nobody more than the API: each of its routes says which routes of the API it stands for, and answers as they do."""

from collections.abc import Iterator

import pytest

from gangline.core.access import KEY_ROLES
from gangline.core.server.limits import Limits
from gangline.web.frame.routes import LIKE
from gangline.web.page import ROUTERS, add_page
from tests.service.access.test_who_may_ask import ROUTES, House
from tests.service.conftest import Service
from tests.service.web.conftest import TINY, Browser

OPEN = {"GET /assets/{digest}/{path:path}", "GET /sign-in", "POST /sign-in"}
"""What anybody may ask, to sign in."""
OWN = {"POST /sign-out": "viewer", "POST /session/project": "operator"}
"""What is about the session itself, and the role that it needs."""
FORMS: dict[str, dict[str, str]] = {
    "POST /jobs/actions": {"job": "{job}", "action": "pause"},
    "POST /session/project": {"project": "default"},
    "POST /fleet/actions": {"node": "{node}", "action": "drain"},
    "POST /fleet/pools/{pool}/change": {"nodes_max": "2"},
    "POST /queue/actions": {"job": "{job}", "action": "pause"},
    "POST /cost/projects/{project}": {"share": "1"},
    "POST /keys": {"name": "a", "role": "viewer"},
    "POST /join-tokens": {"name": "a"},
    "POST /secrets": {"secret": "HF_TOKEN", "value": "hf_abcdefgh"},
    "POST /notices": {"address": "https://hooks.example/"},
    "POST /notices/{endpoint}/change": {"quiet": ""},
    "POST /notices/{endpoint}/again": {"after": "0"},
    "POST /jobs/{job}/labels": {"labels": "team=a"},
    "POST /jobs/{job}/extend": {"steps": "200"},
    "POST /jobs/{job}/clone": {"settings": "seed=7"},
    "POST /jobs/{job}/clone/plan": {"settings": "seed=7"},
    "POST /experiments/{experiment}/change": {"at_once": "2", "budget_usd": ""},
}
PARTS = {"path": "grid.png"}
"""What stands in addresses of the page and in none of the API: a file that the job has."""
QUERIES = {"GET /jobs/{job}/extension": "?steps=200"}


def routes_of_the_page() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each route of the page, with those of the API that it stands for."""
    for router in ROUTERS:
        for route in router.routes:
            like = (getattr(route, "openapi_extra", None) or {}).get(LIKE, ())
            for method in sorted(getattr(route, "methods", ())):
                yield f"{method} {getattr(route, 'path', '')}", tuple(like)


PAIRED = {name: like for name, like in routes_of_the_page() if name not in OPEN and name not in OWN}


def test_every_route_of_the_page_stands_for_routes_of_the_api() -> None:
    assert len(PAIRED) > 3
    assert {name for name, like in PAIRED.items() if not like} == set()
    assert {each for like in PAIRED.values() for each in like} <= set(ROUTES)


def allowed(status: int) -> str:
    """What an answer says about access: a route that needs more than this test gives it has let its caller in."""
    return {401: "who is it", 403: "not allowed", 404: "not theirs"}.get(status, "allowed")


@pytest.mark.parametrize("name", [*PAIRED, *OWN])
def test_each_caller_is_let_in_where_the_api_lets_them_in(service: Service, name: str) -> None:
    add_page(service.app, service.deployment, Limits(), over_http=True, tiny=TINY)
    service.app.state.hub.close()  # streams that are allowed end at once
    house = House(service)
    job, attempt = house.ids["job"], house.ids["attempt"]
    service.execute(
        f"INSERT INTO artifact (job, path, attempt, key, bytes, sha256) VALUES ('{job}', '{PARTS['path']}', '{attempt}', 'k', 1, '0')"
    )
    method, path = name.split()
    found, wanted = dict[str, str](), dict[str, str]()
    for caller in ("nobody", "another project's admin", *KEY_ROLES):
        browser = Browser(service)
        if caller != "nobody":
            browser.sign_in(house.callers[caller][1])
        address = path.replace(":path}", "}").format(**PARTS | house.ids) + QUERIES.get(name, "")
        fields = {key: value.format(**house.ids) for key, value in FORMS.get(name, {}).items()}
        answer = browser.part(address) if method == "GET" else browser.post(address, **fields)
        found[caller] = allowed(answer.status_code)
        wanted[caller] = _strictest(house, name, caller)
        assert answer.status_code != 500, answer.text
    assert found == wanted


def _strictest(house: House, name: str, caller: str) -> str:
    if name in OWN:
        if caller == "nobody":
            return "who is it"
        return "not allowed" if OWN[name] == "operator" and caller != "operator" else "allowed"
    told = [allowed(house.expected(ROUTES[each], each, caller)) for each in PAIRED[name]]
    return next((each for each in ("who is it", "not allowed", "not theirs") if each in told), "allowed")
