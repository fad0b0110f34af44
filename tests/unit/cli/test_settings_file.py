"""The settings file of `gangline server`, `up`, `settings` and `sim run --policy`: one reader, one set of defaults."""

import json
from pathlib import Path

import pytest

from gangline.cli.admin.box import quick_settings
from gangline.cli.admin.server import server_options
from gangline.cli.admin.up import limits_of
from gangline.compose.settings import read_server_settings
from gangline.core.errors import BadInput
from gangline.core.policy import Policy
from gangline.core.server.settings import DEFAULT_POOL, ServerSettings, make_policy
from gangline.sim.scenario import load_scenario, with_policy
from gangline.sim.simulation import Simulation
from tests.conftest import Typed

FILE = """
[policy]
lease_s = 60
seek_faster = false
[pools.default]
price_usd_per_hour = 0.4
nodes_max = 3
"""


@pytest.fixture(autouse=True)
def no_file_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GANGLINE_SETTINGS", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gangline.toml"
    path.write_text(FILE)
    return path


def read(
    home: Path, file: Path | None = None, *, price: float | None = None, lease_s: float | None = None
) -> ServerSettings:
    return read_server_settings(server_options(home, None, None, file, price, lease_s, None)).settings


def test_a_server_without_options_has_the_defaults_of_the_simulator(tmp_path: Path) -> None:
    assert read(tmp_path).policy == Policy() == make_policy({})
    assert read(tmp_path).pool(DEFAULT_POOL).price_usd_per_hour is None


def test_the_file_of_the_home_is_read_unless_another_is_named(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(tmp_path).policy.lease_s == 60
    for name, lease_s in (("of_the_environment", 70), ("of_the_option", 80)):
        (tmp_path / name).write_text(f"[policy]\nlease_s = {lease_s}")
    monkeypatch.setenv("GANGLINE_SETTINGS", str(tmp_path / "of_the_environment"))
    assert read(tmp_path).policy.lease_s == 70
    assert read(tmp_path, tmp_path / "of_the_option").policy.lease_s == 80


def test_a_file_that_is_named_and_not_there_stops_the_server(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere\.toml cannot be read: no such file"):
        read(tmp_path, tmp_path / "nowhere.toml")


def test_options_override_the_file_field_by_field(tmp_path: Path, file: Path) -> None:
    found = read(tmp_path, price=0, lease_s=90)
    assert found.policy == Policy(lease_s=90, seek_faster=False, node_silent_s=270)
    assert found.pool(DEFAULT_POOL).price_usd_per_hour == 0
    assert found.pool(DEFAULT_POOL).nodes_max == 3


def test_up_runs_as_many_nodes_as_the_settings_say_else_one(tmp_path: Path, file: Path) -> None:
    limits = limits_of(read(tmp_path).pool(DEFAULT_POOL))
    assert (limits.nodes_min, limits.nodes_max) == (0, 3)
    limits = limits_of(ServerSettings().pool(DEFAULT_POOL))
    assert (limits.nodes_min, limits.nodes_max) == (1, 1)


def test_a_simulation_with_the_servers_file_plays_the_servers_policy(tmp_path: Path, file: Path) -> None:
    policy = read(tmp_path).policy
    played = Simulation(with_policy(load_scenario("small"), policy), seed=0)
    assert played.policy == policy != Policy()


def test_sim_run_takes_the_file(tmp_path: Path, file: Path, typed: Typed) -> None:
    (tmp_path / "x.toml").write_text(
        'title = "one"\n[[machines]]\ncount = 1\n[[jobs]]\ncount = 1\nsteps = 5\n[policy]\nsave_interval_s = 60\n'
    )
    code, printed, _ = typed("sim", "run", str(tmp_path / "x.toml"), "--policy", str(file), "-o", "json")
    assert code == 0 and json.loads(printed)["jobs"] == {"succeeded": 1}
    file.write_text("[policy]\nlease_z = 3")
    code, _, said = typed("sim", "run", "small", "--policy", str(file))
    assert code == 2 and "policy has no field lease_z" in said


def test_the_settings_of_a_box_are_right(tmp_path: Path) -> None:
    (tmp_path / "gangline.toml").write_text(quick_settings(3, 0.3))
    assert read(tmp_path).policy.claim_interval_s == 0.3


def test_settings_show_prints_each_with_value_default_unit_and_meaning(file: Path, typed: Typed) -> None:
    code, printed, _ = typed("settings", "show", str(file), "-o", "json")
    found = {f"{each['section']}.{each['name']}": each for each in json.loads(printed)}
    lease = found["policy.lease_s"]
    assert code == 0 and (lease["value"], lease["default"], lease["unit"]) == (60, 45, "seconds")
    assert "heartbeat" in lease["meaning"] and found["pools.default.trust"]["value"] is None
    text = typed("settings", "show", str(file))[1]
    assert "policy.lease_s" in text and "without a heartbeat" in text


def test_settings_check_says_what_differs_or_everything_that_is_wrong(file: Path, typed: Typed) -> None:
    code, printed, said = typed("settings", "check", str(file))
    assert code == 0 and "settings are valid" in said
    assert "policy.lease_s = 60 seconds (default: 45)" in printed
    file.write_text("[policy]\nlease_z = 3\nidle_s = -1")
    code, _, said = typed("settings", "check", str(file))
    assert code == 2 and "lease_z" in said and "policy.idle_s" in said


def test_up_refuses_what_its_nodes_would_refuse_together_with_its_own_problems(
    tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gangline.toml").write_text("[worker]\nslots = 0\n[policy]\nidle_s = -1")
    monkeypatch.setenv("GANGLINE_CACHE_GB", "many")
    code, _, said = typed("up", "--home", str(tmp_path))
    assert code == 2 and not (tmp_path / "access.json").exists()
    assert "policy.idle_s must be 0 or more" in said and "worker.slots must be 1 or more" in said
    assert "GANGLINE_CACHE_GB must be a number, not many" in said
