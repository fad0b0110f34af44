"""The driver: what SkyPilot's API server is asked. A launch is not waited for, but for a moment in which most that cannot be fail."""

import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from time import time_ns

from gangline.adapters.pools.skypilot.answers import (
    COLOURS,
    LAUNCH,
    ApiRequest,
    CatalogRow,
    ClusterEvent,
    ClusterRecord,
)
from gangline.adapters.pools.skypilot.offers import SkyPilotOffer, name_filter, offers_of_catalog
from gangline.adapters.pools.skypilot.request import asked, cluster_name, launch, rental_of_cluster
from gangline.adapters.pools.skypilot.settings import ENDPOINT, SkyPilotSettings
from gangline.adapters.pools.skypilot.tracking import (
    AskEnd,
    AskLaunch,
    AskRemoval,
    ClusterQuestion,
    ClusterTracker,
    RemoveCluster,
    exhausted,
    newest_launch,
)
from gangline.adapters.pools.skypilot.wire import SkyPilotFailure, SkyPilotWire
from gangline.core.display import printable
from gangline.core.errors import BadInput, Denied, GanglineError, NotFound, Unreachable
from gangline.ports.pool import Instance, NoCapacity, Offer, Rental

CATALOG_MS = 600_000
LACKING_MS = 600_000
"""How long an offer is left out after a launch of it failed for lack of machines."""
LAUNCH_WAIT_S = 2.0
LOOK_MS_MAX, FAILURES_MAX = 10_000, 1
LOG_LINES, MADE_LINES, EVENTS_MAX, LOG_WAIT_S = 60, 20, 20, 5.0
LACKING = frozenset({"ResourcesUnavailableError", "ResourcesMismatchError"})
REFUSED = frozenset({"PermissionDeniedError", "UserRequestRejectedByPolicy", "NoCloudAccessError"})
PASSING = frozenset(
    {"RequestInterruptedError", "ConnectionError", "Timeout", "OperationalError", "ApiServerConnectionError"}
)
"""Exceptions of SkyPilot's by what they mean; the others say that the request was wrong."""
ABSENT = "ClusterDoesNotExist"
log = logging.getLogger("gangline.fleet.skypilot")


