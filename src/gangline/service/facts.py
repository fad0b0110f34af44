"""Number the facts of each project once they are committed, add them for endpoints, and read them in that order."""

from gangline.core.views import FactView
from gangline.ports.store import guard, write
from gangline.service.deployment import Deployment

NUMBERED_MAX = 1_000
"""The most facts that one transaction numbers, and adds for each endpoint that receives them."""
PARTS_MAX = 10
"""The most such transactions each time. An upgrade may leave a million events without a number: new facts wait for all of them."""
FACTS_MAX = 500


def number_facts(deployment: Deployment, now_ms: int) -> None:
    """Number what was committed since the last time, if it is this server's turn: of two servers, one waits for the other, and then finds
    nothing to number. A fact is added for the endpoints that receive it in the same transaction: it is before its number is
    counted that `fan_out` knows which facts are new, so each is added once."""
    for _ in range(PARTS_MAX):
        if not deployment.store.load("unnumbered_facts"):
            break
        turn = guard("hold_turn", server=deployment.server, now=now_ms)
        numbering = (write("number_facts", most=NUMBERED_MAX), write("fan_out", now=now_ms), write("count_facts"))
        if not deployment.store.apply(turn, *numbering):
            break


def facts_after(deployment: Deployment, project: str, after: int) -> list[FactView]:
    """Return the next facts of a project, by their numbers: `FACTS_MAX` at most."""
    return [FactView(**row) for row in deployment.store.load("facts", project=project, after=after, most=FACTS_MAX)]


def newest_facts(deployment: Deployment, project: str, most: int) -> tuple[list[FactView], int]:
    """Return the newest facts of a project, `most` of them or fewer where jobs were deleted, in the order of their numbers; and the number
    after which nothing has happened yet."""
    newest = last_fact(deployment, project)
    found = facts_after(deployment, project, newest - most) if most else []
    return found, found[-1].number if found and found[-1].number > newest else newest


def last_fact(deployment: Deployment, project: str) -> int:
    """Return the number of the project's newest fact; 0 if it has none."""
    rows = deployment.store.load("last_fact", project=project)
    return rows[0]["facts"] if rows else 0
