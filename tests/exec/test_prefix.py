"""What lies below a prefix is listed and removed; what a run at work goes on from is not."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gangline.core.command.alive import is_alive
from tests.exec.chain import state_after
from tests.exec.conftest import GANGLINE, Line


@dataclass
class Ran:
    code: int
    told: Any
    said: str


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """Over a folder: what is listed and removed is the same in a bucket."""
    return Line(tmp_path, str(tmp_path / "store"), dict(os.environ))


def gangline(line: Line, *words: object, answer: str = "") -> Ran:
    ran = subprocess.run(
        [*GANGLINE, "exec", *map(str, words), "-o", "json"],
        env=line.environment,
        cwd=line.root,
        input=answer,
        capture_output=True,
        text=True,
        check=False,
    )
    printed = ran.stdout.removeprefix("Remove it? [y/N] ")
    return Ran(ran.returncode, json.loads(printed) if printed.strip() else None, ran.stderr)


def interrupt(
    line: Line, node: str, *options: object, chain: tuple[object, ...] = (60, "--step-s", 0.05), safe: int = 2
) -> None:
    """Killed at some moment after so many checkpoints are safe."""
    running = line.start(node, chain=chain, options=options)
    running.until("is safe", times=safe)
    running.kill()


def age(line: Line, run: int) -> None:
    """As if it had begun an hour before."""
    for path in (
        line.root / "store" / "claims" / f"{run:06d}.json",
        line.root / "store/runs" / f"{run:06d}/begun.json",
    ):
        told = json.loads(path.read_text())
        path.write_text(json.dumps(told | {"at_ms": told["at_ms"] - 3_600_000}))


def below(line: Line, folder: str) -> set[str]:
    at = line.root / "store" / folder
    return {path.relative_to(at).as_posix() for path in at.rglob("*") if path.is_file()}


def test_runs_are_listed_with_where_when_how_they_ended_and_what_they_left(line: Line) -> None:
    interrupt(line, "a", "--price", 3.6)
    assert gangline(line, "ls", line.to).told[0]["state"] == "alive"
    age(line, 1)
    assert line.start("b", options=("--price", 3.6), chain=(60, "--step-s", 0.05)).end()[0] == 0
    second, first = gangline(line, "ls", line.to).told
    assert (first["run"], first["state"], first["results"], first["exit_code"]) == (1, "vanished", 0, None)
    assert (second["run"], second["state"], second["because"], second["exit_code"]) == (
        2,
        "ended",
        "the command finished",
        0,
    )
    assert (second["step"], second["checkpoints"], second["results"]) == (60, 2, 1)
    assert second["host"] and second["began_ms"] > first["began_ms"]
    assert second["cost_usd"] == pytest.approx(second["seconds"] * 0.001) and second["seconds"] > 0
    sizes = [
        (line.root / "store/runs/000002" / name).stat().st_size
        for name in sorted(below(line, "runs/000002"))
        if ("/0" in name and name.count("/") > 2) or name.startswith("output/")
    ]
    assert second["bytes"] == sum(sizes)
    shown = subprocess.run([*GANGLINE, "exec", "ls", line.to], capture_output=True, text=True, check=True).stdout
    assert "vanished" in shown and "the command finished" in shown


def test_checkpoints_are_listed_and_the_one_that_the_next_start_goes_on_from(line: Line) -> None:
    interrupt(line, "a")
    rows = gangline(line, "ls", line.to, "--checkpoints").told
    steps = [row["step"] for row in rows]
    assert len(steps) >= 2 and steps == [steps[0] - 10 * number for number in range(len(steps))]
    assert [row["next"] for row in rows] == [True] + [False] * (len(rows) - 1)
    assert rows[0]["name"] == f"checkpoint-{steps[0]}" and rows[0]["bytes"] > 200_000
    (line.root / "store" / f"{rows[0]['key']}.json").write_text("{")
    damaged = gangline(line, "ls", line.to, "--checkpoints").told[0]
    assert damaged["damaged"] and damaged["step"] is None


def test_get_is_fetch(line: Line) -> None:
    assert line.start("a", chain=(20,)).end()[0] == 0
    told = gangline(line, "get", line.to, line.root / "got", "--checkpoint").told
    assert (told["files"], told["checkpoint"]) == (1, "checkpoint-20")
    assert (line.root / "got/result.txt").read_text() == state_after(20)
    assert (line.root / "got/checkpoint/checkpoint-20/trainer_state.json").exists()


def test_a_program_called_ls_is_run_where_options_stand_before_it(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    words = [*GANGLINE, "exec", "--checkpoints", "out", "--to", "store"]
    for more in (["ls"], ["--", "ls"]):
        ran = subprocess.run([*words, *more], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "here" in ran.stdout or "already" in ran.stderr, ran.stderr


def test_a_run_is_removed_and_its_number_end_and_cost_stay(line: Line) -> None:
    interrupt(line, "a", "--price", 3.6)
    age(line, 1)
    assert line.start("b", chain=(80,), options=("--price", 3.6)).end()[0] == 0
    before = gangline(line, "ls", line.to).told[0]
    ran = gangline(line, "rm", line.to, "--run", 2, "--yes")
    assert ran.code == 0 and (ran.told["runs"], ran.told["checkpoints"], ran.told["results"]) == ([2], 2, 1)
    assert below(line, "runs/000002") == {"begun.json", "ended.json"}
    after = gangline(line, "ls", line.to).told[0]
    assert (after["checkpoints"], after["results"], after["bytes"]) == (0, 0, 0)
    assert after["because"] == before["because"] and after["cost_usd"] == pytest.approx(before["cost_usd"], rel=0.1)
    code, told = line.start("c", chain=(90,), options=("--price", 3.6)).end()
    assert (code, told["run"]) == (0, 3) and told["cost_usd"] > after["cost_usd"]


def test_the_sentence_says_what_the_next_start_does_and_nobody_to_ask_is_refused(line: Line) -> None:
    interrupt(line, "a")
    age(line, 1)
    interrupt(line, "b", safe=3)  # by then those of run 1 are gone
    age(line, 2)
    there = gangline(line, "ls", line.to, "--checkpoints").told
    asked = gangline(line, "rm", line.to, "--run", 2)
    assert asked.code == 2 and "removing needs a confirmation" in asked.said
    assert "of run 2 in" in asked.said and "the next run starts from scratch" in asked.said
    assert gangline(line, "rm", line.to, "--run", 2, answer="n\n").code == 1
    assert there and gangline(line, "ls", line.to, "--checkpoints").told == there
    assert gangline(line, "rm", line.to, "--run", 2, answer="y\n").code == 0
    assert gangline(line, "ls", line.to, "--checkpoints").told == []


def test_what_a_run_at_work_goes_on_from_is_not_removed_unless_forced(line: Line) -> None:
    interrupt(line, "a", chain=(400, "--step-s", 0.05, "--every", 20))
    age(line, 1)
    running = line.start("b", chain=(400, "--step-s", 0.05, "--every", 200))
    running.until("gangline: run 2 resumes")
    for what in (("--run", 1), ("--run", 2), ("--checkpoints",), ("--all",)):
        ran = gangline(line, "rm", line.to, *what, "--yes")
        assert ran.code == 2 and "run 2 on" in ran.said and "is running and depends on" in ran.said, what
    assert gangline(line, "ls", line.to).told[0]["state"] == "alive"
    assert gangline(line, "rm", line.to, "--run", 1, "--yes", "--force").code == 0
    assert not any("checkpoints" in name for name in below(line, "runs/000001"))
    running.kill()


def test_checkpoints_go_and_results_stay_and_all_leaves_nothing(line: Line) -> None:
    assert line.start("a", chain=(20,)).end()[0] == 0
    ran = gangline(line, "rm", line.to, "--checkpoints", "--yes")
    assert ran.code == 0 and "still does nothing" in ran.told["then"]
    assert not any("checkpoints" in name for name in below(line, "runs"))
    assert "000001/output/result.txt" in below(line, "runs")
    assert gangline(line, "rm", line.to, "--all", "--yes").code == 0
    assert below(line, "") == set()
    code, told = line.start("b", chain=(20,)).end()
    assert (code, told["run"], told["restored_from"]) == (0, 1, None)


@pytest.mark.parametrize(("words", "says"), [(("ls",), "holds no run"), (("rm", "--all", "--yes"), "holds no run")])
def test_where_no_run_has_been_it_says_so(line: Line, words: tuple[str, ...], says: str) -> None:
    (line.root / "store").mkdir()
    ran = gangline(line, words[0], line.to, *words[1:])
    assert ran.code == 2 and says in ran.said


@pytest.mark.parametrize("words", [(), ("--run", "1", "--all"), ("--checkpoints", "--all")])
def test_one_thing_at_a_time_is_removed(line: Line, words: tuple[str, ...]) -> None:
    ran = gangline(line, "rm", line.to, *words)
    assert ran.code == 2 and "pass one of --run N, --checkpoints and --all" in ran.said


@pytest.mark.parametrize(
    ("began_ms", "lasted_ms", "ended", "now_s", "alive"),
    [
        (0, 0, False, 299, True),
        (0, 0, False, 301, False),
        (0, 3_600_000, False, 3800, True),
        (0, 3_600_000, True, 3601, False),
        (None, 0, False, 1799, True),
        (None, 0, False, 1801, False),
    ],
)
def test_a_run_is_at_work_until_it_has_ended_or_gives_no_sign_for_five_minutes(
    began_ms: int | None, lasted_ms: int, ended: bool, now_s: int, alive: bool
) -> None:
    found = is_alive(claimed_ms=0, began_ms=began_ms, lasted_ms=lasted_ms, ended=ended, now_ms=now_s * 1000)
    assert found is alive
