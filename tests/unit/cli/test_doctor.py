"""`gangline doctor` finds what is wrong, says what to do, and changes nothing."""

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import psycopg
import pytest
import trustme

from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.adapters.store import open_store, schema_of
from gangline.adapters.store.statements import migrations
from gangline.cli.doctor import box, machine, server
from gangline.cli.doctor.findings import Finding, FindingState
from gangline.train.scratch.launch import free_port
from gangline.version import VERSION
from tests.conftest import Typed
from tests.servers import ACCESS_KEY, SECRET_KEY
from tests.strangers import somebody, speaking_tls

OURS = json.dumps({"status": "ok", "version": VERSION, "protocol": 2}).encode()
A_4090 = {"gpu": "NVIDIA GeForce RTX 4090", "gpu_memory": "24564 MiB", "driver": "550.54"}


@pytest.fixture(autouse=True)
def bare_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "OBJECTS", "SETTINGS", "SERVER", "TOKEN", "PROJECT"):
        monkeypatch.delenv(f"GANGLINE_{name}", raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))


def by_name(findings: Iterable[Finding]) -> dict[str, Finding]:
    return {finding.about: finding for finding in findings}


def reached(address: str, key: str = "") -> dict[str, Finding]:
    return by_name(server.check_server(address, key, None, named=True))


def test_everything_is_looked_at_and_what_is_wrong_ends_with_exit_code_1(typed: Typed, tmp_path: Path) -> None:
    code, printed, said = typed("doctor", "--server", "http://nowhere.invalid", "-o", "json")
    found = {one["about"]: one for one in json.loads(printed)}
    assert (code, said) == (1, "1 thing is wrong\n")
    assert found.keys() == {"versions", "packages", "disk", "memory", "card", "training", "server"}
    assert [one["about"] for one in found.values() if one["state"] == "wrong"] == ["server"]
    assert "there is no host nowhere.invalid" in found["server"]["says"]
    assert not (tmp_path / "home").exists()


def test_a_server_that_nobody_named_may_be_missing() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    (found,) = server.check_server(address, "", None, named=False)
    assert found.state is FindingState.note
    assert found.says == f"no server is named, and there is no Gangline server at {address} (connection refused)"
    assert "`gangline up`" in found.hint


def test_a_server_in_clear_elsewhere_is_wrong_and_here_is_fine() -> None:
    with somebody(200, OURS) as stranger:
        assert reached(f"http://127.0.0.1:{stranger.server_port}")["TLS"].state is FindingState.ok
        assert reached(f"http://localhost:{stranger.server_port}")["TLS"].state is FindingState.ok
    found = server._transport("http://gangline.example:8420", None)
    assert found.state is FindingState.wrong and "`gangline docs tls`" in found.hint


