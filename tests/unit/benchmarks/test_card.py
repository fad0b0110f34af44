"""benchmarks/card.py, what it does around its parts: what was found is kept, what failed ends nothing, what is lacking is listed."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from threading import Event
from zipfile import ZipFile

import pytest
from benchmarks.on_card import wheels, write_wheels
from benchmarks.on_card.kernels import Kernel, dearest, gaps
from benchmarks.on_card.part import Case, Part, Rows
from benchmarks.on_card.parts import parts
from benchmarks.on_card.results import Results, rows_of, table_of
from benchmarks.on_card.running import lacking, run_cases, run_part
from benchmarks.on_card.scale import Scale

from tests.inputs import ROOT
from tests.processes import is_running

PROCESS = """
import os, sys
from pathlib import Path
sys.path[:0] = [{root!r}]
from benchmarks.on_card.results import Results
from benchmarks.on_card.running import run_cases
from tests.unit.benchmarks.test_card import part
names = sys.argv[sys.argv.index("--cases") + 1 :]
run_cases(part(), names, None, Results(Path({folder!r}), "here"))
"""


def row(name: str) -> Rows:
    yield {"what": name, "s/step": 0.5}


def fails() -> Rows:
    yield {"what": "before it failed", "s/step": 0.25}
    raise ValueError("said first\nsaid last")


def dies() -> Rows:
    os.kill(os.getpid(), signal.SIGKILL)
    yield {}


def never_ends() -> Rows:
    Path(os.environ.get("NEVER_ENDS", os.devnull)).write_text(str(os.getpid()))
    Event().wait()
    yield {}


def part() -> Part:
    """As the process that runs it sees it, too."""
    kinds = {"fails": fails, "dies": dies, "never ends": never_ends}
    names = ("first", "fails", "dies", "last", "never ends", "after that")
    return Part("tried", lambda _: [Case(name, kinds.get(name, partial(row, name))) for name in names])


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path, "here")


def run(results: Results, *, seconds: float) -> str:
    scale = Scale(True, results.path.parent)
    program = PROCESS.format(root=str(ROOT), folder=str(results.path.parent))
    return run_part(part(), scale, results, time.monotonic() + seconds, [sys.executable, "-c", program])


def test_a_case_that_fails_dies_or_never_ends_is_told_and_ends_no_other(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.on_card.running.SHORTEST_S", 1.0)
    left = run(results, seconds=12)
    found = results.of("tried")
    assert [row["what"] for case in ("first", "last") for row in found[case].rows] == ["first", "last"]
    assert (found["fails"].because, found["dies"].because) == ("ValueError: said last", "ended with -9")
    assert found["fails"].rows == [{"what": "before it failed", "s/step": 0.25}]
    assert found["never ends"].because.startswith("was cut off after ")
    rows = rows_of([case.name for case in part().cases(Scale(True, Path()))], found, left)
    assert rows[-1] == {"what": "after that", "because": "not run: the time is over"}


def test_a_part_does_not_outlive_the_command_that_began_it(results: Results) -> None:
    for case in ("first", "fails", "dies", "last", "after that"):
        results.write("tried", case, 1.0, rows=row(case))
    told = results.path.parent / "pid"
    program = "import sys; sys.path[:0] = [sys.argv[1]]; from pathlib import Path; "
    program += "from tests.unit.benchmarks.test_card import Results, run; run(Results(Path(sys.argv[2]), 'here'), seconds=1000)"
    command = [sys.executable, "-c", program, str(ROOT), str(results.path.parent)]
    with subprocess.Popen(command, env=os.environ | {"NEVER_ENDS": str(told)}) as process:
        while not (told.exists() and told.read_text()):
            assert process.poll() is None
            Event().wait(0.01)
        process.kill()
    while is_running(int(told.read_text())):
        Event().wait(0.01)


def test_what_ended_well_is_not_run_again(results: Results) -> None:
    scale = Scale(True, results.path.parent)
    run_cases(part(), ["first", "fails"], scale, results)
    assert lacking(part(), scale, results) == ["fails", "dies", "last", "never ends", "after that"]
    results.write("tried", "fails", 1.0, rows=row("fails"))
    assert not results.of("tried")["fails"].because
    assert "fails" not in lacking(part(), scale, results)


def test_nothing_is_begun_when_the_time_is_over(results: Results) -> None:
    assert run(results, seconds=1) == "the time is over"
    assert results.of("tried") == {}


def test_figures_of_another_machine_do_not_count(results: Results) -> None:
    results.write("tried", "first", 1.0, rows=row("first"))
    assert Results(results.path.parent, "another card").of("tried") == {}


def test_a_line_that_a_full_disk_cut_off_spoils_no_other(results: Results) -> None:
    results.write("tried", "first", 1.0, rows=row("first"))
    results.write("tried", "last", 1.0, rows=row("last"))
    results.path.write_bytes(results.path.read_bytes()[:-20])
    results.write("tried", "after that", 1.0, rows=row("after that"))
    assert list(results.of("tried")) == ["first", "after that"]


def test_a_table_has_a_column_for_each_figure() -> None:
    lines = table_of([{"what": "one", "s/step": 0.123456}, {"what": "other", "equal bits": True, "images": 12345.6}])
    assert lines[0].split() == ["|", "what", "|", "s/step", "|", "equal", "bits", "|", "images", "|"]
    assert lines[2].split() == ["|", "one", "|", "0.1235", "|", "|", "|"]
    assert lines[3].split() == ["|", "other", "|", "|", "yes", "|", "12,346", "|"]


def test_parts_run_in_the_order_that_tells_most_first() -> None:
    first = ["exact", "step", "scratch", "render", "encode", "profile", "quantised"]
    assert [name for name in parts([], 1) if not name.startswith("compiled")] == first
    assert list(parts([Path("script.py")], 1))[:3] == ["exact", "step", "beside"]


def test_every_case_of_a_part_has_a_name_of_its_own() -> None:
    for scale in (Scale(True, Path()), Scale(False, Path())):
        for one in parts([Path("a.py"), Path("b.py")], 2).values():
            names = [case.name for case in one.cases(scale)]
            assert len(names) == len(set(names))


def test_the_gaps_of_a_step_are_when_no_kernel_runs() -> None:
    kernels = [Kernel("a", 0, 10), Kernel("b", 5, 8), Kernel("c", 12, 13), Kernel("c", 13, 20), Kernel("a", 25, 26)]
    assert gaps(kernels) == [("c", 2), ("a", 5)]
    assert dearest([("a", 1.0), ("b", 2.0), ("a", 3.0)]) == [("a", [1.0, 3.0]), ("b", [2.0])]


# ---------------------------------------------------------------------------------------------------------------------- wheels


def test_the_table_of_wheels_has_the_versions_of_constraints_and_all_that_they_need() -> None:
    for python in write_wheels.PYTHONS:
        table = wheels.table(python)
        assert {name: wheel.version for name, wheel in table.items()}.items() <= write_wheels.pinned().items()
        needed = {wheels.canonical(name_of(need)) for wheel in table.values() for need in wheel.requires}
        assert needed - {wheels.BY_ITSELF} <= table.keys()
        asked = {wheels.canonical(name_of(one)) for one in wheels.declared(wheels.OF_SINGLE_PARTS)}
        assert asked - {wheels.BY_ITSELF} <= table.keys()


def name_of(requirement: str) -> str:
    from packaging.requirements import Requirement

    return Requirement(requirement).name


def test_only_its_own_part_waits_for_bitsandbytes(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "bitsandbytes")
    found = wheels.lacking_by_part(parts([], 1).values())
    assert {name: list(lacking) for name, lacking in found.items() if lacking} == {"quantised": ["bitsandbytes"]}
    lines = list(wheels.listed(found))
    version, megabytes = wheels.table()["bitsandbytes"].version, wheels.table()["bitsandbytes"].bytes / 1e6
    assert f"  bitsandbytes {version}, {megabytes:.2f} MB: quantised" in lines
    assert f"bitsandbytes=={version}" in lines[-1]


def test_what_a_lacking_package_needs_is_lacking_too_and_torch_is_not_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pydantic", "pydantic-core", "torch")
    found = wheels.lacking(wheels.declared())
    assert set(found) == {"pydantic", "pydantic-core", "torch"}
    bring = list(wheels.how_to_bring(found))
    assert "torch" in bring[0]
    assert "torch" not in bring[-1]


def test_what_an_installed_package_needs_may_be_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "mdurl")
    assert set(wheels.lacking(["rich"])) == {"mdurl"}


def test_a_version_that_does_not_do_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    version_of = wheels.version_of
    monkeypatch.setattr(wheels, "version_of", lambda name: "4.57.0" if name == "transformers" else version_of(name))
    assert "here is 4.57.0" in str(wheels.lacking(wheels.declared())["transformers"])


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    version_of = wheels.version_of
    monkeypatch.setattr(wheels, "version_of", lambda name: "" if name in names else version_of(name))


def test_of_the_wheels_that_were_brought_only_what_is_lacking_is_unpacked(tmp_path: Path) -> None:
    folder, target = tmp_path / "wheels", tmp_path / "packages"
    folder.mkdir()
    for name in ("lacking_here", "numpy"):
        with ZipFile(folder / f"{name}-9.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/__init__.py", "")
            wheel.writestr(f"{name}-9.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.0\n")
    needs_it = Part("needs it", lambda _: [], packages=("lacking-here>=8",))
    before = list(sys.path)
    try:
        wheels.unpack(folder, target, [needs_it])
        assert wheels.lacking(["lacking-here>=8"]) == {}
    finally:
        sys.path[:] = before
    assert sorted(path.name for path in target.iterdir()) == ["lacking_here", "lacking_here-9.0.dist-info"]


def test_each_line_of_results_says_how_long_its_case_took(results: Results) -> None:
    run_cases(part(), ["first"], Scale(True, results.path.parent), results)
    (line,) = (json.loads(line) for line in results.path.read_text().splitlines() if line)
    assert line["case"] == "first"
    assert line["seconds"] >= 0
