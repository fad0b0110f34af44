"""Many jobs at once, written below the door: more than the service would submit in a test."""

from dataclasses import dataclass

from tests.service.conftest import PROJECT, START_MS, ClockedPostgres, Service

KINDS = ("lora", "lora", "lora", "scratch", "command")
STATES = ("succeeded", "succeeded", "succeeded", "failed", "queued")
NAMED = "a photo of sks dog"


@dataclass(frozen=True)
class Given:
    """A job as it was written."""

    id: str
    submitted_ms: int
    state: str
    kind: str
    owner: str | None
    name: str
    labels: dict[str, str]


def given(number: int, owners: tuple[str, ...]) -> Given:
    """The n-th job: everything of it follows from its number. Ten are of one millisecond."""
    labels = {"parity": "odd" if number % 2 else "even"}
    labels |= {"seldom": "x" if number % 2 else "y"} if number % 1013 == 0 else {}
    labels |= {"third": ""} if number % 3 == 0 else {}
    labels |= {"low" if number % 10 < 5 else "high": ""}
    state = "canceled" if number % 997 == 5 else STATES[number % 5]
    at_ms = START_MS - 10**7 + number // 10
    owner = None if number % 7 == 0 else owners[number % len(owners)]
    name = f"run {number}" if number % 11 == 0 else NAMED
    return Given(f"job-{at_ms:011x}{number:08x}", at_ms, state, KINDS[number // 2 % 5], owner, name, labels)


def write_many(service: Service, count: int, owners: tuple[str, ...]) -> list[Given]:
    """Write so many jobs of the project, and return them as lists have them: the newest first."""
    made = [given(number, owners) for number in range(count)]
    service.execute(*_statements(service, made))
    return sorted(made, key=lambda job: (job.submitted_ms, job.id), reverse=True)


def _statements(service: Service, made: list[Given]) -> list[str]:
    columns = (
        "id, project, name, kind, wanted, spec, spec_hash, state, because, steps, save_s, priority, base, workload, slots, input_bytes, "
        "checkpoint_bytes, gpu, gpu_memory_gb, pool, trust, exact, numerics, fencing, attempts_failed, attempts_max, ready_ms, version, "
        "submitted_ms, queued_ms, ended_ms, listed, owner"
    )
    found = list[str]()
    for start in range(0, len(made), 500):
        part = made[start : start + 500]
        jobs = ",".join(
            f"('{job.id}', '{PROJECT}', '{job.name}', '{job.kind}', '{job.kind}', '{{}}', 'h', '{job.state}', '', 100, 60, 0, 'b', 'w', "
            f"1, 0, 0, '', 0, '', 0, 'off', '', 0, 0, 3, 0, 1, {job.submitted_ms}, {job.submitted_ms}, "
            f"{'NULL' if job.state == 'queued' else job.submitted_ms + 1}, 1, {'NULL' if job.owner is None else repr(job.owner)})"
            for job in part
        )
        labels = ",".join(
            f"('{job.id}', '{key}', '{value}', '{PROJECT}', {job.submitted_ms})"
            for job in part
            for key, value in job.labels.items()
        )
        found.append(f"INSERT INTO job ({columns}) VALUES {jobs}")
        found.append(f"INSERT INTO label (job, key, value, project, submitted_ms) VALUES {labels}")
    return [*found, "ANALYZE"] if isinstance(service.store, ClockedPostgres) else found
