"""What would help, as steps of the page: a sentence of the queue names a command, and what the page can do itself becomes a button."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gangline.core.access import KeyRole

COMMAND = re.compile(r"^(?P<says>.*?):? `gangline\s(?P<command>[^`]+)`$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A sentence, and what does it for who has the role `needs`: a form (`post`, with `fields`) or another screen (`link`). Without either,
    it is the `command` of a terminal."""

    says: str
    command: str = ""
    label: str = ""
    post: str = ""
    link: str = ""
    needs: KeyRole = "operator"
    fields: Mapping[str, str] = field(default_factory=dict)


def help_step(sentence: str) -> Step:
    """Return the step that a sentence of the queue asks for."""
    found = COMMAND.match(sentence)
    if found is None:
        return Step(says=sentence)
    says, command = found["says"], found["command"]
    words = _words(command)
    make = _STEPS.get(tuple(words[:2])) or _STEPS.get(tuple(words[:1]))
    return make(says, f"gangline {command}", words) if make else Step(says=says, command=f"gangline {command}")


def _words(command: str) -> Sequence[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a name with a quote in it
        return command.split()


Make = Callable[[str, str, Sequence[str]], Step]


def _resume_pool(says: str, command: str, words: Sequence[str]) -> Step:
    return Step(says=says, command=command, label=f"Resume {words[2]}", post=f"/fleet/pools/{words[2]}/resume")


def _raise_pool(says: str, command: str, words: Sequence[str]) -> Step:
    most = words[-1].rpartition("..")[2]
    label, post = f"Allow {most} nodes", f"/fleet/pools/{words[2]}/change"
    return Step(says=says, command=command, label=label, post=post, fields={"nodes_max": most})


def _release(says: str, command: str, words: Sequence[str]) -> Step:
    fields = {"node": words[2], "action": "release"}
    return Step(says=says, command=command, label="Release", post="/fleet/actions", fields=fields)


def _raise_budget(says: str, command: str, words: Sequence[str]) -> Step:
    return Step(says=says, command=command, label="Change the budget", link=f"/cost#budget-{words[2]}")


def _change_experiment(says: str, command: str, words: Sequence[str]) -> Step:
    return Step(
        says=says, command=command, label="Open the experiment", link=f"/experiments/{words[2]}", needs="member"
    )


def _start_worker(says: str, command: str, _: Sequence[str]) -> Step:
    return Step(says=says, command=command, label="Add a machine", link="/fleet#add-machine")


_STEPS: Mapping[tuple[str, ...], Make] = {
    ("pools", "resume"): _resume_pool,
    ("pools", "set"): _raise_pool,
    ("nodes", "release"): _release,
    ("projects", "set"): _raise_budget,
    ("experiments", "change"): _change_experiment,
    ("worker",): _start_worker,
}
