"""Two deletions of jobs of an experiment at once, in a database that lets them."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from gangline.service.retention import removal
from tests.service.conftest import Service
from tests.service.experiments.at_work import PATH, runs_of, submit
from tests.waiting import until

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)


def test_of_two_deletions_at_once_the_second_takes_the_experiment_with_it(service: Service) -> None:
    made = submit(service)["id"]
    service.ask("POST", f"{PATH}/{made}/stop")
    jobs = [run["job"] for run in runs_of(service, made)]

    def waiting() -> bool:
        sessions = "SELECT COUNT(*) AS waiting FROM pg_stat_activity WHERE datname = current_database()"
        [found] = service.look(f"{sessions} AND wait_event_type = 'Lock'")
        return found["waiting"] >= len(jobs)

    with psycopg.connect(service.database) as third, ThreadPoolExecutor(2) as both:
        third.execute("UPDATE experiment SET version = version + 1")  # holds its row until both wait for it
        gone = [both.submit(removal.remove, service.deployment, job, service.now_ms) for job in jobs]
        until(waiting)
        third.commit()
        assert [each.result().job for each in gone] == jobs
    assert service.look("SELECT id FROM experiment") == [] and service.look("SELECT * FROM experiment_file") == []
