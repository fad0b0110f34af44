"""Keys, join tokens and projects: what each is for, and that secrets are told once and never again."""

import hashlib
import json
import logging
import os
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.adapters.store.sqlite import SqliteStore
from gangline.adapters.store.statements import migrations
from gangline.compose.access import keep_access, keep_sealing_keys, read_access
from gangline.compose.server import _sign_in_link, let_in
from gangline.core.access import is_project_name
from gangline.core.errors import Denied, Forbidden, UserError
from gangline.core.files import is_safe_path
from gangline.core.server.programs import ServerProgram
from gangline.ports.store import write
from gangline.service.access.access import adding_rental, identify
from gangline.service.fleet.nodes import gone
from tests.service.access.test_who_may_ask import ROUTES
from tests.service.conftest import JOIN, OPERATOR, PROJECT, START_MS, Service
from tests.service.test_http import problem

HOUR_S = 3600
DAY_S = 24 * HOUR_S
OTHER = "other"


# Keys


def test_nobody_makes_a_key_that_opens_more_than_their_own(service: Service) -> None:
    admin = service.key("admin")
    answer = service.ask("POST", "/v1/keys", admin, json={"name": "mine", "role": "operator"})
    assert problem(answer, 403, "forbidden")["detail"] == "this needs an operator's key, and an admin's key was given"
    assert service.ask("POST", "/v1/keys", admin, json={"name": "mine", "role": "admin"}).status_code == 201


@pytest.mark.parametrize(
    "wrong",
    [{"name": ""}, {"name": "a\x1b[2J"}, {"name": "a" * 101}, {"role": "node"}, {"lasts_s": 0}, {"lasts_s": 1e18}],
)
def test_a_key_with_a_wrong_name_role_or_end_is_refused_with_the_field_named(
    service: Service, wrong: dict[str, Any]
) -> None:
    before = service.ask("GET", "/v1/keys").json()
    found = problem(service.ask("POST", "/v1/keys", json={"name": "a"} | wrong), 422, "invalid-spec")
    assert next(iter(wrong)) in found["problems"][0]["field"]
    assert service.ask("GET", "/v1/keys").json() == before


@pytest.mark.parametrize("name", ["", "Team", "a b", "-a", "a-", "a" * 41, "../x", "a/b", "é", "a\n", "a" * 10_000])
def test_a_project_whose_name_cannot_be_in_a_key_is_refused(service: Service, name: str) -> None:
    found = problem(service.ask("POST", "/v1/projects", json={"project": name}), 422, "bad-input")
    assert "is not a valid name for a project" in found["detail"] and "hyphens" in found["hint"]


@given(st.text("ab0-./A\n", max_size=45))
def test_a_projects_name_is_one_part_of_a_path(name: str) -> None:
    if is_project_name(name):
        assert is_safe_path(name) and "/" not in name and len(name) <= 40 and name == name.lower()


def key_of(service: Service, found: str) -> dict[str, Any]:
    """As it is listed."""
    return next(each for each in service.ask("GET", "/v1/keys").json() if each["id"] == found)


def test_a_key_is_listed_without_its_secret_and_with_the_hour_of_its_use(service: Service) -> None:
    made = service.make_key("viewer", lasts_s=DAY_S)
    assert made["secret"].startswith("gl_viewer_")
    listed = key_of(service, made["key"]["id"])
    assert listed == made["key"]
    assert (listed["standing"], listed["expires_ms"] - listed["made_ms"]) == ("valid", DAY_S * 1000)
    used = []
    for _ in range(5):
        service.wait(HOUR_S / 2)
        service.ask("GET", "/v1/jobs", made["secret"])
        used.append(key_of(service, made["key"]["id"])["used_ms"])
    assert used == [START_MS + round(HOUR_S * 1000 * hours) for hours in (0.5, 0.5, 1.5, 1.5, 2.5)]


def test_a_node_that_asks_writes_no_hour_of_use(service: Service) -> None:
    token = service.join_with(JOIN).json()["token"]
    service.ask("POST", "/v1/claims", token)
    used = {row["role"]: row["used_ms"] for row in service.look("SELECT role, used_ms FROM credential")}
    assert used["node"] is None and used["join"] == service.now_ms


def test_a_revoked_key_stays_revoked_since_the_first_time(service: Service) -> None:
    made = service.make_key("member")
    for _ in range(2):
        service.wait(1)
        assert service.ask("DELETE", f"/v1/keys/{made['key']['id']}").status_code == 204
    [revoked_ms] = [k["revoked_ms"] for k in service.ask("GET", "/v1/keys").json() if k["standing"] == "revoked"]
    assert revoked_ms == service.now_ms - 1000


