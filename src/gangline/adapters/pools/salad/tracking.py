"""What the driver knows of its container groups from one look to the next, and what it asks Salad next. No I/O, no clock.

Salad lists groups with counts of their instances, not the instances. Those of a group are asked for when its counts change, while it
starts, and else in rotation: an instance that was replaced between two looks leaves the counts as they were. A group that is no longer
listed is asked for by name before it counts as ended, as a list may be late.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gangline.adapters.pools.salad.answers import (
    ContainerGroup,
    ReplicaInstance,
    ReplicaInstances,
    StatusCounts,
    SystemEvent,
    moment_ms,
)
from gangline.adapters.pools.salad.causes import SAID_MAX, cause
from gangline.core.display import printable
from gangline.ports.pool import Instance

ENDED_KEPT_MS = 600_000
REMOVAL_MS = 60_000
"""How long after a request to remove a group the next one is sent while it is still there."""
STOPPED_MS = 300_000
"""How long a group may be stopped that never had an instance: on its way to the first one it passes through that state, too."""
STARTING_MS, RUNNING_MS = 15_000, 60_000
"""How old the instances of a group may be while it starts, and when it runs."""
NO_INSTANCES = StatusCounts(allocating_count=0, creating_count=0, running_count=0, stopping_count=0)
ENDED_STATUSES = frozenset({"stopped", "failed", "succeeded"})
MOVED = "Salad moved it to another machine"
CAUSING = ("Interrupted", "Reallocated", "Exited", "Recreated", "Restarted")


@dataclass(frozen=True, slots=True)
class AskInstances:
    group: str


@dataclass(frozen=True, slots=True)
class AskGroup:
    """The question whether a group that is not listed exists. `stopped`: we have asked for its removal."""

    group: str
    stopped: bool


@dataclass(frozen=True, slots=True)
class AskEvents:
    """The question why a group's replica left the instance `left`."""

    group: str
    left: str


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """The request to remove a group that has ended: it would still count against the organization's quota."""

    group: str


GroupQuestion = AskInstances | AskGroup | RemoveGroup


@dataclass(slots=True, kw_only=True)
class Gap:
    """A time in which a group does not run, after the instance `left`: since when as far as is known, and until when (None: still)."""

    left: str
    from_ms: int
    to_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class Tracked:
    """A group. `place` is the instance that it has, and `last_place` the last that it had. `ran_ms` is when it was last seen running, on
    the instance `ran_on`; `gaps` are when it did not since the first time. `stopped_ms` is since when it is stopped, `gone_ms` when its end
    was noticed, and `ended_looks` in how many lists it was to be seen."""

    name: str
    counts: StatusCounts = NO_INSTANCES
    status: str = ""
    asked_ms: int | None = None
    changed: bool = True
    listed: bool = True
    place: str = ""
    machine: str = ""
    last_place: str = ""
    moved: str = ""
    progress: str = ""
    from_ms: int | None = None
    to_ms: int | None = None
    gone_ms: int | None = None
    ended_looks: int = 0
    ran_ms: int | None = None
    ran_on: str = ""
    gaps: list[Gap] = field(default_factory=list)
    had_instances: bool = False
    stopped_ms: int | None = None
    ended: str = ""
    stopped: bool = False
    removed_ms: int | None = None
    ban: str = ""


