"""Find slow nodes by comparing seconds per step within one workload and GPU class. A move must save more than it costs.

The default rule works on logarithms, by median and MAD (`gangline.core.jobs.story.band`), not by mean and deviation, because the slow
machine that is looked for would itself pull the mean and widen the deviation: among five machines, one slow outlier can hide inside two
sigma for ever.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import mean, pstdev

from gangline.core.jobs.story.band import centre_and_spread
from gangline.core.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The machines that do the same work: how many, their usual pace, and the pace above which a machine is slow, in seconds per step."""

    machines: int
    usual: float
    slow: float


def compare_paces(paces: Sequence[float], policy: Policy) -> Peers | None:
    """Return the peers; None if there are too few to compare, or the rule is off."""
    if policy.slow_rule == "off" or len(paces) < policy.slow_peers_min:
        return None
    if policy.slow_rule == "two_sigma":
        return Peers(machines=len(paces), usual=mean(paces), slow=mean(paces) + 2 * pstdev(paces))
    centre, sigma = centre_and_spread(paces)
    # Equal machines have a MAD near 0, so that the least deviation would count: the ratio has a floor.
    ratio = max(policy.slow_ratio_min, math.exp(policy.slow_mads * sigma))
    return Peers(machines=len(paces), usual=math.exp(centre), slow=math.exp(centre) * ratio)


def too_slow(mine: float, peers: Peers, steps_left: int, policy: Policy) -> str | None:
    """Return why the job should move to another machine, or None."""
    if mine <= peers.slow:
        return None
    saved_s = steps_left * (mine - peers.usual)
    if saved_s <= policy.move_s:
        return None
    return (
        f"{mine:.3g} s a step, against {peers.usual:.3g} on {peers.machines} machines; "
        f"moving saves {saved_s / 60:.0f} min and costs {policy.move_s / 60:.0f}"
    )


class Paces:
    """Seconds per step of the machines that were tried at the same work."""

    def __init__(self, paces: Iterable[float]) -> None:
        self.sorted = sorted(paces)
        self._sums = list(accumulate(self.sorted, initial=0.0))

    def gain(self, mine: float) -> float:
        """Return the seconds per step that a random one of them saves on average; a slower one saves nothing."""
        faster = bisect_left(self.sorted, mine)
        return (mine * faster - self._sums[faster]) / len(self.sorted) if faster else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What another machine would be like. `seen` are all that were tried, `returned` those that are not here now.

    `new_share` is the chance that the next one was never tried.
    """

    seen: Paces
    returned: Paces
    new_share: float

    def gain(self, mine: float) -> float:
        """Return the seconds per step that the next machine is expected to save; a slower one would be given back in turn."""
        return self.new_share * self.seen.gain(mine) + (1 - self.new_share) * self.returned.gain(mine)


def worth_replacing(mine: float, outlook: Outlook, steps_ahead: float, policy: Policy) -> str | None:
    """Return why to give a sound machine back and rent another, or None. `steps_ahead` is the work that waits for this node.

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
