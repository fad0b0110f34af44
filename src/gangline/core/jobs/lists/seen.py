"""Refuse what was decided on a job as it is no longer."""

from dataclasses import dataclass

from gangline.core.errors import Changed
from gangline.core.job import Job


@dataclass(frozen=True, slots=True)
class Seen:
    """Ids and versions of jobs, of which one must still be that of the job; None: whichever it is. `weak`: there were others, that match
    nothing."""

    versions: frozenset[tuple[str, int]] | None = None
    weak: bool = False

    def check(self, job: str, version: int) -> None:
        """Raise `Changed` if the job has another version."""
        if self.versions is None or (job, version) in self.versions:
            return
        if any(of == job for of, _ in self.versions):
            raise Changed(f"{job} has changed since it was read", hint="read it again, and decide again")
        if self.weak:
            raise Changed(
                "the entity tag is weak (it begins with W/), and a weak one matches nothing",
                hint="a proxy that compresses answers makes tags weak: read the job with `Accept-Encoding: identity`",
            )
        raise Changed(f"the entity tag is not one of {job}", hint="send the ETag of this job, as it was answered")

    def checked(self, job: Job) -> Job:
        """Return the job. Raise `Changed` if it has another version."""
        self.check(job.id, job.version)
        return job


ANY_VERSION = Seen()
