"""Run the real service, which is killed and restarted, and simulate each node's link to it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

from gangline.core.errors import GanglineError, Unreachable
from gangline.core.files import Beginnings
from gangline.core.fleet.gauges import Gauges
from gangline.core.policy import Policy
from gangline.ports.hub import HubModel
from gangline.ports.server import (
    Assignment,
    Beat,
    Beaten,
    Commit,
    Committed,
    Done,
    Downloads,
    Grants,
    Hold,
    Join,
    Joined,
    Keep,
    Log,
    Notice,
    NoWork,
    Outcome,
    Points,
    Refused,
    Reject,
    Show,
    Stale,
    Uploads,
    Urls,
)
from gangline.service.access.access import DEFAULT_PROJECT, identify
from gangline.service.access.projects import create_project
from gangline.service.content import prepared
from gangline.service.controller import Controller
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.fleet import nodes
from gangline.service.jobs import checkpoint, claim, finish, metrics, renew, samples
from gangline.service.recent import Recent
from gangline.sim.checks import Checks
from gangline.sim.faults import Faults
from gangline.sim.objects import SimObjects
from gangline.sim.store import ServerKilled, SimStore
from gangline.sim.world import World

TIMED_OUT = "the request timed out"


class NoHub:
    """A hub that is never reachable: no simulated base is on a hub."""

    def pin(self, repo: str, revision: str) -> str:
        raise Unreachable("simulations have no hub")

    def look(self, repo: str, revision: str) -> HubModel:
        raise Unreachable("simulations have no hub")

    def read(self, repo: str, commit: str, path: str, part: range | None = None) -> bytes:
        raise Unreachable("simulations have no hub")


class SimService:
    """The server, of which one process at a time runs over the store; `ask` handles a request that reached it."""

    def __init__(
        self,
        world: World,
        store: SimStore,
        objects: SimObjects,
        faults: Faults,
        checks: Checks,
        policy: Policy,
        pools: Mapping[str, RentedPool],
    ) -> None:
        self._world = world
        self._store = store
        self._objects = objects
        self._faults = faults
        self._checks = checks
        self._policy = policy
        self._pools = pools
        self._ids = 0
        self._rng = world.rng("service")
        self._ticking = False
        self._lives = 0
        self.doing: list[str] = []
        self.start()
        create_project(self.deployment, DEFAULT_PROJECT)

    @property
    def life(self) -> int | None:
        """Return the number of the running process; None while there is none."""
        return self._lives if self._up else None

    def start(self) -> None:
        """Start a new process, which knows only what is in the store."""
        self._up = True
        self._lives += 1
        self.deployment = Deployment(
            store=self._store,
            objects=self._objects,
            hub=NoHub(),
            policy=self._policy,
            new_id=self._new_id,
            new_secret=lambda kind: f"gl_{kind}_{self._new_id('secret')}",
            up_since_ms=self._world.now_ms,
            pools=self._pools,
        )
        self._controller = Controller(self.deployment)
        self._tick_later(self._lives)

    def stop_for(self, seconds: float) -> None:
        """Kill the process, and start a new one after `seconds`."""
        if self._up:
            self._up = False
            self._store.kill_in = None
            self._world.after(seconds, "server starts", self.start)

    def _new_id(self, kind: str) -> str:
        self._ids += 1
        return f"{kind}-{self._ids:07d}"

    def _tick_later(self, life: int) -> None:
        def tick() -> None:
            if self._up and life == self._lives:
                self._tick()
                self._tick_later(life)

        self._world.after(self._policy.tick_interval_s, "tick", tick)

    def _tick(self) -> None:
        if self._ticking:
            return
        self._ticking = True
        with suppress(GanglineError):  # as in the server's loop, the next tick retries
            self.run("tick", lambda: self._controller.tick(self._world.now_ms))
        self._ticking = False

    def run(self, what: str, act: Callable[[], Any]) -> Any:
        """Run `act` in the server process, which may be killed during it. Raises `Unreachable` if it is down or killed."""
        if not self._up:
            raise Unreachable("nobody answers")
        if self._faults.happens(self._rng, "api killed", self._faults.rates.api_killed):
            self._store.kill_in = self._rng.randrange(8)
        self.doing.append(what)
        try:
            return act()
        except ServerKilled:
            self.stop_for(self._rng.uniform(1, 120))
            raise Unreachable("the connection was closed") from None
        finally:
            self.doing.pop()

    def ask(self, token: str, what: str, hold: Hold | None, act: Callable[[Deployment, str, int], Any]) -> Any:
        """Handle a node's request as the HTTP routes do: check its token, then run the use case."""

        def answer() -> Any:
            # A request during another one goes to a second server, which shares no memory with the first.
            deployment = self.deployment if len(self.doing) == 1 else replace(self.deployment, recent=Recent())
            needed, now_ms = "join" if what == "join" else "node", self._world.now_ms
            identity = identify(deployment, token, needed, now_ms)
            return act(deployment, identity.node or identity.rental or "", now_ms)

        stale = self._checks.before(hold)
        try:
            return self.run(what, answer)
        finally:
            self._checks.after(what, stale)


