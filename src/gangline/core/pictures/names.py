"""Read what a sample picture shows from its path, among the artifacts of its job."""

import re
from dataclasses import dataclass
from typing import Literal

from gangline.core.runs.contract import BASE, LORA, SAMPLES

PictureKind = Literal["base", "step", "result"]
"""A picture of a step on the way, of the result, or of what the base alone makes of the same prompt and seed."""
PATH = re.compile(
    rf"{SAMPLES}/(?:step-(?P<step>[0-9]{{1,12}})/)?prompt-(?P<prompt>[0-9]{{1,6}})-"
    rf"(?:(?P<side>{BASE}|{LORA})-)?seed-(?P<seed>[0-9]{{1,20}})\.png"
)
STEP_FILE = re.compile(rf"{SAMPLES}/step-([0-9]{{1,12}})/[^/]+\.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class PicturePlace:
    """The place of a picture in the grid of a job: prompts and seeds down, steps across. The base is at step 0, and the result behind
    the pictures of its step."""

    prompt: int
    seed: int
    step: int
    of: PictureKind

    @property
    def rank(self) -> tuple[int, int, int, bool]:
        """Return what pictures are ordered by: row, then column."""
        return self.prompt, self.seed, self.step, self.of == "result"


def picture_place(path: str, result_step: int) -> PicturePlace | None:
    """Return the place of the picture at a path, of a job whose result is that of `result_step`; None if it is no sample picture."""
    found = PATH.fullmatch(path)
    if found is None:
        return None
    of: PictureKind = "base" if found["side"] == BASE else "result" if found["step"] is None else "step"
    step = 0 if of == "base" else result_step if of == "result" else int(found["step"])
    return PicturePlace(prompt=int(found["prompt"]), seed=int(found["seed"]), step=step, of=of)


def step_of_weights(path: str) -> int | None:
    """Return the step whose LoRA is at this path; None if there is none."""
    found = STEP_FILE.fullmatch(path)
    return int(found[1]) if found else None
