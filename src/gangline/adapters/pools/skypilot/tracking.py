"""What the driver knows of its clusters from one look to the next, and what it asks SkyPilot next. No I/O, no clock.

A cluster's status does not say whether its launch succeeded: one whose launch failed, or was cut off, may stay, is billed, and is
called UP as soon as its machine runs. So each cluster's launch is asked for, once it has ended, and a cluster whose launch failed is
removed. A cluster that is no longer listed is asked for by what happened to it: that says whether, when and why it ended. Without such an
event it is left out, as one list may lack what runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gangline.adapters.pools.skypilot.answers import SAID_MAX, ApiRequest, ClusterEvent, ClusterRecord
from gangline.core.display import printable
from gangline.ports.pool import Instance

KEPT_MS = 600_000
"""How long a cluster is known after it was last listed, or after its end was noticed."""
REMOVAL_MS = 60_000
"""How long after a request to remove a cluster the next one is sent while the list still shows it: a second one breaks into the first."""
GONE = "its cluster is gone"
RENTED = "Instances launched"
"""How the event begins that says that the cloud has rented a machine."""
CAUSES = (
    ("All nodes terminated", "its machine was ended at the cloud"),
    ("Cluster was autodowned", "it was removed as it was idle, by an autostop that somebody has set"),
    ("Cluster was terminated", "its cluster was removed with SkyPilot"),
)
"""What the last event of a cluster means that has ended, by how the event begins."""


@dataclass(frozen=True, slots=True)
class AskLaunch:
    """The question how the launch of a cluster ended. `request` is its request, if it is known."""

    cluster: str
    request: str


@dataclass(frozen=True, slots=True)
class AskEnd:
    """The question what happened to a cluster that is no longer listed."""

    cluster: str
    cluster_hash: str


@dataclass(frozen=True, slots=True)
class AskRemoval:
    """The question whether a request to remove a cluster failed."""

    cluster: str
    request: str


@dataclass(frozen=True, slots=True)
class RemoveCluster:
    """The request to remove a cluster on which no worker runs: it would be billed on."""

    cluster: str


ClusterQuestion = AskLaunch | AskEnd | AskRemoval | RemoveCluster


@dataclass(slots=True, kw_only=True)
class TrackedCluster:
    """A cluster. `launch` is the request that made it, and `launched` whether that succeeded (None: it is not known). `starts` is true
    while a launch is under way, and `listed` while SkyPilot lists the cluster; `unseen_ms` is since when there is neither."""

    name: str
    offer: str = ""
    launch: str = ""
    launched: bool | None = None
    starts: bool = False
    failed: str = ""
    listed: bool = False
    status: str = ""
    cluster_hash: str = ""
    unseen_ms: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    ended: str = ""
    stopped: bool = False
    progress: str = ""
    removed_ms: int | None = None
    removal: str = ""
    not_removed: str = ""


class ClusterTracker:
    """The clusters of one pool by name."""

    def __init__(self) -> None:
        self._clusters: dict[str, TrackedCluster] = {}

    def note_start(self, cluster: str, name: str, offer: str, request: str) -> None:
        """Take that a launch was requested."""
        self._clusters[cluster] = TrackedCluster(name=name, offer=offer, launch=request, starts=True)

    def note_refusal(self, cluster: str, request: str, said: str) -> None:
        """Take that a launch failed at once: who asked for it knows. What it left is shown once it is listed."""
        if cluster in self._clusters and self._clusters[cluster].launch == request:
            known = self._clusters[cluster]
            known.starts, known.launched, known.failed = False, False, said

    def see(
        self,
        launches: Iterable[tuple[str, ApiRequest]],
        clusters: Iterable[tuple[str, ClusterRecord]],
        now_ms: int,
    ) -> None:
        """Take the launches that are under way, of their clusters' rentals, and then the list of clusters."""
        under_way = {each.cluster_name or "": (name, each) for name, each in sorted(launches, key=_age)}
        listed = {each.name: (name, each) for name, each in clusters}
        for cluster, (name, _) in {**under_way, **listed}.items():
            self._clusters.setdefault(cluster, TrackedCluster(name=name))
        for cluster, known in list(self._clusters.items()):
            launch = under_way[cluster][1] if cluster in under_way else None
            _see(known, launch, listed[cluster][1] if cluster in listed else None, now_ms)
            if known.unseen_ms is not None and now_ms - known.unseen_ms > KEPT_MS:
                del self._clusters[cluster]

    def questions(self, now_ms: int) -> list[ClusterQuestion]:
        """Return what to ask: what has ended first, as it is billed or not."""
        asked = [each for cluster, known in self._clusters.items() for each in _questions(cluster, known, now_ms)]
        return sorted(asked, key=lambda each: isinstance(each, AskRemoval))

    def note_launch(self, cluster: str, launch: ApiRequest | None, failed: str, now_ms: int) -> str:
        """Take how a cluster's launch is, or ended (None: SkyPilot does not remember it). Return the offer of one that failed."""
        known = self._clusters.get(cluster)
        if known is None:
            return ""
        if launch is None:
            known.launched, failed = known.listed or bool(known.cluster_hash), GONE
        else:
            known.launch = launch.request_id
            known.starts = launch.is_active
            known.launched = None if launch.is_active else launch.status == "SUCCEEDED"
        if known.launched is False:
            known.failed = failed or "it was cut off"
            if not known.listed and not known.cluster_hash:  # else it is asked what happened to the cluster
                _end(known, f"its launch failed: {known.failed}", now_ms, now_ms)
            return known.offer
        return ""

    def note_end(self, cluster: str, events: Sequence[ClusterEvent], now_ms: int) -> None:
        """Take what happened to a cluster that is no longer listed: the last event says whether, when and why it ended."""
        known = self._clusters.get(cluster)
        if known is None or known.to_ms is not None:
            return
        rented = [each.transitioned_at * 1000 for each in events if each.reason.startswith(RENTED)]
        if known.from_ms is None and rented:  # it was rented and removed between two looks
            known.from_ms = min(rented)
        last = sorted(events, key=lambda each: each.transitioned_at)[-1:]
        because, to_ms = "", now_ms
        if last and (because := why_it_ended(last[0].reason)):
            to_ms = max(known.from_ms or 0, min(now_ms, last[0].transitioned_at * 1000))
        if because or known.failed or known.stopped:
            _end(known, f"its launch failed: {known.failed}" if known.failed else because, to_ms, now_ms)

    def note_removal(self, cluster: str, request: str, now_ms: int) -> None:
        if cluster in self._clusters:
            known = self._clusters[cluster]
            known.removed_ms, known.removal = now_ms, request

    def note_not_removed(self, cluster: str, said: str) -> None:
        """Take how a request to remove a cluster ended: `said` is empty if it succeeded."""
        if cluster in self._clusters:
            self._clusters[cluster].removal, self._clusters[cluster].not_removed = "", said

    def note_stop(self, cluster: str, now_ms: int) -> bool:
        """Take that a node is to end. Return whether its removal is to be requested now."""
        if cluster not in self._clusters:
            return True
        self._clusters[cluster].stopped = True
        return _is_removal_due(self._clusters[cluster], now_ms)

    def instances(self) -> list[Instance]:
        return [
            Instance(
                id=cluster,
                name=known.name,
                billed_from_ms=known.from_ms,
                billed_to_ms=known.to_ms,
                ended=known.ended,
                progress="" if known.to_ms is not None else _progress(known),
            )
            for cluster, known in self._clusters.items()
            if _is_shown(known)
        ]


