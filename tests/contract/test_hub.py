"""A base from the hub: pinned to a commit, listed with the hash of each file, fetched once, then read from the cache with no network."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from gangline.adapters.host.cache import Cache
from gangline.adapters.hub import HuggingFaceHub, NodesHub
from gangline.adapters.transfer.transfer import NodesTransfer
from gangline.core.errors import Denied, GanglineError, NotFound, Unreachable
from gangline.core.files import File
from gangline.core.models.bases import files_needed
from tests.conftest import BASE, file_at
from tests.hub import COMMIT, REPO, TOKEN, FakeHub, fake_hub

NAMES = [path.relative_to(BASE).as_posix() for path in BASE.rglob("*") if path.is_file()]
FILES = tuple(file_at(BASE / name, BASE) for name in files_needed(NAMES))


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with fake_hub(BASE, card={"license": "openrail++"}) as there:
        yield there


@pytest.fixture
def gated() -> Iterator[FakeHub]:
    with fake_hub(BASE, gated=True) as there:
        yield there


def nowhere(tmp_path: Path, users: Path | None = None) -> NodesHub:
    """As long as it is asked nothing that it does not know."""
    return NodesHub(HuggingFaceHub("http://127.0.0.1:1"), tmp_path, users)


def fetch(hub: NodesHub, file: File, to: Path) -> Exception | None:
    transfer = NodesTransfer("", hub, Random(0))
    return transfer.download_from_hub(REPO, COMMIT, file, to).future.exception()  # type: ignore[return-value]


def test_a_revision_is_pinned_to_its_commit(hub: FakeHub) -> None:
    assert HuggingFaceHub(hub.url).pin(REPO, "main") == COMMIT


def test_a_commit_pins_itself() -> None:
    assert HuggingFaceHub("http://127.0.0.1:1").pin(REPO, COMMIT) == COMMIT


def test_the_hub_says_what_a_model_is(hub: FakeHub) -> None:
    found = HuggingFaceHub(hub.url).look(REPO, "main")
    assert (found.commit, found.gated, found.licence) == (COMMIT, False, "openrail++")
    assert {each.path for each in found.files} == set(NAMES)


def test_a_part_of_a_file_is_read_without_the_rest(hub: FakeHub) -> None:
    name = next(name for name in NAMES if name.startswith("unet/") and name.endswith(".safetensors"))
    assert HuggingFaceHub(hub.url).read(REPO, COMMIT, name, range(3, 11)) == (BASE / name).read_bytes()[3:11]
    assert HuggingFaceHub(hub.url).read(REPO, COMMIT, "model_index.json") == (BASE / "model_index.json").read_bytes()


def test_a_node_lists_what_a_run_needs_with_hashes_and_fetches_it_checked(hub: FakeHub, tmp_path: Path) -> None:
    nodes = NodesHub(HuggingFaceHub(hub.url), tmp_path)
    assert nodes.files(REPO, COMMIT, "base") == FILES
    for file in FILES:
        assert fetch(nodes, file, tmp_path / file.sha256) is None
        assert hashlib.sha256((tmp_path / file.sha256).read_bytes()).hexdigest() == file.sha256


def test_a_base_that_was_listed_before_needs_no_network(hub: FakeHub, tmp_path: Path) -> None:
    NodesHub(HuggingFaceHub(hub.url), tmp_path).files(REPO, COMMIT, "base")
    assert nowhere(tmp_path).files(REPO, COMMIT, "base") == FILES


def test_a_base_in_a_cache_that_is_only_read_needs_no_network_either(hub: FakeHub, tmp_path: Path) -> None:
    baked = tmp_path / "baked"
    NodesHub(HuggingFaceHub(hub.url), baked).files(REPO, COMMIT, "base")
    for file in FILES:
        (baked / file.sha256).write_bytes((BASE / file.path).read_bytes())
    cache = Cache(tmp_path / "cache", read_only=baked)
    nodes = NodesHub(HuggingFaceHub("http://127.0.0.1:1"), cache.folder, read_only=baked)
    transfer = NodesTransfer("", nodes, Random(0), finds=cache.unchecked)
    assert transfer.list_hub(REPO, COMMIT, "base").future.result() == FILES
    for file in FILES:
        assert transfer.download_from_hub(REPO, COMMIT, file, cache.place(file.sha256)).future.exception() is None
        assert cache.place(file.sha256).read_bytes() == (BASE / file.path).read_bytes()


def test_what_the_hubs_own_client_fetched_before_is_not_fetched_again(tmp_path: Path) -> None:
    snapshot = tmp_path / "users" / "models--somebody--tiny-sdxl" / "snapshots" / COMMIT
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(BASE, target_is_directory=True)
    nodes = nowhere(tmp_path, tmp_path / "users")
    assert nodes.files(REPO, COMMIT, "base") == FILES
    for file in FILES:
        assert fetch(nodes, file, tmp_path / "got" / file.sha256) is None


def test_a_download_of_the_hubs_own_client_that_was_cut_off_is_not_taken_for_a_base(tmp_path: Path) -> None:
    snapshot = tmp_path / "users" / "models--somebody--tiny-sdxl" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "model_index.json").write_text("{}")
    with pytest.raises(Unreachable):
        nowhere(tmp_path, tmp_path / "users").files(REPO, COMMIT, "base")


def test_a_gated_base_opens_with_a_token_that_was_let_in_and_with_no_other(gated: FakeHub, tmp_path: Path) -> None:
    opened = HuggingFaceHub(gated.url, TOKEN)
    assert opened.look(REPO, "main").gated
    assert opened.read(REPO, COMMIT, "model_index.json") == (BASE / "model_index.json").read_bytes()
    for token in ("", "hf_of_another"):
        with pytest.raises(Denied, match="the base somebody/tiny-sdxl at 0123456789abcdef"):
            HuggingFaceHub(gated.url, token).read(REPO, COMMIT, "model_index.json")


def test_a_node_is_told_that_a_base_is_gated_and_does_not_ask_for_ever(gated: FakeHub, tmp_path: Path) -> None:
    error = fetch(NodesHub(HuggingFaceHub(gated.url), tmp_path), FILES[0], tmp_path / "got")
    assert type(error) is GanglineError and "is gated" in error.message


@pytest.mark.parametrize(
    ("repo", "revision"), [("somebody/else", "main"), (REPO, "v2"), ("somebody/tiny sdxl", "main")]
)
def test_what_the_hub_does_not_have_is_named(hub: FakeHub, repo: str, revision: str) -> None:
    with pytest.raises(NotFound, match=f"{repo} at {revision}"):
        HuggingFaceHub(hub.url).pin(repo, revision)


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", ""])
def test_a_hub_that_does_not_answer_is_named(endpoint: str) -> None:
    with pytest.raises(Unreachable, match="somebody/tiny-sdxl at main"):
        HuggingFaceHub(endpoint).pin(REPO, "main")