class GroupTracker:
    """The groups of one pool by name."""

    def __init__(self) -> None:
        self._groups: dict[str, Tracked] = {}

    def see(self, groups: Iterable[tuple[str, ContainerGroup]], now_ms: int) -> None:
        """Take a list of the pool's groups, each with the name of its rental."""
        listed = {group.name: (name, group) for name, group in groups}
        for group, (name, said) in listed.items():
            _see(self._groups.setdefault(group, Tracked(name=name)), said, now_ms)
        for group, known in list(self._groups.items()):
            known.listed = group in listed
            if known.gone_ms is not None and not known.listed and now_ms - known.gone_ms > ENDED_KEPT_MS:
                del self._groups[group]

    def questions(self, now_ms: int) -> list[GroupQuestion]:
        """Return what to ask, the most urgent first: what is not listed, what has changed, what starts, and what was not asked for the
        longest. Removals come last: one that always fails must keep nothing else from being asked."""
        absent, due, removals = list[tuple[int, AskGroup]](), list[tuple[int, int, str]](), list[RemoveGroup]()
        for group, known in self._groups.items():
            # One list may be wrong about a group that was not stopped here.
            is_to_go = known.stopped or known.ended_looks > 1
            if known.listed and is_to_go and _is_removal_due(known, now_ms):
                removals.append(RemoveGroup(group))
            elif known.to_ms is not None:
                continue
            elif not known.listed:
                absent.append((known.asked_ms or 0, AskGroup(group, known.stopped)))
            elif known.counts.total and (rank := _rank(known, now_ms)) is not None:
                due.append((rank, known.asked_ms or 0, group))
        absent.sort(key=lambda each: each[0])
        return [*(ask for _, ask in absent), *(AskInstances(group) for _, _, group in sorted(due)), *removals]

    def note_instances(self, group: str, found: ReplicaInstances, now_ms: int) -> AskEvents | None:
        """Take the instances of a group. Return the question why it moved if it did."""
        known = self._groups.get(group)
        if known is None:
            return None
        known.asked_ms, known.changed = now_ms, False
        now_at = _current(found.instances, known.last_place)
        if now_at and now_at.state == "running":
            _note_run(known, now_at.id, min(moment_ms(now_at.update_time) or now_ms, now_ms))
        known.progress = _progress(found.instances, now_at)
        running = [moment_ms(each.update_time) or now_ms for each in found.instances if each.state == "running"]
        if running and known.from_ms is None:
            known.from_ms = min(running)
        if now_at is None:
            known.place = ""
            return None
        known.place, known.machine, left = now_at.id, now_at.machine_id, known.last_place
        known.last_place = now_at.id
        if left in ("", now_at.id):
            return None
        known.moved, known.ban = known.ban or MOVED, ""
        return AskEvents(group, left) if known.moved == MOVED else None

    def note_events(self, asked: AskEvents, events: Sequence[SystemEvent]) -> None:
        """Take a group's events: the last about the instance that it left says why."""
        known = self._groups.get(asked.group)
        about = [
            each
            for each in events
            if each.instance_id == asked.left and any(word in each.event_name for word in CAUSING)
        ]
        if known and about:
            last = max(about, key=lambda each: moment_ms(each.event_time) or 0)
            known.moved = cause(last.event_name)
            left_ms = moment_ms(last.event_time)
            for gap in known.gaps:
                # It ran after it was last seen running, until it was interrupted.
                if gap.left == asked.left and left_ms is not None and (gap.to_ms is None or left_ms < gap.to_ms):
                    gap.from_ms = left_ms

    def note_group(self, group: str, exists: bool, now_ms: int) -> None:
        """Take the answer whether a group exists that was not listed."""
        known = self._groups.get(group)
        if known and not exists and known.to_ms is None:
            _end(known, "it was stopped" if known.stopped else "its container group was deleted", now_ms)

    def note_removed(self, group: str, now_ms: int) -> None:
        if group in self._groups:
            self._groups[group].removed_ms = now_ms

    def note_unanswered(self, group: str, now_ms: int) -> None:
        """Put off a group whose question got no answer: the next look asks about the others first."""
        if group in self._groups:
            self._groups[group].asked_ms = now_ms

    def note_stop(self, group: str, now_ms: int) -> bool:
        """Take that a node is to end. Return whether its removal is to be requested now."""
        if group not in self._groups:
            return True
        self._groups[group].stopped = True
        return _is_removal_due(self._groups[group], now_ms)

    def note_ban(self, group: str, because: str) -> None:
        if group in self._groups:
            self._groups[group].ban = because

    def knows(self, group: str) -> bool:
        return group in self._groups

    def place_of(self, group: str) -> str:
        return self._groups[group].place if group in self._groups else ""

    def instances(self) -> list[Instance]:
        return [
            Instance(
                id=group,
                name=known.name,
                billed_from_ms=known.from_ms,
                billed_to_ms=known.to_ms,
                ended=known.ended,
                place=known.place,
                machine=known.machine if known.place else "",
                moved=known.moved,
                progress="" if known.to_ms is not None else known.progress,
                unbilled=tuple((gap.from_ms, gap.to_ms) for gap in known.gaps if gap.to_ms and gap.from_ms < gap.to_ms),
            )
            for group, known in self._groups.items()
        ]


