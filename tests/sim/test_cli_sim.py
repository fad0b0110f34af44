"""`gangline sim`: what it prints, how it ends, and that what is misspelt costs one sentence."""

import json
import logging
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import pytest

from gangline.adapters.store.statements import statements
from gangline.api.serve import listen
from gangline.sim import soak as soaking
from gangline.sim.scenario import load_scenario, names
from gangline.sim.simulation import Simulation
from tests.conftest import Typed

TINY = """
title = "two jobs"
published = "benchmark"
[fleet]
nodes_max = 2
start_s = 20
[[machines]]
count = 2
seconds_per_step = 0.5
[[jobs]]
count = 2
steps = 40
"""
COMPARE = "[compare]\nidle_s = 600\n"


@pytest.fixture
def gangline(typed: Typed) -> Typed:
    """`gangline sim` with such words."""
    return partial(typed, "sim")


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    (tmp_path / "tiny.toml").write_text(TINY)
    return str(tmp_path / "tiny.toml")


@pytest.fixture
def compared(tmp_path: Path) -> str:
    (tmp_path / "compared.toml").write_text(TINY + COMPARE)
    return str(tmp_path / "compared.toml")


def test_ls_names_every_scenario_with_its_title(gangline) -> None:
    code, printed, _ = gangline("ls")
    assert code == 0
    assert [line.split()[0] for line in printed.splitlines()[1:]] == names()
    found = json.loads(gangline("ls", "-o", "json")[1])
    assert [each["name"] for each in found] == names() and all(each["title"] for each in found)


def test_a_run_is_told_in_a_table_beside_what_was_published(gangline, tiny: str) -> None:
    code, printed, said = gangline("run", tiny)
    assert (code, said) == (0, "")
    lines = {line[:28].strip(): line[28:].split() for line in printed.splitlines()}
    assert printed.startswith("two jobs (seed 0)\n")
    assert lines["jobs"] == ["2", "succeeded"]
    assert lines["minutes a job, mean"][-1] == "62.01"
    assert lines["uninterrupted"] == ["100.0%", "90.1%"]


def test_a_run_as_json_holds_the_report_and_what_was_published(gangline, tiny: str) -> None:
    code, printed, _ = gangline("run", tiny, "--seed", "3", "-o", "json")
    found = json.loads(printed)
    assert (code, found["seed"], found["jobs"], found["compare"]) == (0, 3, {"succeeded": 2}, None)
    assert found["published"]["minutes_mean"] == 62.01
    assert found["per_job"]["minutes_mean"] > 0


def test_settings_to_compare_with_make_a_second_run(gangline, compared: str) -> None:
    code, printed, _ = gangline("run", compared, "-o", "json")
    found = json.loads(printed)
    assert code == 0
    assert found["compare"]["trace"] != found["trace"]
    idle = [next(part for part in run["spent"] if part["cause"] == "idle") for run in (found, found["compare"])]
    assert idle[1]["node_hours"] > idle[0]["node_hours"]
    table = gangline("run", compared)[1]
    assert "policy" in table and "compare: the policy with idle_s = 600" in table


def test_settings_of_the_command_line_go_into_both_runs(gangline, compared: str) -> None:
    before = json.loads(gangline("run", compared, "-o", "json")[1])
    words = ("--set", "policy.idle_s=600", "--set", "fleet.nodes_max=1")
    after = json.loads(gangline("run", compared, *words, "-o", "json")[1])
    assert after["nodes_rented"] == 1 and before["nodes_rented"] == 2
    assert after["trace"] == after["compare"]["trace"]