def test_an_operator_acts_in_the_project_that_it_names_and_the_others_in_their_own(service: Service) -> None:
    service.add_project(OTHER)
    job = service.submit(project=OTHER)
    in_other = {"Authorization": f"Bearer {OPERATOR}", "Gangline-Project": OTHER}
    assert service.http.get(f"/v1/jobs/{job}", headers=in_other).json()["summary"]["id"] == job
    problem(service.ask("GET", f"/v1/jobs/{job}"), 404, "not-found")
    nowhere = service.http.get("/v1/project", headers=in_other | {"Gangline-Project": "nowhere"})
    assert problem(nowhere, 404, "not-found")["detail"] == "there is no project nowhere"
    member = {"Authorization": f"Bearer {service.key('member')}"}
    assert service.http.get("/v1/project", headers=member | {"Gangline-Project": PROJECT}).status_code == 200
    for project in (OTHER, "nowhere"):  # not to be told apart
        answer = service.http.get("/v1/project", headers=member | {"Gangline-Project": project})
        assert problem(answer, 404, "not-found")["detail"] == f"there is no project {project}"


def test_a_project_is_made_once_and_its_budget_is_the_operators_to_set(service: Service) -> None:
    made = service.ask("POST", "/v1/projects", json={"project": "team-a"}).json()
    assert made == {
        "project": "team-a",
        "share": 1.0,
        "budget_usd": None,
        "spent_usd": 0.0,
        "reserved_usd": 0.0,
        "cost_lacks": ["storage", "egress"],
    }
    changed = service.ask("PUT", "/v1/projects/team-a", json={"share": 2, "budget_usd": 5}).json()
    assert changed == made | {"share": 2.0, "budget_usd": 5.0}
    assert service.ask("POST", "/v1/projects", json={"project": "team-a"}).json() == changed
    assert service.ask("GET", "/v1/projects").json()[1] == changed
    assert service.ask("GET", "/v1/project", service.key("viewer", "team-a")).json() == changed
    problem(service.ask("PUT", "/v1/projects/nowhere", json={}), 404, "not-found")


# Join tokens and nodes


def test_a_worker_is_in_the_pool_of_its_join_token_whatever_it_says(service: Service) -> None:
    token = service.join_token(pool="home")["secret"]
    assert service.join_with(token, pool="cloud").status_code == 201
    assert [node["pool"] for node in service.ask("GET", "/v1/nodes").json()] == ["home"]


def rent(service: Service, node: str) -> str:
    """As the scaler does; returns the token that the node's worker is given."""
    what = {"gpu": "", "gpu_memory_gb": 0, "trust": 1, "slots": 1, "price_micro_usd_per_hour": 1, "price_known": 1}
    renting = {"called": "rented", "offer": "any", "id": node, "pool": "cloud", "because": "", "now": service.now_ms}
    secret = service.deployment.new_secret("join")
    service.store.apply(write("rent_node", **renting, **what), adding_rental(secret, node, "cloud", service.now_ms))
    return secret


def test_only_a_rentals_own_token_makes_its_node(service: Service) -> None:
    token, other = rent(service, "node-r"), rent(service, "node-s")
    for strange in (other, service.join_token(pool="cloud")["secret"]):
        said = problem(service.join_with(strange, node="node-r"), 401, "denied")["detail"]
        assert said == "this join token does not belong to the node node-r"
    assert service.join_with(token, node="node-r").json()["node"] == "node-r"
    assert service.join_with(other).json()["node"] == "node-s"
    assert service.ask("GET", "/v1/join-tokens").json()[-1]["pool"] == "cloud", "people see only what people made"


def test_a_rental_has_one_worker_and_its_token_ends_with_it(service: Service) -> None:
    token = rent(service, "node-r")
    assert service.join_with(token, "first").status_code == 201
    assert service.join_with(token, "first").status_code == 201, "it restarted"
    refused = problem(service.join_with(token, "second"), 401, "denied")
    assert refused["detail"] == "the node node-r is already at work on another machine"
    gone(service.deployment, "node-r", "the provider took it back", service.now_ms)
    refused = problem(service.join_with(token, "first"), 401, "denied")
    assert refused["detail"] == "this server no longer rents this node"


def test_a_rental_that_its_provider_moved_has_its_next_node_at_the_new_place_alone(service: Service) -> None:
    token = rent(service, "node-r")
    first = service.join_with(token, "first", place="place-1").json()
    problem(service.join_with(token, "second", place="place-2"), 401, "denied")
    moving = {"id": "node-t", "left": "node-r", "place": "place-2", "shown_machine": "", "leaves": ""}
    following = write("move_rental", **moving, because="Priority", now=service.now_ms)
    gone(service.deployment, "node-r", "Priority", service.now_ms, then=[following])
    problem(service.ask("POST", "/v1/claims", first["token"]), 401, "denied")
    said = problem(service.join_with(token, "first", place="place-1"), 401, "denied")["detail"]
    assert said == "the provider does not show node-r on this machine"
    second = service.join_with(token, "second", place="place-2").json()
    assert second["node"] == "node-t" and service.ask("POST", "/v1/claims", second["token"]).status_code == 200


