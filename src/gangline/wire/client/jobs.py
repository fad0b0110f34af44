# Made of src/gangline/wire/aio/jobs.py by `python -m tests.wire.sync_client`: change that file, and make this one again.
"""The client's requests about jobs: submit, list, steer, wait."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from random import Random
from typing import Any, Literal
from uuid import uuid4

from gangline.core.display import is_text
from gangline.core.errors import Changed, JobFailed, Unreachable, WaitTimeout
from gangline.core.fleet.explained import JobOffers
from gangline.core.job import ENDED, JobState
from gangline.core.jobs.clone import CloneView
from gangline.core.jobs.naming import LAST, SHOWN_MAX, is_job_id, the_one
from gangline.core.jobs.placement import PlacementView
from gangline.core.jobs.retry import retry_s
from gangline.core.jobs.story.views import TimelineView
from gangline.core.parsing import to_json
from gangline.core.reports.view import ReportView
from gangline.core.runs.extension import ExtensionSchedule, ExtensionView
from gangline.core.runs.kept import RemovalView
from gangline.core.specs.spec import Spec
from gangline.core.views import BatchLineView, EventView, JobPage, JobSummary, JobView, ProgressView
from gangline.wire.client.calls import Calls
from gangline.wire.client.runs import EVENT_KINDS
from gangline.wire.client.stream import follow
from gangline.wire.client.waits import sleep
from gangline.wire.http import REPORT_TIMEOUT, parse_answer, parse_lines, path_of, tag_of
from gangline.wire.stream import Waiting, moment_after, seconds_left
from gangline.wire.waiting import AwaitedState, has_reached

PAGE_MAX = 200
"""A server lists at most this many jobs at once."""


class JobCalls(Calls):
    """Jobs of the project.

    Methods that change a job take the `version` of the `JobView` that the caller has decided on. They raise `Changed`, and change nothing,
    if the job's state, reason or labels have changed since.
    """

    def submit(
        self, spec: Spec | Mapping[str, Any], *, name: str = "", labels: Mapping[str, str] | None = None, key: str = ""
    ) -> JobView:
        """Submit a job. A spec may be JSON values whose `photos` say where they are (docs/http.md); the server then downloads them.

        `key` makes a retry safe after a lost answer: the same key returns the same job. Raise `InvalidSpec`, which has all `problems`,
        for settings that cannot be used.
        """
        body = {"spec": _as_json(spec), "name": name} | ({"labels": dict(labels)} if labels else {})
        return self._http.read(JobView, "POST", "/v1/jobs", body, key=key or uuid4().hex)

    def submit_batch(self, specs: Iterable[Spec | Mapping[str, Any]], *, key: str = "") -> list[BatchLineView]:
        """Submit many jobs in one request; return a job or a problem for each, in order. `key` makes a retry safe after a lost answer.

        Each is a spec, or a mapping with a `spec` and, if wanted, the `name` and the `labels` of its job.
        """
        lines = (json.dumps(_as_submission(spec), default=dict) for spec in specs)
        return parse_lines(BatchLineView, self._http.send_lines("/v1/jobs/batch", lines, key=key or uuid4().hex))

    def place(self, spec: Spec) -> PlacementView:
        """Return where a job could run if it was submitted now. Its files need not be uploaded, and nothing changes."""
        return self._http.read(PlacementView, "POST", "/v1/plans", {"spec": to_json(spec)})

    def get(self, job: str, *, waiting: Waiting | None = None) -> JobView:
        """Return a job, given its id. Raise `NotFound`. With `waiting`, ask again while the server does not answer; call it each time."""
        if waiting is None:
            return self._http.read(JobView, "GET", path_of("jobs", job))
        return self._get_again(job, None, waiting)

    def _get_again(self, job: str, until_s: float | None, waiting: Waiting | None) -> JobView:
        """Return a job as soon as the server answers. Raise `Unreachable` if it has not by then."""
        tries, rng = 0, Random()  # noqa: S311 - for jitter
        while True:
            try:
                return self.get(job)
            except Unreachable as error:
                if not seconds_left(until_s, 1.0):
                    raise
                if waiting:
                    waiting(error)
            sleep(seconds_left(until_s, retry_s(tries, rng)))
            tries += 1

    def find(self, given: str) -> str:
        """Return the id of a job, given its id, the first or last characters of it (at least four), its name, or `last` for the newest.

        Raise `NotFound`, or `BadInput` if several jobs match.
        """
        if is_job_id(given):
            return given
        if not is_text(given):  # no job has such a name
            return the_one(given, [])
        asked = self.list(limit=1) if given == LAST else self.list(named=given, limit=SHOWN_MAX)
        found = [job for job in asked]
        return found[0].id if given == LAST and found else the_one(given, [(job.id, job.name) for job in found])

    def wait(
        self,
        job: str,
        *,
        until: AwaitedState = "ended",
        timeout_s: float | None = None,
        check: bool = False,
        waiting: Waiting | None = None,
        progress: Callable[[ProgressView], object] | None = None,
    ) -> JobView:
        """Wait until a job has ended or, with `until`, has reached a state, and return it as it is then: it may have left that state again.

        A job that ends in another state than the awaited one is returned as well: nothing more can happen to it. With `check`, raise
        `JobFailed` instead where it has failed or was canceled, and that was not awaited. Raise `WaitTimeout` after `timeout_s` seconds;
        the job then continues. If the server does not answer, ask again and call `waiting` each time; raise `Unreachable` if it does not
        answer at first. `progress` is called with what the job is doing meanwhile.
        """
        until_s = moment_after(timeout_s)
        found = self.get(job)
        if not has_reached(found.state, until):
            reached = self._comes_to(job, until, until_s, waiting, progress)
            try:
                found = self._get_again(job, until_s, waiting)
            except Unreachable as error:
                raise WaitTimeout(
                    f"{job} is not known to be {until} after {timeout_s:g} s: {error.message}",
                    hint="the job continues; wait again",
                ) from None
            if not reached and not has_reached(found.state, until):
                raise WaitTimeout(
                    f"{job} is still {found.state} after {timeout_s:g} s: {found.because}",
                    hint="the job continues; wait again, or cancel it",
                )
        if check and found.state in ENDED - {"succeeded", until}:
            raise JobFailed(f"{job} {found.state}: {found.because}", hint=f"`gangline logs {job}` shows its output")
        return found

    def _comes_to(
        self,
        job: str,
        until: AwaitedState,
        until_s: float | None,
        waiting: Waiting | None,
        progress: Callable[[ProgressView], object] | None,
    ) -> bool:
        """Return whether a job was in the state, or in its last one, before the time limit: a later look may find it in the next state."""
        path = path_of("jobs", job, "events", "stream")
        left_s = None if until_s is None else seconds_left(until_s, float("inf"))
        following = follow(self._http, path, "", EVENT_KINDS, timeout_s=left_s, waiting=waiting, reached=True)
        with closing(following) as messages:
            for message in messages:
                if isinstance(message, EventView):
                    continue
                if has_reached(message.state, until):
                    return True
                if progress is not None:
                    progress(message)
        return False

    def label(self, job: str, changes: Mapping[str, str | None], *, version: int | None = None) -> JobView:
        """Set these labels of a job; None removes one."""
        path, tag = path_of("jobs", job, "labels"), self._tag(job, version)
        return self._http.read(JobView, "PATCH", path, {"labels": dict(changes)}, tag=tag)

    def cancel(self, job: str, *, version: int | None = None) -> JobView:
        """Cancel a job. Its checkpoints stay until they expire."""
        return self._steer(job, "cancel", version)

    def pause(self, job: str, *, version: int | None = None) -> JobView:
        """Have a job saved and paused, until it is resumed."""
        return self._steer(job, "pause", version)

    def resume(self, job: str, *, version: int | None = None) -> JobView:
        """Let a paused job wait for a node again."""
        return self._steer(job, "resume", version)

    def save(self, job: str, *, version: int | None = None) -> JobView:
        """Have a running job save a checkpoint now. `asked` of the answer has `save` until it is there."""
        return self._steer(job, "save", version)

    def sample(self, job: str, *, version: int | None = None) -> JobView:
        """Have pictures rendered of what a job has now. They come among its artifacts, as those of its rhythm."""
        return self._steer(job, "sample", version)

    def finish(self, job: str, *, version: int | None = None) -> JobView:
        """Have a job end now, with the result of the steps that it has taken."""
        return self._steer(job, "finish", version)

    def _steer(self, job: str, act: str, version: int | None) -> JobView:
        return self._http.read(JobView, "POST", path_of("jobs", job, act), tag=self._tag(job, version))

    def _tag(self, job: str, version: int | None) -> str:
        """Return the entity tag of a job that has this version still; "" for any version. Raise `Changed` if it has another."""
        if version is None:
            return ""
        answer = self._http.ask("GET", path_of("jobs", job))
        if parse_answer(JobView, answer).version != version:
            raise Changed(f"{job} has changed since it was read", hint="read it again, and decide again")
        return tag_of(answer)

    def retry(self, job: str, *, from_checkpoint: bool = False, from_step: int | None = None, key: str = "") -> JobView:
        """Submit the same spec as a new job; with `from_checkpoint`, from the old job's newest one, which is kept while it is needed, and
        with `from_step` from that of this step. `key` makes a retry safe after a lost answer, as with `submit`."""
        params = {"from_checkpoint": "true"} if from_checkpoint else {}
        params |= {"from_step": str(from_step)} if from_step is not None else {}
        path = path_of("jobs", job, "retry")
        return self._http.read(JobView, "POST", path, params=params, key=key or uuid4().hex)

    def extension(self, job: str, steps: int, schedule: ExtensionSchedule = "stretch") -> ExtensionView:
        """Return what `extend` would do: where the new job continues, and its learning rate with each schedule. Nothing changes."""
        params = {"steps": str(steps), "schedule": schedule}
        return self._http.read(ExtensionView, "GET", path_of("jobs", job, "extension"), params=params)

    def extend(self, job: str, steps: int, schedule: ExtensionSchedule = "stretch", *, key: str = "") -> JobView:
        """Submit a new job that continues one that has ended to `steps` steps in all, from its newest checkpoint.

        `key` makes a retry safe after a lost answer, as with `submit`.
        """
        params, path = {"steps": str(steps), "schedule": schedule}, path_of("jobs", job, "extend")
        return self._http.read(JobView, "POST", path, params=params, key=key or uuid4().hex)

    def clone(self, job: str, changes: Mapping[str, Any] | None = None, *, name: str = "", key: str = "") -> JobView:
        """Submit a new job with the photos, the base and the labels of this one, and with these changes to its settings.

        A setting of a table is dotted: `needs.pool`. `key` makes a retry safe after a lost answer, as with `submit`.
        """
        body, path = {"changes": dict(changes or {}), "name": name}, path_of("jobs", job, "clone")
        return self._http.read(JobView, "POST", path, body, key=key or uuid4().hex)

    def plan_clone(self, job: str, changes: Mapping[str, Any] | None = None, *, name: str = "") -> CloneView:
        """Return what `clone` would submit, and what differs. Nothing changes."""
        body = {"changes": dict(changes or {}), "name": name}
        return self._http.read(CloneView, "POST", path_of("jobs", job, "clone", "plan"), body)

    def offers(self, job: str) -> JobOffers:
        """Return the offers of all pools for a job, those first on which a step is expected to cost least."""
        return self._http.read(JobOffers, "GET", path_of("jobs", job, "offers"))

    def timeline(self, job: str) -> TimelineView:
        """Return what happened to a job: the phases of its whole time, marked moments, and its cost over time. Raise `NotFound`."""
        return self._http.read(TimelineView, "GET", path_of("jobs", job, "timeline"))

    def removal(self, job: str) -> RemovalView:
        """Return what `remove` would delete."""
        return self._http.read(RemovalView, "GET", path_of("jobs", job, "removal"))

    def remove(self, job: str, *, version: int | None = None) -> RemovalView:
        """Delete a job that has ended, with its weights and logs and the photos that no other job uses. Its bills stay."""
        tag = self._tag(job, version)
        return self._http.read(RemovalView, "DELETE", path_of("jobs", job), tag=tag)

    def report(
        self,
        *,
        state: Sequence[JobState] = (),
        kind: str = "",
        owner: str = "",
        label: Sequence[str] = (),
        since: str = "",
        until: str = "",
        named: str = "",
        search: str = "",
        include: Sequence[Literal["jobs", "attempts"]] = (),
    ) -> ReportView:
        """Return what the jobs that meet every filter took: time, interruptions, dollars, waste by cause. The filters are those of `list`.

        `include` asks for a line for each job (`lines`) or each attempt (`bars`). Raise `BadInput` for more than 10,000 jobs.
        """
        params = _filters(state, kind, owner, label, since, until, named, search) | {"include": [*include]}
        return self._http.read(ReportView, "GET", "/v1/report", params=params, timeout=REPORT_TIMEOUT)

    def list(
        self,
        *,
        state: Sequence[JobState] = (),
        kind: str = "",
        owner: str = "",
        label: Sequence[str] = (),
        since: str = "",
        until: str = "",
        named: str = "",
        search: str = "",
        limit: int | None = None,
    ) -> Iterator[JobSummary]:
        """Yield the jobs that meet every filter, newest first, at most `limit` of them. Pages are read as they are needed.

        `named` is a name, an id, or what an id begins or ends with; `search` is a text that the name, the id, a prompt, the base or a label
        of a job contains, in capitals or not; `owner` is a key's id or name, or `me`; `label` has texts `KEY=VALUE`
        or `KEY`; `since` and `until` are times of submission as RFC 3339 has them.
        """
        params = _filters(state, kind, owner, label, since, until, named, search)
        left = limit
        while left is None or left > 0:
            params["limit"] = PAGE_MAX if left is None else min(left, PAGE_MAX)
            page = self._http.read(JobPage, "GET", "/v1/jobs", params=params)
            for job in page.jobs:
                yield job
            left = None if left is None else left - len(page.jobs)
            if page.next is None:
                return
            params["cursor"] = page.next


def _filters(
    state: Sequence[JobState],
    kind: str,
    owner: str,
    label: Sequence[str],
    since: str,
    until: str,
    named: str,
    search: str,
) -> dict[str, Any]:
    """Return the parameters of those filters that are given."""
    given = {"state": [*state], "kind": kind, "owner": owner, "label": [*label], "since": since, "until": until}
    return {name: value for name, value in (given | {"named": named, "search": search}).items() if value}


def _as_submission(given: Spec | Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of a batch. No spec has a setting `spec`."""
    if isinstance(given, Mapping) and "spec" in given:
        return dict(given) | {"spec": _as_json(given["spec"])}
    return {"spec": _as_json(given)}


def _as_json(spec: Spec | Mapping[str, Any]) -> dict[str, Any]:
    return dict(spec) if isinstance(spec, Mapping) else to_json(spec)
