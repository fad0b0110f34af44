"""What a part is: cases, one after another, in a process of its own."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.on_card.results import Figures
from benchmarks.on_card.scale import Scale

Rows = Iterable[Figures]


@dataclass(frozen=True)
class Case:
    """What is measured at once, and again where it failed. `name` is also that of its row where it has no figures."""

    name: str
    rows: Callable[[], Rows]


def no_more(rows: list[Figures]) -> list[Figures]:
    return []


@dataclass(frozen=True)
class Part:
    """`packages`: what it needs besides what every part does. `sum_up` makes rows of all other rows."""

    name: str
    cases: Callable[[Scale], Iterable[Case]]
    packages: tuple[str, ...] = ()
    sum_up: Callable[[list[Figures]], list[Figures]] = no_more
