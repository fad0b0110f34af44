"""Write wheels.json anew: `python -m benchmarks.on_card.write_wheels`, where there is a network. `make constraints` does.

For each Python that a card's machine may have it downloads, in the versions of constraints.txt, the wheels that parts need
but for PyTorch, and keeps their sizes and what they need.
"""

import json
import subprocess
import sys
from email import message_from_bytes
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

from benchmarks.on_card.wheels import BY_ITSELF, OF_SINGLE_PARTS, ROOT, TABLE, canonical, declared
from packaging.requirements import Requirement

PYTHONS = ("3.11", "3.12")
PLATFORMS = (
    *(f"manylinux_2_{glibc}_x86_64" for glibc in range(28, 4, -1)),
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
)


def main() -> None:
    wanted = declared(OF_SINGLE_PARTS)
    written = {python: dict(sorted(wheels_for(python, wanted).items())) for python in PYTHONS}
    TABLE.write_text(json.dumps(written, indent=1) + "\n")


def wheels_for(python: str, wanted: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    asked = [Requirement(one) for one in wanted]
    with TemporaryDirectory() as folder:
        while asked:
            new = {canonical(one.name) for one in asked} - found.keys() - {BY_ITSELF}
            if not new:
                break
            download(python, new, Path(folder))
            read = {name: wheel_of(python, name, Path(folder)) for name in new}
            found |= read
            asked = [Requirement(need) for wheel in read.values() for need in wheel["requires"]]
    return found


def download(python: str, names: set[str], folder: Path) -> None:
    versions = pinned()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", python, "--implementation", "cp", "-d", str(folder)]
    command += [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run([*command, *(f"{name}=={versions[name]}" for name in sorted(names))], check=True)


def pinned() -> dict[str, str]:
    lines = [line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    return {canonical(name): version for name, version in lines}


def wheel_of(python: str, name: str, folder: Path) -> dict[str, Any]:
    (path,) = (path for path in folder.glob("*.whl") if canonical(path.name.partition("-")[0]) == name)
    with ZipFile(path) as content:
        (metadata,) = (one for one in content.namelist() if one.endswith(".dist-info/METADATA") and one.count("/") == 1)
        said = message_from_bytes(content.read(metadata))
    needs = [Requirement(text) for text in said.get_all("Requires-Dist") or []]
    there = {"python_version": python, "python_full_version": f"{python}.0", "platform_system": "Linux"}
    there |= {"sys_platform": "linux", "platform_machine": "x86_64", "extra": ""}
    requires = []
    for need in needs:
        if not need.marker or need.marker.evaluate(there):
            need.marker = None
            requires.append(str(need))
    return {
        "version": said["Version"],
        "file": path.name,
        "bytes": path.stat().st_size,
        "requires": sorted(requires),
    }


if __name__ == "__main__":
    main()
