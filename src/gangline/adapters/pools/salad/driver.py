"""The driver: what Salad is asked, and how often. No call repeats a request or waits: the service calls again."""

import json
import logging
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock
from time import time_ns
from typing import Any

from gangline.adapters.pools.salad.answers import (
    ContainerGroup,
    ContainerGroups,
    FreeGpus,
    GpuClasses,
    LoggedLine,
    LoggedLines,
    OrganizationQuotas,
    ReplicaInstances,
    SystemEvents,
)
from gangline.adapters.pools.salad.identity import SaladIdentity
from gangline.adapters.pools.salad.offers import SaladOffer, offers_of
from gangline.adapters.pools.salad.request import (
    NAME,
    availability,
    creation,
    group_name,
    rental_name,
    rental_without_mark,
)
from gangline.adapters.pools.salad.settings import ENDPOINT, KEYS, SaladSettings
from gangline.adapters.pools.salad.tracking import (
    AskEvents,
    AskGroup,
    AskInstances,
    GroupQuestion,
    GroupTracker,
    RemoveGroup,
)
from gangline.adapters.pools.salad.wire import SaladAnswer, SaladWire
from gangline.core.display import printable
from gangline.core.errors import BadInput, Denied, GanglineError, NotFound, TooMany, Unreachable
from gangline.ports.pool import Instance, MachineIdentity, NoCapacity, Offer, Rental

REQUESTS_MAX = 240 // 2
"""Questions are asked within half of the requests that Salad allows in a minute: other servers may have the same key."""
ENDS_MAX = 240 * 3 // 4
"""Whether a group that was stopped is gone is asked within more: until that is known, the list shows it as running."""
REALLOCATIONS_MAX = 10 // 2
CLASSES_MS, FREE_MS = 600_000, 60_000
"""How old the classes with their prices may be, and the number of free machines of a class."""
LOOK_MS_MAX, FAILURES_MAX = 10_000, 1
LOGS_MS, LOG_LINES, EVENTS_MAX = 24 * 3_600_000, 100, 20
REFUSED = frozenset({400, 403, 404, 409, 422})
ABSENT = frozenset({404})
NOT_NOW = frozenset({400, 409})
"""How a request to remove a group may be refused that is being removed, or created. Later looks show what became of it."""
log = logging.getLogger("gangline.fleet.salad")


