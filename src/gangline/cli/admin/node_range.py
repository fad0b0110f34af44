"""What `--nodes` says: a number of nodes, or how few and how many."""

import re

from gangline.core.errors import BadInput

NODES = re.compile(r"(\d{1,6})(?:\.\.(\d{1,6}))?")
NODES_OF_POOL_MAX = 100_000


def parse_node_range(text: str, at_most: int, too_many: str) -> tuple[int, int]:
    """Return the minimum and the maximum; `4` is `4..4`. Raises `BadInput`; `too_many` completes its sentence."""
    found = NODES.fullmatch(text.strip())
    hint = f"pass --nodes a number such as 2, or a range such as 0..4, up to {at_most}"
    if not found:
        raise BadInput(f"--nodes {text!r} is neither a number nor a range", hint=hint)
    least, most = int(found[1]), int(found[2] or found[1])
    if least > most:
        raise BadInput(f"--nodes has a minimum of {least}, which is more than its maximum of {most}", hint=hint)
    if most > at_most:
        raise BadInput(f"{most} nodes are too many for {too_many}", hint=hint)
    return least, most
