"""Decide what a node is to do of what its job's owner asked for, and which checkpoint or pictures are the answer.

The answer to each heartbeat repeats it until it is done, so no lost message loses a wish; an attempt that ends leaves it to the next one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gangline.core.events import EventKind

WishKind = Literal["save", "sample", "finish"]
ASKED: dict[WishKind, tuple[EventKind, str]] = {
    "save": ("asked to save", "its owner wants a checkpoint of now"),
    "sample": ("asked to sample", "its owner wants pictures of what it has now"),
    "finish": ("asked to finish", "its owner wants the result of what it has now"),
}
"""The event of each wish, and its sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What an owner asked for. `attempt` heard of it first, empty if none did; it had reported `step` then, and has `saved` since."""

    kind: WishKind
    asked_ms: int
    attempt: str
    step: int
    saved: int


def are_to_save(wishes: Sequence[Wish], attempt: str) -> bool:
    """Return whether the node of this attempt is to save for one of them."""
    return any(wish.kind != "finish" and not (wish.attempt == attempt and wish.saved) for wish in wishes)


def saved_for(wishes: Sequence[Wish], attempt: str, step: int) -> frozenset[WishKind]:
    """Return the wishes that a checkpoint of this step is for: those that the attempt had heard of before.

    A node reports a step before it saves it, so what lies after the step that it had reported then was saved after that.
    """
    waiting = (wish for wish in wishes if wish.attempt == attempt and not wish.saved and wish.kind != "finish")
    return frozenset(wish.kind for wish in waiting if step > wish.step)


def is_shown_by(wishes: Sequence[Wish], attempt: str, step: int) -> bool:
    """Return whether pictures that this attempt rendered of a step are those that were asked for."""
    return any(wish.kind == "sample" and wish.saved and wish.attempt == attempt and step > wish.step for wish in wishes)


def undone(wishes: Sequence[Wish], *, succeeded: bool) -> str:
    """Return the sentence for wishes that an end of their job leaves undone; empty if there is none."""
    words = {"save": "save a checkpoint", "sample": "show what it had", "finish": "finish"}
    left = [words[wish.kind] for wish in wishes if not (succeeded and wish.kind == "finish")]
    return f"the job ended before it could {' and '.join(left)}, as its owner had asked" if left else ""