def _age(launch: tuple[str, ApiRequest]) -> float:
    return launch[1].created_at


def _see(known: TrackedCluster, launch: ApiRequest | None, record: ClusterRecord | None, now_ms: int) -> None:
    known.starts, known.listed = launch is not None, record is not None
    if known.starts or known.listed:
        known.unseen_ms = None
    elif known.unseen_ms is None:
        known.unseen_ms = now_ms
    if launch is not None and launch.request_id != known.launch:
        known.launch, known.launched, known.failed = launch.request_id, None, ""
    if record is None:
        return
    known.status, known.cluster_hash = record.status, record.cluster_hash
    known.progress = printable(record.init_status_reason or "")[:SAID_MAX] if record.status == "INIT" else ""
    # Before the cloud has rented its machine a cluster costs nothing; what is left of a launch that was cut off may have one.
    if known.from_ms is None and (record.status != "INIT" or record.node_names or launch is None):
        known.from_ms = record.launched_at * 1000
    if record.status == "STOPPED":
        if known.to_ms is None:
            _end(known, "its cluster was stopped", now_ms, now_ms)
    else:  # a list that was late may have said that it had ended
        known.to_ms, known.ended = None, ""


def _questions(cluster: str, known: TrackedCluster, now_ms: int) -> list[ClusterQuestion]:
    asked = list[ClusterQuestion]()
    if known.listed:
        if not known.starts and known.launched is None and known.to_ms is None:
            asked.append(AskLaunch(cluster, known.launch))
        elif _is_to_go(known) and _is_removal_due(known, now_ms):
            asked.append(RemoveCluster(cluster))
        if known.removal:
            asked.append(AskRemoval(cluster, known.removal))
    elif known.to_ms is None and not known.starts:
        if known.launched is None:
            asked.append(AskLaunch(cluster, known.launch))
        elif known.cluster_hash:
            asked.append(AskEnd(cluster, known.cluster_hash))
    return asked