class SkyPilotPool:
    """Rents clusters of one machine through a SkyPilot API server. Several threads may call it. `mark` ends the names of its clusters: no
    other pool or server may have the same one.

    `clock` returns the time in milliseconds. The driver remembers what it saw; another one of the same server finds all that runs, and does
    not list what ended before. `launch_wait_s` is for how long `start` waits for a launch to fail.
    """

    def __init__(
        self,
        *,
        settings: SkyPilotSettings,
        mark: str,
        endpoint: str = ENDPOINT,
        secret: str = "",
        launch_wait_s: float = LAUNCH_WAIT_S,
        clock: Callable[[], int] = lambda: time_ns() // 1_000_000,
    ) -> None:
        self._settings, self._mark = settings, mark
        self._wire = SkyPilotWire(endpoint, secret, settings.timeout_s)
        self._launch_wait_s = launch_wait_s
        self._clock = clock
        self._lock, self._looking = Lock(), Lock()
        self._tracking = ClusterTracker()
        self._offers: list[SkyPilotOffer] = []
        self._offers_ms: int | None = None
        self._lacking_ms: dict[str, int] = {}

    def offers(self) -> list[Offer]:
        """Return each accelerator in each region, but those of which SkyPilot found none a moment ago."""
        known = self._known_offers()
        with self._lock:
            lacking = exhausted(self._lacking_ms, self._clock(), LACKING_MS)
        return [each.offer for each in known if each.offer.id not in lacking]

    def start(self, offer: str, rental: Rental) -> None:
        cluster = cluster_name(self._mark, rental.name)
        wanted = next((each for each in self._known_offers() if each.offer.id == offer), None)
        if wanted is None:
            raise NoCapacity(f"SkyPilot's catalog has no offer {printable(offer)} for this pool")
        if self._exists(cluster):
            return  # a second launch would run a second worker there
        request = self._wire.submit("launch", **launch(cluster, rental, wanted, self._settings))
        with self._lock:
            self._tracking.note_start(cluster, rental.name, offer, request)
        try:
            self._wire.outcome("launch", request, wait_s=self._launch_wait_s)
        except SkyPilotFailure as failure:
            with self._lock:
                self._tracking.note_refusal(cluster, request, failure.said)
            with suppress(Unreachable):  # the next look finds what is left, too
                self._remove(cluster)
            raise _why_not(failure) from None
        except Unreachable as error:  # it was taken: the list will show it
            log.warning("%s", error.message)

    def stop(self, instance: str) -> None:
        if not self._rental(instance):
            return
        with self._lock:
            is_due = self._tracking.note_stop(instance, self._clock())
        # A launch that has not begun is no cluster yet, and would begin after the cluster's removal.
        begun = [each for each in self._wire.requests(cluster_name=instance) if _is_launch(each, instance)]
        if begun:
            self._wire.submit("api/cancel", request_ids=[each.request_id for each in begun])
        if is_due:
            self._remove(instance)

    def list(self) -> list[Instance]:
        """Look once: the launches that are under way, all clusters, and questions about those of which it does not say enough."""
        with self._looking:
            # In this order, no cluster is in neither of them: a launch that ends in between has made its cluster.
            launches = [each for each in self._wire.requests() if each.name == LAUNCH and each.is_active]
            clusters = self._clusters()
            with self._lock:
                self._tracking.see(
                    [(name, each) for each in launches if (name := self._rental(each.cluster_name or ""))],
                    [(name, each) for each in clusters if (name := self._rental(each.name))],
                    self._clock(),
                )
                questions = self._tracking.questions(self._clock())
            self._ask_all(questions)
            with self._lock:
                return self._tracking.instances()

    def logs(self, instance: str) -> str:
        """Return what happened to a cluster, then the last lines of its making, and of what the worker printed."""
        if not self._rental(instance):
            raise NotFound(f"the pool has no instance {printable(instance)}")
        events = [f"SkyPilot: {printable(each.reason)}" for each in self._events(cluster_name=instance)[-EVENTS_MAX:]]
        made = self._text("provision_logs", instance, {})[-MADE_LINES:]
        printed = self._text("logs", instance, {"job_id": None, "follow": False, "tail": LOG_LINES})
        return "\n".join([*events, *made, *printed])

    def _rental(self, cluster: str) -> str:
        return rental_of_cluster(self._mark, cluster)

    def _exists(self, cluster: str) -> bool:
        if any(_is_launch(each, cluster) for each in self._wire.requests(cluster_name=cluster)):
            return True
        return any(each.name == cluster for each in self._clusters([cluster]))

    def _clusters(self, names: "list[str] | None" = None) -> "list[ClusterRecord]":
        return self._wire.ask(
            list[ClusterRecord],
            "status",
            cluster_names=names,
            refresh="NONE",  # SkyPilot's server itself asks the clouds every minute
            all_users=True,
            include_credentials=False,
            include_handle=False,
            summary_response=True,
        )

    def _remove(self, cluster: str) -> None:
        """Ask for a cluster's removal. Whether that succeeds is seen at the next look."""
        request = self._wire.submit("down", cluster_name=cluster)
        with self._lock:
            self._tracking.note_removal(cluster, request, self._clock())

    def _ask_all(self, questions: "list[ClusterQuestion]") -> None:
        """Ask as much as the time of a look and SkyPilot's answers allow. What is not asked now stays as it was known."""
        until_ms, failures = self._clock() + LOOK_MS_MAX, 0
        for question in questions:
            if self._clock() > until_ms or failures > FAILURES_MAX:
                return
            try:
                self._ask(question)
            except GanglineError as error:
                failures += 1
                log.warning("cluster %s: %s; asking again", question.cluster, error.message)

    def _ask(self, question: ClusterQuestion) -> None:
        match question:
            case AskLaunch(cluster, request):
                self._ask_launch(cluster, request)
            case AskEnd(cluster, cluster_hash):
                events = self._events(cluster_hash=cluster_hash)
                with self._lock:
                    self._tracking.note_end(cluster, events, self._clock())
            case AskRemoval(cluster, request):
                self._ask_removal(cluster, request)
            case RemoveCluster(cluster):
                self._remove(cluster)

    def _ask_launch(self, cluster: str, request: str) -> None:
        named = {"request_ids": [request]} if request else {"cluster_name": cluster, "all_status": True}
        found = newest_launch(self._wire.requests(**named), cluster, LAUNCH)
        failed = lacking = ""
        if found is not None and not found.is_active:
            try:
                self._wire.outcome("launch", found.request_id)
            except SkyPilotFailure as failure:
                failed, lacking = failure.said, failure.type if failure.type in LACKING else ""
        with self._lock:
            offer = self._tracking.note_launch(cluster, found, failed, self._clock())
            if offer and lacking:
                self._lacking_ms[offer] = self._clock()

    def _ask_removal(self, cluster: str, request: str) -> None:
        said = ""
        try:
            if self._wire.outcome("down", request, wait_s=self._launch_wait_s) is None:
                return  # it is under way
        except SkyPilotFailure as failure:
            said = "" if failure.type == ABSENT else failure.said
        with self._lock:
            self._tracking.note_not_removed(cluster, said)

    def _events(self, **of: str) -> "list[ClusterEvent]":
        try:
            return self._wire.ask(
                list[ClusterEvent],
                "cluster_events",
                event_type="STATUS_CHANGE",
                include_timestamps=True,
                limit=EVENTS_MAX,
                **of,
            )
        except SkyPilotFailure:  # SkyPilot has forgotten it
            return []

    def _text(self, what: str, cluster: str, fields: dict[str, object]) -> "list[str]":
        """Return the last lines of a log that SkyPilot streams; none where there is none yet."""
        try:
            answer = self._wire.send(
                "POST",
                f"/{what}",
                params={"follow": False, "tail": LOG_LINES},
                json=asked(cluster_name=cluster, **fields),
                timeout=LOG_WAIT_S,
            )
        except (NotFound, Unreachable):
            return []
        return COLOURS.sub("", answer.body.decode(errors="replace")).splitlines()[-LOG_LINES:]

    def _known_offers(self) -> "list[SkyPilotOffer]":
        """Return the offers of the settings, of a catalog that was read lately."""
        now_ms = self._clock()
        if self._offers_ms is None or not 0 <= now_ms - self._offers_ms < CATALOG_MS:
            try:
                catalog = self._catalog()
            except Unreachable:
                if self._offers_ms is None:
                    raise
                return self._offers
            self._offers, self._offers_ms = offers_of_catalog(catalog, self._settings, now_ms), now_ms
        return self._offers

    def _catalog(self) -> "dict[str, list[CatalogRow]]":
        enabled = self._wire.enabled_clouds()
        missing = [cloud for cloud in self._settings.clouds if cloud not in enabled]
        if missing or not enabled:
            raise BadInput(
                f"SkyPilot's server has no account of {', '.join(missing) or 'any cloud'}",
                hint=f"`sky check` there enables clouds; it has {', '.join(sorted(enabled)) or 'none'}",
            )
        try:
            return self._wire.ask(
                dict[str, list[CatalogRow]],
                "list_accelerators",
                name_filter=name_filter(self._settings.accelerators),
                case_sensitive=False,
                quantity_filter=self._settings.gpus,
                clouds=list(self._settings.clouds or enabled),
                all_regions=True,
            )
        except SkyPilotFailure as failure:
            raise Unreachable(f"SkyPilot cannot read its catalog: {failure.said}") from None


def _is_launch(request: ApiRequest, cluster: str) -> bool:
    return request.name == LAUNCH and request.cluster_name == cluster and request.is_active


def _why_not(failure: SkyPilotFailure) -> GanglineError:
    """Return why there will be no node, after a launch that failed at once."""
    if failure.type in LACKING:
        return NoCapacity(f"SkyPilot found no machine: {failure.said}")
    if failure.type in REFUSED:
        return Denied(
            f"SkyPilot does not permit this node: {failure.said}", hint="`sky check` shows what its server may use"
        )
    if failure.type in PASSING:
        return Unreachable(failure.message)
    return BadInput(f"SkyPilot refuses the node: {failure.said}", hint="check the pool's settings")