@pytest.mark.parametrize(("days", "state"), [(100, FindingState.ok), (3, FindingState.wrong)])
def test_a_certificate_that_ends_soon_is_told(
    days: int, state: FindingState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    ends = datetime.now(UTC) + timedelta(days=days, hours=1)
    with speaking_tls(authority.issue_cert("localhost", not_after=ends), 200, OURS) as port:
        found = reached(f"https://localhost:{port}")["TLS"]
    assert (found.state, found.says) == (state, f"the certificate is trusted and expires in {days} days")


@pytest.mark.parametrize(
    ("skew_s", "state"),
    [
        (0, FindingState.ok),
        (60, FindingState.note),
        (-60, FindingState.note),
        (4000, FindingState.wrong),
        (-4000, FindingState.wrong),
    ],
)
def test_a_clock_that_differs_from_the_servers_is_told(skew_s: float, state: FindingState) -> None:
    theirs = format_datetime(datetime.now(UTC) - timedelta(seconds=skew_s), usegmt=True)
    with somebody(200, OURS, {"Date": theirs}) as stranger:
        found = reached(f"http://127.0.0.1:{stranger.server_port}")["clock"]
    assert found.state is state
    if skew_s:
        assert ("ahead of" if skew_s > 0 else "behind") in found.says


def test_a_server_of_another_version_is_told() -> None:
    with somebody(200, OURS.replace(VERSION.encode(), b"99.1")) as stranger:
        found = reached(f"http://127.0.0.1:{stranger.server_port}")["version"]
    assert found.state is FindingState.note and "99.1" in found.says


def test_somebody_else_at_the_servers_address_is_wrong() -> None:
    for body in (b"<html>", b"[]", b'{"status": "ok"}'):
        with somebody(200, body) as stranger:
            found = reached(f"http://127.0.0.1:{stranger.server_port}")
        assert list(found) == ["server"] and found["server"].state is FindingState.wrong


def test_a_key_that_is_missing_and_a_join_token_in_its_place_are_told() -> None:
    with somebody(200, OURS) as stranger:
        address = f"http://127.0.0.1:{stranger.server_port}"
        assert reached(address)["key"].state is FindingState.wrong
        assert "for `gangline worker`" in reached(address, "gl_join_x")["key"].says


def test_a_build_of_torch_for_cpus_beside_a_card_is_wrong() -> None:
    found = by_name(machine.check_training(A_4090))["card"]
    if not found.says.endswith("is a build for CPUs"):
        pytest.skip("torch is built for a GPU here")
    assert found.state is FindingState.wrong
    assert found.says.startswith("NVIDIA GeForce RTX 4090 with 24564 MiB, driver 550.54, but torch ")
    assert "`gangline docs install`" in found.hint


def test_too_little_disk_or_memory_for_any_job_is_wrong(tmp_path: Path) -> None:
    assert by_name(machine.room(tmp_path / "not" / "there", 10**9))["memory"].state is FindingState.wrong
    assert by_name(machine.room(tmp_path / "not" / "there", 10**11))["memory"].state is FindingState.ok


def of_the_box(home: Path) -> dict[str, Finding]:
    return by_name(box.serving(home))


def test_the_settings_of_a_server_here_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "gangline.toml"
    assert not box.is_here(tmp_path)
    settings.write_text("[policy]\nlease_ms = 'long'\n")
    assert box.is_here(tmp_path)
    found = of_the_box(tmp_path)["settings"]
    assert found.state is FindingState.wrong and "lease_ms" in found.says
    settings.write_text("")
    assert of_the_box(tmp_path)["settings"].says == f"{settings} is valid"


def test_a_wrong_settings_file_is_named_and_the_rest_is_checked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gangline.toml").write_text("[server\n")
    found = of_the_box(tmp_path)
    assert found["settings"].state is FindingState.wrong and "is not TOML" in found["settings"].says
    assert found["database"].state is FindingState.note and "is empty" in found["database"].says
    assert found["store"].state is FindingState.note and "was not checked" in found["store"].says
    monkeypatch.setenv("GANGLINE_OBJECTS", "s3://")
    assert of_the_box(tmp_path)["store"].state is FindingState.wrong


def test_where_a_variable_is_wrong_too_nothing_is_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gangline.toml").write_text("[server\n")
    monkeypatch.setenv("HF_TOKEN", "hf\x01token")
    found = of_the_box(tmp_path)
    assert [found[name].state for name in ("settings", "database", "store")] == ["wrong", "note", "note"]
    assert "was not checked" in found["database"].says


def test_a_damaged_file_of_secrets_is_named_and_the_rest_is_checked_all_the_same(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/access.json").write_text("{")
    code, printed, _ = typed("doctor", "--server", "http://nowhere.invalid", "-o", "json")
    found = {one["about"]: one for one in json.loads(printed)}
    assert code == 1 and "access.json cannot be read" in found["access"]["says"]
    assert {"server", "settings", "database", "store"} <= found.keys()


def test_a_database_is_read_and_never_changed(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = migrations()[-1][0]
    monkeypatch.setenv("GANGLINE_DATABASE_URL", database)
    if "://" in database:
        with psycopg.connect(database) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
    assert schema_of(database) == (0, known)
    assert of_the_box(tmp_path)["database"].state is FindingState.note
    assert schema_of(database) == (0, known)
    open_store(database).close()
    assert schema_of(database) == (known, known)
    assert of_the_box(tmp_path)["database"].state is FindingState.ok


def test_a_database_that_is_damaged_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "gangline.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 3000,) for _ in range(50)])
        connection.commit()
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * 30000 + content[34096:])
    found = of_the_box(tmp_path)["database"]
    assert found.state is FindingState.wrong and "damaged" in found.says and "backup" in found.hint


def test_a_database_that_does_not_answer_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_DATABASE_URL", "postgresql://nobody:secret@127.0.0.1:1/gangline")
    found = of_the_box(tmp_path)["database"]
    assert found.state is FindingState.wrong and "cannot be used" in found.says
    assert "secret" not in found.says + found.hint


def test_a_bucket_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: S3Bucket) -> None:
    assert of_the_box(tmp_path)["store"].says == f"files are kept in {tmp_path / 'store'}"
    for name, value in {
        "GANGLINE_OBJECTS": f"s3://{bucket.name}/doctor",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_ENDPOINT_URL": bucket.endpoint,
    }.items():
        monkeypatch.setenv(name, value)
    assert of_the_box(tmp_path)["store"].state is FindingState.ok
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert of_the_box(tmp_path)["store"].state is FindingState.wrong
