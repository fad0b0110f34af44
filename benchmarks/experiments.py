"""Experiments: `python benchmarks/experiments.py [JOBS] [PHOTOS]` (1,000 jobs on 20 photos by default).

How long it takes to submit an experiment over HTTP, to look at it, to stop it, and how long the server's look at it takes while all of its
jobs are held, on each engine. Beside it stand bare inserts: the same rows of jobs, events and runs in one transaction of the same store,
with nothing read, checked or decided. Milliseconds of time, and of CPU in this process: server and client are one, PostgreSQL is another.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

from benchmarks.engines import services
from tests.service.conftest import Service
from tests.service.experiments.at_work import PATH

from gangline.core.parsing import to_json
from gangline.ports.store import Write, write
from gangline.service.experiments.tend import tend_experiments

JOBS, PHOTOS = 1000, 20


def timed(called: str, act: Callable[[], Any]) -> Any:
    began, used = time.perf_counter(), time.process_time()
    found = act()
    wall_ms, cpu_ms = (time.perf_counter() - began) * 1000, (time.process_time() - used) * 1000
    print(f"  {called:<58} {wall_ms:8.0f} {cpu_ms:8.0f}", flush=True)
    return found


def bench(engine: str, service: Service, jobs: int, photos: int) -> None:
    print(f"{f'{engine}: {jobs:,} jobs on {photos} photos':<60} {'time':>8} {'CPU':>8} ms")
    files = tuple(service.upload(b"photo %d" % number, f"{number}.png") for number in range(photos))
    spec = to_json(service.spec(photos=files))
    asked = {"name": "bench", "spec": spec, "vary": {"learning_rate": [1e-6 * number for number in range(1, jobs + 1)]}}

    def ask(method: str, path: str, body: Any = None) -> Any:
        answer = service.ask(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    small = ask("POST", PATH, asked | {"name": "small", "vary": {"learning_rate": [1e-3]}})["id"]
    for path in ("", "/runs"):  # what a server does once, when it is asked for the first time
        ask("GET", f"{PATH}/{small}{path}")
    ask("POST", f"{PATH}/{small}/stop")

    timed("plan it, over HTTP", lambda: ask("POST", f"{PATH}/plan", asked))
    made = timed("submit it, over HTTP", lambda: ask("POST", PATH, asked | {"at_once": 4}))["id"]
    timed(
        "the server's look at it, with all but one job held",
        lambda: tend_experiments(service.deployment, service.now_ms),
    )
    timed("show it, over HTTP", lambda: ask("GET", f"{PATH}/{made}"))
    timed("list its jobs, over HTTP", lambda: ask("GET", f"{PATH}/{made}/runs"))
    timed("a claim beside the held jobs", lambda: service.claim(service.join()))
    timed("stop it, over HTTP", lambda: ask("POST", f"{PATH}/{made}/stop"))
    assert timed_bare(service, made, jobs)


def timed_bare(service: Service, made: str, jobs: int) -> bool:
    """Insert rows like those of the experiment, and nothing else."""
    (row,) = service.look(
        f"SELECT * FROM job WHERE id = (SELECT MIN(job) FROM experiment_run WHERE experiment = '{made}')"
    )
    names = (
        "project",
        "name",
        "kind",
        "wanted",
        "spec",
        "spec_hash",
        "because",
        "steps",
        "save_s",
        "priority",
        "base",
        "workload",
    )
    needs = ("slots", "input_bytes", "gpu", "gpu_memory_gb", "pool", "trust", "exact", "attempts_max", "owner")
    known = {name: row[name] for name in (*names, *needs)}
    run = {"settings": json.dumps({"learning_rate": 1e-6}), "seed": 0, "prepares": "a"}
    none: dict[str, Any] = {"request": None, "fingerprint": None, "fetching": 2, "now": service.now_ms}
    writes = list[Write]()
    for number in range(jobs):
        job = f"job-bare-{number:06d}"
        writes += [
            write("add_job", id=job, **known, **none),
            write("add_event", job=job, kind="submitted", because="", attempt=None, node=None, now=service.now_ms),
            write("add_experiment_run", job=job, experiment=made, number=10**6 + number, **run),
        ]
    return timed("bare inserts of as many jobs, events and runs", lambda: service.store.apply(*writes))


def main() -> None:
    jobs, photos = (int(word) for word in [*sys.argv[1:], *map(str, (JOBS, PHOTOS)[len(sys.argv) - 1 :])])
    with services() as found:
        for engine, service in found.items():
            bench(engine, service, jobs, photos)


if __name__ == "__main__":
    main()
