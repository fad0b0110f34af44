"""Download a run's inputs and its newest undamaged checkpoint to the node."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from gangline.core.display import as_words
from gangline.core.errors import Damaged, GanglineError, NotFound, Unreachable
from gangline.core.files import UNPLACEABLE, File
from gangline.core.jobs.retry import retry_s
from gangline.core.models.bases import ROLES, ModelRole, is_weights_of, parts_left_out
from gangline.core.runs.contract import PREPARED
from gangline.core.runs.prepared import may_stay, prepared_kind
from gangline.core.specs.fields import HubBase, parse_base
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.spec import trained
from gangline.ports.server import Assignment, Reject, Resumable, Stored
from gangline.ports.transfer import Task
from gangline.worker.edges import NEWS, Activity, Clock, Edges, wait
from gangline.worker.move import AttemptFailed, Move, download_all, held, move_all

T = TypeVar("T")

MODELS = ("base/", "vae/")
TRIES_MAX = 3


@dataclass(frozen=True, slots=True)
class Input:
    """A file of a run, by its path below `inputs/`. A `cached` one stays on the node after the run.

    It comes from the object store, or from `hub`; `name` is its key or path there.
    """

    file: File
    name: str
    cached: bool
    hub: HubBase | None = None


def placing(fetching: Activity[T]) -> Activity[T]:
    """Blame the inputs, not the machine, for an error that no disk could avoid: raise `AttemptFailed` for it."""
    try:
        return (yield from fetching)
    except OSError as error:
        if error.errno not in UNPLACEABLE:
            raise
        raise AttemptFailed("bad data", f"the inputs cannot be stored on this node: {error}") from None
    except RecursionError as error:
        raise AttemptFailed("bad data", f"the inputs are nested too deeply: {error}") from None


def fetch_inputs(edges: Edges, clock: Clock, assignment: Assignment, directory: Path) -> Activity[tuple[str, ...]]:
    """Download the inputs, except for the parts of the base that the run can do without. Return the names of those."""
    parts = parts_left_out(_model(assignment), {prepared_kind(offered.key) for offered in assignment.prepared})
    inputs = yield from _inputs(edges, clock, assignment)
    wanted = [each for each in inputs if not _is_of(each, parts)]
    missing = parts if len(wanted) < len(inputs) else ()
    yield from _bring(edges, clock, assignment, directory, wanted)
    for offered in assignment.prepared:
        edges.host.place_prepared(directory, offered.key, offered.manifest)
    edges.host.leave_out(directory, missing)
    return missing


def fetch_left_out(
    edges: Edges, clock: Clock, assignment: Assignment, directory: Path, parts: tuple[str, ...]
) -> Activity[None]:
    """Download the parts that were left out: the trainer needs them after all."""
    inputs = yield from _inputs(edges, clock, assignment)
    yield from _bring(edges, clock, assignment, directory, [each for each in inputs if _is_of(each, parts)])
    edges.host.leave_out(directory, ())


def _inputs(edges: Edges, clock: Clock, assignment: Assignment) -> Activity[list[Input]]:
    found = [_of_store(each, each.path, cached=each.path.startswith(MODELS)) for each in assignment.inputs]
    for offered in assignment.prepared:
        folder, stays = f"{PREPARED}/{offered.key}", may_stay(offered.key)
        found += [_of_store(each, f"{folder}/{each.path}", cached=stays) for each in offered.files]
    for role in ROLES:
        said = _model(assignment).get(role)
        model = parse_base(said) if said else None
        mirrored = any(each.path.startswith(f"{role}/") for each in assignment.inputs)
        if isinstance(model, HubBase) and not mirrored:
            found += yield from _of_hub(edges, clock, model, role)
    return found


def _model(assignment: Assignment) -> dict[str, Any]:
    """Return the fields that name the models: for a job that renders, those of the training job."""
    return trained(assignment.spec)


def _of_store(stored: Stored, path: str, *, cached: bool) -> Input:
    return Input(File(path=path, bytes=stored.bytes, sha256=stored.sha256), stored.key, cached)


def _of_hub(edges: Edges, clock: Clock, model: HubBase, role: ModelRole) -> Activity[list[Input]]:
    """List the files of a hub model, retrying while the hub does not answer."""
    tries = 0
    while True:
        task = edges.transfer.list_hub(model.repo, model.revision, role)
        while not task.done:
            yield NEWS
        if task.error is None:
            return [Input(replace(file, path=f"{role}/{file.path}"), file.path, True, model) for file in task.result]
        if not isinstance(task.error, Unreachable):
            raise _failed(task.error)
        yield from wait(clock, retry_s(tries, edges.rng))
        tries += 1


def _is_of(each: Input, parts: tuple[str, ...]) -> bool:
    """Return whether the file has weights of one of these parts of the base."""
    role, _, path = each.file.path.partition("/")
    return role == "base" and is_weights_of(path, parts)


def _bring(edges: Edges, clock: Clock, assignment: Assignment, directory: Path, inputs: list[Input]) -> Activity[None]:
    """Download files and place them, cached ones by way of the cache.

    If another worker of this machine evicted one meanwhile, download it again.
    """
    lacking = [each for each in inputs if not _is_placed(edges, directory, each)]
    for _ in range(TRIES_MAX):
        if not lacking:
            break
        edges.host.make_room(sum(each.file.bytes for each in lacking if each.cached))
        yield from _download(edges, clock, assignment, directory, lacking)
        lacking = [each for each in lacking if each.cached and not _is_placed(edges, directory, each)]
    if lacking:
        raise AttemptFailed("download failed", f"{lacking[0].file.path} could not be kept in this node's cache")
    if base := _model(assignment).get("base"):
        of_base = tuple(each.file for each in inputs if each.file.path.startswith("base/"))
        edges.host.remember_base(parse_base(base).id, of_base)


def _is_placed(edges: Edges, directory: Path, each: Input) -> bool:
    return each.cached and edges.host.place_cached(directory, each.file.path, each.file)


def _download(
    edges: Edges, clock: Clock, assignment: Assignment, directory: Path, inputs: list[Input]
) -> Activity[None]:
    try:
        for hub in dict.fromkeys(each.hub for each in inputs):
            found = (_move(edges, directory, each) for each in inputs if each.hub == hub)
            # inputs with the same bytes are downloaded once
            moves = list({move.local: move for move in found}.values())
            if hub is None:
                yield from download_all(edges, clock, assignment.hold, moves, durable=True)
            else:
                yield from _download_from_hub(edges, clock, hub, moves)
    except GanglineError as error:
        raise _failed(error) from None


def _move(edges: Edges, directory: Path, each: Input) -> Move:
    at = edges.host.cached(each.file.sha256) if each.cached else edges.host.input_path(directory, each.file.path)
    return Move(each.file, at, each.name)


def _download_from_hub(edges: Edges, clock: Clock, hub: HubBase, moves: list[Move]) -> Activity[None]:
    """Download files from the hub. Every try asks for the URL again, as it expires."""

    def ask(now: list[Move]) -> Activity[tuple[File, ...]]:
        yield from ()
        return tuple(replace(move.file, path=move.name) for move in now)

    def start(file: File, move: Move) -> Task[None]:
        return edges.transfer.download_from_hub(hub.repo, hub.revision, file, move.local)

    yield from move_all(clock, edges.rng, moves, ask, start, tries_of_an_answer=1)


def _failed(error: Exception) -> Exception:
    return AttemptFailed("download failed", error.message) if isinstance(error, GanglineError) else error


def fetch_checkpoint(edges: Edges, clock: Clock, assignment: Assignment, directory: Path) -> Activity[int]:
    """Download the newest checkpoint that is not damaged and return its step; 0 if there is none. Damaged ones are rejected."""
    for resumable in assignment.resume:
        try:
            yield from _fetch_resumable(edges, clock, assignment, directory, resumable)
        except (Damaged, NotFound) as error:
            yield from _reject(edges, clock, assignment, resumable, error.message)
        except GanglineError as error:
            raise AttemptFailed("download failed", error.message) from None
        else:
            return resumable.step
    return 0


def _fetch_resumable(
    edges: Edges, clock: Clock, assignment: Assignment, directory: Path, resumable: Resumable
) -> Activity[None]:
    """Download a checkpoint into memory or, if that does not take it after all, to disk; a command reads it there in any case."""
    size = sum(stored.bytes for stored in resumable.files)
    for on_disk in (False, True) if KINDS[assignment.kind].ours else (True,):
        folder = edges.host.place_checkpoint(directory, resumable.step, resumable.manifest, size, on_disk=on_disk)
        moves = [_of_checkpoint(stored, folder / stored.path) for stored in resumable.files]
        try:
            yield from download_all(edges, clock, assignment.hold, moves, durable=False)
        except (Damaged, NotFound):
            edges.host.discard(folder)
            raise
        except OSError:
            if folder.is_relative_to(directory):
                raise
            edges.host.discard(folder)
        else:
            return


def _reject(edges: Edges, clock: Clock, assignment: Assignment, resumable: Resumable, reason: str) -> Activity[None]:
    because = as_words(f"the checkpoint of step {resumable.step} is damaged: {reason}")
    request = Reject(checkpoint=resumable.id, because=because)
    yield from held(edges, clock, lambda: edges.server.reject(assignment.hold, request))


def _of_checkpoint(stored: Stored, place: Path) -> Move:
    return Move(File(path=stored.path, bytes=stored.bytes, sha256=stored.sha256), place, stored.key)
