"""Decide what can be done at once with several jobs of a list, so that no more is offered than they allow. Pure."""

from gangline.core.job import ENDED
from gangline.core.specs.kinds import KINDS
from gangline.core.views import JobSummary


def actions_together(job: JobSummary) -> tuple[str, ...]:
    """Return the names of what a member may do now with a job together with others."""
    if job.state in ENDED:
        return ("delete",)
    kind = KINDS.get(job.kind)
    trains = kind is not None and kind.ours and kind.result in ("lora", "model")
    finish = ("finish",) if trains and (job.state == "running" or job.committed_step) else ()
    is_paused = job.state == "paused" or job.phase == "pausing"
    return (*finish, "resume" if is_paused else "pause", "cancel")
