"""Sample prompts of the command line: options in kohya's notation, and files of prompts."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gangline.core.errors import BadInput
from gangline.core.specs.prompt_lines import prompt_of_line, prompt_of_table
from gangline.core.specs.settings import SettingGroup

Prompts = list[str | dict[str, Any]]
PROMPTS, PROMPTS_FILE = "sample_prompts", "sample_prompts_file"
NOTATION = (
    "Write settings of one prompt behind it: a dog --n blurry --w 832 --h 1216 --d 42 --s 28 --l 7.5 --ss euler_a."
)
PromptsFileOption = Annotated[
    Path | None,
    typer.Option(
        help="Render the prompts of this file: one on each line, with options as --sample-prompt has them; or kohya's .toml or "
        ".json.",
        rich_help_panel=SettingGroup.SAMPLES,
        show_default=False,
    ),
]


def given_prompts(lines: list[str] | None, file: Path | None) -> dict[str, Any]:
    """Return the setting of a spec: prompts that were typed, then those of the file. Empty if there are none."""
    found = [prompt_of_line(line) for line in lines or ()] + (prompts_of_file(file) if file else [])
    return {PROMPTS: found} if found else {}


def prompts_of_file(path: Path) -> Prompts:
    """Read a file of prompts. Raise `BadInput` if it cannot be read, is none or has none."""
    read = READERS.get(path.suffix.lower(), _of_lines)
    try:
        found = read(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(f"the prompts {path} cannot be read: {error}") from None
    if not found:
        raise BadInput(f"the file {path} has no prompts")
    return [_prompt(value, f"{path}, {place}") for place, value in found.items()]


def _of_lines(text: str) -> dict[str, Any]:
    lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
    return {f"line {number}": line for number, line in lines if line and not line.startswith("#")}


def _of_toml(text: str) -> dict[str, Any]:
    """[prompt] has what all of [[prompt.subset]] share."""
    common = tomllib.loads(text).get("prompt")
    if not isinstance(common, dict) or not isinstance(common.get("subset"), list):
        raise TypeError("it has no [[prompt.subset]]")
    shared = {key: value for key, value in common.items() if key != "subset"}
    return _numbered([shared | one if isinstance(one, dict) else one for one in common["subset"]])


def _of_json(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, list):
        raise TypeError("it is not a list")
    return _numbered(found)


def _numbered(found: list[Any]) -> dict[str, Any]:
    return {f"prompt {number}": one for number, one in enumerate(found, 1)}


def _prompt(value: Any, place: str) -> str | dict[str, Any]:
    try:
        if isinstance(value, str):
            return prompt_of_line(value)
        if isinstance(value, dict):
            return prompt_of_table(value)
    except BadInput as error:
        raise BadInput(f"{place}: {error.message}", hint=error.hint) from None
    raise BadInput(f"{place}: {value!r} is neither a text nor a table")


READERS: dict[str, Callable[[str], dict[str, Any]]] = {".toml": _of_toml, ".json": _of_json}
