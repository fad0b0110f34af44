"""Keys, projects and join tokens from the command line, as an operator and a project's people use them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.cli.admin.box import Box
from gangline.compose.client import Client
from gangline.core.errors import Denied, Forbidden


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with Box(tmp_path, lease_s=5, heartbeat_interval_s=0.5) as made:
        yield made


def gangline(box: Box, *arguments: str) -> str:
    """What it prints, as the operator of this machine's server."""
    environment = os.environ | {"GANGLINE_HOME": str(box.home / "server"), "GANGLINE_SERVER": box.url}
    command = [sys.executable, "-m", "gangline.cli.main", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_an_operator_makes_a_project_and_keys_and_takes_one_back(box: Box) -> None:
    made = json.loads(gangline(box, "projects", "add", "team-a", "--usd", "5", "--share", "2", "-o", "json"))
    assert (made["project"], made["budget_usd"], made["share"]) == ("team-a", 5.0, 2.0)
    secret = gangline(box, "keys", "add", "alice", "--project", "team-a", "--role", "admin").strip()
    alice = Client(box.url, secret)
    assert alice.projects.current() == next(each for each in box.client.projects.list() if each.project == "team-a")
    with pytest.raises(Forbidden, match="needs an operator's key, and an admin's key was given"):
        alice.projects.set("team-a", budget_usd=None)
    bob = alice.keys.add("bob", "viewer", lasts_s=3600)
    assert list(Client(box.url, bob.secret).nodes.list()) == []
    listed = list(alice.keys.list())
    assert [key.name for key in listed] == ["alice", "bob"]
    assert "alice" in gangline(box, "keys", "ls") and "alice" not in gangline(box, "keys", "ls", "--project", "default")
    gangline(box, "keys", "revoke", bob.key.id)
    with pytest.raises(Denied, match="was revoked"):
        list(Client(box.url, bob.secret).nodes.list())
    assert "$6.00" in gangline(box, "projects", "set", "team-a", "--usd", "6")
    assert "no limit" in gangline(box, "budget", "--project", "team-a", "--none")


def test_an_operator_makes_a_join_token_and_takes_it_back(box: Box) -> None:
    made = json.loads(gangline(box, "join-tokens", "add", "at home", "--pool", "home", "--days", "1", "-o", "json"))
    assert made["secret"].startswith("gl_join_") and made["join_token"]["pool"] == "home"
    assert [each.pool for each in box.client.join_tokens.list()] == ["default", "home"]
    gangline(box, "join-tokens", "revoke", made["join_token"]["id"])
    assert "revoked" in gangline(box, "join-tokens", "ls")
