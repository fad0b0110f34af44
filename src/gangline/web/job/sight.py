"""Read what the screen of a job shows, and follow it while it is open."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from markupsafe import Markup

from gangline.core.charts.job_timeline import draw_timeline_parts
from gangline.core.job import ENDED
from gangline.core.jobs.story.held_out import HeldOutChange
from gangline.core.jobs.story.views import TimelineView
from gangline.core.runs.contract import SAMPLES
from gangline.core.runs.kept import CheckpointView
from gangline.core.views import ArtifactView, EventView, JobView
from gangline.service.deployment import Deployment
from gangline.service.jobs import query
from gangline.service.jobs.placing.queue import place_of
from gangline.service.jobs.query import LogExtent
from gangline.service.jobs.story.held_out import reported_held_out
from gangline.service.jobs.story.timeline import timeline_of
from gangline.service.pictures.last import pictures_seen
from gangline.service.pictures.listing import last_step
from gangline.service.pictures.together import PlacedPicture, pictures_of_jobs
from gangline.service.retention import storage
from gangline.web.frame.rendering import block
from gangline.web.job.offered import OfferedAction, offered_actions
from gangline.web.live.feed import Changes
from gangline.web.live.screens import Fragments

EVENTS_SHOWN = 200
"""The newest events, which an open screen follows. All of them have a page of their own."""
PICTURES_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGlance:
    """What a heartbeat may change of a job. `logs` are those of its attempts, and `actions` what a member may do with it. `place` is
    that of a queued one among the jobs of all projects; None while it waits for no node."""

    job: JobView
    checkpoints: Sequence[CheckpointView]
    logs: Sequence[LogExtent]
    actions: Sequence[OfferedAction]
    place: int | None
    now_ms: int
    held_out: HeldOutChange | None

    @property
    def has_ended(self) -> bool:
        return self.job.state in ENDED

    @property
    def nodes(self) -> dict[str, str]:
        """The names of the nodes that worked on it, by their ids."""
        return {each.node: each.node_name for each in self.job.attempts}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSight(JobGlance):
    """A job with all that its screen shows. `events` are the newest first, of `events_in_all`; `files` are its results without the sample
    pictures, of which `pictures` are the newest."""

    timeline: TimelineView
    events: Sequence[EventView]
    events_in_all: int
    files: Sequence[ArtifactView]
    pictures: Sequence[PlacedPicture]
    pictures_in_all: int

    @property
    def drawing(self) -> Markup:
        """The timeline as SVG."""
        return drawn_timeline(self.timeline)


def drawn_timeline(timeline: TimelineView, span_ms: tuple[int, int] | None = None) -> Markup:
    """Return a timeline, or a span of it, as SVG, and below it its legend. All text in it is escaped by what draws it."""
    title = f"Timeline of {timeline.name or timeline.job}"
    parts = draw_timeline_parts(timeline.segments, timeline.marks, title, span_ms)
    legend = "".join(f"<div>{''.join(entries)}</div>" for entries in parts.legend if entries)
    return Markup(f'<div class="drawn">{parts.plot}{parts.lanes}<div class="legends">{legend}</div></div>')  # noqa: S704


def glance_at(deployment: Deployment, project: str, job_id: str, now_ms: int) -> JobGlance:
    """Return what a heartbeat may change. Raise `NotFound`."""
    job = query.job(deployment, project, job_id, now_ms)
    row = query.owned(deployment, project, job_id)
    kept = storage.checkpoints(deployment, row)
    return JobGlance(
        job=job,
        checkpoints=kept,
        logs=query.log_extents(deployment, job_id),
        actions=offered_actions(job, keeps=bool(kept)),
        place=place_of(deployment, row, now_ms),
        now_ms=now_ms,
        held_out=reported_held_out(deployment, row),
    )


def look_at(deployment: Deployment, project: str, job_id: str, now_ms: int) -> JobSight:
    """Return a job as its screen shows it. Raise `NotFound`."""
    glance = glance_at(deployment, project, job_id, now_ms)
    events = query.events_after(deployment, project, job_id, 0)[::-1]
    artifacts = query.artifacts_of(deployment, project, job_id, now_ms)
    pictures = _pictures(deployment, project, job_id)
    return JobSight(
        **{field.name: getattr(glance, field.name) for field in fields(JobGlance)},
        timeline=timeline_of(deployment, project, job_id, now_ms),
        events=events[:EVENTS_SHOWN],
        events_in_all=len(events),
        files=[each for each in artifacts if not each.path.startswith(f"{SAMPLES}/")],
        pictures=pictures[:PICTURES_SHOWN],
        pictures_in_all=len(pictures),
    )


def _pictures(deployment: Deployment, project: str, job_id: str) -> list[PlacedPicture]:
    """Return the pictures of a job, those of its newest step first and in the order of its prompts."""
    last = last_step(query.owned(deployment, project, job_id))
    found = sorted(pictures_of_jobs(deployment, {job_id: last}, None), key=lambda each: each.place.rank)
    return sorted(found, key=lambda each: (each.place.step, each.place.of == "result"), reverse=True)


OFTEN = ("head", "actions", "progress", "attempts", "pulse")
"""What changes with a heartbeat."""
SELDOM = ("timeline", "events", "checkpoints", "files", "pictures")
"""What changes with an event, and with time alone."""


class JobScreen:
    """A job as all who look at it with one role see it."""

    def __init__(self, project: str, job: str, *, may: bool) -> None:
        self.project: str | None = project
        self._of = project
        self._job = job
        self._may = may
        self._seen: object = None
        self._fragments = Fragments()

    def is_about(self, changes: Changes) -> bool:
        return self._job in changes.jobs

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        pictures, self._seen = self._seen, pictures_seen(deployment, self._job)  # they come without an event
        often = changes is not None and not changes.listed and pictures == self._seen
        seen = (glance_at if often else look_at)(deployment, self._of, self._job, deployment.store.now_ms())
        return self._fragments.changed({name: self._part(name, seen) for name in (OFTEN if often else OFTEN + SELDOM)})

    def whole(self) -> str:
        return self._fragments.whole()

    def _part(self, name: str, seen: JobGlance) -> str:
        return block("job/parts.html", name, seen=seen, may=self._may, oob=True)