def test_the_timeline_is_drawn_into_a_file(gangline, tiny: str, tmp_path: Path) -> None:
    code, _, said = gangline("run", tiny, "--svg", str(tmp_path / "t.svg"))
    assert (code, said.split()[-1]) == (0, str(tmp_path / "t.svg"))
    assert (tmp_path / "t.svg").read_text().startswith("<svg ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_is_reported_and_then_served_read_only_until_it_is_stopped(tiny: str, number: int) -> None:
    command = [sys.executable, "-m", "gangline.cli.main", "sim", "run", tiny, "--serve", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout and serving.stderr
            said = serving.stderr.readline()
            url = re.search(r"served at (http://127\.0\.0\.1:\d+) ", said)
            assert url, said
            found = httpx.get(f"{url[1]}/replay").json()
            states = [
                [job["state"] for job in httpx.get(f"{url[1]}/v1/jobs", params={"at": ms}).json()["jobs"]]
                for ms in (found["start_ms"], found["end_ms"])
            ]
            refused = httpx.post(f"{url[1]}/v1/jobs", json={})
        finally:
            serving.send_signal(number)
        printed, rest = serving.communicate(timeout=30)
    assert (found["title"], states, refused.status_code) == ("two jobs", [["queued"] * 2, ["succeeded"] * 2], 403)
    assert (serving.returncode, rest, json.loads(printed)["jobs"]) == (0, "", {"succeeded": 2})


def test_a_port_that_cannot_be_served_on_is_told_before_the_run(gangline, tiny: str) -> None:
    with listen("127.0.0.1", 0) as taken:
        code, printed, said = gangline("run", tiny, "--serve", "--port", taken.getsockname()[1])
    assert (code, printed) == (2, "") and "cannot listen on 127.0.0.1" in said
    code, printed, said = gangline("run", tiny, "--port", 0)
    assert (code, printed) == (2, "") and "--port is for --serve" in said


def test_a_jobs_failure_is_no_failure_of_the_run(gangline, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(TINY + 'trait = "bad_input"\n')
    code, printed, _ = gangline("run", str(tmp_path / "bad.toml"))
    assert code == 0
    assert "failed: job-" in printed and "the input is bad" in printed


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (("no_such",), "there is no scenario no_such", "the scenarios are "),
        (("TINY", "--set", "policy.idel_s=3"), "policy has no field idel_s", "did you mean idle_s?"),
        (("TINY", "--set", "policy.idle_s"), "--set policy.idle_s does not name a setting", "write --set NAME=VALUE"),
        (("TINY", "--set", "=3"), "--set  does not name a setting", "write --set NAME=VALUE"),
        (
            ("TINY", "--set", "policy.lease_s=1"),
            "policy contradicts this rule: lease_s is at least twice heartbeat_interval_s, so that one lost heartbeat loses no job",
            "",
        ),
        (("TINY", "--set", "speed=3"), "there is no setting speed", "policy.NAME and fleet.NAME"),
        (
            ("TINY", "--svg", "/nowhere/t.svg"),
            "/nowhere/t.svg cannot be written: the folder /nowhere does not exist",
            "create the folder",
        ),
        (("TINY", "--svg", "/"), "/ cannot be written: it is a folder", "the name of a file"),
    ],
)
def test_what_cannot_be_asked_for(gangline, tiny: str, words: tuple[str, ...], says: str, hint: str) -> None:
    code, printed, said = gangline("run", *(tiny if word == "TINY" else word for word in words))
    assert (code, printed) == (2, "")
    error, *hints = said.splitlines()
    assert error.startswith(f"error: {says}")
    assert hints and hints[0].startswith("hint: ") and hint in hints[0]


@pytest.mark.parametrize("change", [("nodes_max", "nodes_mx"), ('"benchmark"', '"bench"'), ("count = 2", "count = 0")])
def test_a_scenario_that_cannot_be(gangline, tmp_path: Path, change: tuple[str, str]) -> None:
    (tmp_path / "x.toml").write_text(TINY.replace(*change))
    code, printed, said = gangline("run", str(tmp_path / "x.toml"))
    assert (code, printed, len(said.splitlines())) == (2, "", 2)


@pytest.mark.parametrize("words", [("run", "small", "--seed", "-1"), ("soak", "--seeds", "0"), ("soak",), ("run",)])
def test_numbers_that_cannot_be(gangline, words: tuple[str, ...]) -> None:
    assert gangline(*words)[0] == 2


@pytest.fixture
def wrong_bill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in the SQL: every line of the ledger is a micro-dollar too high."""
    right = statements()["add_cost"]
    wrong = right.replace(":micro_usd", ":micro_usd + 1")
    assert wrong != right
    monkeypatch.setitem(statements(), "add_cost", wrong)


@pytest.mark.usefixtures("wrong_bill")
def test_a_broken_promise_is_one_sentence_and_exit_code_1(gangline, tiny: str) -> None:
    code, printed, said = gangline("run", tiny)
    assert (code, printed) == (1, "")
    assert said.startswith("error: promise 5, seed 0, ")
    assert [line.split(": ")[0] for line in said.splitlines()] == ["error", "hint"]


def test_the_simulated_services_log_is_silent(gangline, tiny: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gangline")
    gangline("run", tiny)
    assert caplog.records == []
    Simulation(load_scenario(tiny), seed=0).run()
    assert caplog.records, "the simulation itself says something"


# Soaking


@pytest.mark.tenths
def test_a_soak_says_what_struck_and_what_never_did(gangline) -> None:
    code, printed, said = gangline("soak", "--seeds", "1", "--first", "4", "-o", "json")
    found = json.loads(printed)
    assert list(found) == [
        "seeds",
        "attempts",
        "events",
        "violations",
        "unfinished",
        "struck",
        "because",
        "never",
    ]
    assert (found["seeds"], found["violations"], found["unfinished"]) == (1, 0, 0)
    assert found["attempts"] > 20
    assert set(found["never"]) == set(soaking.KINDS) - set(found["struck"])
    assert code == (1 if found["never"] else 0)
    assert said == f"1 of 1 seeds, {found['attempts']} attempts, 0 violations\n"


@pytest.mark.tenths
def test_two_processes_find_what_one_does(gangline) -> None:
    alone = gangline("soak", "--seeds", "2", "-o", "json")
    together = gangline("soak", "--seeds", "2", "--jobs", "2", "-o", "json")
    assert together[:2] == alone[:2]


@pytest.mark.usefixtures("wrong_bill")
def test_a_soak_that_broke_a_promise_says_which_and_ends_with_1(gangline) -> None:
    code, printed, said = gangline("soak", "--seeds", "1", "--first", "7")
    assert code == 1
    assert "promise 5, seed 7, " in printed
    assert said.endswith("1 violations\n")


def test_a_soak_ends_well_where_every_kind_of_fault_struck(gangline, monkeypatch: pytest.MonkeyPatch) -> None:
    code, printed, _ = gangline("soak", "--seeds", "1", "-o", "json")
    struck, never = json.loads(printed)["struck"], json.loads(printed)["never"]
    assert code == 1 and never, "one seed cannot hold every kind"
    monkeypatch.setattr(soaking, "KINDS", tuple(kind for kind in soaking.KINDS if kind in struck))
    code, printed, _ = gangline("soak", "--seeds", "1")
    assert (code, "never" in printed) == (0, False)


def test_the_map_names_the_cheapest_offer_and_ours(gangline, tmp_path: Path) -> None:
    file = tmp_path / "map.toml"
    file.write_text(TINY)
    code, printed, _ = gangline("map", str(file), "--factors", "1,4", "-o", "json")
    found = json.loads(printed)
    assert (code, [row["factor"] for row in found["rows"]]) == (0, [1, 4])
    assert all(row["best"] in row["alone"] and row["ours"] > row["bound"] for row in found["rows"])
    page = gangline("map", str(file), "--factors", "1")[1]
    assert "over the best" in page and "RTX 4090" in page


@pytest.mark.parametrize("factors", ["", "fast", "1,-1", "1,inf", "nan"])
def test_factors_that_cannot_be(gangline, tiny: str, factors: str) -> None:
    code, _, said = gangline("map", tiny, "--factors", factors)
    assert code == 2 and f"--factors {factors}" in said and "hint:" in said
