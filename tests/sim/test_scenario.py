"""A scenario that cannot be costs one sentence that names the place, and nothing is simulated."""

from pathlib import Path

import pytest

from gangline.core.errors import BadInput, NotFound
from gangline.core.policy import Policy
from gangline.sim.scenario import TABLES, Scenario, figures, load_scenario, names, override_scenario, parse_scenario
from tests.conftest import ROOT

GOOD = """
title = "one"
[fleet]
nodes_max = 2
[[machines]]
count = 1
[[jobs]]
count = 1
"""


def refusal(text: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        parse_scenario(text, "x.toml")
    message = caught.value.message
    assert message.startswith("x.toml"), message
    assert "\n" not in message and not message.endswith("."), message
    assert caught.value.hint
    return caught.value


def test_a_scenario_that_can_be() -> None:
    scenario = parse_scenario(GOOD, "x.toml")
    assert (scenario.title, scenario.fleet.nodes_max, scenario.jobs[0].count) == ("one", 2, 1)


@pytest.mark.parametrize("name", names())
def test_each_of_our_own_can_be_read(name: str) -> None:
    assert load_scenario(name).title


@pytest.mark.parametrize(
    ("change", "says", "hint"),
    [
        (("nodes_max", "nodes_mx"), "x.toml: fleet has no field nodes_mx", "did you mean nodes_max?"),
        (("[fleet]", "[flete]"), "x.toml: a scenario has no field flete", "did you mean fleet?"),
        (
            ("[[jobs]]\ncount", "[[jobs]]\ncuont"),
            "x.toml: jobs[0].count is missing; jobs[0] has no field cuont",
            "count",
        ),
        (('title = "one"', ""), "x.toml: title is missing", "gangline docs simulator"),
        (('"one"', "1"), "x.toml: title must be a text", "gangline docs simulator"),
        (("nodes_max = 2", 'nodes_max = "many"'), "x.toml: fleet.nodes_max must be a whole number", ""),
        (("nodes_max = 2", "nodes_max = 0"), "x.toml: fleet.nodes_max must be 1 or more", ""),
        (("nodes_max = 2", "start_s = -1"), "x.toml: fleet.start_s must be more than 0", ""),
        (("nodes_max = 2", "start_s = inf"), "x.toml: fleet.start_s should be a finite number", ""),
        (
            ("nodes_max = 2", "nodes_min = 50"),
            "x.toml: fleet contradicts this rule: nodes_max is at least nodes_min",
            "",
        ),
        (("[[machines]]", "[machines]"), "x.toml: machines is a list: each of its tables is headed [[machines]]", ""),
        (("[fleet]\nnodes_max = 2", "fleet = 2"), "x.toml: fleet is a table", ""),
        (("[fleet]\nnodes_max = 2", "hours_max = 0"), "x.toml: hours_max must be more than 0", ""),
        (("[fleet]\nnodes_max = 2", 'published = "bench"'), "x.toml: published: there is no table bench", "benchmark"),
    ],
)
def test_a_field_that_cannot_be(change: tuple[str, str], says: str, hint: str) -> None:
    found = refusal(GOOD.replace(*change))
    assert found.message.startswith(says), found.message
    assert hint in found.hint


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ('trait = "fails_often"', "machines[0].trait must be '', 'fails_at_once', "),
        ("count = 0", "machines[0].count must be 1 or more"),
        ("seconds_per_step = 0", "machines[0].seconds_per_step must be more than 0"),
        ("price_usd_per_hour = -0.3", "machines[0].price_usd_per_hour must be 0 or more"),
    ],
)
def test_machines_that_cannot_be(field: str, says: str) -> None:
    machines = field if "count" in field else f"count = 1\n{field}"
    assert f"x.toml: {says}" in refusal(GOOD.replace("[[machines]]\ncount = 1", f"[[machines]]\n{machines}")).message


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("says_gb = 20_000", "jobs[0].says_gb must be 10,000 or less"),
        ("checkpoint_every_s = 100_000", "jobs[0].checkpoint_every_s must be 86,400 or less"),
        ("priority = 9999", "jobs[0].priority must be 1,000 or less"),
        ('base = "../base"', "jobs[0].base cannot be a file's name"),
        ("attempts_max = 0", "jobs[0].attempts_max must be 1 or more"),
    ],
)
def test_jobs_that_cannot_be(field: str, says: str) -> None:
    assert f"x.toml: {says}" in refusal(GOOD + field).message


def test_a_fault_that_there_is_not() -> None:
    says = refusal(GOOD + '[[faults]]\nkind = "flood"\nat_s = 1').message
    assert says.startswith("x.toml: faults[0].kind must be 'kill', 'pause', ")


def test_no_machines_and_no_jobs() -> None:
    assert refusal('title = "none"\nmachines = []\njobs = []').message == "x.toml: machines is empty; jobs is empty"


