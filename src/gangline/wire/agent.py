"""The `server` port over HTTP: a worker's requests, made with the token of its node."""

from dataclasses import asdict
from typing import Any, TypeVar

import httpx

from gangline.core.errors import GanglineError
from gangline.core.files import Beginnings
from gangline.core.fleet.gauges import Gauges
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
from gangline.wire.client.http import Http
from gangline.wire.http import parse_answer
from gangline.wire.problem import Refusal

T = TypeVar("T")


class HttpServer:
    def __init__(self, server: str, join_token: str, client: httpx.Client | None = None) -> None:
        self._http = Http(server, join_token, client)
        self._join_token = self._http.token

    def join(self, request: Join) -> Joined:
        self._http.token = self._join_token
        joined = parse_answer(Joined, self._http.ask("POST", "/v1/nodes", request))
        self._http.token = joined.token
        return joined

    def leave(self) -> None:
        self._http.ask("DELETE", "/v1/nodes/self")

    def notice(self, request: Notice) -> None:
        self._http.ask("POST", "/v1/nodes/self/notice", request)

    def claim(self, gauges: Gauges | None = None) -> Assignment | NoWork:
        answer = self._http.ask("POST", "/v1/claims", {"gauges": asdict(gauges)} if gauges else None)
        return parse_answer(Assignment if answer.status_code == 201 else NoWork, answer)

    def beat(self, hold: Hold, beat: Beat) -> Beaten | Stale:
        return _never_refused(self._of_attempt(hold, "heartbeats", beat, Beaten))

    def uploads(self, hold: Hold, request: Uploads) -> Grants | Stale:
        return _never_refused(self._of_attempt(hold, "uploads", request, Grants))

    def begin(self, hold: Hold, request: Beginnings) -> Grants | Stale:
        return _never_refused(self._of_attempt(hold, "beginnings", request, Grants))

    def downloads(self, hold: Hold, request: Downloads) -> Urls | Stale | Refused:
        return self._of_attempt(hold, "downloads", request, Urls)

    def commit(self, hold: Hold, request: Commit) -> Committed | Stale | Refused:
        return self._of_attempt(hold, "checkpoints", request, Committed)

    def show(self, hold: Hold, request: Show) -> Done | Stale | Refused:
        return self._of_attempt(hold, "samples", request, Done)

    def reject(self, hold: Hold, request: Reject) -> Done | Stale:
        return _never_refused(self._of_attempt(hold, "rejections", request, Done))

    def keep_prepared(self, hold: Hold, request: Keep) -> Done | Stale | Refused:
        return self._of_attempt(hold, "prepared", request, Done)

    def log(self, hold: Hold, request: Log) -> Done | Stale:
        return _never_refused(self._of_attempt(hold, "logs", request, Done))

    def metrics(self, hold: Hold, request: Points) -> Done | Stale:
        return _never_refused(self._of_attempt(hold, "metrics", request, Done))

    def finish(self, hold: Hold, outcome: Outcome) -> Done | Stale | Refused:
        return self._of_attempt(hold, "end", outcome, Done)

    def _of_attempt(self, hold: Hold, what: str, body: Any, kind: type[T]) -> T | Stale | Refused:
        fence = {"rank": hold.rank, "fencing": hold.fencing}
        try:
            return parse_answer(kind, self._http.ask("POST", f"/v1/attempts/{hold.attempt}/{what}", body, params=fence))
        except Refusal as refusal:
            return refusal.value


def _never_refused(answer: T | Stale | Refused) -> T | Stale:
    if isinstance(answer, Refused):
        raise GanglineError(answer.because)
    return answer