class SaladPool:
    """Rents container groups of one replica in a project of an organization. Several threads may call it. `mark` ends the names of its
    groups: no other pool or server may have the same one. Groups without any mark are its own if their nodes join this `server`.

    `clock` returns the time in milliseconds. The driver remembers what it saw, to ask for little; another one of the same project finds all
    that runs, and does not list what ended before.
    """

    def __init__(
        self,
        *,
        organization: str,
        project: str,
        key: str,
        mark: str,
        server: str = "",
        settings: SaladSettings | None = None,
        endpoint: str = ENDPOINT,
        keys: str = KEYS,
        clock: Callable[[], int] = lambda: time_ns() // 1_000_000,
    ) -> None:
        for what, name in (("organization", organization), ("project", project)):
            if not NAME.fullmatch(name):
                raise BadInput(
                    f"{printable(name) or 'an empty text'} is no name of Salad's for the {what}",
                    hint="a name has lower-case letters, digits and hyphens, as in the portal's address",
                )
        self._settings = settings or SaladSettings()
        self._mark, self._server = mark, server
        self._project = project
        self._organization = f"/organizations/{organization}"
        self._groups = f"{self._organization}/projects/{project}/containers"
        self._wire = SaladWire(endpoint, key, self._settings.timeout_s, clock)
        self._identity = SaladIdentity(organization, keys, clock=clock)
        self._clock = clock
        self._lock, self._looking = Lock(), Lock()
        self._tracking = GroupTracker()
        self._offers: list[SaladOffer] = []
        self._offers_ms: int | None = None
        self._free: dict[str, tuple[int, FreeGpus]] = {}
        self._reallocated_ms: deque[int] = deque()

    def offers(self) -> list[Offer]:
        """Return each class at each priority, but those of which no machine was free a moment ago."""
        known, until_ms = self._known_offers(), self._clock() + LOOK_MS_MAX
        stale = {each.gpu_class.id: each for each in known if self._age_ms(each) >= FREE_MS}
        try:
            for each in sorted(stale.values(), key=self._age_ms, reverse=True):
                if not self._may_ask() or self._clock() > until_ms:
                    break
                self._ask_free(each)
        except Unreachable as error:  # `start` asks again
            log.warning("%s; it is not known which machines are free", error.message)
        return [each.offer for each in known if self._free_now(each) != 0]

    def start(self, offer: str, rental: Rental) -> None:
        group = group_name(self._settings.prefix, self._mark, rental.name)
        wanted = next((each for each in self._known_offers() if each.offer.id == offer), None)
        if wanted is None:
            raise NoCapacity(f"Salad has no offer {offer}")
        if self._ask_free(wanted) == 0:
            if self._exists(group):
                return
            raise NoCapacity(f"Salad has no free {wanted.gpu_class.name} at priority {wanted.priority} now")
        answer = self._wire.send("POST", self._groups, creation(group, rental, wanted, self._settings), allowed=REFUSED)
        if answer.status in REFUSED and not self._exists(group):
            raise self._why_refused(answer)

    def stop(self, instance: str) -> None:
        if not self._is_ours(instance):
            return
        with self._lock:
            is_due = self._tracking.note_stop(instance, self._clock())
        if is_due:
            self._remove(instance)

    def list(self) -> list[Instance]:
        """Look once: one request for all groups, and questions about single ones as far as the quota goes."""
        with self._looking:
            listed = self._wire.ask(ContainerGroups, "GET", self._groups).items
            named = [(self._rental(each), each) for each in listed]
            with self._lock:
                self._tracking.see([(name, each) for name, each in named if name], self._clock())
                questions = self._tracking.questions(self._clock())
            self._ask_all(questions)
            with self._lock:
                return self._tracking.instances()

    def logs(self, instance: str) -> str:
        """Return the last events that Salad recorded about a group, and then the last lines that its container printed."""
        if not self._is_ours(instance):
            self.list()  # nodes of release 0.2 are known by what a list says of them
        if not self._is_ours(instance):
            raise NotFound(f"the pool has no instance {printable(instance)}")
        events = sorted(self._events(instance), key=lambda each: each.event_time)[-EVENTS_MAX:]
        said = [f"{each.event_time[:19]} Salad: {each.event_name}" for each in events]
        return "\n".join([*said, *(_line(each) for each in self._printed(instance))])

    def reallocate(self, instance: str, because: str) -> None:
        if not self._is_ours(instance):
            raise NotFound(f"the pool has no instance {printable(instance)}")
        now_ms = self._clock()
        while self._reallocated_ms and now_ms - self._reallocated_ms[0] >= 60_000:
            self._reallocated_ms.popleft()
        if len(self._reallocated_ms) >= REALLOCATIONS_MAX:
            left_ms = 60_000 - (now_ms - self._reallocated_ms[0])
            raise TooMany("Salad allows few moves to other machines in a minute", wait_s=left_ms / 1000)
        with self._lock:
            place = self._tracking.place_of(instance)
        if not place:
            return  # it has no machine: the next one is another
        self._reallocated_ms.append(now_ms)
        answer = self._wire.send("POST", f"{self._groups}/{instance}/instances/{place}/reallocate", allowed=ABSENT)
        if answer.status not in ABSENT:
            with self._lock:
                self._tracking.note_ban(instance, because)

    @property
    def demands_identity(self) -> bool:
        return self._settings.prove_machines

    def identify(self, token: str) -> MachineIdentity:
        proved = self._identity.verify(token)
        return MachineIdentity(machine=proved.id, instance=proved.group)

    def learn_to_identify(self) -> None:
        self._identity.fetch()

    def _rental(self, group: ContainerGroup) -> str:
        prefix = self._settings.prefix
        return rental_name(prefix, self._mark, group.name) or rental_without_mark(prefix, self._server, group)

    def _is_ours(self, group: str) -> bool:
        with self._lock:
            return bool(rental_name(self._settings.prefix, self._mark, group)) or self._tracking.knows(group)

    def _remove(self, group: str) -> None:
        """Ask for a group's removal. Whether that succeeds is seen at the next looks."""
        answer = self._wire.send("DELETE", f"{self._groups}/{group}", allowed=ABSENT | NOT_NOW)
        if answer.status in NOT_NOW:
            log.warning("group %s: Salad does not remove it (HTTP %d): %s", group, answer.status, answer.detail)
        with self._lock:
            self._tracking.note_removed(group, self._clock())

    def _ask_all(self, questions: "list[GroupQuestion]") -> None:
        """Ask as much as the quota, the time of a look and Salad's answers allow. What is not asked now stays as it was known."""
        until_ms, failures = self._clock() + LOOK_MS_MAX, 0
        for question in questions:
            if self._clock() > until_ms or failures > FAILURES_MAX:
                return
            ends = isinstance(question, AskGroup) and question.stopped
            if self._wire.sent_last_minute() >= (ENDS_MAX if ends else REQUESTS_MAX):
                continue
            try:
                moved = self._ask(question)
                if moved is not None and self._may_ask():
                    events = self._events(moved.group)
                    with self._lock:
                        self._tracking.note_events(moved, events)
            except GanglineError as error:
                failures += 1
                log.warning("group %s: %s; asking again", question.group, error.message)
                with self._lock:
                    self._tracking.note_unanswered(question.group, self._clock())

    def _ask(self, question: GroupQuestion) -> AskEvents | None:
        path = f"{self._groups}/{question.group}"
        match question:
            case AskInstances(group):
                answer = self._wire.send("GET", f"{path}/instances", allowed=ABSENT)
                if answer.status in ABSENT:
                    return None  # deleted since the list: the next one will not have it
                found = self._wire.parse(ReplicaInstances, answer, f"{path}/instances")
                with self._lock:
                    return self._tracking.note_instances(group, found, self._clock())
            case AskGroup(group):
                exists = self._exists(group)
                with self._lock:
                    self._tracking.note_group(group, exists, self._clock())
            case RemoveGroup(group):
                self._remove(group)
        return None

    def _may_ask(self) -> bool:
        return self._wire.sent_last_minute() < REQUESTS_MAX

    def _exists(self, group: str) -> bool:
        return self._wire.send("GET", f"{self._groups}/{group}", allowed=ABSENT).status not in ABSENT

    def _events(self, group: str) -> tuple[Any, ...]:
        path = f"{self._groups}/{group}/system-logs"
        answer = self._wire.send("GET", path, allowed=ABSENT)
        return () if answer.status in ABSENT else self._wire.parse(SystemEvents, answer, path).items

    def _printed(self, group: str) -> "list[LoggedLine]":
        now_ms = self._clock()
        asked = {
            "start_time": _moment(now_ms - LOGS_MS),
            "end_time": _moment(now_ms),
            "query": f'resource.type = "container" and resource.labels.project_name = "{self._project}" '
            f'and resource.labels.container_group_name = "{group}"',
            "page_size": LOG_LINES,
            "sort_order": "desc",
        }
        found = self._wire.ask(LoggedLines, "POST", f"{self._organization}/log-entries", asked)
        return sorted(found.items, key=lambda each: each.time)

    def _known_offers(self) -> "list[SaladOffer]":
        """Return the offers of the settings, with prices that are not old."""
        now_ms = self._clock()
        if self._offers_ms is None or not 0 <= now_ms - self._offers_ms < CLASSES_MS:
            try:
                classes = self._wire.ask(GpuClasses, "GET", f"{self._organization}/gpu-classes").items
            except Unreachable:
                if self._offers_ms is None:
                    raise
                return self._offers
            self._offers, self._offers_ms = offers_of(classes, self._settings), now_ms
        return self._offers

    def _ask_free(self, offer: SaladOffer) -> int | None:
        """Ask how many machines of an offer's class are free now. Return how many at its priority; None if Salad does not say."""
        path = f"{self._organization}/availability/sce-gpu-availability"
        found = self._wire.ask(FreeGpus, "POST", path, availability(offer, self._settings))
        self._free[offer.gpu_class.id] = (self._clock(), found)
        return found.at(offer.priority)

    def _free_now(self, offer: SaladOffer) -> int | None:
        found = self._free.get(offer.gpu_class.id)
        return found[1].at(offer.priority) if found else None

    def _age_ms(self, offer: SaladOffer) -> int:
        found = self._free.get(offer.gpu_class.id)
        return self._clock() - found[0] if found else FREE_MS

    def _why_refused(self, answer: SaladAnswer) -> GanglineError:
        """Return why Salad created nothing: the quota is the cause for which its words differ."""
        quota = self._wire.ask(OrganizationQuotas, "GET", f"{self._organization}/quotas").container_groups_quotas
        detail = f": {answer.detail}" if answer.detail else ""
        if quota.container_replicas_used >= quota.container_replicas_quota:
            return NoCapacity(
                f"the organization's quota of {quota.container_replicas_quota} replicas at Salad is used up",
                hint="stopped groups count, too; Salad's support raises the quota",
            )
        if answer.status == 403:
            return Denied(f"Salad refuses to create a container group{detail}", hint="check the organization's billing")
        if answer.status == 404:
            return NotFound(f"Salad has no project {self._project} in this organization{detail}")
        return BadInput(
            f"Salad refuses the container group (HTTP {answer.status}){detail}", hint="check the pool's settings"
        )


def _moment(at_ms: int) -> str:
    """Return a time as Salad's log queries take it: in UTC, to the second, never in the future."""
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _line(entry: LoggedLine) -> str:
    said = entry.text_log if entry.text_log is not None else json.dumps(entry.json_log or {})
    return f"{entry.time[:19]} {said.rstrip()}"
