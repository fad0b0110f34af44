"""`gangline train --plan` beside a server and a hub: what is said before a byte is sent, and what is refused before one is."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gangline.core.specs.fields import HubBase
from gangline.ports.store import write
from tests.conftest import BASE, Typed
from tests.hub import COMMIT, REPO, TOKEN, FakeHub, fake_hub
from tests.service.conftest import OPERATOR, PRICE, PROJECT, Service
from tests.service.content.test_bases import connect
from tests.service.content.test_on_hub import other_model
from tests.service.served import serving

SETTINGS = ("--prompt", "a photo of sks dog", "--resolution", "64", "--steps", "30", "--batch-size", "3")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(3):
        Image.new("RGB", (80, 80), (number * 40, 0, 0)).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def train(service: Service, photos: Path, typed: Typed) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Run `gangline train` on the photos against the service; what is said comes in one line."""
    with serving(service.app) as served:

        def run(*words: object) -> tuple[int, str, str]:
            given = ("--server", served.url, "--token", OPERATOR)
            code, printed, said = typed("train", photos, *SETTINGS, *given, *words)
            return code, printed, " ".join(said.split())

        yield run


@contextmanager
def hub_at(
    service: Service, monkeypatch: pytest.MonkeyPatch, folder: Path, token: str = "", **facts: Any
) -> Iterator[FakeHub]:
    """One that the server asks, and who types the command, each with a token of its own."""
    with fake_hub(folder, card={"license": "openrail++"}, **facts) as hub:
        connect(service, hub)
        for name, value in (("HF_ENDPOINT", hub.url), ("HF_TOKEN", token), ("HF_HUB_OFFLINE", "0")):
            monkeypatch.setenv(name, value)
        yield hub


def sent(service: Service) -> list[Any]:
    """What came into the object store, and what was submitted."""
    return service.look("SELECT sha256 FROM blob ORDER BY sha256") + service.look("SELECT id FROM job ORDER BY id")


def test_a_plan_names_base_nodes_and_price_and_sends_nothing(
    service: Service, train: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.join(gpu="NVIDIA GeForce RTX 4090", gpu_memory_gb=24)
    before = sent(service)
    with hub_at(service, monkeypatch, BASE):
        code, printed, said = train("--base", REPO, "--plan", "-o", "json")
    found = json.loads(printed)
    assert code == 0 and sent(service) == before
    assert found["base"]["family"] == "sdxl" and found["base"]["revision"] == COMMIT
    assert (found["base"]["gated"], found["base"]["licence"], found["asked"]) == (False, "openrail++", None)
    assert found["base"]["bytes"] > 10**6
    assert [(node["name"], node["price_usd_per_hour"]) for node in found["nodes"]] == [("node-a", PRICE / 1e6)]
    assert (found["steps"], found["seen_least"], found["why_none"]) == (30, 30, "")
    assert "node-a (NVIDIA GeForce RTX 4090, 24 GB, $0.36/h)" in said
    assert f"{REPO} at main ({COMMIT[:10]}), SDXL" in said


def test_what_this_workload_took_is_found_by_the_content_of_a_base_here(service: Service, train: Any) -> None:
    from gangline.core.specs.spec import parse_spec, workload

    node = service.join(gpu="NVIDIA GeForce RTX 4090", gpu_memory_gb=24)
    code, _, said = train("--base", BASE, "--detach")
    assert code == 0, said
    (job,) = service.look("SELECT id, spec, workload FROM job")
    assert job["workload"] == workload(parse_spec(json.loads(job["spec"])))
    pace = {"gpu": "NVIDIA GeForce RTX 4090", "machine": "m", "seconds_per_step": 2.0}
    service.store.apply(write("set_pace", workload=job["workload"], **pace, now=service.now_ms))
    found = json.loads(train("--base", BASE, "--plan", "-o", "json")[1])
    assert found["time"]["how"] == "measured" and found["time"]["low_s"] < 60 < found["time"]["high_s"]
    assert found["usd"]["price_usd_per_hour"] == PRICE / 1e6 and found["ahead"] == 1
    assert node


def test_the_price_stands_before_the_upload(service: Service, train: Any) -> None:
    service.join(gpu="NVIDIA GeForce RTX 4090", gpu_memory_gb=24)
    _, _, said = train("--base", BASE, "--detach")
    assert 0 < said.index("at $0.36 an hour") < said.index("uploaded ")


def test_an_upload_says_what_was_sent_and_what_was_stored_already(train: Any, photos: Path) -> None:
    said = train("--base", BASE, "--detach")[2]
    found = re.search(r"(\d+) files uploaded \(7\.\d MB\), (\d+) (?:was|were) stored already", said)
    assert found, said
    sent, alike = map(int, found.groups())  # some files of the base are the same as another one
    assert sent > 10 > alike
    assert f"0 files uploaded, {sent + alike} were stored already" in train("--base", BASE, "--detach")[2]
    Image.new("RGB", (80, 80), (0, 200, 0)).save(photos / "0.png")
    one = f"1 file uploaded \\(\\d+ B\\), {sent + alike - 1} were stored already"
    assert re.search(one, train("--base", BASE, "--detach")[2])


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("words", [("--plan",), ("--detach",)])
def test_a_model_of_another_kind_is_refused_before_anything_is_sent(
    service: Service, train: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], gated: bool
) -> None:
    (tmp_path / "flux").mkdir()
    before = sent(service)
    with hub_at(service, monkeypatch, other_model(tmp_path / "flux", "FluxPipeline"), gated=gated):
        code, _, said = train("--base", REPO, *words)
    assert code == 2 and sent(service) == before
    assert f"error: {REPO} is a FluxPipeline" in said and "hint: give an SDXL" in said


