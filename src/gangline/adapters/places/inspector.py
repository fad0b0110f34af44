"""The `PhotoInspector` port: a program looks at files in a folder of the server's home (`data/images/sets/inspected.py`)."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gangline.adapters.places.looking import LOOK_S, answer_of
from gangline.core.display import as_words, printable
from gangline.core.errors import NotFound, Unreachable
from gangline.ports.places.inspector import InspectedPicture, InspectedTexts, ReadFile, StoredCaption

THUMBNAIL_BYTES_MAX = 400_000
"""A picture of 256 × 256 pixels takes less, whatever it shows."""
TOO_MUCH = "takes too much memory or time to decode"
LOST = "is not in the object store any more: remove this version, and push it again"
FORMAT_MAX = 20
LOOK_ALL_S = 3000
"""The time of all pictures of a step. One that takes all of the program's 240 s is found among 64 within half an hour."""


class ProgramInspector:
    """`look` is the command that looks at the files of a folder below `folder`."""

    def __init__(self, folder: Path, look: Sequence[str]) -> None:
        self._folder, self._look = folder, tuple(look)
        shutil.rmtree(folder, ignore_errors=True)  # what a server that was killed left there

    def pictures(self, files: Mapping[str, ReadFile]) -> Mapping[str, InspectedPicture]:
        with self._a_folder() as folder:
            here = {sha256: _save(read, folder / "files" / sha256) == sha256 for sha256, read in files.items()}
            ends_s = time.monotonic() + LOOK_ALL_S
            found = self._looked_at(folder, [sha256 for sha256, whole in here.items() if whole], ends_s)
            lost = {
                sha256: InspectedPicture(because=LOST, may_pass=True) for sha256, whole in here.items() if not whole
            }
            return found | lost

    def texts(
        self,
        photos: Mapping[str, tuple[int, int]],
        masks: Mapping[str, tuple[int, int]],
        captions: Mapping[str, StoredCaption],
    ) -> InspectedTexts:
        with self._a_folder() as folder:
            for path, caption in captions.items():
                (folder / "files" / path).parent.mkdir(parents=True, exist_ok=True)
                if _save(caption.read, folder / "files" / path) != caption.sha256:
                    return InspectedTexts(because=f"{printable(path)} {LOST}", notes=())
            answer = self._asked(folder, {"photos": dict(photos), "masks": dict(masks)}, LOOK_S)
            if answer is None:
                raise Unreachable("the captions could not be read: the program that reads them did not finish")
            return InspectedTexts(because=as_words(answer["because"]), notes=tuple(map(as_words, answer["notes"])))

    def _looked_at(self, folder: Path, names: Sequence[str], ends_s: float) -> dict[str, InspectedPicture]:
        """Return what each file is. Where the program fails, look at halves of the files, so that one file is to blame. Those that are not
        reached before the end may be looked at again."""
        left_s = ends_s - time.monotonic()
        answer = self._asked(folder, {"pictures": list(names)}, min(LOOK_S, left_s)) if left_s > 0 else None
        if answer is not None:
            return {name: _picture(answer[name], folder / "files" / f"{name}.jpg") for name in names}
        if len(names) > 1 and left_s > 0:
            half = len(names) // 2
            return self._looked_at(folder, names[:half], ends_s) | self._looked_at(folder, names[half:], ends_s)
        if left_s > 0 and self._asked(folder, {"pictures": []}, LOOK_S) is None:  # then no file is to blame
            raise Unreachable("the photos could not be checked: the program that decodes them does not start")
        return {name: InspectedPicture(because=TOO_MUCH, may_pass=True) for name in names}

    def _asked(self, folder: Path, question: Mapping[str, Any], seconds: float) -> Any:
        (folder / "question.json").write_text(json.dumps(question))
        return answer_of([*self._look, str(folder)], lambda: None, seconds=seconds)

    @contextmanager
    def _a_folder(self) -> Iterator[Path]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as made:
            (Path(made) / "files").mkdir()
            yield Path(made)


def _save(read: ReadFile, to: Path) -> str:
    """Write a file and return its SHA-256; "" if it is not in the store."""
    hashed = hashlib.sha256()
    with to.open("wb") as out:
        try:
            for chunk in read():
                hashed.update(chunk)
                out.write(chunk)
        except NotFound:
            return ""
    return hashed.hexdigest()


def _picture(answer: Mapping[str, Any], thumbnail: Path) -> InspectedPicture:
    if answer.get("because"):
        return InspectedPicture(because=as_words(str(answer["because"])))
    return InspectedPicture(
        format=str(answer["format"])[:FORMAT_MAX],
        width=int(answer["width"]),
        height=int(answer["height"]),
        sharpness=float(answer["sharpness"]),
        likeness=f"{int(answer['likeness'], 16) % 2**64:016x}",
        thumbnail=_read_small(thumbnail),
    )


def _read_small(path: Path) -> bytes:
    """Read a small copy; no more than such a one may have, and through no link: the program looked at files of strangers."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(file, "rb") as content:
        return content.read(THUMBNAIL_BYTES_MAX)
