"""Bounds of test messages, which users send when they like: how many are on their way, and how often one goes by mail."""

from collections.abc import Iterator
from contextlib import contextmanager

from gangline.core.errors import TooMany

TESTS_MAX = 8
PROJECT_TESTS_MAX = 2
"""The most test messages that are on their way at the same time, of this server and of one project."""


class NoticeTests:
    """The test messages of this server. It is used in one event loop alone."""

    def __init__(self) -> None:
        self._under_way = dict[str, str]()
        self._next_ms = dict[str, int]()

    @contextmanager
    def one(self, project: str, endpoint: str, *, now_ms: int = 0, interval_s: float = 0.0) -> Iterator[None]:
        """Hold a place while an endpoint is tested. With an interval, the next test of the project with one may begin after it. Raise
        `TooMany`."""
        if endpoint in self._under_way:
            raise TooMany("this endpoint is being tested already")
        if list(self._under_way.values()).count(project) >= PROJECT_TESTS_MAX:
            raise TooMany("other endpoints of this project are being tested at the moment")
        if len(self._under_way) >= TESTS_MAX:
            raise TooMany("the server is testing other endpoints at the moment")
        self._pace(project, now_ms, interval_s)
        self._under_way[endpoint] = project
        try:
            yield
        finally:
            del self._under_way[endpoint]

    def _pace(self, project: str, now_ms: int, interval_s: float) -> None:
        if not interval_s:
            return
        self._next_ms = {each: next_ms for each, next_ms in self._next_ms.items() if next_ms > now_ms}
        if project in self._next_ms:
            wait_s = (self._next_ms[project] - now_ms) / 1000
            raise TooMany(f"a project may test by mail once in {interval_s:g} s", wait_s=wait_s)
        self._next_ms[project] = now_ms + round(interval_s * 1000)
