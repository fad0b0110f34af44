"""A gated base from its name on the hub to a LoRA: copied by the server, fetched once by a node that has no token, then never again."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import pytest

from gangline.adapters.pools.local import start_node
from gangline.cli import main as cli
from gangline.cli.admin.box import Box
from gangline.core.models.bases import files_needed
from tests.conftest import BASE, SUBJECT, file_at
from tests.hub import COMMIT, REPO, TOKEN, fake_hub
from tests.proxy import Proxy

NAMES = files_needed([path.relative_to(BASE).as_posix() for path in BASE.rglob("*") if path.is_file()])
BASE_BYTES = sum({file.sha256: file.bytes for file in (file_at(BASE / name, BASE) for name in NAMES)}.values())
BYTES_PER_S = 2e6
START_S_MAX = 60.0
SETTINGS = ("--prompt", "sks cat face", "--steps", "8", "--resolution", "64", "--sample-steps", "2")
Gangline = Callable[..., Any]


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """Its server has a token of the hub; what is started after it has none, and no hub."""
    with fake_hub(BASE, gated=True, card={"license": "openrail++"}) as hub:
        for name, value in (("HF_ENDPOINT", hub.url), ("HF_TOKEN", TOKEN), ("HF_HUB_OFFLINE", "0")):
            monkeypatch.setenv(name, value)
        with Box(tmp_path / "box", lease_s=20, heartbeat_interval_s=0.5) as made:
            monkeypatch.delenv("HF_TOKEN")
            monkeypatch.setenv("HF_HUB_OFFLINE", "1")
            yield made


@pytest.fixture
def gangline(box: Box, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gangline:
    """Run a command line as a user would; what it prints as JSON."""
    monkeypatch.setenv("GANGLINE_SERVER", box.url)
    monkeypatch.setenv("GANGLINE_TOKEN", box.client._http.token)

    def run(*words: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["gangline", *words, "-o", "json"])
        try:
            cli.main()
        except SystemExit as ended:
            assert not ended.code, capsys.readouterr().err
        printed = capsys.readouterr().out.strip().splitlines()
        return json.loads(printed[-1]) if printed else None

    return run


@pytest.mark.tenths
def test_a_gated_base_is_copied_once_and_fetched_once(box: Box, gangline: Gangline) -> None:
    added = gangline("bases", "add", REPO, "--name", "tiny")
    assert (added["state"], added["family"], added["licence"]) == ("ready", "sdxl", "openrail++")
    assert added["base"]["revision"] == COMMIT
    address = urlsplit(box.url)
    with Proxy((address.hostname or "", address.port or 0), bytes_per_s=BYTES_PER_S) as line:
        home = box.home / "node"
        box.nodes["node"] = start_node(name="node", home=home, server=line.url, join_token=box.join_token)
        started_s = time.monotonic()
        first = gangline("train", str(SUBJECT), "--base", "tiny", *SETTINGS, "--detach")["id"]
        until(box, first, "training")
        assert time.monotonic() - started_s <= BASE_BYTES / BYTES_PER_S + START_S_MAX
        assert line.down.bytes >= BASE_BYTES
        until(box, first, "succeeded")
        before = line.down.bytes
        second = gangline("train", str(SUBJECT), "--base", "tiny", *SETTINGS, "--rank", "8", "--detach")["id"]
        until(box, second, "succeeded")
        assert line.down.bytes - before < BASE_BYTES / 10, "photos, and what the first job prepared"
        assert sum(heard.method == "GET" and "/prepared/" in heard.target for heard in line.heard) >= 2
        gangline("bases", "rm", "tiny")
        assert gangline("bases", "ls") == []
        box.nodes["node"].kill()


def until(box: Box, job: str, wanted: str) -> None:
    """Look again and again; pytest's time-out ends it."""
    while True:
        found = box.client.jobs.get(job).summary
        assert found.state != "failed", (found.because, box.client.logs.get(job).text)
        if found.state == wanted or (wanted == "training" and found.step > 0):
            return
        Event().wait(0.1)


def test_files_have_names_too(box: Box, gangline: Gangline) -> None:
    added = gangline("bases", "add", str(BASE), "--licence", "mine")
    assert (added["name"], added["family"], added["licence"]) == ("tiny-sdxl", "sdxl", "mine")
    assert gangline("bases", "show", "tiny-sdxl") == added
    job = gangline("train", str(SUBJECT), "--base", "tiny-sdxl", *SETTINGS, "--detach")["id"]
    assert box.client.jobs.get(job).spec["base"] == added["base"]
