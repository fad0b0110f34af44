"""Call a pool's driver: at once, or in a thread of its own, so that a slow provider delays nobody's lease."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from gangline.core.errors import GanglineError, Unreachable
from gangline.ports.pool import Instance, MachineIdentity, Offer, Pool, Rental, WithIdentity, WithReallocation

log = logging.getLogger("gangline.fleet")
ABANDONED_MAX = 3
"""Threads of one driver that may hang at a time. Then its provider is not asked any more until one of them returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a driver said at one moment. `number` counts the looks of this process; a list is of instances as of `began_ms` or later.

    `lacks` says why its offers are not known, else it is empty: the nodes that are rented are tended all the same.
    """

    number: int
    began_ms: int
    offers: tuple[Offer, ...]
    instances: tuple[Instance, ...]
    lacks: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedStart:
    """A request for a node that the provider refused. `offer` is empty where a rental was to become the node on another machine."""

    node: str
    offer: str
    because: str


class Driving(Protocol):
    """A driver as the service calls it. No call waits for the provider, but of `AtOnce`."""

    @property
    def driver(self) -> Pool | None:
        """Return the driver, for what is asked of it directly; None if it could not be opened."""
        ...

    @property
    def has_news(self) -> bool:
        """Return whether there are refusals, or the first look, which nobody has seen."""
        ...

    def look(self, now_ms: int) -> Look | None:
        """Return the last look, and ask for another. None if there was none yet. Raise `Unreachable` if the last one failed."""
        ...

    def start(self, offer: str, rental: Rental) -> None:
        """Ask for a node. If the provider refuses it, `refusals` says so; otherwise a later look shows it."""
        ...

    def stop(self, instance: str) -> None:
        """Ask to stop an instance. The looks show whether it has ended; until then you call again."""
        ...

    def reallocate(self, node: str, instance: str, because: str) -> None:
        """Ask for another machine for an instance, which then is this node. If that fails, `refusals` says so; a look shows its new place.

        The driver must be one `WithReallocation`.
        """
        ...

    def identify(self, token: str) -> MachineIdentity:
        """Return which machine a token proves. Raise `Denied` if none, and `Unreachable` if that is not known yet: ask again.

        The driver must be one `WithIdentity`.
        """
        ...

    def refusals(self) -> list[RefusedStart]:
        """Return the requests that were refused since the last call."""
        ...

    def close(self) -> None:
        """Make no further call."""
        ...


class AtOnce:
    """Calls the driver in the thread that asks. For simulations and tests, whose providers answer at once."""

    def __init__(self, driver: Pool) -> None:
        self.driver = driver
        self._looks = 0
        self._refused: list[RefusedStart] = []

    @property
    def has_news(self) -> bool:
        return False

    def look(self, now_ms: int) -> Look | None:
        self._looks += 1
        return take_look(self.driver, self._looks, now_ms)

    def start(self, offer: str, rental: Rental) -> None:
        refused = request(self.driver, offer, rental)
        if refused:
            self._refused.append(refused)

    def stop(self, instance: str) -> None:
        self.driver.stop(instance)

    def reallocate(self, node: str, instance: str, because: str) -> None:
        refused = request_move(self.driver, node, instance, because)
        if refused:
            self._refused.append(refused)

    def identify(self, token: str) -> MachineIdentity:
        return identify_machine(self.driver, token, lambda: learn_to_identify(self.driver))

    def refusals(self) -> list[RefusedStart]:
        found, self._refused = self._refused, []
        return found

    def close(self) -> None: ...


def take_look(driver: Pool, number: int, now_ms: int) -> Look:
    """Raise `GanglineError` if the provider does not answer, or refuses us."""
    instances = tuple(driver.list())
    try:
        offers, lacks = tuple(driver.offers()), ""
    except GanglineError as error:
        offers, lacks = (), error.message
    return Look(number=number, began_ms=now_ms, offers=offers, instances=instances, lacks=lacks)


def request(driver: Pool, offer: str, rental: Rental) -> RefusedStart | None:
    """Ask for a node. None if it was rented, or may have been all the same: a look will show it."""
    try:
        driver.start(offer, rental)
    except Unreachable as error:
        log.warning("node %s may have been rented: %s", rental.name, error.message)
    except GanglineError as error:
        return RefusedStart(node=rental.name, offer=offer, because=error.message)
    return None


def request_move(driver: Pool, node: str, instance: str, because: str) -> RefusedStart | None:
    """Ask for another machine. Where it is not known whether it comes, none is expected: the instance is stopped in any case."""
    assert isinstance(driver, WithReallocation), "the caller has looked"
    try:
        driver.reallocate(instance, because)
    except GanglineError as error:
        return RefusedStart(node=node, offer="", because=error.message)
    return None


def identify_machine(driver: Pool, token: str, learn: Callable[[], None]) -> MachineIdentity:
    """Return which machine a token proves. If the driver cannot tell yet, let it learn, and leave it to the worker to ask again."""
    assert isinstance(driver, WithIdentity), "the caller has looked"
    try:
        return driver.identify(token)
    except Unreachable:
        learn()
        raise


def learn_to_identify(driver: Pool) -> None:
    """Let the driver fetch what it needs. `identify` says why that failed, and the pool counts as answering all the same."""
    assert isinstance(driver, WithIdentity), "the caller has looked"
    try:
        driver.learn_to_identify()
    except GanglineError as error:
        log.warning("%s", error.message)


@dataclass(slots=True)
class _Calls:
    """The calls of one thread. `began_s` is when the running one began (monotonic), None between two."""

    what: str = ""
    began_s: float | None = None
    abandoned: bool = False


@dataclass(slots=True)
class _State:
    orders: deque[tuple[str, Callable[[], RefusedStart | None]]] = field(default_factory=deque)
    wanted_ms: int | None = None
    looks: int = 0
    last: Look | None = None
    first_unseen: bool = False
    failed: GanglineError | None = None
    refused: list[RefusedStart] = field(default_factory=list)
    closed: bool = False


class OwnThread:
    """Calls the driver in a thread, one call at a time: requests first, then the look that was asked for.

    A call that takes longer than `limit_s` seconds is given up: its thread is left to itself, and another one takes over.
    """

    def __init__(self, name: str, driver: Pool, *, limit_s: float) -> None:
        self.driver = driver
        self._name = name
        self._limit_s = limit_s
        self._state = _State()
        self._changed = threading.Condition()
        self._hanging: list[_Calls] = []
        self._calls: _Calls | None = None

    @property
    def has_news(self) -> bool:
        with self._changed:
            return bool(self._state.refused) or self._state.first_unseen

    def look(self, now_ms: int) -> Look | None:
        with self._changed:
            self._state.first_unseen = False
            self._give_up_late()
            self._state.wanted_ms = now_ms
            self._wake()
            if self._state.failed:
                raise self._state.failed
            return self._state.last

    def start(self, offer: str, rental: Rental) -> None:
        self._order(f"start {rental.name}", lambda: request(self.driver, offer, rental))

    def stop(self, instance: str) -> None:
        self._order(f"stop {instance}", lambda: self.driver.stop(instance))

    def reallocate(self, node: str, instance: str, because: str) -> None:
        self._order(f"reallocate {instance}", lambda: request_move(self.driver, node, instance, because))

    def identify(self, token: str) -> MachineIdentity:
        return identify_machine(
            self.driver, token, lambda: self._order("identify machines", lambda: learn_to_identify(self.driver))
        )

    def refusals(self) -> list[RefusedStart]:
        with self._changed:
            found, self._state.refused = self._state.refused, []
            return found

    def close(self) -> None:
        with self._changed:
            self._state.closed = True
            self._changed.notify_all()

    def _order(self, what: str, act: Callable[[], RefusedStart | None]) -> None:
        with self._changed:
            if all(what != waiting for waiting, _ in self._state.orders):
                self._state.orders.append((what, act))
                self._wake()

    def _wake(self) -> None:
        """Let the thread see what is new. It begins with the first call: most servers of a deployment have no turn, and ask no provider."""
        if self._calls is None:
            self._begin()
        self._changed.notify_all()

    def _begin(self) -> None:
        if not self._state.closed:
            self._calls = calls = _Calls()
            threading.Thread(target=self._run, args=(calls,), name=f"pool {self._name}", daemon=True).start()

    def _give_up_late(self) -> None:
        """Leave a call that takes too long to its thread. A node that it was to start may be rented all the same: a look will show it."""
        self._hanging = [calls for calls in self._hanging if calls.began_s is not None]
        calls = self._calls
        if calls is None or calls.began_s is None or time.monotonic() - calls.began_s < self._limit_s:
            return
        self._state.failed = Unreachable(f"the driver did not answer within {self._limit_s:g} s: {calls.what}")
        if len(self._hanging) < ABANDONED_MAX:
            calls.abandoned = True
            self._hanging.append(calls)
            self._begin()

    def _run(self, calls: _Calls) -> None:
        while (call := self._next(calls)) is not None:
            what, act = call
            try:
                done = act()
            except GanglineError as error:
                done = error
            except Exception as error:
                log.exception("pool %s: %s failed", self._name, what)
                done = Unreachable(f"its driver failed: {type(error).__name__}")
            with self._changed:
                calls.began_s = None
                if not calls.abandoned:
                    self._note(what, done)

    def _next(self, calls: _Calls) -> tuple[str, Callable[[], Look | RefusedStart | None]] | None:
        """Wait for a call to make; None once this thread is to end."""
        with self._changed:
            state = self._state
            while not (calls.abandoned or state.closed):
                found = None
                if state.orders:
                    found = state.orders.popleft()
                elif state.wanted_ms is not None:
                    number, wanted_ms = state.looks + 1, state.wanted_ms
                    state.looks, state.wanted_ms = number, None
                    found = "list its instances", partial(take_look, self.driver, number, wanted_ms)
                if found:
                    calls.what, calls.began_s = found[0], time.monotonic()
                    return found
                self._changed.wait()
        return None

    def _note(self, what: str, done: Look | RefusedStart | GanglineError | None) -> None:
        match done:
            case Look():
                self._state.first_unseen = self._state.last is None
                self._state.last, self._state.failed = done, None
            case RefusedStart():
                self._state.refused.append(done)
            case GanglineError():
                self._state.failed = done
                log.warning("pool %s: %s: %s", self._name, what, done.message)
            case None:
                pass