def _see(known: Tracked, said: ContainerGroup, now_ms: int) -> None:
    state = said.current_state
    counts, description = state.instance_status_counts, printable(state.description or "")[:SAID_MAX]
    if (counts, state.status) != (known.counts, known.status):
        known.changed = True
    ran = known.counts.running_count > 0
    known.counts, known.status = counts, state.status
    if ran and not counts.running_count and known.from_ms is not None and known.ran_ms is not None:
        known.gaps.append(Gap(left=known.ran_on, from_ms=known.ran_ms))
    if counts.running_count:
        known.ran_ms = now_ms
    known.had_instances |= counts.total > 0
    known.stopped_ms = (known.stopped_ms or now_ms) if state.status == "stopped" else None
    if _has_ended(known, now_ms):
        known.ended_looks += 1
        if known.to_ms is None:
            _end(known, _ended(known, state.status, description), now_ms, ran=ran)
        return
    # A list that was late may have said that it had ended.
    known.to_ms, known.gone_ms, known.ended, known.ended_looks = None, None, "", 0
    known.removed_ms = known.removed_ms if known.stopped else None
    if not counts.total:
        known.place = ""
    if not counts.creating_count and not counts.running_count:
        known.progress = _waiting(state.status, description, counts)


def _note_run(known: Tracked, instance: str, since_ms: int) -> None:
    """Take that an instance of a group runs. If another one ran at the last look, the gap in between is not known before Salad's events."""
    if known.gaps and known.gaps[-1].to_ms is None:
        known.gaps[-1].to_ms = since_ms
    elif known.ran_on not in ("", instance):
        known.gaps.append(Gap(left=known.ran_on, from_ms=since_ms, to_ms=since_ms))
    known.ran_on = instance


def _has_ended(known: Tracked, now_ms: int) -> bool:
    if known.counts.total or known.status not in ENDED_STATUSES:
        return False
    return known.stopped_ms is None or known.had_instances or known.stopped or now_ms - known.stopped_ms >= STOPPED_MS


def _ended(known: Tracked, status: str, description: str) -> str:
    if known.stopped:
        return "it was stopped"
    if status == "failed":
        return f"Salad could not prepare its image{': ' * bool(description)}{description}"
    return f"its container group {'finished' if status == 'succeeded' else 'was stopped'}"


def _end(known: Tracked, because: str, now_ms: int, *, ran: bool = False) -> None:
    """End a group. Salad bills while it runs: until now, or until it was last seen running."""
    running = ran or known.counts.running_count > 0
    known.to_ms = now_ms if running or known.ran_ms is None else known.ran_ms
    known.gone_ms, known.ended, known.place = now_ms, because, ""


def _is_removal_due(known: Tracked, now_ms: int) -> bool:
    """Return whether to ask for a removal now: for the first time, or as the group is still there after a while."""
    return known.removed_ms is None or not 0 <= now_ms - known.removed_ms < REMOVAL_MS


def _waiting(status: str, description: str, counts: StatusCounts) -> str:
    if status == "pending":
        return f"Salad prepares its image{': ' * bool(description)}{description}"
    return "stopping" if counts.stopping_count and not counts.allocating_count else "waiting for a machine"


def _rank(known: Tracked, now_ms: int) -> int | None:
    """Return how urgent it is to ask for the instances of a group, the smallest first; None if there is no need."""
    if known.stopped and (known.from_ms is not None or not known.counts.running_count):
        return None  # where it is matters no more, but when it began to be billed
    age_ms = now_ms - known.asked_ms if known.asked_ms is not None else -1
    if known.changed or age_ms < 0:  # never asked, or the clock was set back
        return 0
    if not known.counts.running_count and age_ms >= STARTING_MS:
        return 1
    return 2 if age_ms >= RUNNING_MS else None


def _current(instances: Sequence[ReplicaInstance], place: str) -> ReplicaInstance | None:
    """Return the instance that is the node. A node that is cut off may run on beside its replacement: the known one stays until it goes."""
    placed = [each for each in instances if each.state not in ("allocating", "stopping")]
    same = next((each for each in placed if each.id == place), None)
    newest = max(placed, key=lambda each: moment_ms(each.update_time) or 0, default=None)
    return same or newest or next((each for each in instances if each.id == place), None)


def _progress(instances: Sequence[ReplicaInstance], current: ReplicaInstance | None) -> str:
    if current is None:
        return "waiting for a machine"
    match current.state:
        case "running":
            return ""
        case "downloading" if current.pulling_progress is not None:
            return f"downloading {current.pulling_progress:.0f} %"
        case "creating":
            return "creating its container"
    return current.state
