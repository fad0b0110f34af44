"""Races of the step that is chosen of a job, and of the small copies of its pictures."""

from dataclasses import replace

from gangline.core.errors import NotFound
from gangline.service.content.sweep import sweep_attempts
from gangline.service.pictures.thumbnails import make_thumbnails
from gangline.service.pictures.winner import choose_winner, undo_winner
from gangline.service.retention import removal
from gangline.service.retention.ages import expire_checkpoints, expire_previews
from tests.sim.mutants.bench import Bench, probe, refused
from tests.sim.mutants.probes_of_datasets import Inspector
from tests.sim.mutants.probes_of_retention import DAY_S, ended, expire, shown

LORA = "samples/step-000010/sks-dog.safetensors"


def pinned(bench: Bench) -> list[int]:
    return bench.look("SELECT step FROM checkpoint WHERE pinned = 1 ORDER BY step")


def labels(bench: Bench) -> list[str]:
    return bench.look("SELECT value FROM label WHERE key = 'winner'")


def with_lora(bench: Bench) -> str:
    """A job that has succeeded, with a LoRA of step 10, whose checkpoint has expired."""
    job = shown(bench)
    bench.store.look("UPDATE artifact SET path = ? WHERE path LIKE 'samples/step-000010/%.png'", LORA)
    bench.wait(2 * DAY_S)
    expire_checkpoints(bench.deployment, bench.now_ms)
    return job


@probe()
def of_two_steps_that_are_chosen_at_once_the_later_one_stays_alone(bench: Bench) -> None:
    job = ended(bench, 10, 20)
    bench.meanwhile("put_winner", lambda: choose_winner(bench.deployment, job, 10))
    assert choose_winner(bench.deployment, job, 20).step == 20
    assert (pinned(bench), labels(bench)) == ([20], ["20"])


@probe()
def a_step_that_expires_in_the_moment_of_its_choice_was_not_chosen(bench: Bench) -> None:
    job = ended(bench, 10)
    bench.wait(2 * DAY_S)
    bench.meanwhile("put_winner", expire(bench, expire_checkpoints))
    assert refused(NotFound, lambda: choose_winner(bench.deployment, job, 10))
    assert labels(bench) == []


@probe()
def a_step_that_is_chosen_in_the_moment_of_its_age_stays(bench: Bench) -> None:
    job = with_lora(bench)
    bench.wait(100 * DAY_S)
    bench.meanwhile("forget_previews", lambda: choose_winner(bench.deployment, job, 10))
    expire_previews(bench.deployment, bench.now_ms)
    expire_previews(bench.deployment, bench.now_ms)
    assert len(bench.look("SELECT path FROM artifact WHERE path LIKE 'samples/step-%'")) == 1


@probe()
def a_lora_that_expires_in_the_moment_of_its_choice_was_not_chosen(bench: Bench) -> None:
    job = with_lora(bench)
    bench.wait(100 * DAY_S)
    bench.meanwhile("put_winner", expire(bench, expire_previews))
    assert refused(NotFound, lambda: choose_winner(bench.deployment, job, 10))
    assert labels(bench) == []


@probe()
def a_choice_that_is_undone_while_another_step_is_chosen_lets_go_what_that_keeps(bench: Bench) -> None:
    job = ended(bench, 10, 20)
    choose_winner(bench.deployment, job, 10)
    bench.meanwhile("drop_winner", lambda: choose_winner(bench.deployment, job, 20))
    undo_winner(bench.deployment, job)
    assert (pinned(bench), labels(bench)) == ([], [])


@probe()
def a_thumbnail_of_a_picture_that_was_deleted_meanwhile_is_swept(bench: Bench) -> None:
    job = shown(bench)
    deployment = replace(bench.deployment, inspector=Inspector())
    bench.wait(7200)
    sweep_attempts(bench.deployment, bench.now_ms)

    def remove() -> None:
        removal.remove(bench.deployment, job, bench.now_ms)
        bench.wait(0)
        sweep_attempts(bench.deployment, bench.now_ms)

    bench.meanwhile("name_thumbnail", remove)
    for _ in make_thumbnails(deployment):
        pass
    sweep_attempts(bench.deployment, bench.now_ms)
    assert [key for key in bench.objects.objects if "/thumbnails/" in key] == []


@probe()
def a_thumbnail_is_not_swept_while_it_is_written(bench: Bench) -> None:
    shown(bench)
    deployment = replace(bench.deployment, inspector=Inspector())
    bench.wait(7200)
    bench.meanwhile("record_picture", lambda: sweep_attempts(bench.deployment, bench.now_ms))
    for _ in make_thumbnails(deployment):
        pass
    assert len([key for key in bench.objects.objects if "/thumbnails/" in key]) == 1