def test_all_that_is_wrong_is_told_at_once() -> None:
    says = refusal(GOOD.replace("count = 1", "count = 0")).message
    assert "machines[0].count" in says and "jobs[0].count" in says


@pytest.mark.parametrize(
    ("table", "settings", "says"),
    [
        ("policy", "lease_z = 1", "x.toml: policy has no field lease_z"),
        ("policy", "lease_s = [1]", "x.toml: policy.lease_s must be a number"),
        ("policy", "lease_s = 5", "x.toml: policy contradicts this rule: lease_s is at least twice"),
        ("policy", "checkpoints_kept = 1", "x.toml: policy contradicts this rule: checkpoints_kept is at least 2"),
        ("policy", 'slow_rule = "never"', "x.toml: policy.slow_rule must be 'mad', 'two_sigma' or 'off'"),
        ("policy", "tick_interval_s = 0", "x.toml: policy.tick_interval_s must be more than 0, not 0"),
        ("policy", "idle_s = -1", "x.toml: policy.idle_s must be 0 or more, not -1"),
        ("policy", "idle_s = nan", "x.toml: policy.idle_s should be a finite number, not nan"),
        ("compare", "idel_s = 1", "x.toml: compare has no field idel_s"),
        ("compare", "lease_s = 5", "x.toml: compare contradicts this rule: lease_s is at least twice"),
    ],
)
def test_a_policy_that_cannot_be(table: str, settings: str, says: str) -> None:
    assert refusal(f"{GOOD}[{table}]\n{settings}").message.startswith(says)


def test_every_setting_is_known_by_its_name() -> None:
    for name in Policy.__slots__:
        default = getattr(Policy(), name)
        default = 0.5 if default is None else default
        parse_scenario(
            f"{GOOD}[policy]\n{name} = {str(default).lower() if not isinstance(default, str) else repr(default)}", "x"
        )


def test_what_is_no_toml() -> None:
    assert refusal("= 3").message.startswith("x.toml is not TOML: invalid statement")


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(NotFound, match=r"^there is no scenario smal ") as caught:
        load_scenario("smal")
    assert "small" in caught.value.hint


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"x\.toml is not a text file$"):
        load_scenario(str(tmp_path / "x.toml"))


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(GOOD)
    assert load_scenario(str(tmp_path / "x.toml")).title == "one"


def test_settings_from_words_are_what_toml_would_read_or_the_words() -> None:
    words = {"policy.idle_s": "120", "policy.slow_rule": "off", "policy.seek_faster": "false", "fleet.nodes_max": "7"}
    scenario = override_scenario(parse_scenario(GOOD, "x.toml"), words)
    assert scenario.policy == {"idle_s": 120, "slow_rule": "off", "seek_faster": False}
    assert scenario.fleet.nodes_max == 7


def test_settings_that_are_right_only_together_are_set_together() -> None:
    words = {
        "policy.lease_s": "5",
        "policy.heartbeat_interval_s": "1",
        "fleet.nodes_min": "60",
        "fleet.nodes_max": "70",
    }
    scenario = override_scenario(parse_scenario(GOOD, "x.toml"), words)
    assert scenario.policy["lease_s"] == 5 and scenario.fleet.nodes_min == 60


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("lease_s", "1", "there is no setting lease_s"),
        ("jobs.count", "1", "there is no setting jobs.count"),
        ("policy", "1", "there is no setting policy"),
        ("policy.", "1", "there is no setting policy."),
        ("policy.lease_z", "1", "policy has no field lease_z"),
        ("policy.lease_s", "soon", "policy.lease_s must be a number"),
        ("policy.lease_s", "", "policy.lease_s is empty"),
        ("policy.lease_s", "5", "policy contradicts this rule: lease_s is at least twice"),
        ("fleet.node_max", "3", "fleet has no field node_max"),
        ("fleet.nodes_max", "some", "fleet.nodes_max must be a whole number"),
        ("fleet.nodes_min", "9", "fleet contradicts this rule: nodes_max is at least nodes_min"),
    ],
)
def test_a_setting_that_cannot_be(name: str, value: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        override_scenario(parse_scenario(GOOD, "x.toml"), {name: value})
    assert caught.value.message.startswith(says)
    assert caught.value.hint


def test_published_figures_are_told_by_their_names() -> None:
    assert figures("benchmark")["minutes_mean"] == 62.01
    assert figures("") == {}


@pytest.mark.parametrize("table", [Scenario, *TABLES.values()])
def test_the_guide_tells_every_field(table: type) -> None:
    guide = (ROOT / "docs" / "simulator.md").read_text()
    assert [name for name in table.__slots__ if f"`{name}`" not in guide and f"[{name}]" not in guide] == []


def test_the_guides_scenario_can_be_read() -> None:
    guide = (ROOT / "docs" / "simulator.md").read_text()
    assert parse_scenario(guide.split("```toml\n")[1].split("```")[0], "docs/simulator.md").faults[0].share == 0.8
