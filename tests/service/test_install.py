"""A bare machine becomes a worker by what the server hands out: a script, the wheel of its own version, and the versions of libraries."""

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from gangline.adapters.package import pack_wheel
from tests.conftest import ROOT
from tests.service.conftest import Service

FOLDERS = {
    "gangline": ROOT / "src" / "gangline",
    **{f"gangline/share/{name}": ROOT / name for name in ("assets", "docs", "examples", "recipes")},
}


def fetched(service: Service, path: str) -> httpx.Response:
    """Without a key."""
    answer = service.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer


def said(script: str, name: str) -> str:
    found = re.search(rf"^{name}=(\S+)$", script, re.MULTILINE)
    assert found
    return found[1]


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_the_script_names_the_server_and_the_wheel_with_its_hash(service: Service) -> None:
    answer = fetched(service, "/worker.sh")
    assert answer.headers["content-type"].startswith("text/x-shellscript")
    assert said(answer.text, "server") == "http://testserver" and "@" not in said(answer.text, "wheel")
    wheel = fetched(service, f"/wheels/{said(answer.text, 'wheel')}").content
    assert hashlib.sha256(wheel).hexdigest() == said(answer.text, "sha256")


def test_the_script_is_one_of_any_posix_shell(service: Service, tmp_path: Path) -> None:
    script = tmp_path / "worker.sh"
    script.write_text(fetched(service, "/worker.sh").text)
    subprocess.run(["/usr/bin/dash", "-n", script], check=True)


def test_a_host_that_would_be_shell_is_quoted(service: Service) -> None:
    script = service.http.get("/worker.sh", headers={"Host": "a';reboot;'"}).text
    assert ";reboot;" not in re.sub(r"'[^']*'|\"'\"", "", script)


def test_the_wheel_installs_to_exactly_the_files_of_the_package(service: Service, tmp_path: Path) -> None:
    name = said(fetched(service, "/worker.sh").text, "wheel")
    wheel, target = tmp_path / name, tmp_path / "target"
    wheel.write_bytes(fetched(service, f"/wheels/{name}").content)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*command, "--target", target, wheel], check=True)
    expected = {
        f"{below}/{name}": content for below, folder in FOLDERS.items() for name, content in contents(folder).items()
    }
    expected["gangline/share/constraints.txt"] = (ROOT / "constraints.txt").read_bytes()
    installed = contents(target)
    assert {name: content for name, content in installed.items() if name.startswith("gangline/")} == expected
    assert (target / "bin" / "gangline").exists()
    assert {Path(name).name for name in installed if "/licenses/" in name} == {"LICENSE", "NOTICE"}


def test_equal_files_make_an_equal_wheel(tmp_path: Path) -> None:
    first, second = (pack_wheel(tmp_path / name) for name in ("first", "second"))
    assert first.sha256 == second.sha256 and first.file.name == second.file.name
    assert zipfile.ZipFile(first.file).testzip() is None


def test_another_version_is_not_there(service: Service) -> None:
    answer = service.http.get("/wheels/gangline-0.0.1-py3-none-any.whl")
    assert answer.status_code == 404 and "has no wheel gangline-0.0.1" in answer.json()["detail"]


def test_the_versions_of_libraries_are_those_that_the_tests_pass_with(service: Service) -> None:
    assert fetched(service, "/worker/constraints.txt").text == (ROOT / "constraints.txt").read_text()


@pytest.mark.parametrize("token", [{}, {"GANGLINE_TOKEN": ""}])
def test_without_a_token_nothing_is_installed(service: Service, tmp_path: Path, token: dict[str, str]) -> None:
    script = fetched(service, "/worker.sh").text
    home = tmp_path / "home"
    home.mkdir()
    plain = {"PATH": "/usr/bin:/bin", "HOME": str(home)} | token
    ended = subprocess.run(["/bin/sh"], input=script, env=plain, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and list(home.iterdir()) == []
    assert ended.stderr.startswith("error: a worker needs a join token\nhint: set GANGLINE_TOKEN")
