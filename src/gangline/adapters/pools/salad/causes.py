"""Why Salad took a node off its machine, in words for people."""

from gangline.core.display import printable

SAID_MAX = 300
CAUSES = (
    ("(Priority)", "Salad gave its machine to work of a higher priority"),
    ("(Node Offline)", "its machine went offline"),
    ("(Requested Disk Space Exceeded)", "it used more disk than it had asked for"),
    ("Reallocated by Platform", "Salad moved it away from a machine that was too slow to start or had a bad network"),
    ("Reallocated by User", "it was moved by hand"),
)
"""What Salad's events mean. The first two blame nobody."""


def cause(event: str) -> str:
    """Return what one of Salad's events means, as a reason for people.

    >>> cause("Instance Interrupted (Node Offline)"), cause("Instance Exited:137 (Likely Out of System Memory)")
    ('its machine went offline', 'its container exited with 137 (likely out of system memory)')
    """
    known = next((words for part, words in CAUSES if part in event), "")
    if not known and "Exited:" in event:
        code, _, why = event.partition("Exited:")[2].partition(" ")
        known = f"its container exited with {code}{' ' * bool(why)}{why.lower()}"
    return known or f"Salad says: {printable(event)[:SAID_MAX]}"
