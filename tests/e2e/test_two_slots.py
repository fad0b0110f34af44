"""A worker of two slots trains two jobs at once, with real processes: each with the bits that it has alone."""

import os
import signal
from pathlib import Path

import pytest

from gangline.adapters.pools.local import WORKER, start_node
from gangline.cli.admin.box import Box
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.views import JobView
from gangline.train.run.digest import tensors_digest
from tests.conftest import SUBJECT, file_at
from tests.e2e.test_death import SETTINGS, box, digest_of, has_ended, submit, trainers_below, until
from tests.train.conftest import finish, lay_out, small_spec

__all__ = ["box"]
SEEDS = (1, 2)
LONG = {"steps": 60, "checkpoint_every_steps": 20}


def alone(folder: Path, seed: int) -> str:
    photos = tuple(file_at(path, SUBJECT) for path in sorted(SUBJECT.glob("*.png")))
    run = lay_out(folder / f"alone-{seed}", small_spec(**(SETTINGS | LONG | {"photos": photos, "seed": seed})))
    return tensors_digest(finish(run).output / DIFFUSERS_FILE)


@pytest.mark.tenths
def test_two_jobs_train_at_once_on_one_worker_with_the_bits_that_each_has_alone(box: Box, tmp_path: Path) -> None:
    jobs = [submit(box, seed=seed, **LONG) for seed in SEEDS]
    command = (*WORKER, "--slots", str(len(SEEDS)))
    box.nodes["pair"] = start_node(
        name="pair", home=box.home / "pair", server=box.url, join_token=box.join_token, command=command
    )
    held = set[int]()

    def both_are_there(_: JobView) -> bool:
        """Hold the first one until the second has loaded its libraries, so that they train at once however busy the machine is."""
        for trainer in {*trainers_below(box.home / "pair")} - held:
            os.kill(trainer, signal.SIGSTOP)
            held.add(trainer)
        return len(held) == 2

    until(box, jobs[1], both_are_there)
    for trainer in held:
        os.kill(trainer, signal.SIGCONT)
    ended = [until(box, job, has_ended) for job in jobs]
    assert [len(job.attempts) for job in ended] == [1, 1]
    first, second = (job.attempts[0] for job in ended)
    assert first.node == second.node
    for job, seed in zip(jobs, SEEDS, strict=True):
        assert digest_of(box, job, tmp_path / job) == alone(tmp_path, seed)
