"""Where else names go: onto a disk, into a command that is shown to be typed, into a server's log, down a stream."""

import json
import logging
import shlex
from inspect import isfunction, signature
from operator import attrgetter
from pathlib import Path
from typing import Any

import httpx
import pytest

from gangline.api.answers.streams import _message
from gangline.cli import output
from gangline.compose.client import Client
from gangline.core.errors import Damaged, NotFound, UserError
from gangline.core.views import ArtifactView, LogView
from gangline.exec.error_reporter import ErrorReporter
from gangline.ports.store import write
from gangline.wire.client.calls import Calls
from gangline.wire.stream import MessageParser, parse_message
from tests.conftest import Typed
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.names.hostile import FORGED, STORED
from tests.service.served import serving
from tests.unit.test_display import CONTROLS

SHELL = "a'; touch owned; $(id) `id` #"
LINES = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\r\nh"


def artifact(path: str, url: str = "http://127.0.0.1:9/x") -> ArtifactView:
    return ArtifactView(path=path, bytes=1, sha256="0" * 64, url=url)


@pytest.mark.parametrize("path", ["../owned", "/tmp/owned", "a/../../owned", "", ".", "a\\..\\owned", "a\nb", "c:d"])
def test_a_server_cannot_write_outside_of_the_folder_that_was_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(Damaged, match="cannot be the name of a file"):
        Client("http://127.0.0.1:9", "key").files.download(artifact(path), tmp_path / "here")
    assert list(tmp_path.iterdir()) == []


def test_what_no_disk_can_take_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match="cannot be written: file exists"):
        Client("http://127.0.0.1:9", "key").files.download(artifact("file/weights.safetensors"), tmp_path)


def test_a_name_as_long_as_a_disk_takes_is_downloaded(service: Service, tmp_path: Path) -> None:
    file = service.upload(b"weights", "w" * 255)
    key = f"projects/{PROJECT}/blobs/{file.sha256}"
    service.objects.write(key, b"weights")
    with serving(service.app) as served:
        url = served.url + service.objects.sign_get(key, now_ms=service.now_ms, seconds=60).url
        found = ArtifactView(path=file.path, bytes=file.bytes, sha256=file.sha256, url=url)
        assert Client(served.url, OPERATOR).files.download(found, tmp_path).read_bytes() == b"weights"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_an_object_opened_in_a_browser_is_saved_and_runs_nothing(service: Service) -> None:
    service.objects.write("page", b"<script>alert(1)</script>")
    answer = service.http.get(service.objects.sign_get("page", now_ms=service.now_ms, seconds=60).url)
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["content-security-policy"] == "sandbox"
    assert answer.headers["content-type"] == "application/octet-stream"


def test_a_command_that_is_shown_takes_a_name_as_one_word(
    service: Service, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = service.upload(b"weights", "w.safetensors")
    base = json.dumps({"source": "files", "files": [{"path": "w.safetensors", "bytes": 7, "sha256": file.sha256}]})
    facts = {"base": base, "base_id": "b", "vae": "", "vae_id": "", "family": "", "prediction_type": "", "licence": ""}
    row = write("name_base", project=PROJECT, name=SHELL, **facts, because="", bytes=7, now=service.now_ms)
    service.store.apply(row)
    monkeypatch.setenv("GANGLINE_TOKEN", OPERATOR)
    with serving(service.app) as served:
        code, _, said = typed("bases", "show", SHELL, "--server", served.url)
    assert code == 0
    command = shlex.split(said.partition("train with it:")[2])
    assert command == ["gangline", "train", "PHOTOS", "--base", SHELL, "--prompt", "…"]


def test_an_error_in_a_servers_log_is_of_one_piece(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @service.app.get("/broken/{name:path}")
    def broken(name: str) -> None:
        raise ValueError(STORED[:500])

    handler = logging.StreamHandler()
    handler.setFormatter(output.LineFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    with serving(service.app) as served:
        assert httpx.get(f"{served.url}/broken/%1B%5B2J").status_code == 500
    said = capsys.readouterr().err
    assert "ValueError" in said
    assert not CONTROLS.search(said)
    assert not [line for line in said.splitlines() if line.startswith(FORGED)]


IDS = {"job", "node", "name", "project", "key", "join_token"}
NOUNS = {
    name: type(noun) for name, noun in vars(Client("http://127.0.0.1:9", "key")).items() if isinstance(noun, Calls)
}
ASKS = {
    f"{noun}.{name}": signature(method).parameters
    for noun, of in NOUNS.items()
    for name, method in vars(of).items()
    if isfunction(method) and name[0] != "_"
}
BY_ID = {
    name: {
        each: 1 if each == "step" else "a/b" for each, one in of.items() if each != "self" and one.default is one.empty
    }
    for name, of in ASKS.items()
    if next(iter([*of][1:]), None) in IDS and not name.endswith(".add")
}


@pytest.mark.parametrize(("name", "given"), BY_ID.items(), ids=BY_ID)
def test_no_request_is_made_for_an_id_with_a_slash(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(NotFound, match="there is no a/b"):
        list(attrgetter(name)(Client("http://127.0.0.1:9", "key"))(**given))


@pytest.mark.parametrize("pieces", [1, 3, 10_000])
def test_a_log_is_followed_whatever_it_takes_for_a_line(pieces: int) -> None:
    old = b"event: log\r\nid: 1.1\r\ndata: " + json.dumps({"text": LINES, "next": "1.1"}, ensure_ascii=False).encode()
    sent = _message("log", LogView(text=LINES, next="1.1"), "1.1") + old + b"\r\n\r\n"
    chunks = [sent[first : first + pieces] for first in range(0, len(sent), pieces)]
    parser = MessageParser()
    found = [parse_message(message, {"log": LogView}) for chunk in chunks for message in parser.feed(chunk)]
    assert found == [LogView(text=LINES, next="1.1")] * 2


def test_a_fault_of_ours_beside_a_command_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    def step() -> None:
        raise ValueError(STORED[:500])

    said = list[str]()
    ErrorReporter(said.append)(step)
    assert "ValueError" in said[0]
    assert not CONTROLS.search(capsys.readouterr().err)