class Link:
    """The `server` port of one node. Messages are lost, delayed and duplicated, and so reordered."""

    def __init__(
        self, world: World, service: SimService, faults: Faults, rng: Random, join_token: str, pool: str
    ) -> None:
        self._world = world
        self._service = service
        self._faults = faults
        self._rng = rng
        self._join_token = self._token = join_token
        self._pool = pool
        self._sent = 0

    def join(self, request: Join) -> Joined:
        self._token = self._join_token
        joined = self._send(
            "join",
            None,
            lambda deployment, rental, now: nodes.join_pool(deployment, request, self._pool, now, rental=rental),
        )
        self._token = joined.token
        return joined

    def leave(self) -> None:
        self._send("leave", None, nodes.leave_pool)

    def notice(self, request: Notice) -> None:
        self._send("notice", None, lambda deployment, node, now: nodes.heed_notice(deployment, node, request, now))

    def claim(self, gauges: Gauges | None = None) -> Assignment | NoWork:
        return self._send("claim", None, lambda deployment, node, now: claim.claim(deployment, node, now, gauges))

    def beat(self, hold: Hold, beat: Beat) -> Beaten | Stale:
        return self._send("beat", hold, lambda deployment, node, now: renew.renew(deployment, node, hold, beat, now))

    def uploads(self, hold: Hold, request: Uploads) -> Grants | Stale:
        return self._send(
            "uploads", hold, lambda deployment, node, now: checkpoint.sign_uploads(deployment, node, hold, request, now)
        )

    def begin(self, hold: Hold, request: Beginnings) -> Grants | Stale:
        return self._send(
            "begin",
            hold,
            lambda deployment, node, now: checkpoint.sign_beginnings(deployment, node, hold, request, now),
        )

    def downloads(self, hold: Hold, request: Downloads) -> Urls | Stale | Refused:
        return self._send(
            "downloads",
            hold,
            lambda deployment, node, now: checkpoint.sign_downloads(deployment, node, hold, request, now),
        )

    def commit(self, hold: Hold, request: Commit) -> Committed | Stale | Refused:
        return self._send(
            "commit",
            hold,
            lambda deployment, node, now: checkpoint.commit_checkpoint(deployment, node, hold, request, now),
        )

    def show(self, hold: Hold, request: Show) -> Done | Stale | Refused:
        return self._send(
            "show", hold, lambda deployment, node, now: samples.keep_samples(deployment, node, hold, request, now)
        )

    def reject(self, hold: Hold, request: Reject) -> Done | Stale:
        return self._send(
            "reject",
            hold,
            lambda deployment, node, now: checkpoint.reject_damaged(deployment, node, hold, request, now),
        )

    def keep_prepared(self, hold: Hold, request: Keep) -> Done | Stale | Refused:
        return self._send(
            "keep", hold, lambda deployment, node, now: prepared.record_prepared(deployment, node, hold, request, now)
        )

    def log(self, hold: Hold, request: Log) -> Done | Stale:
        return self._send(
            "log", hold, lambda deployment, node, now: renew.append_log(deployment, node, hold, request, now)
        )

    def metrics(self, hold: Hold, request: Points) -> Done | Stale:
        return self._send(
            "metrics", hold, lambda deployment, node, now: metrics.take(deployment, node, hold, request, now)
        )

    def finish(self, hold: Hold, outcome: Outcome) -> Done | Stale | Refused:
        return self._send(
            "finish", hold, lambda deployment, node, now: finish.finish(deployment, node, hold, outcome, now)
        )

    def _send(self, what: str, hold: Hold | None, act: Callable[[Deployment, str, int], Any]) -> Any:
        token, faults, rates = self._token, self._faults, self._faults.rates
        self._sent += 1
        if faults.happens(self._rng, "message lost", rates.request_lost):
            raise Unreachable(TIMED_OUT)
        if faults.happens(self._rng, "message delayed", rates.delayed):
            self._later(token, what, hold, act)
            raise Unreachable(TIMED_OUT)
        if faults.happens(self._rng, "message doubled", rates.doubled):
            self._later(token, what, hold, act)
        answer = self._service.ask(token, what, hold, act)
        if faults.happens(self._rng, "message lost", rates.answer_lost):
            raise Unreachable(TIMED_OUT)
        return answer

    def _later(self, token: str, what: str, hold: Hold | None, act: Callable[[Deployment, str, int], Any]) -> None:
        """Deliver a message late, when its sender has given up on it, and maybe after later messages."""
        sent = self._sent

        def arrive() -> None:
            if self._sent > sent:
                self._faults.struck["message reordered"] += 1
            with suppress(GanglineError):
                self._service.ask(token, what, hold, act)

        self._world.after(self._rng.uniform(0.1, 180), f"late {what}", arrive)
