"""The wheel as a user gets it: built from this checkout, installed in an environment of its own, run from an empty folder."""

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT


def build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and a folder that commands run in. Neither knows where the checkout is."""

    environment: Path
    folder: Path

    def run(self, *words: str, code: int = 0, timeout: float = 120) -> str:
        """Return what `gangline` printed to standard output."""
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        ran = subprocess.run(
            [self.environment / "bin" / "gangline", *words],
            cwd=self.folder,
            env=environ | {"GANGLINE_HOME": str(self.folder / "home")},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert ran.returncode == code, ran.stderr[-4000:]
        return ran.stdout


def install_beside(wheel: Path, folder: Path) -> Installed:
    """Install the wheel alone; its requirements are those of the environment that runs the tests."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    # A path that a .pth file adds is searched last, and the .pth files there (this checkout's among them) are not read.
    beside = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "beside.pth").write_text("\n".join(beside) + "\n")
    pip(environment, "--no-deps", str(wheel))
    return Installed(environment, folder_for(folder))


def install_alone(wheel: Path, folder: Path, extras: str) -> Installed:
    """Install the wheel with all that it requires, as `pip install 'gangline[…]'` does."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    pip(environment, "-c", str(ROOT / "constraints.txt"), f"gangline[{extras}] @ {wheel.as_uri()}")
    return Installed(environment, folder_for(folder))


def pip(environment: Path, *words: str) -> None:
    python = str(environment / "bin" / "python")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *words], check=True, capture_output=True)


def folder_for(folder: Path) -> Path:
    made = folder / "elsewhere"
    made.mkdir()
    return made
