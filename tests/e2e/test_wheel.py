"""A wheel is enough: away from any checkout, every command finds what it needs."""

import json
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.wheel import Installed, build_wheel, install_alone, install_beside

SHARED = ("assets", "docs", "examples", "recipes")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install_beside(wheel, tmp_path_factory.mktemp("beside"))


def files_below(folder: Path) -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in found}


def test_a_wheel_holds_every_file_of_the_package_and_of_what_comes_with_it(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    package = {f"gangline/{name}" for name in files_below(ROOT / "src" / "gangline")}
    shared = {f"gangline/share/{folder}/{name}" for folder in SHARED for name in files_below(ROOT / folder)}
    shared.add("gangline/share/constraints.txt")
    assert len(package) > 400 and len(shared) > 60
    assert (package | shared) - packed == set()
    beside = {name for name in packed - package - shared if ".dist-info/" not in name}
    assert beside == set()  # no caches, no tests
    assert any(name.endswith("licenses/LICENSE") for name in packed)


def test_what_is_installed_is_the_wheel_and_not_the_checkout(installed: Installed) -> None:
    pages = json.loads(installed.run("docs", "-o", "json"))
    assert pages and all(page["path"].startswith(str(installed.environment)) for page in pages)


def test_photos_are_planned_by_the_names_of_the_readme(installed: Installed) -> None:
    words = ("train", "examples/subject", "--base", "assets/tiny-sdxl", "--recipe", "tiny_subject", "--plan")
    said = json.loads(installed.run(*words, "-o", "json"))
    assert said["photos"] == 6


def test_an_estimate_is_made_of_an_outline_that_comes_with_it(installed: Installed) -> None:
    found = json.loads(installed.run("estimate", "examples/estimates/sd2_unet.toml", "-o", "json"))
    assert found["rows"]


def test_a_scenario_is_played(installed: Installed) -> None:
    assert "bad_node" in installed.run("sim", "ls")
    assert json.loads(installed.run("sim", "run", "last_banned_node", "-o", "json"))


def test_a_command_is_run_with_a_folder_for_a_bucket(installed: Installed) -> None:
    installed.run("examples", "copy", "stock_script")
    assert (installed.folder / "examples" / "stock_script" / "train.py").is_file()
    program = "from pathlib import Path; Path('out').mkdir(exist_ok=True); Path('out/model.safetensors').write_bytes(bytes(9))"
    installed.run("exec", "--checkpoints", "out", "--to", "store", "--", "python3", "-c", program)
    installed.run("fetch", "store", "results")
    assert (installed.folder / "results" / "model.safetensors").read_bytes() == bytes(9)


def test_a_data_set_is_made_and_a_training_on_it_is_planned(installed: Installed) -> None:
    where = "sha256 < '20'"
    installed.run("data", "convert", "examples/emoji", "few.lance", "--processes", "1", "--where", where)
    installed.run("scratch", "tiny_vae", "--data", "few.lance", "--base", "assets/tiny-sdxl", "--plan")


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_the_demo_runs_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    installed = install_alone(wheel, tmp_path, "server,worker,train")
    said = json.loads(installed.run("demo", "-o", "json", timeout=900))
    assert said["equal"] is True
    assert said["interruptions"] == 1
    assert Path(said["picture"]).is_file()
