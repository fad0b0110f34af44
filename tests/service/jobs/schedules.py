"""Two requests at one moment, on a real PostgreSQL, in every order in which their statements can meet.

Each request runs in a thread of its own and stops at a gate before every load, before the statements of every transaction, and
before its commit. A schedule opens the gates one after the other; the search goes through all schedules that differ in more than
the order of two loads. A request that waits for a row that the other has locked is passed over until it has the row."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from gangline.adapters.store.session import FAILED, Session

LOOK_S = 0.002
PATIENCE_S = 20


@dataclass(eq=False)
class Actor:
    """A request under way. `at_gate` is what it is about to do; None while it runs."""

    name: str
    act: Callable[[], Any]
    stage: "Stage"
    at_gate: str | None = None
    pid: int = 0
    ended: bool = False
    result: Any = None
    error: BaseException | None = None
    open: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, name=self.name)
        self.thread.start()

    def _run(self) -> None:
        self.stage.actors[threading.get_ident()] = self
        try:
            self.result = self.act()
        except BaseException as error:
            self.error = error
        with self.stage.changed:
            self.ended = True
            self.stage.changed.notify_all()

    def arrive(self, kind: str, pid: int) -> None:
        with self.stage.changed:
            self.at_gate, self.pid = kind, pid
            self.open.clear()
            self.stage.changed.notify_all()
        assert self.open.wait(PATIENCE_S), f"nobody opened the gate of {self.name}"

    def go(self) -> None:
        with self.stage.changed:
            self.at_gate = None
        self.open.set()


class Stage:
    """Where actors meet. `watch` asks the database who waits for a lock."""

    def __init__(self, url: str) -> None:
        self.changed = threading.Condition()
        self.actors: dict[int, Actor] = {}
        self._watch = psycopg.connect(url, autocommit=True)

    def close(self) -> None:
        self._watch.close()

    def settle(self, actors: list[Actor]) -> list[Actor]:
        """Those at a gate, once everybody is at one, has ended, or waits for a lock."""
        while True:
            with self.changed:
                running = [actor for actor in actors if not actor.ended and actor.at_gate is None]
                if not running:
                    break
                self.changed.wait(LOOK_S)
                running = [actor for actor in actors if not actor.ended and actor.at_gate is None]
            holders = [actor for actor in actors if actor.at_gate == "COMMIT"]
            if running and holders and all(self._is_blocked(actor) for actor in running):
                break
        return [actor for actor in actors if not actor.ended and actor.at_gate is not None]

    def _is_blocked(self, actor: Actor) -> bool:
        sql = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        return actor.pid != 0 and self._watch.execute(sql, (actor.pid,)).fetchone() is not None


@contextmanager
def gates(stage: Stage) -> Iterator[None]:
    """Every statement of an actor's passes a gate first."""
    run, transact = Session.run, Session.transact

    def gate(session: Session, kind: str) -> None:
        actor = stage.actors.get(threading.get_ident())
        if actor:
            actor.arrive(kind, session.pgconn.backend_pid)

    def gated_run(self: Session, name: str, values: Any) -> Any:
        gate(self, f"load {name}")
        return run(self, name, values)

    def gated_transact(self: Session, calls: Any) -> Any:
        if threading.get_ident() not in stage.actors:
            return transact(self, calls)
        gate(self, "write " + "+".join(name for name, *_ in calls))
        return transact(_InTwoTrips(self, lambda: gate(self, "COMMIT")), calls)  # type: ignore[arg-type]

    Session.run, Session.transact = gated_run, gated_transact
    try:
        yield
    finally:
        Session.run, Session.transact = run, transact


class _InTwoTrips:
    """A session whose transactions stop before their commit."""

    def __init__(self, session: Session, before_commit: Callable[[], None]) -> None:
        self._session = session
        self._before_commit = before_commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def send(self, *commands: Any) -> Any:
        if commands[-1] != b"COMMIT":
            return self._session.send(*commands)
        results = self._session.send(*commands[:-1])
        if any(result.status in FAILED for result in results):
            return results
        self._before_commit()
        return results + self._session.send(commands[-1])


def every_order(
    stage: Stage, scene: Callable[[], tuple[Callable[[], Any], Callable[[], Any]]]
) -> Iterator[list[Actor]]:
    """Play two requests in each order that matters; the two actors after each. `scene` sets a fresh one up."""
    plan: list[int] = []
    while True:
        actors = [Actor(name, act, stage) for name, act in zip("ab", scene(), strict=True)]
        choices, trace = _play(stage, actors, plan)
        for actor in actors:
            actor.thread.join(PATIENCE_S)
            if actor.error:
                raise AssertionError(f"in the order {trace}") from actor.error
        actors[0].stage.actors.clear()
        yield actors
        while choices and choices[-1][0] == choices[-1][1] - 1:
            choices.pop()
        if not choices:
            return
        plan = [chosen for chosen, _ in choices[:-1]] + [choices[-1][0] + 1]


def _play(stage: Stage, actors: list[Actor], plan: list[int]) -> tuple[list[tuple[int, int]], list[str]]:
    """Which of the possible steps was taken each time, of how many; and what was done, in order."""
    for actor in actors:
        actor.start()
    choices: list[tuple[int, int]] = []
    trace: list[str] = []
    last: tuple[Actor, str] | None = None
    while ready := stage.settle(actors):
        offered = [actor for actor in ready if not _is_same_as_before(actor, actors, last)] or ready
        chosen = plan[len(choices)] if len(choices) < len(plan) else 0
        choices.append((chosen, len(offered)))
        actor = offered[chosen]
        assert actor.at_gate is not None
        last = (actor, actor.at_gate)
        trace.append(f"{actor.name}: {actor.at_gate}")
        actor.go()
    assert all(actor.ended for actor in actors), f"both wait for each other: {trace}"
    return choices, trace


def _is_same_as_before(actor: Actor, actors: list[Actor], last: tuple[Actor, str] | None) -> bool:
    """Two loads of two requests, one after the other, in the order that was played with the first actor first."""
    if last is None or last[0] is actor or actor is not actors[0]:
        return False
    assert actor.at_gate is not None
    return last[1].startswith("load") and actor.at_gate.startswith("load")
