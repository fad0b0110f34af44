"""Define the answers of the API about the queue."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job that waits. `place` is its place in the order in which nodes would take jobs now, over all projects, from 1 on; null while it
    waits for its photos or its experiment. `because` says why it waits, `helps` what would bring it a node sooner."""

    place: int | None
    job: str
    name: str
    project: str
    kind: str
    priority: int
    queued_ms: int
    waited_s: float
    because: str
    helps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGroup:
    """Jobs of a project that ask the same of a node, and so wait for the same reason: `jobs` of them, the first since `queued_ms`.

    `needs` says in words what they ask; it is empty if any node will do. Those that had an attempt before are `interrupted`. `job` is one
    of them.
    """

    job: str
    project: str
    kind: str
    needs: str
    interrupted: bool
    jobs: int
    queued_ms: int
    waited_s: float
    because: str
    helps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """The jobs that wait: `jobs` in all, `without_place` of them not for a node yet, but for their photos or their experiment.

    `groups` are the 100 largest, the largest first; `ungrouped` counts the jobs of the others. `page` has jobs in the order in which nodes
    would take them: interrupted ones first, then project by project, beginning with the one that has used least of its share, then by
    priority and age; last come jobs without a place. Each claim changes what a project has used, so places change. `next` is the
    `after` of the following page, null on the last one.
    """

    jobs: int
    without_place: int
    groups: tuple[QueueGroup, ...]
    ungrouped: int
    page: tuple[QueuedJob, ...]
    next: int | None
