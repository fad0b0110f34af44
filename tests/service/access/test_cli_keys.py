"""`gangline keys`: the real command line against a real server."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.compose.access import keep_access
from tests.conftest import Typed
from tests.service.conftest import OPERATOR, Service
from tests.service.served import Served, serving


@pytest.fixture
def served(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with serving(service.app) as at:
        monkeypatch.setenv("GANGLINE_SERVER", at.url)
        monkeypatch.setenv("GANGLINE_TOKEN", OPERATOR)
        yield at


def test_a_new_key_comes_with_what_its_holder_types(
    served: Served, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, secret, said = typed("keys", "add", "alice")
    assert code == 0 and secret.startswith("gl_member_") and len(secret.splitlines()) == 1
    assert f"  export GANGLINE_SERVER=http://HOST:{served.port}\n  export GANGLINE_TOKEN=THE-KEY\n" in said
    assert "HOST is the name of this machine" in said, "127.0.0.1 is another machine's own address"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _, secret, said = typed("keys", "add", "alice")
    assert f"export GANGLINE_TOKEN={secret.strip()}\n" in said


def test_an_address_that_others_reach_is_said_as_it_is(served: Served, typed: Typed) -> None:
    address = f"http://127.1:{served.port}"  # stands for a name of the network: it is no IP address as they are written
    _, _, said = typed("keys", "add", "alice", "--server", address)
    assert f"alice types:\n  export GANGLINE_SERVER={address}\n" in said


@pytest.mark.parametrize(
    ("public_url", "address"),
    [("https://gangline.example.org/g", "https://gangline.example.org/g"), ("", "http://HOST:{port}")],
)
def test_on_the_servers_machine_the_address_is_that_of_its_settings(
    served: Served, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, public_url: str, address: str
) -> None:
    keep_access(tmp_path, f"http://0.0.0.0:{served.port}", public_url=public_url, operator_key=OPERATOR)
    monkeypatch.delenv("GANGLINE_SERVER")
    monkeypatch.delenv("GANGLINE_TOKEN")
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path))
    _, _, said = typed("keys", "add", "alice")
    assert f"  export GANGLINE_SERVER={address.format(port=served.port)}\n" in said
    assert typed("open", "--link")[1].startswith(f"{public_url or f'http://0.0.0.0:{served.port}'}/sign-in?code=")


def test_the_key_that_a_server_makes_by_itself_has_a_name_that_reads_well_as_an_owner(
    served: Served, typed: Typed
) -> None:
    (first,) = json.loads(typed("keys", "ls", "-o", "json")[1])
    assert (first["name"], first["role"]) == ("first operator", "operator")


def test_the_json_of_a_new_key_has_the_key_alone(served: Served, typed: Typed) -> None:
    _, printed, said = typed("keys", "add", "alice", "-o", "json")
    assert json.loads(printed)["key"]["name"] == "alice" and not said


def test_a_key_is_revoked_by_its_name_if_one_valid_key_alone_has_it(served: Served, typed: Typed) -> None:
    def add() -> str:
        return json.loads(typed("keys", "add", "looker", "--role", "viewer", "-o", "json")[1])["key"]["id"]

    first = add()
    code, _, said = typed("keys", "revoke", "looker")
    assert code == 0 and said == f"{first} (looker) is revoked\n"
    code, _, said = typed("keys", "revoke", "looker")
    assert code == 2 and "no key of the name looker is valid any more" in said
    several = [add(), add()]
    code, _, said = typed("keys", "revoke", "looker")
    assert code == 2 and f"2 valid keys have the name looker: {several[0]} and {several[1]}" in said
    code, printed, _ = typed("keys", "revoke", several[0], "-o", "json")
    assert code == 0 and json.loads(printed) == {"key": several[0], "standing": "revoked"}
    _, printed, _ = typed("keys", "revoke", "looker", "-o", "json")
    assert json.loads(printed)["key"] == several[1]
    assert "there is no key nobody" in typed("keys", "revoke", "nobody")[2]
