"""Attempts and lines of the ledger of many jobs at once, written below the door."""

from tests.service.conftest import ClockedPostgres, Service

HOUR_MS = 3_600_000
NODES = 40
"""Nodes `n-0` to `n-39`, of four GPU classes in two pools; node n is idle for a minute after each hour."""


def write_nodes_of_reports(service: Service, count: int = NODES) -> None:
    nodes = ",".join(
        f"('n-{number}', 'm-{number}', 'node-{number}', 'pool-{number % 2}', 'gone', '', 'gpu-{number % 4}', 24, 0, '', 1, '{{}}', "
        "324000, 1, 0, 0, 1, 1, 1)"
        for number in range(count)
    )
    service.execute(
        "INSERT INTO node (id, machine, name, pool, state, because, gpu, gpu_memory_gb, trust, numerics, slots, capabilities, "
        f"price_micro_usd_per_hour, rented, missing, since_ms, joined_ms, seen_ms, meter_ms) VALUES {nodes}"
    )


def write_tries(service: Service, jobs: list[tuple[str, int]], tries: int) -> None:
    """Write attempts of each job, given with its submission: all but the last are interrupted, and each has four lines of the ledger."""
    for start in range(0, len(jobs), 500):
        part = [(number, *job) for number, job in enumerate(jobs[start : start + 500], start)]
        attempts, lines = list[str](), list[str]()
        for number, job, submitted_ms in part:
            for fencing in range(1, tries + 1):
                node, last = (number * 7 + fencing) % NODES, fencing == tries
                begun = submitted_ms + fencing * HOUR_MS
                attempts.append(
                    f"('{job}-{fencing}', '{job}', 'n-{node}', 'm-{node}', 'pool-{node % 2}', 'gpu-{node % 4}', 24, 'w', {fencing}, '', "
                    f"0, '{'succeeded' if last else 'interrupted'}', '', 1, 324000, {(fencing - 1) * 20}, {fencing * 20 + 5}, "
                    f"{begun}, {begun}, {begun + HOUR_MS // 2}, 1)"
                )
                for cause, at, ms in (
                    ("download", 0, 60_000),
                    ("training", 60_000, 1_700_000),
                    ("redone steps", 1_760_000, 40_000),
                ):
                    lines.append(
                        f"('n-{node}', '{job}-{fencing}', '{cause}', {begun + at}, {begun + at + ms}, '{job}', 'default', {ms // 10})"
                    )
                lines.append(
                    f"('n-{node}', '', 'idle', {begun + HOUR_MS // 2 + number}, {begun + HOUR_MS // 2 + number + 100}, '', '', 9)"
                )
        service.execute(
            "INSERT INTO attempt (id, job, node, machine, pool, gpu, gpu_memory_gb, workload, fencing, kind, committed_step, state, "
            "because, slots, price_micro_usd_per_hour, from_step, step, beat_ms, started_ms, ended_ms, price_known) "
            f"VALUES {','.join(attempts)}",
            "INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd) "
            f"VALUES {','.join(lines)} ON CONFLICT DO NOTHING",
        )
    if isinstance(service.store, ClockedPostgres):
        service.execute("ANALYZE")
