"""Show the pictures that a command leaves, while it runs: as samples of the step that it has come to (gangline.core.runs.contract)."""

import hashlib
import json
import os
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from gangline.core.command.lineage import OUTPUT_VERSION, RUNS
from gangline.core.files import File
from gangline.core.runs import contract
from gangline.core.runs.contract import pictures_name
from gangline.exec.job.contract_reports import STORE

ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
EVERY_S = 10.0
AT_ONCE_MAX, IN_ALL_MAX = 64, 1024
BYTES_MAX = 32 * 2**20
"""Of one picture; a larger one is a result like any other."""


class Previews:
    """Links pictures among the results of the newest run in the store, each once, to `samples/step-000120`."""

    def __init__(self, directory: Path) -> None:
        self._store = directory / STORE / RUNS
        self._to = directory / contract.SAMPLES
        self._shown: set[str] = set()
        self._step = 0
        self._looked_s = time.monotonic()

    def look(self, step: int, *, ended: bool = False) -> None:
        """Show what is new, now and then, and once the command has `ended`."""
        if time.monotonic() - self._looked_s < EVERY_S and not ended:
            return
        self._looked_s = time.monotonic()
        new = self._new()[-min(AT_ONCE_MAX, IN_ALL_MAX - len(self._shown)) :]
        if new and len(self._shown) < IN_ALL_MAX:
            self._shown |= {path for path, _ in new}
            self._step = max(step, self._step + 1)
            with suppress(
                OSError
            ):  # a version that was replaced meanwhile, or a full disk: the next look shows the next ones
                self._show(new)

    def _new(self) -> list[tuple[str, Path]]:
        """Return pictures that were not shown, oldest first."""
        runs = sorted(path for path in self._store.glob("*") if path.is_dir())
        found = dict[str, Path]()
        for folder in sorted(runs[-1].iterdir()) if runs else ():
            if OUTPUT_VERSION.fullmatch(folder.name):
                found |= {
                    path.relative_to(folder).as_posix(): path
                    for path in folder.rglob("*")
                    if path.suffix.lower() in ENDINGS
                }
        shown = [(path, at) for path, at in found.items() if path not in self._shown and at.stat().st_size <= BYTES_MAX]
        return sorted(shown, key=lambda each: (each[1].stat().st_mtime_ns, each[0]))

    def _show(self, new: list[tuple[str, Path]]) -> None:
        folder, files = self._to / pictures_name(self._step), list[File]()
        for path, at in new:
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            os.link(at, place)
            with place.open("rb") as content:
                sha256 = hashlib.file_digest(content, "sha256").hexdigest()
                files.append(File(path=path, bytes=content.tell(), sha256=sha256))
        partial = folder / f".{contract.PICTURES}"
        partial.write_text(json.dumps({"step": self._step, "pictures": [asdict(file) for file in files]}))
        partial.rename(folder / contract.PICTURES)
