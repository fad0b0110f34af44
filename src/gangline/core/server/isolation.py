"""How far a run is kept apart from the node that it runs on."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

IsolationLevel = Literal["none", "uid", "sandbox"]
LEVELS: tuple[IsolationLevel, ...] = get_args(IsolationLevel)
"""From the weakest to the strongest."""
PROMISES: Mapping[IsolationLevel, str] = MappingProxyType(
    {
        "none": "a run is a process of the worker's user and can read what that user can",
        "uid": "a run has a user of its own: it cannot read the worker's files and memory, nor other runs'; its network is the node's",
        "sandbox": "a run sees its own files, processes and GPUs, and no network unless it needs one",
    }
)


def isolation_sentence(level: IsolationLevel, why: str) -> str:
    """Return what a node promises of its runs, and why it promises no more."""
    return f"isolation {level}: {PROMISES[level]}" + (f" ({why})" if why else "")
