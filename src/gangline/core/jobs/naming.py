"""Which job a user means who does not type its whole id."""

import re
from collections.abc import Sequence

from gangline.core.errors import BadInput, NotFound

LAST = "last"
"""Stands for the job that was submitted last."""
SHORT_MIN = 4
"""Fewer characters of an id are a coincidence."""
SHOWN_MAX = 10
JOB_ID = re.compile(r"job-[0-9a-f]{19}")
SHORT = slice(-8, None)
"""The random part of an id, which tells those of one moment apart. What stands before it is the time."""


def is_job_id(given: str) -> bool:
    return JOB_ID.fullmatch(given) is not None


def short(job: str) -> str:
    """Return the end of an id, by which a job is found as well."""
    return job[SHORT] if is_job_id(job) else job


def the_one(given: str, found: Sequence[tuple[str, str]]) -> str:
    """Return the id of the one among jobs (id, name), the newest first, that `given` means: an id, else a name, else a part of an id.

    Raises `NotFound` where there is none, `BadInput` where there are several."""
    exact = [job for job, _ in found if job == given]
    named = [job for job, name in found if name == given]
    parts = [job for job, _ in found] if len(given.removeprefix("job-")) >= SHORT_MIN else []
    meant = exact or named or parts
    if not meant:
        if given == LAST:
            raise NotFound("no job was submitted yet", hint="`gangline train` submits one")
        raise NotFound(
            f"there is no job {given}", hint="`gangline jobs ls` lists them; the end of an id is enough, or `last`"
        )
    if len(meant) > 1:
        more = " and more" if len(found) >= SHOWN_MAX else ""
        raise BadInput(f"{given} may be {', '.join(meant)}{more}, the newest first", hint="give one of these ids")
    return meant[0]
