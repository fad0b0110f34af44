"""Settings are merged from defaults, gangline.toml, the environment and options; each has its source, and secrets are hidden."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gangline.adapters.host.cache import Cache
from gangline.compose.buckets import data_place
from gangline.compose.places import source_keys
from gangline.compose.pools import Drivers
from gangline.compose.server import make_trackers
from gangline.compose.settings import (
    read_hub_settings,
    read_server_settings,
    read_settings,
    read_settings_of_box,
    read_worker_settings,
)
from gangline.compose.worker import make_agent
from gangline.core.errors import BadInput, UserError
from gangline.core.files import File
from gangline.core.runs.proof import CHECKPOINTS_IN
from gangline.core.server.merging import MergedSettings
from gangline.core.server.programs import ServerProgram
from gangline.core.server.settings import ServerSettings, WorkerSettings
from gangline.core.server.sources import SourceSettings
from tests.conftest import Typed
from tests.docs.tables_of_settings import of_server

OF_SERVER: Mapping[str, tuple[str, str, Any]] = {
    "GANGLINE_DATABASE_URL": ("postgresql://u:p@host/db", "server.database_url", "postgresql://u:p@host/db"),
    "GANGLINE_OBJECTS": ("s3://bucket/x", "server.objects", "s3://bucket/x"),
    "GANGLINE_WANDB_PROJECT": ("dogs", "server.wandb_project", "dogs"),
    "GANGLINE_TENSORBOARD": ("/srv/tensorboard", "server.tensorboard", Path("/srv/tensorboard")),
    "HF_TOKEN": (" hf_x\n", "hub.token", "hf_x"),
    "HF_ENDPOINT": ("https://hub.example", "hub.endpoint", "https://hub.example"),
    "HF_HUB_OFFLINE": ("ON", "hub.offline", True),
}
OF_WORKER: Mapping[str, tuple[str, str, Any]] = {
    "GANGLINE_SERVER": ("http://server:1", "worker.server", "http://server:1"),
    "GANGLINE_TOKEN": ("gl_join_x\n", "worker.token", "gl_join_x"),
    "GANGLINE_CACHE_GB": ("1.5", "worker.cache_gb", 1.5),
    "GANGLINE_NODE": ("node-1", "worker.node", "node-1"),
    "GANGLINE_IDENTITY_URL": ("http://169.254.169.254", "worker.identity_url", "http://169.254.169.254"),
    "HF_HUB_CACHE": ("/cache/hub", "worker.hub_cache", Path("/cache/hub")),
    "HF_HOME": ("/cache", "worker.hub_cache", Path("/cache/hub")),
    "HF_TOKEN": ("hf_x", "hub.token", "hf_x"),
    "HF_ENDPOINT": ("https://hub.example", "hub.endpoint", "https://hub.example"),
    "HF_HUB_OFFLINE": ("1", "hub.offline", True),
    "GANGLINE_DATA_ACCESS_KEY_ID": ("key", "data.access_key_id", "key"),
    "GANGLINE_DATA_SECRET_ACCESS_KEY": ("secret", "data.secret_access_key", "secret"),
    "GANGLINE_DATA_SESSION_TOKEN": ("session", "data.session_token", "session"),
    "GANGLINE_DATA_REGION": ("eu-west-1", "data.region", "eu-west-1"),
    "GANGLINE_DATA_ENDPOINT_URL": ("http://store", "data.endpoint_url", "http://store"),
    "GANGLINE_DATA_CACHE": ("/data", "data.cache", Path("/data")),
    "GANGLINE_DATA_CACHE_GB": ("7", "data.cache_gb", 7.0),
}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*OF_SERVER, *OF_WORKER, "GANGLINE_SETTINGS", "GANGLINE_PROJECT", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path))


def value_of(settings: ServerSettings | WorkerSettings, name: str) -> Any:
    section, field = name.split(".")
    return getattr(getattr(settings, section), field)


@pytest.mark.parametrize(
    ("read", "variable", "sets"),
    [
        *((read_server_settings, *each) for each in OF_SERVER.items()),
        *((read_worker_settings, *each) for each in OF_WORKER.items()),
    ],
)
def test_each_variable_of_a_server_and_of_a_worker_still_sets_what_it_set(
    read: Callable[[], MergedSettings[Any]], variable: str, sets: tuple[str, str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, name, value = sets
    assert value_of(read().settings, name) != value
    monkeypatch.setenv(variable, text)
    found = read()
    assert value_of(found.settings, name) == value
    assert found.sources[tuple(name.split("."))] == variable


def test_each_variable_of_the_command_line_still_sets_what_it_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVER", "TOKEN", "PROJECT"):
        monkeypatch.setenv(f"GANGLINE_{name}", f" {name}\n")
    found = read_settings()
    assert (found.server, found.token, found.project) == ("SERVER", "TOKEN", "PROJECT")


def test_homes_and_the_file_are_where_variables_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert read_server_settings().settings.server.home == tmp_path
    assert read_worker_settings().settings.worker.home == tmp_path / "worker"
    monkeypatch.delenv("GANGLINE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    found = read_worker_settings()
    assert found.settings.worker.home == tmp_path / "data" / "gangline" / "worker"
    assert found.sources["worker", "home"] == "XDG_DATA_HOME"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = read_worker_settings()
    assert found.settings.worker.home == tmp_path / ".local/share/gangline/worker"
    assert found.sources["worker", "home"] == ""
    (tmp_path / "x.toml").write_text("[worker]\nslots = 3\n[policy]\nlease_s = 50")
    monkeypatch.setenv("GANGLINE_SETTINGS", str(tmp_path / "x.toml"))
    assert read_worker_settings().settings.worker.slots == 3
    assert read_server_settings().settings.policy.lease_s == 50
    assert read_server_settings().settings.server.settings == tmp_path / "x.toml"


def test_an_option_overrides_a_variable_and_a_variable_the_file_and_the_file_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place, file = ("worker", "cache_gb"), tmp_path / "gangline.toml"
    assert read_worker_settings().settings.worker.cache_gb is None
    file.write_text("[worker]\ncache_gb = 1")
    assert (read_worker_settings().settings.worker.cache_gb, read_worker_settings().sources[place]) == (1, str(file))
    monkeypatch.setenv("GANGLINE_CACHE_GB", "2")
    assert read_worker_settings().settings.worker.cache_gb == 2
    file.write_text("[worker]\ncache_gb = 1\nhub_cache = '/of/the/file'")
    assert read_worker_settings().settings.worker.hub_cache == Path("/of/the/file")
    found = read_worker_settings({"worker.cache_gb": 3.0})
    assert (found.settings.worker.cache_gb, found.sources[place]) == (3, "--cache-gb")


def test_everything_wrong_is_reported_at_once_each_with_its_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gangline.toml").write_text("[worker]\nname = 5\nsltos = 1\n[workr]\n[policy]\nlease_s = 'long'")
    monkeypatch.setenv("GANGLINE_CACHE_GB", "many")
    monkeypatch.setenv("GANGLINE_DATA_CACHE_GB", "-1")
    with pytest.raises(BadInput) as caught:
        read_worker_settings({"worker.slots": 2000})
    assert caught.value.message.split("; ") == [
        "--slots must be 1,024 or less, not 2000",
        "GANGLINE_CACHE_GB must be a number, not many",
        "GANGLINE_DATA_CACHE_GB must be more than 0, not -1.0",
        f"{tmp_path / 'gangline.toml'}: worker.name must be a text, not 5",
        "worker has no field sltos",
        "the file has no field workr",
    ]


def test_a_server_reports_the_files_the_environments_and_the_options_problems_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gangline.toml").write_text("[policy]\nidle_s = 'long'\nheartbeat_interval_s = 30\n[worker]\nslots = 0")
    monkeypatch.setenv("HF_TOKEN", "a\x01b")
    with pytest.raises(BadInput) as caught:
        read_server_settings({"server.port": 70_000, "policy.lease_s": 40.0})
    says = caught.value.message
    assert (
        "--port must be 65,535 or less, not 70000" in says
        and "HF_TOKEN cannot be a secret: it contains control characters" in says
    )
    assert f"{tmp_path / 'gangline.toml'}: policy.idle_s must be a number" in says
    assert "policy with --lease-s contradicts this rule: lease_s is at least twice" in says
    assert "slots" not in says


def test_a_secret_is_never_shown_nor_taken_from_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: Typed
) -> None:
    secrets = {name: f"very-{name}" for name in ("GANGLINE_DATABASE_URL", "HF_TOKEN", "GANGLINE_TOKEN")}
    secrets["GANGLINE_DATA_SECRET_ACCESS_KEY"] = "very-secret"
    for name, text in secrets.items():
        monkeypatch.setenv(name, text)
    shown = [typed("settings", "show", *more, "-o", "json")[1] for more in ((), ("--worker",))]
    shown += [repr(read_server_settings()), repr(read_worker_settings())]
    assert "very-" not in "".join(shown) and "********" in shown[0] and "********" in shown[1]
    monkeypatch.setenv("HF_TOKEN", "very-secret\x01letters")
    (tmp_path / "gangline.toml").write_text("[worker]\ntoken = 12345678\nhome = '/x'")
    with pytest.raises(BadInput) as caught:
        read_worker_settings()
    says = caught.value.message
    assert "HF_TOKEN cannot be a secret" in says and "very-" not in says and "12345678" not in says
    assert "worker.token does not belong in a file: use GANGLINE_TOKEN or --token" in says
    assert "worker.home does not belong in a file: use GANGLINE_HOME or --home" in says


def test_settings_show_prints_value_source_and_meaning_of_a_server_and_of_a_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: Typed
) -> None:
    file = tmp_path / "gangline.toml"
    file.write_text("[policy]\nlease_s = 3600\n[worker]\nslots = 2")
    monkeypatch.setenv("GANGLINE_OBJECTS", "s3://bucket/x")
    monkeypatch.setenv("GANGLINE_CACHE_GB", "5")
    code, printed, _ = typed("settings", "show", "-o", "json")
    found = {f"{each['section']}.{each['name']}": each for each in json.loads(printed)}
    assert code == 0 and not any(name.startswith("worker.") for name in found)
    assert (found["policy.lease_s"]["source"], found["policy.idle_s"]["source"]) == (str(file), "")
    assert found["policy.node_silent_s"]["source"] == "other settings"
    assert (found["server.objects"]["value"], found["server.objects"]["source"]) == (
        "s3://bucket/x",
        "GANGLINE_OBJECTS",
    )
    code, printed, _ = typed("settings", "show", "--worker", "-o", "json")
    found = {f"{each['section']}.{each['name']}": each for each in json.loads(printed)}
    assert code == 0 and {name.partition(".")[0] for name in found} == {"worker", "hub", "data"}
    assert (found["worker.slots"]["value"], found["worker.slots"]["source"]) == (2, str(file))
    assert (found["worker.cache_gb"]["value"], found["worker.cache_gb"]["source"]) == (5, "GANGLINE_CACHE_GB")
    text = typed("settings", "show", "--worker")[1]
    assert "worker.slots" in text and "The GPUs of the" in text and "default" in text


def test_settings_check_reads_what_a_worker_would_read_of_the_file(tmp_path: Path, typed: Typed) -> None:
    (tmp_path / "gangline.toml").write_text("[worker]\nslots = 0\n[policy]\nidle_s = -1")
    code, _, says = typed("settings", "check")
    assert code == 2 and "worker.slots must be 1 or more" in says and "policy.idle_s must be 0 or more" in says


def test_the_page_has_every_variable_that_sets_something() -> None:
    page = of_server()
    assert all(f"`{name}`" in page for name in {*OF_SERVER, *OF_WORKER} - {"HF_HOME"})


def test_the_workers_of_a_box_read_the_file_that_its_server_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder, slots in (("home", 2), ("named", 3), ("option", 4)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "gangline.toml").write_text(f"[worker]\nslots = {slots}")
    home: dict[str, Any] = {"server.home": tmp_path / "home"}

    def read(options: Mapping[str, Any]) -> int | None:
        box = read_settings_of_box(options).settings
        named, beside = options.get("server.settings"), options.get("server.home")
        worker = read_worker_settings({"worker.settings": named}, beside).settings.worker
        assert (box.server.settings, box.worker.slots) == (worker.settings, worker.slots)
        return worker.slots

    assert (read({}), read(home)) == (None, 2)
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "named"))
    assert (read({}), read(home), read({"server.home": tmp_path / "empty"})) == (3, 2, None)
    monkeypatch.setenv("GANGLINE_SETTINGS", str(tmp_path / "named" / "gangline.toml"))
    assert read(home) == 3
    assert read(home | {"server.settings": tmp_path / "option" / "gangline.toml"}) == 4


def test_what_a_server_and_its_workers_both_read_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gangline.toml").write_text("[server]\nport = -1\n[hub]\noffline = 3\n[worker]\nslots = 0")
    with pytest.raises(BadInput) as refused:
        read_settings_of_box({"server.home": tmp_path})
    says = refused.value.message
    assert [says.count(name) for name in ("server.port", "hub.offline", "worker.slots")] == [1, 1, 1], says


def test_trainers_get_the_secrets_of_data_without_the_line_break_of_a_mounted_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = [
        name for name in OF_WORKER if name.startswith("GANGLINE_DATA_") and name.endswith(("_ID", "_KEY", "_TOKEN"))
    ]
    for name in given:
        monkeypatch.setenv(name, "secret\n")
    make_agent(read_worker_settings({"worker.token": "gl_join_x"}).settings)
    assert {name: os.environ[name] for name in given} == dict.fromkeys(given, "secret")


def test_a_folder_in_memory_that_is_named_from_where_the_worker_starts_is_the_same_for_its_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"worker.token": "gl_join_x", "worker.tmpfs": os.path.relpath("/dev/shm"), "worker.isolation": "none"}
    agent = make_agent(read_worker_settings(given).settings)
    said = agent._join.measured[CHECKPOINTS_IN]
    assert str(Path("/dev/shm").resolve()) in said, "runs have other working directories"


def test_a_secret_may_lie_in_a_file_that_a_variable_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("gl_join_of_the_file\n")
    (tmp_path / "empty").write_text("\n")
    monkeypatch.setenv("GANGLINE_TOKEN", "")  # so that it is as before when the test has ended
    monkeypatch.setenv("GANGLINE_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("HF_TOKEN_FILE", str(tmp_path / "empty"))
    found = read_worker_settings()
    assert (found.settings.worker.token, found.sources["worker", "token"]) == ("gl_join_of_the_file", "GANGLINE_TOKEN")
    assert found.settings.hub.token == ""
    assert "GANGLINE_TOKEN_FILE" not in os.environ
    assert read_worker_settings().settings.worker.token == "gl_join_of_the_file"


def test_the_keys_of_buckets_may_lie_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("the-secret-key\n")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY_FILE", str(tmp_path / "key"))
    read_server_settings()
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == "the-secret-key"


@pytest.mark.parametrize(
    ("variable", "read"),
    [
        ("GANGLINE_TOKEN", lambda: read_settings().token),
        ("HF_TOKEN", lambda: read_hub_settings().token),
        ("GANGLINE_DATA_SESSION_TOKEN", lambda: read_worker_settings() and os.environ["GANGLINE_DATA_SESSION_TOKEN"]),
        ("WANDB_API_KEY", lambda: make_trackers(ServerProgram(), 0) or os.environ["WANDB_API_KEY"]),
        ("AWS_SECRET_ACCESS_KEY", lambda: data_place("s3://bucket/data").options["aws_secret_access_key"]),
        ("DOGS_KEY", lambda: source_keys("dogs", SourceSettings(key_env="DOGS_KEY"))[0]),
        ("GANGLINE_POOL_DOGS", lambda: Drivers({}, {}, url="", secrets=None)._secret("DOGS")),
    ],
)
def test_every_secret_of_the_environment_may_lie_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, read: Callable[[], str]
) -> None:
    (tmp_path / "file").write_text("secret-of-the-file\n")
    monkeypatch.setenv(variable, "")
    monkeypatch.setenv(f"{variable}_FILE", str(tmp_path / "file"))
    assert read() == "secret-of-the-file"


@pytest.mark.parametrize(
    ("content", "variable", "says"),
    [
        (None, "", "GANGLINE_DATABASE_URL_FILE: FILE cannot be read: no such file or directory"),
        (b"x", "postgresql://host/db", "both GANGLINE_DATABASE_URL and GANGLINE_DATABASE_URL_FILE are set"),
        (b"\xff\xfe", "", "GANGLINE_DATABASE_URL_FILE: FILE is not a text file"),
        (b"a\nb", "", "GANGLINE_DATABASE_URL_FILE"),
    ],
    ids=["none", "both", "bytes", "lines"],
)
def test_a_file_that_holds_no_secret_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, variable: str, says: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("GANGLINE_DATABASE_URL", variable)
    monkeypatch.setenv("GANGLINE_DATABASE_URL_FILE", str(file))
    with pytest.raises(BadInput) as refused:
        read_server_settings()
    assert says in str(refused.value).replace(str(file), "FILE")
    assert os.environ["GANGLINE_DATABASE_URL"] == variable


@pytest.mark.parametrize(
    "url", ["https://example.org/a b", 'https://example.org/"x', "https://example.org//x", "https://example.org/?x"]
)
def test_an_address_whose_path_is_not_plain_is_refused(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("GANGLINE_URL", url)
    with pytest.raises(BadInput, match="GANGLINE_URL is not an address such as"):
        read_server_settings()


def test_a_host_outside_ascii_is_refused_as_no_header_can_carry_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_URL", "https://müller.example")
    with pytest.raises(BadInput, match="GANGLINE_URL has a host with letters outside ASCII; write it as DNS has it"):
        read_server_settings()


def test_a_worker_joins_with_the_bases_of_the_cache_that_it_only_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    baked = Cache(tmp_path / "baked")
    baked.place("a" * 64).write_bytes(b"weights")
    baked.remember("files:sdxl", (File(path="w", bytes=7, sha256="a" * 64),))
    monkeypatch.setenv("GANGLINE_READ_ONLY_CACHE", str(baked.folder))
    given = {"worker.token": "gl_join_x", "worker.home": tmp_path / "home", "worker.isolation": "none"}
    assert make_agent(read_worker_settings(given).settings)._join.bases == ("files:sdxl",)


@pytest.mark.parametrize("there", ["nothing", "a file"])
def test_a_cache_that_is_only_read_and_not_there_is_refused_before_the_worker_joins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: str
) -> None:
    if there == "a file":
        (tmp_path / "baked").touch()
    monkeypatch.setenv("GANGLINE_READ_ONLY_CACHE", str(tmp_path / "baked"))
    given = {"worker.token": "gl_join_x", "worker.home": tmp_path / "home"}
    with pytest.raises(UserError, match=f"the read-only cache {tmp_path / 'baked'} is no folder"):
        make_agent(read_worker_settings(given).settings)