def _is_to_go(known: TrackedCluster) -> bool:
    return known.to_ms is not None or known.stopped or (known.launched is False and not known.starts)


def _is_removal_due(known: TrackedCluster, now_ms: int) -> bool:
    return known.removed_ms is None or now_ms - known.removed_ms >= REMOVAL_MS


def _is_shown(known: TrackedCluster) -> bool:
    """Return whether a cluster is shown: not if it is only missing from a list, nor if its launch failed at once and left nothing."""
    if known.listed or known.to_ms is not None or known.launched is None:
        return True
    return not known.launched and bool(known.cluster_hash)


def _end(known: TrackedCluster, because: str, to_ms: int, now_ms: int) -> None:
    known.to_ms, known.ended, known.unseen_ms = to_ms, "it was stopped" if known.stopped else because, now_ms


def _progress(known: TrackedCluster) -> str:
    if known.not_removed:
        return f"SkyPilot could not remove it: {known.not_removed}"
    if known.failed and not known.starts:
        return f"its launch failed: {known.failed}; it is being removed"
    if not known.listed:
        return "waiting for SkyPilot" if known.starts else ""
    return known.progress


def why_it_ended(event: str) -> str:
    """Return what the last event of a cluster means, as a reason for people; empty if it is no end.

    >>> why_it_ended("All nodes terminated, cleaning up the cluster."), why_it_ended("All nodes up; SkyPilot runtime healthy.")
    ('its machine was ended at the cloud', '')
    """
    return next((words for part, words in CAUSES if event.startswith(part)), "")


def newest_launch(requests: Iterable[ApiRequest], cluster: str, name: str) -> ApiRequest | None:
    """Return the last launch of a cluster among requests. An API server that knows no filter returns those of others, too."""
    return max(
        (each for each in requests if each.name == name and each.cluster_name == cluster),
        key=lambda each: each.created_at,
        default=None,
    )


def exhausted(lacking_ms: Mapping[str, int], now_ms: int, for_ms: int) -> set[str]:
    """Return the offers for which a launch has failed within the last `for_ms`."""
    return {offer for offer, at_ms in lacking_ms.items() if 0 <= now_ms - at_ms < for_ms}
