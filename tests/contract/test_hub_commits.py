"""The stub of the hub's commit API answers the hub's own client as it answers ours: what ours says to it, the hub understands."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.adapters.places.hub_commit import HubRepository
from gangline.core.errors import BadInput, Unreachable
from gangline.ports.places.deliverer import Outgoing
from tests.hub_commits import CommitHub, commit_hub

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"
FILES = {"README.md": b"# A dog", "lora.safetensors": b"weights" * 1000, "samples/grid.png": b"a picture"}


@pytest.fixture
def hub() -> Iterator[CommitHub]:
    with commit_hub(TOKEN) as hub:
        yield hub


def outgoing(path: str, content: bytes) -> Outgoing:
    sha256 = hashlib.sha256(content).hexdigest()
    return Outgoing(path=path, bytes=len(content), sha256=sha256, read=lambda: iter([content]))


def ours(hub: CommitHub, token: str = TOKEN) -> None:
    HubRepository("kennel/timber", token, hub.url).commit([outgoing(*each) for each in FILES.items()])


def theirs(hub: CommitHub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the hub's own client."""
    client = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    api = client.HfApi(endpoint=hub.url, token=TOKEN)
    api.create_repo("kennel/timber", private=True, exist_ok=True)
    operations = [client.CommitOperationAdd(path, content) for path, content in FILES.items()]
    api.create_commit("kennel/timber", operations, commit_message="Results")


def test_files_of_each_size_become_one_commit(hub: CommitHub) -> None:
    ours(hub)
    assert hub.repos == {"kennel/timber": FILES} and len(hub.commits) == 1
    assert [line["key"] for line in hub.commits[0]] == ["header", "file", "lfsFile", "lfsFile"]
    ours(hub)
    assert hub.repos == {"kennel/timber": FILES} and len(hub.verified) == 2


def test_the_hubs_own_client_says_the_same(hub: CommitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours(hub)
    with commit_hub(TOKEN) as other:
        theirs(other, tmp_path, monkeypatch)
        assert other.repos == hub.repos and other.private == hub.private and other.lfs == hub.lfs
        said = [
            {(line["key"], *sorted(line["value"].items())) for line in each.commits[0][1:]} for each in (hub, other)
        ]
        assert said[0] == said[1]


def test_a_token_that_is_refused_is_in_no_message(hub: CommitHub) -> None:
    with pytest.raises(BadInput, match="does not let this server write to kennel/timber") as refused:
        ours(hub, "hf_wrong")
    assert "hf_wrong" not in f"{refused.value.message}{refused.value.hint}"


def test_a_hub_that_is_away_may_come_back() -> None:
    with pytest.raises(Unreachable):
        HubRepository("kennel/timber", TOKEN, "http://127.0.0.1:9").commit([outgoing("a", b"b")])
