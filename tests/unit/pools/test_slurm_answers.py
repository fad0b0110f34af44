"""What Slurm's programs print, in every form that the versions of Slurm have."""

import pytest

from gangline.adapters.pools.programs import Ran
from gangline.adapters.pools.slurm.answers import (
    SEPARATOR,
    SlurmJob,
    parse_ended,
    parse_estimate_ms,
    parse_exit,
    parse_groups,
    parse_jobs,
    parse_time_ms,
    slurm_refusal,
    waiting_words,
)
from gangline.core.errors import BadInput, Denied, GanglineError, Unreachable
from gangline.ports.pool import NoCapacity

NOON_MS = 1_795_780_800_000


def line(*fields: str) -> bytes:
    return SEPARATOR.join(fields).encode() + b"\n"


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", {}),
        ("gpu:2", {"": 2}),
        ("gpu:a100:4", {"a100": 4}),
        ("gpu:a100:4(S:0-1)", {"a100": 4}),
        ("gpu:a100:2(S:0,2),gpu:t4:1(S:1)", {"a100": 2, "t4": 1}),
        ("gpu:nvidia_a100_3g.20gb:6,nic:2,shard:8", {"nvidia_a100_3g.20gb": 6}),
        ("craynetwork:4,gpu:tesla:no_consume:1", {}),
        ("not_a_gpu:2", {}),
    ],
)
def test_gpus_are_counted_by_their_type(gres: str, gpus: dict[str, int]) -> None:
    (group,) = parse_groups(line("gpu", "up", "3", "idle", gres))
    assert group.gpus == gpus


@pytest.mark.parametrize(
    ("available", "count", "state", "usable"),
    [
        ("up", "1", "idle", True),
        ("up", "1", "allocated", True),
        ("up", "1", "mixed-", True),
        ("up", "1", "idle~", True),
        ("up", "1", "allocated#", True),
        ("up", "1", "idle*", False),
        ("up", "1", "down*", False),
        ("up", "1", "draining", False),
        ("up", "1", "drained", False),
        ("up", "1", "inval", False),
        ("up", "1", "unknown", False),
        ("up", "1", "maint", False),
        ("up", "0", "idle", False),
        ("drain", "1", "idle", False),
        ("inact", "1", "idle", False),
    ],
)
def test_a_machine_that_takes_no_jobs_is_not_usable(available: str, count: str, state: str, usable: bool) -> None:
    (group,) = parse_groups(line("gpu", available, count, state, "gpu:2"))
    assert group.usable is usable


def job_line(**changed: str) -> bytes:
    fields = {
        "id": "7",
        "state": "RUNNING",
        "partition": "gpu",
        "start": "2026-11-27T12:00:00",
        "end": "2026-11-27T13:00:00",
        "node": "machine-1",
        "submitted": "2026-11-27T11:59:00",
        "reason": "None",
        "comment": "mine",
        "name": "node-a",
    }
    return line(*(fields | changed).values())


def test_a_job_is_parsed() -> None:
    (job,) = parse_jobs(job_line())
    assert job == SlurmJob(
        id="7",
        name="node-a",
        state="RUNNING",
        partition="gpu",
        from_ms=NOON_MS,
        to_ms=NOON_MS + 3_600_000,
        node="machine-1",
        reason="None",
        comment="mine",
    )


def test_lines_of_another_form_and_broken_text_are_skipped() -> None:
    assert [job.id for job in parse_jobs(b"\xff\xfe\n" + job_line(name="a\x1fb") + job_line(id="8") + b"7\x1fRUN")] == [
        "8"
    ]


def test_a_job_that_was_canceled_in_the_queue_has_no_time_to_bill() -> None:
    (job,) = parse_jobs(job_line(state="CANCELLED", start="N/A", end="N/A"))
    assert job.from_ms == job.to_ms == NOON_MS - 60_000


def test_jobs_of_the_database_are_parsed_whoever_canceled_them() -> None:
    text = (
        b"7|CANCELLED by 1000|2026-11-27T12:00:00|2026-11-27T13:00:00\n8|RUNNING|2026-11-27T12:00:00|Unknown\nrubbish\n"
    )
    first, second = parse_ended(text)
    assert (first.id, first.state, first.from_ms, first.to_ms) == ("7", "CANCELLED", NOON_MS, NOON_MS + 3_600_000)
    assert (second.has_ended, second.to_ms) == (False, None)


@pytest.mark.parametrize("text", ["N/A", "Unknown", "None", "", "now"])
def test_a_time_may_be_missing(text: str) -> None:
    assert parse_time_ms(text) is None


