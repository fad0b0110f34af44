"""Keys as they come from files and environments: what surrounds them goes, and none is ever printed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.compose.access import ACCESS, keep_access, read_access
from gangline.compose.buckets import data_place
from gangline.compose.client import Client
from gangline.core.access import as_secret
from gangline.core.errors import BadInput, Denied, NotFound, UserError
from gangline.ports.server import Join
from gangline.wire.agent import HttpServer
from tests.conftest import Typed
from tests.service.conftest import JOIN, OPERATOR, Service
from tests.service.served import serving

BROKEN = ["gl_member_abc\ndef", "gl_member_\x00abc", "gl_member_\x9babc", "gl_member_äbc"]


@pytest.fixture
def url(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    with serving(service.app) as served:
        yield served.url


@pytest.mark.parametrize("around", ["{}\n", "{}\r\n", " {}\t\n", "{}"])
def test_a_key_works_with_the_line_break_of_its_file(
    url: str, typed: Typed, monkeypatch: pytest.MonkeyPatch, around: str
) -> None:
    secret = around.format(OPERATOR)
    assert typed("jobs", "ls", "--server", url, "--token", secret)[0] == 0
    monkeypatch.setenv("GANGLINE_TOKEN", secret)
    monkeypatch.setenv("GANGLINE_SERVER", f"{url}\n")
    monkeypatch.setenv("GANGLINE_PROJECT", "default\n")
    assert typed("jobs", "ls")[0] == 0
    assert list(Client(url, secret).nodes.list()) == []
    assert HttpServer(url, around.format(JOIN)).join(Join(machine="m", name="n")).node


@pytest.mark.parametrize("secret", BROKEN)
def test_a_key_that_can_be_none_is_refused_and_never_printed(
    url: str, typed: Typed, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    printed = [("--token cannot be a secret", *typed("worker", "--server", url, "--token", secret))]
    if "\x00" not in secret:
        printed.append(("the key cannot be used", *typed("jobs", "ls", "--server", url, "--token", secret)))
        monkeypatch.setenv("GANGLINE_TOKEN", secret)
        printed.append(("the key cannot be used", *typed("jobs", "ls", "--server", url)))
        printed.append(("GANGLINE_TOKEN cannot be a secret", *typed("worker", "--server", url)))
    for says, code, out, err in printed:
        assert (code, out) == (2, "")
        assert err.startswith(f"error: {says}: it contains")
        assert "abc" not in err and "äbc" not in err and "def" not in err


def test_whatever_goes_wrong_on_the_way_the_key_is_not_printed(url: str) -> None:
    client = Client(url, OPERATOR)
    client._http.token = "gl_member_abc\ndef"  # as a server might answer it to a node
    with pytest.raises(Exception, match=r"no request was sent to .*: HTTP does not allow it") as raised:
        list(client.nodes.list())
    assert "abc" not in str(raised.value) and "def" not in str(raised.value)


def test_a_project_that_can_be_none_is_not_found(url: str) -> None:
    with pytest.raises(NotFound, match="there is no project"):
        list(Client(url, OPERATOR, "ä\n").jobs.list())


def test_the_keys_of_a_server_may_have_a_line_break_in_its_file(tmp_path: Path) -> None:
    access = keep_access(tmp_path, "http://a")
    file = tmp_path / ACCESS
    values = json.loads(file.read_text())
    file.write_text(json.dumps({name: f"{value}\n" for name, value in values.items()}))
    assert read_access(tmp_path) == access
    file.write_text(json.dumps(values | {"join_token": "gl_join_a\x1bb"}))
    with pytest.raises(UserError, match="cannot be read") as raised:
        read_access(tmp_path)
    assert "gl_join" not in str(raised.value)


def test_a_wrong_join_token_is_called_one_and_the_hint_says_where_to_get_another(url: str) -> None:
    for secret, says in (("wrong", "this server does not know the join token"), ("", "a join token is needed")):
        with pytest.raises(Denied, match=says) as raised:
            HttpServer(url, secret).join(Join(machine="m", name="n"))
        assert "gangline join-tokens add" in raised.value.hint


def test_the_keys_of_buckets_may_have_a_line_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA\n")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", " secret\r\n")
    options = data_place("s3://bucket/data").options
    assert (options["aws_access_key_id"], options["aws_secret_access_key"]) == ("AKIA", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sec\x1bret")
    with pytest.raises(UserError, match="AWS_SECRET_ACCESS_KEY cannot be used") as raised:
        data_place("s3://bucket/data")
    assert "ret" not in str(raised.value).replace("SECRET", "")


def test_what_is_no_secret_is_refused_by_its_name_alone() -> None:
    assert as_secret("\tabc\n", "HF_TOKEN") == "abc"
    assert as_secret(" \n", "HF_TOKEN") == ""
    assert as_secret("a key of MinIO\n", "AWS_SECRET_ACCESS_KEY") == "a key of MinIO"
    with pytest.raises(BadInput) as raised:
        as_secret("a\nb", "HF_TOKEN")
    assert str(raised.value).startswith("HF_TOKEN cannot be used")
