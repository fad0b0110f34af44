"""`python -m tests.upgrade.make v0.2.0` writes what that release leaves behind into `tests/upgrade/left/0.2.0.tar.gz`: a database of each
engine with a job that trains, and its object store. It is made once for each release, and stays."""

import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from tests.conftest import ROOT

HERE = Path(__file__).parent
LEFT = HERE / "left"
KEPT = ("db.sqlite", "postgres.sql", "store", "story.json")


def code_of(release: str, folder: Path) -> bool:
    """Put the sources of a release into a folder; False where the history has none of it."""
    packed = subprocess.run(["git", "archive", release], cwd=ROOT, capture_output=True, check=False)  # noqa: S607
    if packed.returncode:
        return False
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as sources:
        sources.extractall(folder, filter="data")
    return True


def environment_of(code: Path) -> dict[str, str]:
    """Return one in which Python finds the package there, before the one that is installed."""
    return os.environ | {"PYTHONPATH": f"{code / 'src'}{os.pathsep}{code}"}


def main(release: str) -> None:
    LEFT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        code, folder = Path(place) / "code", Path(place) / "left"
        code.mkdir()
        folder.mkdir()
        assert code_of(release, code), f"{release} is not in this history"
        script = [sys.executable, HERE / "at_release.py", folder]
        subprocess.run(script, cwd=code, env=environment_of(code), check=True)
        with tarfile.open(LEFT / f"{release.removeprefix('v')}.tar.gz", "w:gz") as packed:
            for name in KEPT:
                packed.add(folder / name, name)


if __name__ == "__main__":
    main(sys.argv[1])
