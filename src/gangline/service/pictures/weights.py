"""Find the files of a sample picture and of the weights that made it."""

from collections.abc import Sequence

from gangline.core.errors import NotFound
from gangline.core.pictures.names import step_of_weights
from gangline.core.runs.contract import SAMPLES
from gangline.core.views import ArtifactView
from gangline.ports.store import Row
from gangline.service.deployment import Deployment
from gangline.service.jobs.query import artifacts_of
from gangline.service.pictures.listing import step_weights
from gangline.service.retention.storage import checkpoint_files


def signed_picture(deployment: Deployment, job: Row, sha256: str, now_ms: int) -> str:
    """Return a signed URL of the sample picture of a job with this content. Raise `NotFound`."""
    rows = deployment.store.load("picture_of_content", job=job["id"], sha256=sha256)
    if not rows:
        raise NotFound(f"{job['id']} has no picture {sha256}", hint="load the page again: pictures expire")
    return deployment.objects.sign_get(rows[0]["key"], now_ms=now_ms, seconds=deployment.policy.url_s).url


def files_of_step(deployment: Deployment, job: Row, step: int, now_ms: int) -> Sequence[ArtifactView]:
    """Return the files of a step's weights with signed URLs: of the result, of its checkpoint, or the LoRA beside its pictures. Raise
    `NotFound` if its weights are not stored."""
    files = artifacts_of(deployment, job["project"], job["id"], now_ms)
    where = step_weights(deployment, job, [each.path for each in files]).of(step)
    if where == "result":
        return [each for each in files if not each.path.startswith(f"{SAMPLES}/")]
    if where == "file":
        return [each for each in files if step_of_weights(each.path) == step]
    found = checkpoint_files(deployment, job, step, now_ms)
    return [ArtifactView(path=each.path, bytes=each.bytes, sha256=each.sha256, url=each.url) for each in found.files]