def test_nobody_joins_with_a_revoked_or_expired_token_and_nodes_that_have_stay(service: Service) -> None:
    brief, made = service.join_token(lasts_s=60), service.join_token()
    token = service.join_with(made["secret"], "first").json()["token"]
    service.ask("DELETE", f"/v1/join-tokens/{made['join_token']['id']}")
    service.wait(60)
    assert problem(service.join_with(made["secret"], "late"), 401, "denied")["detail"] == "this token was revoked"
    assert problem(service.join_with(brief["secret"], "late"), 401, "denied")["detail"] == "this token has expired"
    assert service.ask("POST", "/v1/claims", token).status_code == 200
    standings = [token["standing"] for token in service.ask("GET", "/v1/join-tokens").json()]
    assert standings == ["valid", "expired", "revoked"]
    problem(service.ask("DELETE", "/v1/join-tokens/none"), 404, "not-found")


def test_the_fleet_is_everybodys_and_what_a_node_works_on_its_projects(service: Service) -> None:
    job, node = service.submit(project=service.add_project(OTHER)), service.join()
    service.claim(node)
    shown = {
        whose: service.ask("GET", "/v1/nodes", secret).json()[0]
        for whose, secret in {
            "mine": service.key("viewer"),
            "its": service.key("viewer", OTHER),
            "all": OPERATOR,
        }.items()
    }
    jobs = {whose: [each["job"] for each in seen["jobs"]] for whose, seen in shown.items()}
    assert jobs == {"mine": [], "its": [job], "all": [job]}
    assert {seen["id"] for seen in shown.values()} == {node}


# Secrets


