"""The caption of each photo: a .txt or .caption file beside it, a line of metadata.jsonl, the words of its folder, or the prompt.

The folder's name is kohya's convention: the photos in `10_sks dog` are seen ten times as often, as "sks dog".
"""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from gangline.core.datasets.roles import BESIDE, METADATA, is_caption, repeats_of_folder, words_of_folder
from gangline.core.datasets.sidecars import sidecar_files, sidecar_folders
from gangline.core.errors import BadInput
from gangline.core.specs.sections.subjects import REPEATS_MAX
from gangline.data.links import refuse_link_out

if TYPE_CHECKING:
    import numpy as np

CHARACTERS_MAX = 2000
BYTES_MAX = 2**26
WILDCARD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

TellUser = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """A caption; a pass over all photos includes its photo `repeats` times."""

    text: str
    repeats: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionText:
    """The caption and repeats that one file states for a photo; empty and None if it states none."""

    file: str
    text: str = ""
    repeats: int | None = None


def read_captions(
    folder: Path, photos: list[str], prompt: str, tell: TellUser = lambda sentence: None
) -> dict[str, Caption]:
    """Return the caption of each of `photos` (paths with `/`), from files whose paths in `folder` are those beside the photos.

    The nearest one wins: the photo's own file, its line, the words of its folder, the prompt. `tell` gets sentences about what may be
    unintended. Raise `BadInput` that names file and line, or a link that leads out of `folder`.
    """
    stated = _stated(folder, photos, tell)
    return {photo: _caption(photo, *stated[photo], prompt, tell) for photo in photos}


def read_stated(folder: Path, photos: list[str], tell: TellUser = lambda sentence: None) -> dict[str, str]:
    """Return the captions that a file or a line states, of the photos that have one. The words of a folder are none of these. Raise as
    `read_captions` does."""
    stated = _stated(folder, photos, tell)
    texts = {photo: _caption(photo, *stated[photo], "", tell).text for photo in photos}
    return {photo: texts[photo] for photo in photos if any(said and said.text for said in stated[photo])}


def _stated(
    folder: Path, photos: list[str], tell: TellUser
) -> dict[str, tuple[CaptionText | None, CaptionText | None]]:
    """Return what the file of each photo and its line state."""
    files = _files(folder, photos)
    own = {photo: _own(folder, file, tell) for photo, file in sidecar_files(photos, _sidecars(files)).items()}
    lines = {photo: said for file in _metadata(files) for photo, said in _lines(folder, file, tell)}
    for file in sorted(set(_sidecars(files)) - {said.file for said in own.values()}):
        tell(f"{file} is skipped: there is no photo of that name")
    for photo in sorted(lines.keys() - set(photos)):
        tell(f"{lines[photo].file} names {photo}, but there is no such photo")
    return {photo: (own.get(photo), lines.get(photo)) for photo in photos}


def find_captions(folder: Path, photos: list[str]) -> list[str]:
    """Return the files beside `photos` that hold their captions, as paths below `folder`."""
    files = _files(folder, photos)
    return sorted({*sidecar_files(photos, _sidecars(files)).values(), *_metadata(files)})


def tags_of(text: str, separator: str) -> list[str]:
    return [tag for part in text.split(separator) if (tag := part.strip())]


def shuffled(tags: list[str], rng: "np.random.Generator") -> list[str]:
    return [tags[place] for place in rng.permutation(len(tags))]


def thinned(tags: list[str], dropped: float, rng: "np.random.Generator") -> list[str]:
    """Return the tags without a share `dropped` of them, each left out by itself."""
    return [tag for tag in tags if rng.random() >= dropped]


