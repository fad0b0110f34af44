"""What nodes did for jobs that were written below the door: an attempt, a checkpoint, a result and a bill of each."""

from tests.service.conftest import ClockedPostgres, Service

WORKED = (
    "INSERT INTO machine (id, pool, known_ms, failures, rest_until_ms, quarantines, quarantined_until_ms, on_trial, because) "
    "VALUES ('m', 'default', 1, 0, 0, 0, 0, 0, '')",
    "INSERT INTO node (id, machine, name, pool, state, because, gpu, gpu_memory_gb, trust, numerics, slots, capabilities, "
    "price_micro_usd_per_hour, rented, missing, since_ms, joined_ms, seen_ms, meter_ms) "
    "VALUES ('n', 'm', 'node', 'default', 'gone', '', '', 0, 0, '', 1, '{}', 1, 0, 0, 1, 1, 1, 1)",
    "INSERT INTO attempt (id, job, node, machine, pool, gpu, gpu_memory_gb, workload, fencing, kind, committed_step, state, because, "
    "slots, price_micro_usd_per_hour, from_step, step, beat_ms, started_ms, ended_ms) "
    "SELECT 'attempt-' || id, id, 'n', 'm', 'default', '', 0, 'w', 1, '', 10, 'interrupted', '', 1, 1, 0, 12, 1, 1, 2 FROM job",
    "INSERT INTO checkpoint (id, job, attempt, step, state, because, verified, bytes, prefix, manifest, committed_ms) "
    "SELECT 'c-' || id, id, 'attempt-' || id, 10, 'committed', '', 1, 7, 'p', '{}', 1 FROM job",
    "INSERT INTO artifact (job, path, attempt, key, bytes, sha256) SELECT id, 'a', 'attempt-' || id, 'k', 7, 's' FROM job",
    "INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd) "
    "SELECT 'n', 'attempt-' || id, 'training', 1, 2, id, project, 5 FROM job",
    "INSERT INTO ban (job, machine, because, at_ms) SELECT id, 'm', '', 1 FROM job",
)


def work_on_all(service: Service) -> None:
    """Write it for every job that there is."""
    service.execute(*WORKED, *(["ANALYZE"] if isinstance(service.store, ClockedPostgres) else []))


def write_nodes(service: Service, count: int) -> None:
    """Write nodes that are ready for every kind of job, each of another price."""
    machines = ",".join(f"('m-{number}', 'default', 1, 0, 0, 0, 0, 0, '')" for number in range(count))
    nodes = ",".join(
        f"('n-{number}', 'm-{number}', 'node-{number}', 'default', 'ready', '', '', 0, 0, '', 1, '{{}}', ',command,lora,scratch,', "
        f"{number + 1}, 1, 0, 0, 1, 1, {service.now_ms}, 1)"
        for number in range(count)
    )
    service.execute(
        "INSERT INTO machine (id, pool, known_ms, failures, rest_until_ms, quarantines, quarantined_until_ms, on_trial, because) "
        f"VALUES {machines}",
        "INSERT INTO node (id, machine, name, pool, state, because, gpu, gpu_memory_gb, trust, numerics, slots, capabilities, kinds, "
        f"price_micro_usd_per_hour, price_known, rented, missing, since_ms, joined_ms, seen_ms, meter_ms) VALUES {nodes}",
    )
