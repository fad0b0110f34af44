"""The `kubernetes` pool driver: what a cluster is asked, and when."""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

from gangline.adapters.pools.kubernetes.manifest import POOL_LABEL, pod_of
from gangline.adapters.pools.kubernetes.seen import SeenPods
from gangline.adapters.pools.kubernetes.settings import NAME, WORD, KubernetesCluster, KubernetesSettings
from gangline.adapters.pools.kubernetes.template import CONTAINER, read_template
from gangline.adapters.pools.kubernetes.wire import KubernetesApi
from gangline.core.display import printable
from gangline.core.errors import BadInput, GanglineError, NotFound
from gangline.ports.pool import Instance, NoCapacity, Offer, Rental

OLDEST = (1, 25)
"""The first version that checks the fields of a Pod strictly."""
LOG_LINES, LOG_CHARACTERS = 200, 64 << 10
REMOVED_MAX = 20
"""How many Pods are deleted in one look."""
NAMESPACE_HINT = "the Pods of Gangline should have a namespace of their own"
log = logging.getLogger("gangline.fleet.kubernetes")


class KubernetesPool:
    """Creates Pods in a namespace. `mark` is the value of their label `gangline/pool`: no other pool or server may have the same one.

    `surroundings` is the server's environment, which may say where the cluster is; `clock` returns the time in milliseconds. Raises
    `BadInput` if the owner's Pod template is none, and `UserError` if it cannot be read. Several threads may call this.
    """

    def __init__(
        self,
        *,
        settings: KubernetesSettings,
        cluster: KubernetesCluster,
        mark: str,
        surroundings: Mapping[str, str],
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        if not re.fullmatch(WORD, mark):
            raise BadInput(f"{printable(mark) or 'an empty text'} cannot be the value of a label of Kubernetes")
        self._settings, self._mark, self._clock = settings, mark, clock
        self._template = read_template(cluster.template) if cluster.template else None
        self._pod = lambda rental: pod_of(rental, settings, mark, self._template)
        self._pod(Rental(name="any", server="", token=""))  # settings and template must not contradict each other
        self._api = KubernetesApi(cluster, surroundings)
        self._seen, self._checking, self._checked = SeenPods(), Lock(), False

    def offers(self) -> list[Offer]:
        """Return the one offer of the pool. Before the first time, the API server is asked whether it would create such a Pod."""
        with self._checking:
            if not self._checked:
                self._check()
                self._checked = True
        return [self._offer]

    def start(self, offer: str, rental: Rental) -> None:
        if not re.fullmatch(NAME, rental.name):
            raise BadInput(f"{printable(rental.name)} cannot be the name of a Pod")
        if offer != self._offer.id:
            raise NoCapacity(f"this pool has no offer {printable(offer)}")
        if self._seen.has(rental.name):
            return
        self._check_room()
        if not self._api.create(self._pod(rental)) and not self._is_ours(rental.name):
            raise BadInput(f"the namespace has a Pod {rental.name} that is not of this pool", hint=NAMESPACE_HINT)
        self._seen.create(rental.name)
        log.info("node %s is a Pod", rental.name)

    def stop(self, instance: str) -> None:
        """Delete a Pod, which has the time of its grace. It is listed as running until its machine says that it has ended."""
        if not re.fullmatch(NAME, instance) or not self._is_ours(instance):
            return
        if not self._seen.stop(instance):  # noted first: a request whose answer is lost may have been carried out
            self._api.delete(instance)

    def list(self) -> list[Instance]:
        """Return all Pods. Those that had no machine for too long are deleted now, and so are those that ended long ago."""
        listed, now_ms = self._api.list(f"{POOL_LABEL}={self._mark}"), self._clock()
        instances = self._seen.note(listed, now_ms)
        waiting = self._waiting_too_long(now_ms)
        for name in [*waiting, *self._seen.left(now_ms)][:REMOVED_MAX]:
            try:
                self._api.delete(name)
            except GanglineError as error:
                log.warning("Pod %s cannot be deleted: %s", name, error.message)
                break
            if name in waiting:
                self._seen.give_up(name, now_ms)
        return instances

    def logs(self, instance: str) -> str:
        """Return the last lines that the worker printed. Raises `NotFound` if the pool has no such Pod, and `BadInput` while it has printed
        none."""
        if not re.fullmatch(NAME, instance) or not self._is_ours(instance):
            raise NotFound(f"the pool has no Pod {printable(instance)}", hint="the log of a Pod goes with it")
        return self._api.log(instance, CONTAINER, LOG_LINES)[-LOG_CHARACTERS:]

    @property
    def _offer(self) -> Offer:
        settings = self._settings
        return Offer(
            id="-".join(re.findall(r"[a-z0-9]+", settings.gpu.lower())) or "pod",
            gpu=settings.gpu,
            gpu_memory_gb=settings.gpu_memory_gb,
            slots=max(1, settings.gpus),
            trust=settings.trust,
            price_micro_usd_per_hour=round((settings.price_usd_per_hour or 0) * 1e6),
            price_known=settings.price_usd_per_hour is not None,
        )

    def _check(self) -> None:
        """Raise what the API server would say to a Pod of this pool. A quota that is used up now is no fault of the pool."""
        version = self._api.version().numbers
        if version < OLDEST:
            found, oldest = ".".join(map(str, version)), ".".join(map(str, OLDEST))
            raise BadInput(f"the cluster has Kubernetes {found}", hint=f"{oldest} is the oldest that Gangline uses")
        try:
            self._api.create(self._pod(Rental(name="gangline-check", server="", token="")), only_check=True)
        except NoCapacity:
            pass
        except BadInput as error:
            if "does not support dry run" not in error.message:
                raise

    def _check_room(self) -> None:
        """Raise `NoCapacity` if a Pod found no machine: another would wait in vain, too, and another pool may have one."""
        if self._waiting_too_long(self._clock()) or self._seen.has_given_up():
            raise NoCapacity(f"a Pod of this pool found no machine in {self._settings.queue_minutes_max:g} minutes")

    def _waiting_too_long(self, now_ms: int) -> Sequence[str]:
        return self._seen.waiting_since(now_ms - round(self._settings.queue_minutes_max * 60_000))

    def _is_ours(self, name: str) -> bool:
        """Return whether it is a Pod of this pool. Others of the namespace are never deleted."""
        return self._seen.has(name) or self._api.labels_of(name).get(POOL_LABEL) == self._mark