def with_choices(text: str, rng: "np.random.Generator | None" = None) -> str:
    """Return the text with one choice for each wildcard, `{red|blue}`, in place of it: the first one without `rng`. `{{` and `}}` stand for
    braces, as in kohya's scripts. A choice may be empty."""

    def chosen(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        choices = match[1].split("|")
        return choices[int(rng.integers(len(choices))) if rng else 0]

    return " ".join(WILDCARD.sub(chosen, text).split())


def _caption(photo: str, own: CaptionText | None, line: CaptionText | None, prompt: str, tell: TellUser) -> Caption:
    if own and line and own.text and line.text not in ("", own.text):
        tell(f"{photo} has two captions: the one in {own.file} is used, not the one in {line.file}")
    texts = [said.text for said in (own, line) if said and said.text]
    return Caption(
        text=next(iter(texts), words_of_folder(photo) or prompt),
        repeats=(line and line.repeats) or repeats_of_folder(photo),
    )


def _files(folder: Path, photos: list[str]) -> list[str]:
    paths = [path for parent in sidecar_folders(photos) for path in (folder / parent).glob("*") if path.is_file()]
    files = sorted(path.relative_to(folder).as_posix() for path in paths if is_caption(path))
    for file in files:
        refuse_link_out(folder, file)
    return files


def _metadata(files: list[str]) -> list[str]:
    return [file for file in files if PurePosixPath(file).name == METADATA]


def _sidecars(files: list[str]) -> list[str]:
    return [file for file in files if PurePosixPath(file).suffix.lower() in BESIDE]


def _own(folder: Path, file: str, tell: TellUser) -> CaptionText:
    text = _caption_text(_text(folder / file, file, tell), file)
    if not text:
        tell(f"{file} is empty, and is ignored")
    return CaptionText(file=file, text=text)


def _lines(folder: Path, file: str, tell: TellUser) -> Iterator[tuple[str, CaptionText]]:
    """Yield photo and caption of each line, in the format of Hugging Face's `imagefolder`: JSON objects whose `file_name` is relative to
    the file's folder."""
    for number, line in enumerate(_text(folder / file, file, tell).split("\n"), start=1):
        if line.strip():
            name, said = _line(line, f"line {number} of {file}")
            yield str(PurePosixPath(file).parent / name), said


def _line(line: str, where: str) -> tuple[str, CaptionText]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{where} is not JSON: {error}", hint='write each line like {"file_name": "a.jpg", "text": "…"}'
        ) from None
    if not isinstance(value, dict) or not isinstance(value.get("file_name"), str):
        raise BadInput(
            f"{where} does not name a photo", hint='write each line like {"file_name": "a.jpg", "text": "…"}'
        )
    text = value.get("text", value.get("caption"))
    if not isinstance(text, str | None):
        raise BadInput(f"{where} has a caption that is not a text: {text!r}")
    return value["file_name"], CaptionText(
        file=where, text=_caption_text(text or "", where), repeats=_repeats(value, where)
    )


def _repeats(value: dict[str, Any], where: str) -> int | None:
    repeats = value.get("repeats")
    if repeats is not None and (type(repeats) is not int or not 1 <= repeats <= REPEATS_MAX):
        raise BadInput(f"{where} has repeats {repeats!r}", hint=f"give a whole number from 1 to {REPEATS_MAX}")
    return repeats


def _caption_text(text: str, where: str) -> str:
    """Return the caption on one line, without invisible characters. Raise `BadInput` if it is too long."""
    seen = "".join(character for character in text if character.isprintable() or character.isspace())
    text = " ".join(seen.split())
    if len(text) > CHARACTERS_MAX:
        raise BadInput(
            f"the caption in {where} has {len(text)} characters", hint=f"captions have at most {CHARACTERS_MAX}"
        )
    return text


def _text(path: Path, name: str, tell: TellUser) -> str:
    try:
        if path.stat().st_size > BYTES_MAX:
            raise BadInput(f"{name} is too large for captions", hint="take it out of the folder")
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(
            f"{name} cannot be read: {error.strerror}", hint="change its permissions or take it out"
        ) from None
    return text_of(content, name, tell)


def text_of(content: bytes, name: str, tell: TellUser = lambda sentence: None) -> str:
    """Decode UTF-8, UTF-16 with a byte order mark, or else Windows-1252, which can decode any bytes of a text.

    Raise `BadInput` if it is not a text.
    """
    mark = next((mark for mark in MARKS if content.startswith(mark)), b"")
    if not mark and b"\0" in content:
        raise BadInput(f"{name} is not a text file", hint="save it as UTF-8, or take it out of the folder")
    try:
        return content[len(mark) :].decode(MARKS.get(mark, "utf-8"))
    except UnicodeDecodeError:
        if mark:
            raise BadInput(f"{name} is damaged: its text cannot be decoded", hint="save it as UTF-8") from None
    tell(f"{name} is not UTF-8: it is read as Windows-1252")
    return content.decode("cp1252", errors="replace")
