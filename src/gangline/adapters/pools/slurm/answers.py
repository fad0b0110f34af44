"""Parse what Slurm's programs print. All of it is text: `--json` is not in every version, and where it is, its fields differ."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from gangline.adapters.pools.programs import Ran, last_line
from gangline.core.display import printable
from gangline.core.errors import BadInput, Denied, GanglineError, Unreachable
from gangline.ports.pool import NoCapacity

SEPARATOR = "\x1f"
JOB_FIELDS = ("%i", "%T", "%P", "%S", "%e", "%N", "%V", "%r", "%k", "%j")
ENDED_FIELDS = ("JobIDRaw", "State", "Start", "End")
GROUP_FIELDS = ("%R", "%a", "%D", "%T", "%G")
ENDINGS: Mapping[str, str] = {
    "BOOT_FAIL": "the cluster's node did not start",
    "CANCELLED": "its job was canceled",
    "COMPLETED": "it ended by itself",
    "DEADLINE": "its job reached its deadline",
    "FAILED": "it ended with an error",
    "NODE_FAIL": "the cluster's node failed",
    "OUT_OF_MEMORY": "it used more memory than its job was given",
    "PREEMPTED": "another job preempted it",
    "REVOKED": "its job was moved to another cluster",
    "TIMEOUT": "its job reached its time limit",
}
"""The states of a job that has ended, in words. A job in any other state may still hold its node."""
ENTERED = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
"""The states of a job that has no node yet: what Slurm gives as its start is then an estimate."""
UNUSABLE = re.compile(
    r"^(?:down|drain|fail|inval|maint|error|reboot|unk|no_respond|future|blocked|perfctrs)|\*$", re.IGNORECASE
)
"""States of machines that get no jobs. A star marks one that does not answer; one that is powered off may be started for a job."""
GPUS = re.compile(r"(?:^|,)gpu:(?:(?P<type>[\w.-]*[A-Za-z_][\w.-]*):)?(?P<count>\d+)")
PREFIX = re.compile(
    r"^(?:[\w./-]+: (?:(?:error|fatal): )?)?(?:batch job submission failed: |allocation failure: )?", re.IGNORECASE
)
ESTIMATE = re.compile(r"to start at (\S+)")
REFUSALS: tuple[tuple[str, type[GanglineError], str, str], ...] = (
    (
        "munge|authentication",
        Denied,
        "Slurm does not accept this machine's credentials",
        "check that munged runs here with the cluster's key",
    ),
    (
        "zero bytes",
        Unreachable,
        "Slurm's controller closed the connection",
        "if this lasts, check that munged has the cluster's key here, and that the clocks agree",
    ),
    (
        "unable to contact|timed out|connection refused|unable to resolve|communication|temporarily unable",
        Unreachable,
        "Slurm does not answer",
        "",
    ),
    (
        "permission denied|not permitted|invalid account|invalid user|user.s group|association",
        Denied,
        "Slurm does not permit this",
        "check which accounts and partitions the server's user may use",
    ),
    (
        "configuration source|slurm.conf",
        BadInput,
        "Slurm has no configuration on this machine",
        "name the cluster's slurm.conf as `conf` in [providers.NAME] of the server's settings",
    ),
    ("invalid partition", BadInput, "Slurm has no partition {partition}", "`sinfo` lists the partitions"),
    (
        r"unrecognized option|ambiguous|requires an argument|invalid .*(?:specification|name)|is invalid|invalid option",
        BadInput,
        "Slurm does not accept the options of this pool",
        "check the options of the cluster in the server's settings",
    ),
    ("violates|limit|quota|too many", NoCapacity, "a limit of Slurm is reached for the server's user", ""),
    ("not available|are busy|reserved|inactive|down", NoCapacity, "partition {partition} has no node for this now", ""),
)
"""What a message contains, the error that it means, its sentence and its hint. The first that matches counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job as squeue lists it. `to_ms` of a job that has not ended, and `from_ms` of one that has not started, are estimates."""

    id: str
    name: str
    state: str
    partition: str = ""
    from_ms: int | None = None
    to_ms: int | None = None
    node: str = ""
    reason: str = ""
    comment: str = ""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDINGS

    @property
    def is_unscheduled(self) -> bool:
        """Return whether Slurm's scheduler has not looked at the job since it was submitted."""
        return self.state == "PENDING" and self.reason in ("", "None")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Machines of a partition that are in one state and have the same GPUs: `gpus` is how many of each type, "" if GRES has no types."""

    partition: str
    usable: bool
    gpus: Mapping[str, int]


def parse_jobs(output: bytes) -> list[SlurmJob]:
    """Parse what squeue printed with `JOB_FIELDS`. Lines of another form are jobs with strange names, so none of ours."""
    lines = (line.split(SEPARATOR) for line in output.decode(errors="replace").splitlines())
    return [_job(fields) for fields in lines if len(fields) == len(JOB_FIELDS)]


def _job(fields: list[str]) -> SlurmJob:
    id_, state, partition, start, end, nodes, submitted, reason, comment, name = fields
    started = parse_time_ms(start)
    ended = parse_time_ms(end)
    if state in ENDINGS and started is None:  # it ended before it started, so it has no time that is billed
        ended = ended or parse_time_ms(submitted)
        started = ended
    return SlurmJob(
        id=id_,
        name=name,
        state=state,
        partition=partition,
        from_ms=started,
        to_ms=ended,
        node=nodes,
        reason=reason,
        comment=comment,
    )


def parse_time_ms(text: str) -> int | None:
    """Parse a time that a program printed with TZ=UTC. There may be none: `N/A`, `Unknown`, `None`."""
    try:
        return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        return None


def parse_groups(output: bytes) -> list[NodeGroup]:
    """Parse what sinfo printed with `GROUP_FIELDS`."""
    lines = (line.split(SEPARATOR) for line in output.decode(errors="replace").splitlines())
    return [
        NodeGroup(
            partition=partition,
            usable=avail == "up" and count != "0" and not UNUSABLE.search(state),
            gpus={found["type"] or "": int(found["count"]) for found in GPUS.finditer(re.sub(r"\([^)]*\)", "", gres))},
        )
        for partition, avail, count, state, gres in (line for line in lines if len(line) == len(GROUP_FIELDS))
    ]


def parse_ended(output: bytes) -> list[SlurmJob]:
    """Parse what sacct printed with `ENDED_FIELDS`."""
    rows = (line.split("|") for line in output.decode(errors="replace").splitlines())
    return [
        SlurmJob(
            id=id_,
            name="",
            state=state.partition(" ")[0],  # it says by whom: "CANCELLED by 1000"
            from_ms=parse_time_ms(start),
            to_ms=parse_time_ms(end),
        )
        for id_, state, start, end in (row for row in rows if len(row) == len(ENDED_FIELDS))
    ]


def parse_estimate_ms(errors: str) -> int | None:
    """Return when a job would start, of what `sbatch --test-only` printed."""
    found = ESTIMATE.search(errors)
    return parse_time_ms(found[1]) if found else None


def parse_exit(output: bytes) -> str:
    """Return how a job's script ended, in words, of what `scontrol show job` printed; "" if it says nothing."""
    found = re.search(r"(?:^|\s)ExitCode=(\d+):(\d+)(?:\s|$)", output.decode(errors="replace"))
    if not found:
        return ""
    code, number = int(found[1]), int(found[2])
    return f"it was killed by signal {number}" if number else f"it ended with exit code {code}"


def waiting_words(job: SlurmJob) -> str:
    """Return how far a job's start is, for people."""
    if job.state == "CONFIGURING":
        return f"Slurm prepares {job.node or 'its node'}"
    if job.state in ("SUSPENDED", "STOPPED"):
        return "Slurm has suspended it"
    if job.state not in ENTERED:
        return ""
    because = f": {printable(job.reason)}" if job.reason not in ("", "None") else ""
    expected = f"; expected to start at {_clock(job.from_ms)}" if job.from_ms is not None else ""
    return f"waits in Slurm's queue{because}{expected}"


def _clock(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def slurm_refusal(program: str, ran: Ran, partition: str = "") -> GanglineError:
    """Return the error that a program's exit means, with Slurm's own words.

    What is not known is `Unreachable`: only then will the list be trusted to say whether something has happened.
    """
    errors = re.sub(r"^Try .*", "", ran.errors, flags=re.MULTILINE)
    said = PREFIX.sub("", last_line(errors))
    for pattern, error, sentence, hint in REFUSALS:
        if re.search(pattern, errors, re.IGNORECASE):
            return error(f"{sentence.format(partition=partition)}: {said}", hint=hint)
    return Unreachable(f"{program} {ran.ended}")