def test_no_secret_is_in_a_log_a_list_a_problem_or_the_database(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made, token = service.make_key("member"), service.join_token()
    node = service.join_with(token["secret"]).json()
    grant = service.ask("POST", "/v1/blobs", json={"sha256": "0" * 64, "bytes": 1}).json()["grant"]
    url = grant["parts"][0]["url"]
    signature = re.search(r"signature=(\w+)", url)
    assert signature
    secrets = [made["secret"], token["secret"], node["token"], OPERATOR, JOIN, signature[1]]
    texts = []
    for name, entry in ROUTES.items():
        method, path = re.sub(r"{\w+}", "nothing", name + entry.query).split()
        for secret in [*secrets, made["secret"] + "x"]:
            if secret != OPERATOR or method == "GET":
                texts.append(service.ask(method, path, secret, json={"name": secret[:-1]}).text)
    texts.append(service.http.put(f"{url}0", content=b"?").text)
    service.store.load = lambda *_, **__: 1 / 0  # type: ignore[assignment, method-assign]
    texts.append(service.ask("GET", "/v1/jobs", made["secret"]).text)
    del service.store.load
    assert "ZeroDivisionError" in caplog.text, "the server failed, and said so"
    ours = [record for record in caplog.records if not record.name.startswith("httpx")]  # that is the caller
    dump = service.dump()
    logged = "\n".join(logging.Formatter().format(record) for record in ours)
    for secret in secrets:
        assert secret not in logged
        assert not [text for text in texts if secret in text]
        assert secret not in dump


# A home of the version before


def test_tokens_of_the_version_before_open_what_they_opened(tmp_path: Path, service: Service) -> None:
    path = tmp_path / "before.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(dict(migrations())[1])
    hashes = {name: hashlib.sha256(f"gl_{name}_before".encode()).hexdigest() for name in ("user", "join", "node")}
    node = "INSERT INTO node VALUES ('n', 'm', 'n', 'p', 'ready', '', '', 0, 0, '', 1, '{}', 0, 0, NULL, 0, 0, 0, 0, 0)"
    connection.execute(node)
    for role, found in hashes.items():
        values = (found, role, "theirs" if role == "user" else PROJECT, "n" if role == "node" else None)
        connection.execute("INSERT INTO token VALUES (?, ?, ?, ?, 7)", values)
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    store = SqliteStore(path)
    deployment = replace(service.deployment, store=store)
    admin = identify(deployment, "gl_user_before", "admin", 8)
    assert (admin.role, admin.project) == ("admin", "theirs")
    with pytest.raises(Forbidden):
        identify(deployment, "gl_user_before", "operator", 8)
    assert identify(deployment, "gl_join_before", "join", 8).pool == "default"
    assert identify(deployment, "gl_node_before", "node", 8).node == "n"
    with pytest.raises(Denied):
        identify(deployment, "gl_other_before", "viewer", 8)
    store.close()


def test_a_home_of_the_version_before_gets_an_operators_key_and_keeps_its_other_secrets(tmp_path: Path) -> None:
    kept = {"url": "http://before", "join_token": "gl_join_before", "signing_secret": "s"}
    (tmp_path / "access.json").write_text(json.dumps(kept | {"user_token": "gl_user_before"}))
    before = read_access(tmp_path)
    assert before and before.operator_key == ""
    access = keep_access(tmp_path, "http://now")
    assert access.operator_key.startswith("gl_operator_")
    assert (access.url, access.join_token, access.signing_secret) == ("http://now", "gl_join_before", "s")
    assert keep_access(tmp_path, "http://now") == read_access(tmp_path) == access
    assert (tmp_path / "access.json").stat().st_mode & 0o777 == 0o600
    assert access.operator_key not in repr(access) and access.join_token not in repr(access)


def test_servers_without_a_home_of_their_own_have_the_secrets_that_their_settings_name(tmp_path: Path) -> None:
    given = {"operator_key": "gl_operator_given", "join_token": "gl_join_given"}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = (keep_access(tmp_path / name, "http://now", **given) for name in ("a", "b"))
    assert (first.operator_key, first.join_token) == (second.operator_key, second.join_token) == tuple(given.values())
    assert first.signing_secret != second.signing_secret
    assert keep_access(tmp_path / "a", "http://now") == first


def revoke(service: Service, secret: str) -> None:
    kind, what = ("join", "join-tokens") if secret.startswith("gl_join") else ("key", "keys")
    answer = service.ask("DELETE", f"/v1/{what}/{kind}-{hashlib.sha256(secret.encode()).hexdigest()[:16]}", OPERATOR)
    assert answer.is_success, answer.text


def test_a_join_token_of_the_home_that_was_revoked_is_replaced_at_the_next_start(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    of = ServerProgram(home=tmp_path)
    leaked = let_in(service.deployment, keep_access(tmp_path, "http://now"), of)
    assert not caplog.messages
    revoke(service, leaked.join_token)
    access = let_in(service.deployment, keep_access(tmp_path, "http://now"), of)
    assert identify(service.deployment, access.join_token, "join", START_MS).pool == "default"
    assert access == read_access(tmp_path) == replace(leaked, join_token=access.join_token)
    assert caplog.messages == [
        f"join_token in {tmp_path}/access.json: this token was revoked; there is another one now"
    ]
    assert let_in(service.deployment, keep_access(tmp_path, "http://now"), of) == access


@pytest.mark.parametrize("given", [True, False])
def test_an_operators_key_that_was_revoked_stops_no_start_and_the_log_says_where_it_comes_from(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture, given: bool
) -> None:
    of = ServerProgram(home=tmp_path, operator_key="gl_operator_leaked" if given else "")
    access = let_in(service.deployment, keep_access(tmp_path, "http://now", operator_key=of.operator_key), of)
    assert _sign_in_link(service.deployment, access).startswith("http://now/sign-in?code=")
    revoke(service, access.operator_key)
    assert let_in(service.deployment, access, of) == access
    assert _sign_in_link(service.deployment, access) == "http://now"
    place = "GANGLINE_OPERATOR_KEY" if given else f"operator_key in {tmp_path}/access.json"
    assert caplog.messages == [f"{place}: this key was revoked; put another one there, and start the server again"]


def test_a_join_token_of_the_settings_that_was_revoked_is_named_and_stays_revoked(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    of = ServerProgram(home=tmp_path, join_token="gl_join_leaked")
    access = let_in(service.deployment, keep_access(tmp_path, "http://now", join_token=of.join_token), of)
    revoke(service, access.join_token)
    assert let_in(service.deployment, access, of) == access
    assert caplog.messages == [
        "GANGLINE_JOIN_TOKEN: this token was revoked; put another one there, and start the server again"
    ]
    with pytest.raises(Denied, match="revoked"):
        identify(service.deployment, access.join_token, "join", START_MS)


def test_nobody_is_told_to_remove_secrets_that_another_user_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # so that no folder above it has to be open
    home = Path()
    keep_access(home, "http://now")
    keep_sealing_keys(home, "")
    home.chmod(0o711)
    for file in home.iterdir():
        file.chmod(0)
    user = os.geteuid()
    try:
        if user == 0:  # who may read all
            os.seteuid(12345)
        for ask in (lambda: read_access(home), lambda: keep_sealing_keys(home, "")):
            with pytest.raises(UserError, match="cannot be read: Permission denied") as refused:
                ask()
            assert "remove" not in refused.value.hint and "chown" in refused.value.hint
    finally:
        os.seteuid(user)
