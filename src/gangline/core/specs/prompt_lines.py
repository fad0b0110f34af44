"""Read sample prompts as kohya's sd-scripts write them: on a line with options, or as a table with its keys.

The values are settings of a `SamplePrompt` as they were typed: the spec's own check knows what they must be.
"""

import re
from collections.abc import Mapping
from typing import Any, get_args

from gangline.core.errors import BadInput
from gangline.core.specs.fields import Sampler
from gangline.core.words import listed

LETTERS: Mapping[str, tuple[str, str]] = {
    "n": ("negative_prompt", "negative prompt"),
    "w": ("width", "width"),
    "h": ("height", "height"),
    "d": ("seeds", "seed"),
    "s": ("steps", "steps"),
    "l": ("guidance_scale", "guidance scale"),
    "ss": ("sampler", "sampler"),
}
"""The setting of each option of a line, and what it is called in a sentence."""
KEYS: Mapping[str, str] = {
    "prompt": "prompt",
    "negative_prompt": "negative_prompt",
    "width": "width",
    "height": "height",
    "seed": "seeds",
    "sample_steps": "steps",
    "scale": "guidance_scale",
    "sample_sampler": "sampler",
}
"""The setting of each key of a table."""
SAMPLERS: tuple[Sampler, ...] = get_args(Sampler)
SAMPLERS_OF_KOHYA: Mapping[str, Sampler] = {"k_euler": "euler", "k_euler_a": "euler_a", "dpmsolver++": "dpm++"}
"""Other names of samplers that are here. The others of kohya's scripts (dpmsolver, heun, lms, …) sample otherwise."""
OPTION = re.compile(r"(?:^|(?<=\s))--(?=[A-Za-z])(\S+)")
"""A word that begins with two dashes and a letter. Dashes inside a word, or alone, are words of the prompt."""


def prompt_of_line(line: str) -> str | dict[str, Any]:
    """Return the prompt of a line, with its settings if it has options. Raise `BadInput` for an option or a sampler that is not known.

    >>> prompt_of_line("a well--known dog --n blurry --w 832")
    {'prompt': 'a well--known dog', 'negative_prompt': 'blurry', 'width': '832'}
    """
    prompt, *pairs = OPTION.split(line)
    if not pairs:
        return line
    if not prompt.strip():
        raise BadInput(f"{line!r} has no prompt before its options", hint="write the prompt first, then the options")
    found: dict[str, Any] = {"prompt": prompt.strip()}
    for option, value in zip(pairs[::2], pairs[1::2], strict=True):
        name = _setting(option)
        if not value.strip():
            raise BadInput(f"--{option} of a sample prompt has no value")
        if name in found:
            raise BadInput(f"--{option} is twice in a sample prompt")
        found[name] = _value(name, value.strip())
    return found


def prompt_of_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a table with kohya's keys. Raise `BadInput` for a key or a sampler that is not known."""
    unknown = [key for key in table if key not in KEYS]
    if unknown:
        raise BadInput(
            f"{unknown[0]} is not a key of a sample prompt: known are {listed([*KEYS])}",
            hint="leave it out; for several seeds of one prompt write sample_prompts into a recipe",
        )
    return {KEYS[key]: _value(KEYS[key], value) for key, value in table.items()}


def _setting(option: str) -> str:
    if option.lower() in LETTERS:
        return LETTERS[option.lower()][0]
    known = listed([f"--{letter} ({words})" for letter, (_, words) in LETTERS.items()])
    raise BadInput(
        f"--{option} is not an option of a sample prompt: known are {known}",
        hint="leave it out; a prompt with a word that begins with -- can be written into a recipe, as sample_prompts",
    )


def _value(name: str, value: Any) -> Any:
    if name == "seeds":
        return [value]
    return _sampler(value) if name == "sampler" else value


def _sampler(name: Any) -> str:
    known = SAMPLERS_OF_KOHYA.get(str(name), name)
    if known not in SAMPLERS:
        also = listed([f"{theirs} for {own}" for theirs, own in SAMPLERS_OF_KOHYA.items()])
        raise BadInput(
            f"there is no sampler {name}: there are {listed(SAMPLERS)}",
            hint=f"kohya's names are understood too: {also}",
        )
    return known
