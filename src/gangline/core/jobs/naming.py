"""Find the job that a user means by a name or a part of an id."""

import re
from collections.abc import Sequence

from gangline.core.errors import BadInput, NotFound

LAST = "last"
"""The word for the job that was submitted last."""
SHORT_MIN = 4
"""Fewer characters than this are not looked up as a part of an id: they would match by coincidence."""
SHOWN_MAX = 10
JOB_ID = re.compile(r"job-[0-9a-f]{19}")
SHORT = slice(-8, None)
"""The random part of an id, which distinguishes ids of one moment; the characters before it encode the time."""


def is_job_id(given: str) -> bool:
    return JOB_ID.fullmatch(given) is not None


def short(job: str) -> str:
    """Return the end of an id, which also finds the job."""
    return job[SHORT] if is_job_id(job) else job


def the_one(given: str, found: Sequence[tuple[str, str]]) -> str:
    """Return the id of the job that `given` means: an id, else a name, else a part of an id. `found` are (id, name), the newest first.

    Raises `NotFound` if no job matches, `BadInput` if several do.
    """
    exact = [job for job, _ in found if job == given]
    named = [job for job, name in found if name == given]
    parts = [job for job, _ in found] if len(given.removeprefix("job-")) >= SHORT_MIN else []
    meant = exact or named or parts  # an id wins, so that a job named like another's id cannot hide that one
    if not meant:
        if given == LAST:
            raise NotFound("no job was submitted yet", hint="`gangline train` submits one")
        raise NotFound(
            f"there is no job {given}",
            hint="`gangline jobs ls` lists the jobs; the end of an id is enough, and `last` is the newest job",
        )
    if len(meant) > 1:
        more = " and more" if len(found) >= SHOWN_MAX else ""
        raise BadInput(
            f"{given} matches several jobs, the newest first: {', '.join(meant)}{more}", hint="give one of these ids"
        )
    return meant[0]
