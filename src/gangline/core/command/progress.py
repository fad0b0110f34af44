"""Find how far a command is in what it prints, or in a `progress.jsonl` that it writes. What does not look like progress is ignored.

" 37%|███▋      | 148/400 [01:02<01:46,  2.36it/s, loss=0.0831]"   a bar of tqdm
"step 148/400  loss: 0.0831"                                      a line about a step
{"step": 148, "loss": 0.0831, "lr": 1e-4}                         a line of progress.jsonl; other numbers are metrics
"""

import json
import re
from collections import deque
from dataclasses import dataclass, field

from gangline.core.runs.contract import COUNT_MAX
from gangline.core.runs.metrics import is_finite

BAR = re.compile(r"\d{1,3}%\|[^|]{0,300}\|\s*(\d{1,12})/(\d{1,12})\s*\[")
OF_TRAINING = re.compile(r"\W*|.*(step|train|epoch|iter).*", re.IGNORECASE)
"""What stands before a bar of steps; other bars count files, rows or tokens."""
TIMED = re.compile(r"(?:\d+:)?\d+:\d\d<")
"""A bar of tqdm that has made a step says how long that took; bars of downloads count bytes with units, which `BAR` does not match."""
STEP = re.compile(
    r"\b(?:global[_ ])?(?:step|iter|iteration|(steps))\b[\s:=#]*\[?(\d{1,12})(?:\s*(?:/|of)\s*(\d{1,12}))?",
    re.IGNORECASE,
)
LOSS = re.compile(
    r"\b(?:train[_ ]|step[_ ]|avr[_ ]|avg[_ ]|average[_ ])?loss\b[\s:=]*([-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?)",
    re.IGNORECASE,
)
LINE_MAX = 2000
PACE_S = 60.0
"""The pace is that of the last minute."""
STEPS_SEEN_MAX = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """A step of a command, of `steps` (0: unknown)."""

    step: int
    steps: int = 0
    loss: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)


def step_in_output(line: str) -> StepReport | None:
    """Return the step that a printed line is about, if it is about one."""
    text = line[-LINE_MAX:]
    loss = LOSS.search(text)
    if (bar := BAR.search(text)) and TIMED.search(text, bar.end()) and OF_TRAINING.fullmatch(text, 0, bar.start()):
        step, steps = int(bar[1]), int(bar[2])
    elif (said := STEP.search(text)) and (not said[1] or said[3] or loss):
        step, steps = int(said[2]), int(said[3] or 0)
    else:  # "Total optimization steps = 400" says how many there are, and none is done yet
        return None
    return StepReport(step=step, steps=steps, loss=_finite(loss[1]) if loss else None)


def step_in_report(line: bytes) -> StepReport | None:
    """Return the step in a line of a command's own `progress.jsonl`, with all other numbers as metrics."""
    try:
        value = json.loads(line)
        step = value["step"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    if type(step) is not int or not 0 <= step <= COUNT_MAX:
        return None
    steps = value.get("steps")
    steps = steps if type(steps) is int and 0 <= steps <= COUNT_MAX else 0
    numbers = {
        name: float(each) for name, each in value.items() if is_finite(each) and name not in ("step", "steps", "loss")
    }
    return StepReport(
        step=step, steps=steps, loss=value["loss"] if is_finite(value.get("loss")) else None, metrics=numbers
    )


def _finite(text: str) -> float | None:
    return number if is_finite(number := float(text)) else None


class Pace:
    """Seconds per step over the last minute, from moments at which steps were seen."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=STEPS_SEEN_MAX)

    def saw(self, now_s: float, step: int) -> float | None:
        """Note a step; return the pace, or None until two were seen."""
        if self._seen and step < self._seen[-1][1]:
            self._seen.clear()  # another bar, or another epoch
        if not self._seen or step > self._seen[-1][1]:
            self._seen.append((now_s, step))
        while len(self._seen) > 2 and now_s - self._seen[0][0] > PACE_S:
            self._seen.popleft()
        first, last = self._seen[0], self._seen[-1]
        return (last[0] - first[0]) / (last[1] - first[1]) if last[1] > first[1] and last[0] > first[0] else None
