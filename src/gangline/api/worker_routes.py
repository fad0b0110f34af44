"""What nodes ask. A write about an attempt needs the node's token and the lease's fencing number, both."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from gangline.api.answers.problems import accepted
from gangline.api.lanes import WorkerRoute, json_response
from gangline.api.who import At, HeldLease, Holder, JoinsWith, NodeId, Now
from gangline.ports.server import (
    Assignment,
    Commit,
    Committed,
    Done,
    Downloads,
    Grants,
    Join,
    Joined,
    Keep,
    Log,
    NoWork,
    Outcome,
    Reject,
    Show,
    Uploads,
    Urls,
)
from gangline.service.content import prepared
from gangline.service.fleet import nodes
from gangline.service.jobs import checkpoint, claim, finish, renew, samples

router = APIRouter(prefix="/v1", tags=["workers"], route_class=WorkerRoute)


@router.post("/nodes", status_code=201)
def join(deployment: At, now: Now, token: JoinsWith, request: Join) -> Joined:
    """429 where the join token lets no more nodes in now."""
    return nodes.join_pool(deployment, request, token.pool, now, join_token=token.id)


@router.delete("/nodes/self", status_code=204)
def leave(deployment: At, now: Now, node: NodeId) -> None:
    nodes.leave_pool(deployment, node, now)


@router.post("/claims", response_model=NoWork, responses={201: {"model": Assignment}})
def claim_job(deployment: At, now: Now, node: NodeId) -> Response:
    """201 and a job, or 200 and the reason why there is none."""
    answer = claim.claim(deployment, node, now)
    return json_response(answer, 201 if isinstance(answer, Assignment) else 200)


@router.post("/attempts/{attempt}/uploads")
def uploads(deployment: At, now: Now, node: Holder, hold: HeldLease, request: Uploads) -> Grants:
    return accepted(checkpoint.sign_uploads(deployment, node, hold, request, now))


@router.post("/attempts/{attempt}/downloads")
def downloads(deployment: At, now: Now, node: Holder, hold: HeldLease, request: Downloads) -> Urls:
    return accepted(checkpoint.sign_downloads(deployment, node, hold, request, now))


@router.post("/attempts/{attempt}/checkpoints")
def commit(deployment: At, now: Now, node: Holder, hold: HeldLease, request: Commit) -> Committed:
    return accepted(checkpoint.commit_checkpoint(deployment, node, hold, request, now))


@router.post("/attempts/{attempt}/samples")
def show(deployment: At, now: Now, node: Holder, hold: HeldLease, request: Show) -> Done:
    return accepted(samples.keep_samples(deployment, node, hold, request, now))


@router.post("/attempts/{attempt}/rejections")
def reject(deployment: At, now: Now, node: Holder, hold: HeldLease, request: Reject) -> Done:
    return accepted(checkpoint.reject_damaged(deployment, node, hold, request, now))


@router.post("/attempts/{attempt}/prepared")
def keep_prepared(deployment: At, now: Now, node: Holder, hold: HeldLease, request: Keep) -> Done:
    """422 where a file is not in the object store, or it is nothing that jobs like this one use."""
    return accepted(prepared.record_prepared(deployment, node, hold, request, now))


@router.post("/attempts/{attempt}/logs")
def log(deployment: At, node: Holder, hold: HeldLease, request: Log) -> Done:
    return accepted(renew.append_log(deployment, node, hold, request))


@router.post("/attempts/{attempt}/end")
def end(
    deployment: At, now: Now, node: Holder, hold: HeldLease, outcome: Annotated[Outcome, Body(discriminator="outcome")]
) -> Done:
    return accepted(finish.finish(deployment, node, hold, outcome, now))
