"""Virtual environments of commands: made once in an enclosure, kept for other runs, and written to by none of them."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.adapters.host.cache import Cache
from gangline.adapters.host.environments import Environments
from gangline.adapters.host.trainer.installing import Installation
from gangline.adapters.host.trainer.isolation import Isolation, find_isolation
from gangline.adapters.host.trainer.start import start_program
from gangline.core.runs import contract
from gangline.core.server.isolation import IsolationLevel
from tests.contract.test_isolation import AT_SANDBOX, AT_UID, PYTHON, home
from tests.index import NAME, VALUE, Index, package_index
from tests.processes import is_running
from tests.waiting import until

__all__ = ["home"]
AT_EACH = pytest.mark.parametrize("level", ["none", AT_UID, AT_SANDBOX])
WRITES = """
import os, sys
place = sys.argv[1]
import smallest
print("read:", smallest.VALUE)
for target in (smallest.__file__, os.path.join(place, "new.py"), os.path.join(place, "bin", "python")):
    try:
        open(target, "a").close()
        print("wrote", target)
    except OSError:
        pass
"""


@pytest.fixture
def isolation(home: Path, level: IsolationLevel, monkeypatch: pytest.MonkeyPatch) -> Isolation:
    monkeypatch.setattr("sys.executable", PYTHON)
    monkeypatch.setattr("gangline.adapters.host.trainer.isolation.LOADS", "os")
    return find_isolation(home / "runs", level)


@pytest.fixture
def environments(home: Path) -> Environments:
    return Environments(home / "environments")


@pytest.fixture
def index() -> Iterator[Index]:
    with package_index() as served:
        yield served


def laid_out(home: Path, name: str, requirements: str) -> Path:
    directory = home / "runs" / name
    (directory / contract.INPUTS).mkdir(parents=True)
    (directory / contract.INPUTS / "requirements.txt").write_text(requirements)
    return directory


def ended(installation: Installation) -> int:
    until(lambda: installation.exit_code() is not None)
    code = installation.exit_code()
    assert code is not None
    return code


@AT_EACH
def test_packages_are_installed_once_and_no_run_can_change_them(
    home: Path, level: IsolationLevel, isolation: Isolation, environments: Environments, index: Index
) -> None:
    first, second = (
        Installation(environments, isolation, laid_out(home, name, index.requirements()))
        for name in ("first", "second")
    )
    assert first.exit_code() is None and second.exit_code() is None, "the second waits for the first"
    assert ended(first) == 0, first.printed(0, 10_000)
    assert ended(second) == 0 and second.place == first.place
    assert b"Successfully installed" in first.printed(0, 10_000) and second.printed(0, 10_000) == b""
    assert index.downloads == 1
    assert [path.name for path in (home / "runs").iterdir() if path.name not in ("first", "second")] == []
    assert {path.lstat().st_uid for path in [first.place, *first.place.rglob("*")]} == {os.geteuid()}
    python, directory = first.place / "bin" / "python", home / "runs" / "uses"
    directory.mkdir(0o700)
    enclosure = isolation.make(shows=first.place)
    run = start_program([str(python), "-c", WRITES, str(first.place)], directory, enclosure=enclosure)
    until(lambda: run.exit_code() is not None)
    said = run.printed(0, 10_000).decode()
    run.kill()
    assert f"read: {VALUE}" in said
    assert ("wrote" in said) is (level == "none"), said


@pytest.mark.tenths
@AT_EACH
def test_what_cannot_be_installed_leaves_its_words_and_nothing_else(
    home: Path, isolation: Isolation, environments: Environments, index: Index
) -> None:
    directory = laid_out(home, "first", index.requirements("nowhere-to-be-found"))
    installation = Installation(environments, isolation, directory)
    assert ended(installation) != 0
    last = installation.printed(0, 10_000).decode().strip().splitlines()[-1]
    assert "No matching distribution found for nowhere-to-be-found" in last
    installation.release()
    assert not installation.place.exists() and not list(environments.kept())
    assert [path.name for path in (home / "runs").iterdir()] == ["first"]


@AT_EACH
def test_a_package_that_stays_is_stopped_and_is_no_environment(
    home: Path, isolation: Isolation, environments: Environments
) -> None:
    directory = laid_out(home, "first", "--index-url http://127.0.0.1:9/simple\nnothing\n")
    installation = Installation(environments, isolation, directory)
    until(lambda: installation.exit_code() is not None or installation.place.exists())
    process = installation._process
    assert process is not None
    installation.release()
    assert not is_running(process.pid) and not installation.place.exists()
    assert [path.name for path in (home / "runs").iterdir()] == ["first"]


def test_what_a_killed_worker_left_half_is_deleted_by_the_next_one_unless_it_is_being_made(home: Path) -> None:
    environments = Environments(home / "environments")
    left, made = (environments.find(sha256 * 64) for sha256 in "ab")
    for each in (left, made):
        (each.place / "bin").mkdir(parents=True)
    assert made.hold(alone=True)
    Environments(home / "environments")
    assert not left.place.exists() and made.place.exists()
    made.let_go()


def test_what_a_package_leaves_open_to_others_is_closed(home: Path) -> None:
    kept = Environments(home / "environments").find("a" * 64)
    kept.place.mkdir()
    (kept.place / "open.py").write_text("")
    (kept.place / "open.py").chmod(0o6777)
    assert kept.hold(alone=True)
    kept.complete()
    assert (kept.place / "open.py").stat().st_mode & 0o7777 == 0o755
    kept.let_go()


@pytest.mark.tenths
@pytest.mark.parametrize("level", ["none"])
def test_what_a_killed_worker_left_is_made_anew(
    home: Path, isolation: Isolation, environments: Environments, index: Index
) -> None:
    installation = Installation(environments, isolation, laid_out(home, "first", index.requirements()))
    (installation.place / "bin").mkdir(parents=True)
    (installation.place / "bin" / "python").write_text("half")
    assert ended(installation) == 0
    assert (installation.place / "bin" / NAME).exists()


@pytest.mark.tenths
@pytest.mark.parametrize("level", ["none"])
def test_environments_are_in_the_caches_limit_and_one_in_use_stays(
    home: Path, isolation: Isolation, environments: Environments, index: Index
) -> None:
    cache = Cache(home / "cache", limit_bytes=1, environments=environments)
    first = Installation(environments, isolation, laid_out(home, "first", index.requirements()))
    assert ended(first) == 0
    cache.make_room(0)
    assert first.place.exists(), "a run uses it"
    first.release()
    cache.make_room(0)
    assert not first.place.exists() and not list(environments.kept())
    shutil.rmtree(home / "runs" / "first")
    again = Installation(environments, isolation, laid_out(home, "first", index.requirements()))
    assert ended(again) == 0 and index.downloads == 2