def test_a_gated_base_is_refused_before_anything_is_sent_until_the_server_has_a_copy(
    service: Service, train: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.join()
    before = sent(service)
    with hub_at(service, monkeypatch, BASE, TOKEN, gated=True):
        code, _, said = train("--base", REPO, "--plan")
        assert code == 0 and "gated on the hub; your hub token has access" in said
        assert f"warning: {REPO} is gated on the hub" in said
        code, _, said = train("--base", REPO, "--detach")
        assert code == 2 and f"gangline bases add {REPO}" in said and sent(service) == before
        monkeypatch.setenv("HF_TOKEN", "of somebody else")
        assert "you have no access" in train("--base", REPO, "--plan")[2]
        model = HubBase(repo=REPO, revision=COMMIT)
        which = {"project": PROJECT, "base": model.id, "role": "base", "repo": REPO, "revision": COMMIT}
        service.store.apply(write("begin_mirror", **which, files="[]", bytes=1))
        service.execute("UPDATE mirror SET state = 'ready'")
        assert "the server has a copy for its nodes" in train("--base", REPO, "--plan")[2]
        code, _, said = train("--base", REPO, "--detach")
        assert code == 0, said


def test_a_hub_that_is_away_is_one_row_of_a_plan(service: Service, train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service.join()
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    code, _, said = train("--base", REPO, "--plan")
    assert code == 0
    assert f"{REPO} at main (it could not be looked up: the hub cannot be reached for the base" in said
    assert "node-a (CPU" in said and "30 steps, batch size 3 (each photo is seen 30 times)" in said


def test_a_name_that_the_hub_does_not_have_is_refused_before_anything_is_sent(
    service: Service, train: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sent(service)
    with hub_at(service, monkeypatch, BASE):
        code, _, said = train("--base", "somebody/misspelt", "--detach")
    assert code == 2 and "the hub has no base somebody/misspelt" in said and sent(service) == before


def test_without_a_server_a_plan_has_all_else(photos: Path, typed: Typed) -> None:
    words = ("--base", BASE, "--plan", "--server", "http://127.0.0.1:1", "-o", "json")
    code, printed, said = typed("train", photos, *SETTINGS, *words)
    found = json.loads(printed)
    assert code == 0 and found["asked"].startswith("there is no Gangline server at http://127.0.0.1:1")
    assert "unknown: there is no Gangline server at" in " ".join(said.split())
    assert (found["photos"], found["base"]["family"], found["nodes"]) == (3, "sdxl", [])


def test_a_key_that_opens_nothing_asks_no_nodes(service: Service, train: Any) -> None:
    code, _, said = train("--base", BASE, "--plan", "--token", "gl_member_wrong")
    assert code == 0 and "unknown: " in said


def test_of_a_base_that_was_uploaded_before_its_family_is_that_of_the_projects_list(
    service: Service, train: Any
) -> None:
    ours = {"name": "ours", "base": asdict(service.upload_base()), "family": "sdxl", "licence": "mit"}
    assert service.ask("POST", "/v1/bases", json=ours).status_code == 201
    service.join(gpu="NVIDIA GeForce RTX 4090", gpu_memory_gb=24)
    found = json.loads(train("--base", "ours", "--plan", "-o", "json")[1])
    assert (found["base"]["name"], found["base"]["family"], found["base"]["licence"]) == ("ours", "sdxl", "mit")
    assert found["time"]["how"] == "computed"


def test_the_users_login_on_the_hub_is_used(
    service: Service, train: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with hub_at(service, monkeypatch, BASE, gated=True):
        assert "your hub token has access" in train("--base", REPO, "--plan")[2]


def test_what_the_hub_says_of_a_model_is_escaped(service: Service, train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_hub(BASE, card={"license": "\x1b[31mred[/]"}) as hub:
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        code, _, said = train("--base", REPO, "--plan")
    assert code == 0 and "\x1b" not in said and "red[/]" in said
