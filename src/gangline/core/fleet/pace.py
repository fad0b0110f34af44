"""Slow nodes: seconds per step beside those of the same workload on the same GPU class. Moving must pay for itself."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import mean, median, pstdev

from gangline.core.policy import Policy

MAD_TO_SIGMA = 1.4826
"""The median absolute deviation of a normal distribution times this is its standard deviation (Hampel 1974)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The machines that do the same work: how many, their usual pace, and the one above which a machine is slow. Seconds per step."""

    machines: int
    usual: float
    slow: float


def compare_paces(paces: Sequence[float], policy: Policy) -> Peers | None:
    """None where they are too few to tell, or nobody is to be called slow."""
    if policy.slow_rule == "off" or len(paces) < policy.slow_peers_min:
        return None
    if policy.slow_rule == "two_sigma":
        return Peers(machines=len(paces), usual=mean(paces), slow=mean(paces) + 2 * pstdev(paces))
    logs = sorted(math.log(pace) for pace in paces)
    centre = median(logs)
    sigma = MAD_TO_SIGMA * median(abs(value - centre) for value in logs)
    ratio = max(policy.slow_ratio_min, math.exp(policy.slow_mads * sigma))
    return Peers(machines=len(paces), usual=math.exp(centre), slow=math.exp(centre) * ratio)


def too_slow(mine: float, peers: Peers, steps_left: int, policy: Policy) -> str | None:
    """Why the job should move on, or None."""
    if mine <= peers.slow:
        return None
    saved_s = steps_left * (mine - peers.usual)
    if saved_s <= policy.move_s:
        return None
    return (
        f"{mine:.3g} s a step beside {peers.usual:.3g} on {peers.machines} machines; "
        f"moving saves {saved_s / 60:.0f} min and costs {policy.move_s / 60:.0f}"
    )


class Paces:
    """Of machines that were tried at the same work, in seconds per step."""

    def __init__(self, paces: Iterable[float]) -> None:
        self.sorted = sorted(paces)
        self._sums = list(accumulate(self.sorted, initial=0.0))

    def gain(self, mine: float) -> float:
        """Seconds per step that one of them saves on average, where a slower one saves nothing."""
        faster = bisect_left(self.sorted, mine)
        return (mine * faster - self._sums[faster]) / len(self.sorted) if faster else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What another machine would be like. `seen`: all that were tried; `returned`: those that are not here now.

    `new_share` is the chance that the next one was never tried.
    """

    seen: Paces
    returned: Paces
    new_share: float

    def gain(self, mine: float) -> float:
        """Seconds per step that the next machine is expected to save, where a slower one is given back in its turn."""
        return self.new_share * self.seen.gain(mine) + (1 - self.new_share) * self.returned.gain(mine)


def worth_replacing(mine: float, outlook: Outlook, steps_ahead: float, policy: Policy) -> str | None:
    """Why to give a sound machine back and rent another, or None. `steps_ahead`: the work that waits for this node.

    Another machine is worth its start if it is expected to save more than that (optimal stopping: McCall 1970).
    """
    tried = len(outlook.seen.sorted)
    if not policy.seek_faster or tried < policy.slow_peers_min:
        return None
    saved_s = steps_ahead * outlook.gain(mine)
    if saved_s <= policy.move_s:
        return None
    return (
        f"{mine:.3g} s a step; of {tried} machines tried, another saves {saved_s / 60:.0f} min "
        f"of the work ahead on average and costs {policy.move_s / 60:.0f}"
    )
