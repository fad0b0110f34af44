"""Copy results to where their owner wants them: a prefix of a bucket, or a repository of the hub, with keys that the operator configured.

This happens after the job's success, in the background, with as many retries as it takes: the target is compared with the results. Pictures
of the result that are rendered later follow. If a delivery fails, the job stays as it is, and its results stay here.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from gangline.core.display import as_words
from gangline.core.errors import BadInput, GanglineError, Unreachable
from gangline.core.jobs.retry import pause_s
from gangline.core.runs.retention import PREVIEWS
from gangline.core.views import DeliveryView
from gangline.ports.places.deliverer import Deliverer, Outgoing
from gangline.ports.store import Row, Write, guard, write
from gangline.service.attempts import event
from gangline.service.deployment import Deployment

log = logging.getLogger("gangline.deliveries")

TURN_S = 3600.0
"""Another server takes over a delivery that made no progress for this long. Copying one file takes less."""
PICTURES_S = 20.0


def check_target(deployment: Deployment, project: str, address: str) -> None:
    """Raise `BadInput` if results of this project may not be delivered to this address."""
    if not address:
        return
    if deployment.deliverer is None:
        raise BadInput(
            "this server delivers no results", hint="leave `deliver` out, and fetch them: gangline artifacts JOB"
        )
    deployment.deliverer.check(project, address)


def delivering(job: str, address: str) -> list[Write]:
    """Return the write that comes after the write of a job whose results are to be delivered."""
    return [write("add_delivery", job=job, address=address)] if address else []


def delivery_view(deployment: Deployment, job: str) -> DeliveryView | None:
    row = _find(deployment, job)
    if row is None:
        return None
    files = len(json.loads(row["done"]))
    return DeliveryView(to=row["address"], state=row["state"], because=row["because"], files=files)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    deployment: Deployment
    deliverer: Deliverer
    server: str
    row: Row

    @property
    def who(self) -> dict[str, object]:
        return {"job": self.row["job"], "server": self.server}


def deliver(deployment: Deployment, thread: int = 0) -> Iterator[None]:
    """Make all pending deliveries. This takes long, so it yields after each step: a caller may stop there."""
    if deployment.deliverer is None:
        return
    server = f"{deployment.server}/{thread}"
    for found in deployment.store.load("deliveries_to_make", now=deployment.store.now_ms(), server=server):
        taken = {
            "job": found["job"],
            "server": server,
            "now": deployment.store.now_ms(),
            "turn_ends_ms": _turn_ends_ms(deployment),
        }
        if not deployment.store.apply(guard("take_delivery", **taken)):
            continue
        row = _find(deployment, found["job"])
        if row is not None and row["state"] == "waiting":
            yield from _go_on(_Turn(deployment=deployment, deliverer=deployment.deliverer, server=server, row=row))


def _go_on(turn: _Turn) -> Iterator[None]:
    row = turn.row
    if row["job_state"] != "succeeded":
        _end(turn, "dropped", f"its job is {row['job_state']}")
        return
    try:
        yield from _copy(turn)
    except Unreachable as error:
        _again(turn, error.message)
    except GanglineError as error:
        _fail(turn, f"{error.message} ({error.hint})" if error.hint else error.message)
    except Exception:
        log.exception("the results of %s could not be delivered; trying again", row["job"])
        _again(turn, "an error occurred in this server, and its log says why")


def _again(turn: _Turn, because: str) -> None:
    """Schedule a retry; after `tries_max` tries, fail the delivery."""
    tries = (_find(turn.deployment, turn.row["job"]) or turn.row)["tries"] + 1
    if tries >= turn.deployment.fetching.tries_max:
        _fail(turn, f"{because}, in {tries} tries")
        return
    _end(turn, "waiting", because, tries=tries, wait_s=pause_s(tries))


def _copy(turn: _Turn) -> Iterator[None]:
    """Copy the files that the target lacks. Stop if another server has taken over."""
    deployment, job = turn.deployment, turn.row["job"]
    done: dict[str, str] = json.loads(turn.row["done"])
    files = {
        row["path"]: row for row in deployment.store.load("artifacts", job=job) if not row["path"].startswith(PREVIEWS)
    }
    missing = [_outgoing(deployment, row) for path, row in files.items() if done.get(path) != row["sha256"]]
    for sent in turn.deliverer.put(turn.row["project"], turn.row["address"], missing) if missing else ():
        done |= {file.path: file.sha256 for file in sent}
        progress = {"done": json.dumps(done), "turn_ends_ms": _turn_ends_ms(deployment)}
        if not deployment.store.apply(guard("advance_delivery", **turn.who, **progress)):
            return
        yield
    if deployment.store.load("open_samples", parent=job):
        _end(turn, "waiting", "", wait_s=PICTURES_S)
        return
    because = f"{len(done)} files are at {turn.row['address']}"
    deployment.store.apply(
        guard("end_delivery", **turn.who, state="delivered", because="", tries=0, not_before_ms=0),
        event(job, "delivered", because, deployment.store.now_ms()),
    )


def _outgoing(deployment: Deployment, row: Row) -> Outgoing:
    return Outgoing(
        path=row["path"], bytes=row["bytes"], sha256=row["sha256"], read=partial(deployment.objects.chunks, row["key"])
    )


def _fail(turn: _Turn, why: str) -> None:
    because = as_words(f"the results could not be delivered to {turn.row['address']}: {why}")
    turn.deployment.store.apply(
        guard("end_delivery", **turn.who, state="failed", because=because, tries=0, not_before_ms=0),
        event(turn.row["job"], "not delivered", because, turn.deployment.store.now_ms()),
    )


def _end(turn: _Turn, state: str, because: str, *, tries: int = 0, wait_s: float = 0.0) -> None:
    not_before_ms = turn.deployment.store.now_ms() + round(wait_s * 1000)
    end = {"state": state, "because": as_words(because), "tries": tries, "not_before_ms": not_before_ms}
    turn.deployment.store.apply(write("end_delivery", **turn.who, **end))


def _turn_ends_ms(deployment: Deployment) -> int:
    return deployment.store.now_ms() + round(TURN_S * 1000)


def _find(deployment: Deployment, job: str) -> Row | None:
    rows = deployment.store.load("delivery", job=job)
    return rows[0] if rows else None
