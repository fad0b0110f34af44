"""Check whether this server is ready: each check runs in a thread of its own, so that one that hangs delays no answer."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

from gangline.core.errors import GanglineError
from gangline.core.operating.readiness import (
    CheckName,
    ReadinessCheck,
    ReadinessView,
    check_migrations,
    check_stopping,
    readiness,
)
from gangline.service.deployment import Deployment

ANSWERS_S = 2.0
"""The database and the object store must answer within this many seconds."""
PROBE_KEY = "ready"
"""A key that no object has: asking for it shows that the object store answers."""
RunCheck = Callable[[], ReadinessCheck]


class Readiness:
    """The readiness of one process. A check that has not returned yet is not begun again."""

    def __init__(self, deployment: Deployment, *, answers_s: float = ANSWERS_S) -> None:
        self.stopping = threading.Event()
        self._answers_s = answers_s
        self._checks: Sequence[tuple[CheckName, RunCheck]] = (
            ("database", partial(_check_database, deployment)),
            ("migrations", partial(_check_schema, deployment)),
            ("objects", partial(_check_objects, deployment)),
        )
        self._threads = ThreadPoolExecutor(len(self._checks), thread_name_prefix="readiness")
        self._running = dict[CheckName, Future[ReadinessCheck]]()
        self._turn = threading.Lock()

    def check(self) -> ReadinessView:
        """Return the result of every check, after at most `answers_s` seconds."""
        stopping = check_stopping(self.stopping.is_set())
        with self._turn:
            asked: dict[CheckName, Future[ReadinessCheck]] = {
                name: self._ask(name, check) for name, check in self._checks
            }
            wait(asked.values(), timeout=self._answers_s)
        return readiness([stopping, *(self._result(name, answer) for name, answer in asked.items())])

    def _ask(self, name: CheckName, check: RunCheck) -> Future[ReadinessCheck]:
        running = self._running.get(name)
        if running is None or running.done():
            running = self._running[name] = self._threads.submit(check)
        return running

    def _result(self, name: CheckName, answer: Future[ReadinessCheck]) -> ReadinessCheck:
        if not answer.done():
            because = f"{CALLED[name]} did not answer within {self._answers_s:g} s"
            return ReadinessCheck(name=name, ok=False, because=because)
        error = answer.exception()
        if error is None:
            return answer.result()
        says = error.message if isinstance(error, GanglineError) else f"{CALLED[name]} failed: {type(error).__name__}"
        return ReadinessCheck(name=name, ok=False, because=says)


CALLED: dict[CheckName, str] = {
    "database": "the database",
    "migrations": "the database's schema",
    "objects": "the object store",
}


def _check_database(deployment: Deployment) -> ReadinessCheck:
    deployment.store.load("ticks")
    return ReadinessCheck(name="database", ok=True)


def _check_schema(deployment: Deployment) -> ReadinessCheck:
    return check_migrations(*deployment.store.schemas())


def _check_objects(deployment: Deployment) -> ReadinessCheck:
    deployment.objects.stat(PROBE_KEY)
    return ReadinessCheck(name="objects", ok=True)
