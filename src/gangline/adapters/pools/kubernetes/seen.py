"""Remember the Pods of a pool: of one that is deleted nothing is left, at once or once its machine says that it has ended."""

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock

from gangline.adapters.pools.kubernetes.answers import KubernetesPod, ended_as_asked, pod_ending, pod_progress
from gangline.ports.pool import Instance

STOPPED, DELETED = "it was stopped", "its Pod was deleted"
ENDED_KEPT_MS = 600_000
"""How long a Pod is listed that the cluster no longer has."""
LEFT_MS = 3_600_000
"""How long an ended Pod is left in the cluster, for its owner to look at and for its log."""


@dataclass(slots=True)
class _Known:
    """A Pod as it was last seen. `gone_ms` is when its end was noticed, `to_ms` until when it is billed and `ended` why. `given_up` says
    that it had no machine for too long."""

    pod: KubernetesPod
    given_up: str = ""
    ended: str = ""
    to_ms: int | None = None
    gone_ms: int | None = None


class SeenPods:
    """The Pods that one driver has created or seen. A driver that starts without this memory finds all that the cluster has."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[str, _Known] = {}
        self._created: set[str] = set()  # by name, until the list shows them
        self._stopped: set[str] = set()

    def create(self, name: str) -> None:
        with self._lock:
            self._created.add(name)

    def stop(self, name: str) -> bool:
        """Note that a Pod is to end. Return whether the cluster has listed it as being deleted."""
        with self._lock:
            self._stopped.add(name)
            return name in self._known and bool(self._known[name].pod.metadata.deletion_timestamp)

    def has(self, name: str) -> bool:
        with self._lock:
            return name in self._known or name in self._created

    def note(self, listed: Iterable[KubernetesPod], now_ms: int) -> list[Instance]:
        """Note what the cluster lists. Return all instances."""
        there = {pod.name: pod for pod in listed}
        with self._lock:
            self._created -= there.keys()
            for pod in there.values():
                self._note_listed(pod, now_ms)
            for name, known in self._known.items():
                if name not in there and known.gone_ms is None:
                    self._note_vanished(known, now_ms)
            self._forget(there.keys(), now_ms)
            return [_instance(known, now_ms) for _, known in sorted(self._known.items())]

    def left(self, now_ms: int) -> list[str]:
        """Return the Pods that ended long ago, and that the cluster still has."""
        with self._lock:
            return [
                name
                for name, known in self._known.items()
                if known.pod.has_ended and known.to_ms is not None and now_ms - known.to_ms > LEFT_MS
            ]

    def waiting_since(self, before_ms: int) -> list[str]:
        """Return the Pods that were created before this and still wait for a machine."""
        with self._lock:
            return [
                name
                for name, known in self._known.items()
                if known.gone_ms is None
                and not known.pod.spec.node_name
                and not known.pod.metadata.deletion_timestamp
                and known.pod.created_ms < before_ms
            ]

    def give_up(self, name: str, now_ms: int) -> None:
        """Note that a Pod was deleted as it had no machine for too long."""
        with self._lock:
            known = self._known[name]
            minutes = (now_ms - known.pod.created_ms) / 60_000
            known.given_up = f"after {minutes:.0f} minutes it still {pod_progress(known.pod, now_ms)}"

    def has_given_up(self) -> bool:
        """Return whether that was so lately."""
        with self._lock:
            return any(known.given_up for known in self._known.values())

    def _note_listed(self, pod: KubernetesPod, now_ms: int) -> None:
        known = self._known.setdefault(pod.name, _Known(pod))
        known.pod = pod
        if not pod.has_ended:  # also if it was missing from a list and is back
            known.ended, known.to_ms, known.gone_ms = "", None, None
        elif known.gone_ms is None:
            known.gone_ms, known.to_ms, known.ended = now_ms, pod.ended_ms, self._why(known)

    def _note_vanished(self, known: _Known, now_ms: int) -> None:
        """Note the end of a Pod that the cluster has no more: as of now, if it had a machine."""
        known.gone_ms = now_ms
        known.to_ms = max(now_ms, known.pod.bound_ms or now_ms)
        known.ended = self._why(known)

    def _why(self, known: _Known) -> str:
        pod = known.pod
        asked = pod.name in self._stopped and ended_as_asked(pod)
        return known.given_up or (STOPPED if asked else pod_ending(pod) or DELETED)

    def _forget(self, there: Iterable[str], now_ms: int) -> None:
        for name in set(self._known) - set(there):
            gone_ms = self._known[name].gone_ms
            if gone_ms is not None and now_ms - gone_ms > ENDED_KEPT_MS:
                del self._known[name]
                self._stopped.discard(name)


def _instance(known: _Known, now_ms: int) -> Instance:
    pod = known.pod
    from_ms = pod.bound_ms
    if known.to_ms is not None and from_ms is None:  # it never had a machine, so it has no time that is billed
        from_ms = known.to_ms
    to_ms = None if known.to_ms is None else max(known.to_ms, from_ms or 0)
    return Instance(
        id=pod.name,
        name=pod.name,
        billed_from_ms=from_ms,
        billed_to_ms=to_ms,
        ended=known.ended,
        progress="" if known.gone_ms is not None else pod_progress(pod, now_ms),
    )
