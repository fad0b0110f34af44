"""Bring a run's inputs and its newest good checkpoint to the node."""

from pathlib import Path

from gangline.core.errors import Damaged, GanglineError, NotFound, Unreachable
from gangline.core.files import File
from gangline.core.retry import retry_s
from gangline.ports.server import Assignment, Reject, Resumable, Stored
from gangline.worker.edges import NEWS, Activity, Clock, Edges, wait
from gangline.worker.move import AttemptFailed, Move, download_all, held

BASE = "base/"


def fetch_inputs(edges: Edges, clock: Clock, assignment: Assignment, directory: Path) -> Activity[None]:
    """Photos go into the run's directory and vanish with it; a base's files into the node's cache, to stay."""
    try:
        trains = assignment.spec["of"] if assignment.kind == "sample" else assignment.spec
        base = trains["base"]
        if base["source"] == "hub":
            yield from _fetch_hub_base(edges, clock, base["repo"], base["revision"], directory)
        moves = {_place(edges, directory, stored): stored for stored in assignment.inputs}
        missing = [_move(stored, place) for place, stored in moves.items() if not edges.host.has(place)]
        yield from download_all(edges, clock, assignment.hold, missing, durable=True)
    except GanglineError as error:
        raise AttemptFailed("download failed", error.message) from None
    for stored in assignment.inputs:
        if stored.path.startswith(BASE):
            edges.host.place_cached(directory, stored.path, stored.sha256)


def fetch_checkpoint(edges: Edges, clock: Clock, assignment: Assignment, directory: Path) -> Activity[int]:
    """The step to go on from: that of the newest checkpoint which is not damaged, else 0. Damaged ones are rejected."""
    for resumable in assignment.resume:
        folder = edges.host.place_checkpoint(directory, resumable.step, resumable.manifest)
        try:
            moves = [_move(stored, folder / stored.path) for stored in resumable.files]
            yield from download_all(edges, clock, assignment.hold, moves, durable=False)
        except (Damaged, NotFound) as error:
            edges.host.discard(folder)
            yield from _reject(edges, clock, assignment, resumable, error.message)
        except GanglineError as error:
            raise AttemptFailed("download failed", error.message) from None
        else:
            return resumable.step
    return 0


def _fetch_hub_base(edges: Edges, clock: Clock, repo: str, commit: str, directory: Path) -> Activity[None]:
    tries = 0
    while True:
        task = edges.transfer.fetch_base(repo, commit)
        while not task.done:
            yield NEWS
        if task.error is None:
            edges.host.place_base(directory, task.result)
            return
        if not isinstance(task.error, Unreachable):
            raise task.error
        yield from wait(clock, retry_s(tries, edges.rng))
        tries += 1


def _reject(edges: Edges, clock: Clock, assignment: Assignment, resumable: Resumable, reason: str) -> Activity[None]:
    request = Reject(checkpoint=resumable.id, because=f"the checkpoint of step {resumable.step} is damaged: {reason}")
    yield from held(edges, clock, lambda: edges.server.reject(assignment.hold, request))


def _place(edges: Edges, directory: Path, stored: Stored) -> Path:
    if stored.path.startswith(BASE):
        return edges.host.cached(stored.sha256)
    return edges.host.input_path(directory, stored.path)


def _move(stored: Stored, place: Path) -> Move:
    return Move(File(path=stored.path, bytes=stored.bytes, sha256=stored.sha256), place, stored.key)
