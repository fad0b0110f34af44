"""Routes for nodes. A write about an attempt needs both the node's token and the fencing number of the lease."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from gangline.api.answers.problems import accepted
from gangline.api.by_hand import AttemptRoutes
from gangline.api.lanes import HEARTBEATS, WORKERS, WorkerRoute, json_response
from gangline.api.who import HeldLease, Holder, JoinsWith, NodeId, Now, ThisDeployment
from gangline.core.files import Beginnings
from gangline.core.fleet.gauges import SentGauges
from gangline.ports.server import (
    Assignment,
    Beat,
    Beaten,
    Commit,
    Committed,
    Done,
    Downloads,
    Grants,
    Join,
    Joined,
    Keep,
    Log,
    Notice,
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
heartbeats, of_attempts = AttemptRoutes(HEARTBEATS), AttemptRoutes(WORKERS)


@heartbeats.post("heartbeats")
def beat(deployment: ThisDeployment, now: Now, node: Holder, hold: HeldLease, request: Beat) -> Beaten:
    """Renew the lease and report the attempt's progress. The answer says whether the node must save and release the job."""
    return accepted(renew.renew(deployment, node, hold, request, now))


@router.post("/nodes", status_code=201)
def join(deployment: ThisDeployment, now: Now, token: JoinsWith, request: Join) -> Joined:
    """Join a pool. 429 if the join token admits no more nodes now."""
    return nodes.join_pool(deployment, request, token.pool, now, join_token=token.id, rental=token.rental)


@router.delete("/nodes/self", status_code=204)
def leave(deployment: ThisDeployment, now: Now, node: NodeId) -> None:
    """Leave the pool. The jobs that the node still has return to the queue."""
    nodes.leave_pool(deployment, node, now)


@router.post("/nodes/self/notice", status_code=204)
def give_notice(deployment: ThisDeployment, now: Now, node: NodeId, request: Notice) -> None:
    """Report that the provider is about to take this machine away. The node gets no more jobs, and nobody is blamed; what it runs, it hands
    back."""
    nodes.heed_notice(deployment, node, request, now)


@router.post("/claims", response_model=NoWork, responses={201: {"model": Assignment}})
def claim_job(
    deployment: ThisDeployment, now: Now, node: NodeId, gauges: Annotated[SentGauges, Body(embed=True)] = None
) -> Response:
    """Claim a job. The answer is 201 with a job, or 200 with the reason why there is none. The body may have the node's gauges."""
    answer = claim.claim(deployment, node, now, gauges)
    return json_response(answer, 201 if isinstance(answer, Assignment) else 200)


@of_attempts.post("uploads")
def uploads(deployment: ThisDeployment, now: Now, node: Holder, hold: HeldLease, request: Uploads) -> Grants:
    """Request signed URLs to upload files of an attempt."""
    return accepted(checkpoint.sign_uploads(deployment, node, hold, request, now))


@of_attempts.post("beginnings")
def begin(deployment: ThisDeployment, now: Now, node: Holder, hold: HeldLease, request: Beginnings) -> Grants:
    """Request signed URLs to upload parts of a checkpoint's files while they are still being written."""
    return accepted(checkpoint.sign_beginnings(deployment, node, hold, request, now))


@of_attempts.post("downloads")
def downloads(deployment: ThisDeployment, now: Now, node: Holder, hold: HeldLease, request: Downloads) -> Urls:
    """Request signed URLs to download inputs or checkpoints of the job."""
    return accepted(checkpoint.sign_downloads(deployment, node, hold, request, now))


@of_attempts.post("checkpoints")
def commit(deployment: ThisDeployment, now: Now, node: Holder, hold: HeldLease, request: Commit) -> Committed:
    """Commit a checkpoint whose files are all uploaded. Committing it again changes nothing."""
    return accepted(checkpoint.commit_checkpoint(deployment, node, hold, request, now))


@of_attempts.post("samples")
def show(deployment: ThisDeployment, now: Now, node: Holder, hold: HeldLease, request: Show) -> Done:
    """Record uploaded pictures of a step as results of the job."""
    return accepted(samples.keep_samples(deployment, node, hold, request, now))


@of_attempts.post("rejections")
def reject(deployment: ThisDeployment, now: Now, node: Holder, hold: HeldLease, request: Reject) -> Done:
    """Reject a damaged checkpoint, so that no attempt resumes from it."""
    return accepted(checkpoint.reject_damaged(deployment, node, hold, request, now))


@of_attempts.post("prepared")
def keep_prepared(deployment: ThisDeployment, now: Now, node: Holder, hold: HeldLease, request: Keep) -> Done:
    """Record prepared files, so that other jobs can download them. 422 if one is not uploaded, or jobs like this one do not use them."""
    return accepted(prepared.record_prepared(deployment, node, hold, request, now))


@of_attempts.post("logs")
def log(deployment: ThisDeployment, now: Now, node: Holder, hold: HeldLease, request: Log) -> Done:
    """Append to the log what the trainer printed."""
    return accepted(renew.append_log(deployment, node, hold, request, now))


@of_attempts.post("end")
def end(
    deployment: ThisDeployment,
    now: Now,
    node: Holder,
    hold: HeldLease,
    outcome: Annotated[Outcome, Body(discriminator="outcome")],
) -> Done:
    """End the attempt with its outcome. Sending the same outcome again changes nothing."""
    return accepted(finish.finish(deployment, node, hold, outcome, now))
