"""Call Slurm's programs. Their messages become errors, their tables values."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gangline.adapters.pools.programs import Ran, TimedOut, choose_variables, run_program
from gangline.adapters.pools.slurm.answers import (
    ENDED_FIELDS,
    GROUP_FIELDS,
    JOB_FIELDS,
    SEPARATOR,
    NodeGroup,
    SlurmJob,
    parse_ended,
    parse_exit,
    parse_groups,
    parse_jobs,
    slurm_refusal,
)
from gangline.adapters.pools.slurm.settings import SlurmCluster
from gangline.core.errors import Unreachable

VARIABLES = ("USER", "LOGNAME", "SLURM_CONF")


class SlurmPrograms:
    """Runs Slurm's programs with the basic variables of `surroundings` and `VARIABLES`, and nothing else of this server's environment."""

    def __init__(self, cluster: SlurmCluster, surroundings: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._environment = choose_variables(surroundings, VARIABLES)
        if cluster.conf:
            self._environment["SLURM_CONF"] = cluster.conf

    def groups(self) -> list[NodeGroup]:
        return parse_groups(self._read("sinfo", f"--format={SEPARATOR.join(GROUP_FIELDS)}"))

    def jobs(self, *options: str) -> list[SlurmJob]:
        """Return all jobs of this user, those included that ended within the last minutes."""
        return parse_jobs(
            self._read("squeue", "--me", "--states=all", f"--format={SEPARATOR.join(JOB_FIELDS)}", *options)
        )

    def exit_of(self, job: str) -> str:
        """Return how the job's script ended, in words; "" if Slurm does not say."""
        ran = self.run("scontrol", "--oneliner", "show", "job", job)
        return "" if ran.code else parse_exit(ran.output)

    def recorded(self, jobs: Sequence[str]) -> dict[str, SlurmJob]:
        """Return what the accounting database has of these jobs. Most of a job's fields are not in it; many clusters have none."""
        options = ("--noheader", "--parsable2", "--allocations", f"--jobs={','.join(jobs)}")
        ran = self.run("sacct", *options, f"--format={','.join(ENDED_FIELDS)}")
        return {} if ran.code else {job.id: job for job in parse_ended(ran.output)}

    def run(
        self,
        *words: str,
        given: bytes = b"",
        more: Mapping[str, str] | None = None,
        partition: str = "",
        check: bool = False,
    ) -> Ran:
        """Run a program with `more` in its environment. With `check`, raise what its failure means."""
        program = str(Path(self._cluster.programs, words[0])) if self._cluster.programs else words[0]
        # A job inherits the environment of a submission, and keeps its node's own time zone. All that is parsed is in UTC.
        environment = {**self._environment, **({"TZ": "UTC"} if more is None else more)}
        try:
            ran = run_program(
                [program, *words[1:]], environment=environment, timeout_s=self._cluster.timeout_s, given=given
            )
        except TimedOut as error:
            raise Unreachable(f"Slurm does not answer: {error.message}") from None
        if check and ran.code:
            raise slurm_refusal(words[0], ran, partition)
        return ran

    def _read(self, *words: str) -> bytes:
        return self.run(words[0], "--noheader", *words[1:], check=True).output