def test_an_estimate_is_found_in_the_sentence_that_has_it() -> None:
    assert parse_estimate_ms("sbatch: Job 4 to start at 2026-11-27T12:00:00 using 1 processors on nodes x") == NOON_MS
    assert parse_estimate_ms("sbatch: something else") is None


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (b"JobId=1 ExitCode=3:0 RunTime=1", "it ended with exit code 3"),
        (b"JobId=1 ExitCode=0:9 RunTime=1", "it was killed by signal 9"),
        (b"JobId=1 ExitCode=0:0", "it ended with exit code 0"),
        (b"slurm_load_jobs error: Invalid job id specified", ""),
    ],
)
def test_how_a_script_ended_is_read(shown: bytes, words: str) -> None:
    assert parse_exit(shown) == words


@pytest.mark.parametrize(
    ("state", "reason", "from_ms", "words"),
    [
        ("PENDING", "Resources", None, "waits in Slurm's queue: Resources"),
        ("PENDING", "None", None, "waits in Slurm's queue"),
        (
            "PENDING",
            "Priority",
            NOON_MS,
            "waits in Slurm's queue: Priority; expected to start at 2026-11-27 12:00 UTC",
        ),
        ("CONFIGURING", "None", NOON_MS, "Slurm prepares machine-1"),
        ("SUSPENDED", "None", NOON_MS, "Slurm has suspended it"),
        ("RUNNING", "None", NOON_MS, ""),
        ("COMPLETING", "None", NOON_MS, ""),
    ],
)
def test_how_far_a_start_is_is_said(state: str, reason: str, from_ms: int | None, words: str) -> None:
    job = SlurmJob(id="1", name="a", state=state, reason=reason, from_ms=from_ms, node="machine-1")
    assert waiting_words(job) == words


SUBMISSION = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("errors", "kind", "sentence"),
    [
        (
            SUBMISSION + "Invalid partition name specified",
            BadInput,
            "Slurm has no partition gpu: Invalid partition name specified",
        ),
        (
            SUBMISSION + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            NoCapacity,
            "a limit of Slurm is reached for the server's user: Job violates accounting/QOS policy (job submit limit, user's size "
            "and/or time limits)",
        ),
        (
            "allocation failure: Requested nodes are busy",
            NoCapacity,
            "partition gpu has no node for this now: Requested nodes are busy",
        ),
        (
            SUBMISSION + "Required node not available (down, drained or reserved)",
            NoCapacity,
            "partition gpu has no node for this now: Required node not available (down, drained or reserved)",
        ),
        (
            SUBMISSION + "Unable to contact slurm controller (connect failure)",
            Unreachable,
            "Slurm does not answer: Unable to contact slurm controller (connect failure)",
        ),
        (
            SUBMISSION + "Socket timed out on send/recv operation",
            Unreachable,
            "Slurm does not answer: Socket timed out on send/recv operation",
        ),
        (
            "sbatch: error: Munge encode failed: Failed to access\n" + SUBMISSION + "Protocol authentication error",
            Denied,
            "Slurm does not accept this machine's credentials: Protocol authentication error",
        ),
        (
            SUBMISSION + "User's group not permitted to use this partition",
            Denied,
            "Slurm does not permit this: User's group not permitted to use this partition",
        ),
        (
            SUBMISSION + "Invalid account or account/partition combination specified",
            Denied,
            "Slurm does not permit this: Invalid account or account/partition combination specified",
        ),
        (
            SUBMISSION + "Invalid qos specification",
            BadInput,
            "Slurm does not accept the options of this pool: Invalid qos specification",
        ),
        (
            "/usr/bin/sbatch: unrecognized option '--x'\nTry \"sbatch --help\" for more information\n",
            BadInput,
            "Slurm does not accept the options of this pool: unrecognized option '--x'",
        ),
        (
            "sinfo: fatal: Could not establish a configuration source\n",
            BadInput,
            "Slurm has no configuration on this machine: Could not establish a configuration source",
        ),
        (
            SUBMISSION + "Something that nobody knows",
            Unreachable,
            "sbatch ended with exit code 1: " + SUBMISSION + "Something that nobody knows",
        ),
        ("", Unreachable, "sbatch ended with exit code 1 and printed no reason"),
    ],
)
def test_a_refusal_is_one_sentence_with_slurms_own_words(errors: str, kind: type[GanglineError], sentence: str) -> None:
    error = slurm_refusal("sbatch", Ran(code=1, output=b"", errors=errors), "gpu")
    assert (type(error), error.message) == (kind, sentence)
