"""Races and rules about what is kept after a job's end, what is pinned, and what is deleted."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gangline.core.errors import BadInput, NotFound, Unreachable
from gangline.core.jobs.keys import blob_key
from gangline.core.specs.fields import FilesBase
from gangline.service.content import bases
from gangline.service.content.blobs import delete_given_up, give_up_unused, giving_up
from gangline.service.content.mirror import mirror
from gangline.service.jobs import samples, steer
from gangline.service.jobs.submit import blob_here
from gangline.service.retention import removal, storage
from gangline.service.retention.ages import expire_checkpoints, expire_logs, expire_previews
from tests.sim.mutants.bench import PROJECT, Bench, probe, refused
from tests.sim.mutants.probes_of_bases import Gated, add, copied
from tests.sim.mutants.probes_of_samples import pair, render

DAY_S = 86_400
PRICE = {"storage_usd_per_gb_month": 3000.0}
"""100 dollars for a GB and day: so the bill of a checkpoint's day is 0.1 dollars."""

PHOTO = hashlib.sha256(b"photo").hexdigest()


def ended(bench: Bench, *steps: int, **settings: Any) -> str:
    """A job that has succeeded, with checkpoints of these steps."""
    job, node = bench.submit(**settings), bench.join("trainer")
    hold = bench.take(node, job)
    for step in steps:
        bench.commit(node, hold, step)
    bench.succeed(node, hold)
    return job


def stored(bench: Bench) -> list[tuple[Any, ...]]:
    """What the ledger says of storage."""
    return bench.store.look("SELECT attempt, from_ms, micro_usd FROM ledger WHERE cause = 'storage' ORDER BY 1, 2")


def pin(bench: Bench, job: str, step: int) -> Any:
    return storage.pin(bench.deployment, bench.store.load("job", id=job)[0], step, pinned=True)


def expire(bench: Bench, *parts: Callable[..., None]) -> Callable[[], None]:
    def act() -> None:
        for part in parts:
            part(bench.deployment, bench.now_ms)

    return act


def give_up(bench: Bench, sha256: str = PHOTO) -> None:
    row = next(row for row in bench.store.load("blobs_unused", before=2**62, limit=99) if row["sha256"] == sha256)
    assert bench.store.apply(giving_up(PROJECT, row, bench.now_ms))


def photo_is_there(bench: Bench, sha256: str = PHOTO) -> bool:
    rows = bench.store.load("blob", project=PROJECT, sha256=sha256)
    return bool(rows) and not rows[0]["going"] and blob_key(PROJECT, sha256) in bench.objects.objects


# By age


@probe(**PRICE)
def what_two_servers_expire_at_once_is_billed_and_told_once(bench: Bench) -> None:
    job = ended(bench, 10)
    bench.wait(2 * DAY_S)
    bench.meanwhile("prune_checkpoint", expire(bench, expire_checkpoints))
    expire_checkpoints(bench.deployment, bench.now_ms)
    assert [line[2] for line in stored(bench)] == [200_000]
    assert bench.events(job).count("cleaned up") == 1


@probe()
def what_is_pinned_in_the_moment_of_its_age_stays(bench: Bench) -> None:
    job = ended(bench, 10)
    bench.wait(2 * DAY_S)
    bench.meanwhile("prune_checkpoint", lambda: pin(bench, job, 10))
    expire_checkpoints(bench.deployment, bench.now_ms)
    assert len(bench.checkpoints(job)) == 1
    assert "cleaned up" not in bench.events(job)


@probe()
def what_expires_in_the_moment_of_its_pin_was_not_pinned(bench: Bench) -> None:
    job = ended(bench, 10)
    bench.wait(2 * DAY_S)
    bench.meanwhile("pin_checkpoint", expire(bench, expire_checkpoints))
    assert refused(NotFound, lambda: pin(bench, job, 10))
    assert bench.look("SELECT pinned FROM checkpoint") == [0]


@probe()
def a_checkpoint_that_is_still_to_be_shown_does_not_expire(bench: Bench) -> None:
    found = pair(bench)
    bench.succeed(found.trainer, found.hold)
    bench.wait(2 * DAY_S)
    expire_checkpoints(bench.deployment, bench.now_ms)
    assert len(bench.checkpoints(found.job)) == 1
    steer.cancel(bench.deployment, bench.store.load("open_samples", parent=found.job)[0]["id"], bench.now_ms)
    expire_checkpoints(bench.deployment, bench.now_ms)
    assert bench.checkpoints(found.job) == []


@probe()
def the_log_goes_once(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.store.look(
        "INSERT INTO log_chunk (attempt, first_byte, bytes, key) VALUES (?, 0, 1, 'projects/p/k')", hold.attempt
    )
    bench.succeed(node, hold)
    bench.wait(100 * DAY_S)
    bench.meanwhile("forget_log", expire(bench, expire_logs))
    expire_logs(bench.deployment, bench.now_ms)
    assert (bench.look("SELECT * FROM log_chunk"), bench.events(job).count("cleaned up")) == ([], 1)


def shown(bench: Bench) -> str:
    """A job that has succeeded, with pictures of a step."""
    found = pair(bench)
    render(bench, found.other, bench.claim(found.other))
    bench.succeed(found.trainer, found.hold)
    return found.job


@probe(**PRICE)
def pictures_of_steps_go_and_are_billed_once(bench: Bench) -> None:
    job = shown(bench)
    bench.store.look("UPDATE artifact SET bytes = 1000000 WHERE path LIKE 'samples/%'")
    bench.wait(100 * DAY_S)
    bench.meanwhile("drop_artifact", expire(bench, expire_previews))
    expire_previews(bench.deployment, bench.now_ms)
    assert [line[2] for line in stored(bench)] == [10_000_000]
    assert bench.events(job).count("cleaned up") == 1


# Uploaded files


@probe()
def what_a_job_names_in_this_moment_is_not_given_up(bench: Bench) -> None:
    steer.cancel(bench.deployment, bench.submit(), bench.now_ms)
    bench.wait(40 * DAY_S)
    bench.meanwhile("give_up_blob", lambda: bench.submit(seed=1))
    give_up_unused(bench.deployment, bench.now_ms)
    delete_given_up(bench.deployment, bench.now_ms)
    assert photo_is_there(bench)


@probe()
def a_job_that_names_what_is_given_up_in_this_moment_is_refused(bench: Bench) -> None:
    steer.cancel(bench.deployment, bench.submit(), bench.now_ms)
    bench.meanwhile("use_blob", lambda: give_up(bench))
    assert refused(BadInput, lambda: bench.submit(seed=1))
    delete_given_up(bench.deployment, bench.now_ms)
    assert len(bench.look("SELECT id FROM job")) == 1


@probe()
def what_is_given_up_in_the_moment_of_its_handing_in_is_not_said_to_be_here(bench: Bench) -> None:
    steer.cancel(bench.deployment, bench.submit(), bench.now_ms)
    bench.meanwhile("add_blob", lambda: give_up(bench))
    assert refused(Unreachable, lambda: blob_here(bench.deployment, PROJECT, PHOTO, 9, bench.now_ms))


@probe()
def of_two_servers_one_deletes_and_not_what_came_back_since(bench: Bench) -> None:
    steer.cancel(bench.deployment, bench.submit(), bench.now_ms)
    give_up(bench)

    def other() -> None:
        delete_given_up(replace(bench.deployment, server="b"), bench.now_ms)
        bench.submit(seed=1)

    bench.meanwhile("take_blob", other)
    delete_given_up(bench.deployment, bench.now_ms)
    assert photo_is_there(bench)


@probe()
def a_server_that_comes_late_does_not_forget_what_came_back_since(bench: Bench) -> None:
    steer.cancel(bench.deployment, bench.submit(), bench.now_ms)
    give_up(bench)

    def other() -> None:
        bench.wait(7200)
        delete_given_up(replace(bench.deployment, server="b"), bench.now_ms)
        bench.submit(seed=1)

    bench.meanwhile("drop_blob", other)
    delete_given_up(bench.deployment, bench.now_ms)
    assert photo_is_there(bench)


@probe()
def two_servers_list_the_files_of_a_job_once_and_before_any_is_given_up(bench: Bench) -> None:
    bench.submit()
    bench.store.look("DELETE FROM job_file")
    bench.store.look("UPDATE job SET listed = 0")
    bench.wait(40 * DAY_S)
    bench.meanwhile("mark_listed", expire(bench, give_up_unused))
    give_up_unused(bench.deployment, bench.now_ms)
    give_up_unused(bench.deployment, bench.now_ms)
    delete_given_up(bench.deployment, bench.now_ms)
    assert photo_is_there(bench)


@probe()
def what_a_base_with_a_name_is_made_of_stays(bench: Bench) -> None:
    job = bench.submit()
    base = bench.spec().base
    assert isinstance(base, FilesBase)
    bases.add(bench.deployment, PROJECT, "mine", base, None, bases.BaseStatement(), bench.now_ms)
    steer.cancel(bench.deployment, job, bench.now_ms)
    bench.wait(40 * DAY_S)
    give_up_unused(bench.deployment, bench.now_ms)
    removal.remove(bench.deployment, job, bench.now_ms)
    delete_given_up(bench.deployment, bench.now_ms)
    assert photo_is_there(bench, base.files[0].sha256)
    assert not photo_is_there(bench)


@probe()
def a_copy_from_the_hub_is_not_written_down_with_what_is_being_deleted(bench: Bench) -> None:
    deployment = add(bench, Gated())
    sha256 = hashlib.sha256(b"u").hexdigest()
    key = blob_key(PROJECT, sha256)
    bench.store.load("blob", project=PROJECT, sha256=sha256)
    bench.store.look(
        "INSERT INTO blob (project, sha256, bytes, made_ms, going) VALUES (?, ?, 1, 0, 'asked')", PROJECT, sha256
    )
    list(mirror(deployment))
    assert copied(bench)[0] == "fetching"
    delete_given_up(bench.deployment, bench.now_ms)
    list(mirror(deployment))
    assert copied(bench)[0] == "ready" and key in bench.objects.objects


# Jobs that are deleted


@probe(**PRICE)
def a_job_that_is_deleted_while_its_checkpoint_expires_is_billed_once(bench: Bench) -> None:
    job = ended(bench, 10)
    bench.wait(2 * DAY_S)
    bench.meanwhile("remove_job", expire(bench, expire_checkpoints))
    removal.remove(bench.deployment, job, bench.now_ms)
    assert max(line[2] for line in stored(bench)) < 250_000


@probe(**PRICE)
def a_job_that_is_deleted_while_its_pictures_expire_is_billed_once(bench: Bench) -> None:
    job = shown(bench)
    bench.store.look("UPDATE artifact SET bytes = 1000000 WHERE path LIKE 'samples/%'")
    bench.wait(100 * DAY_S)
    expire_checkpoints(bench.deployment, bench.now_ms)
    before = sum(line[2] for line in stored(bench))
    bench.meanwhile("remove_job", expire(bench, expire_previews))
    removal.remove(bench.deployment, job, bench.now_ms)
    assert sum(line[2] for line in stored(bench)) - before < 10_000_000 + 200


@probe(**PRICE)
def what_was_kept_since_the_same_moment_is_one_line_of_the_bill(bench: Bench) -> None:
    job = ended(bench, 10)
    bench.store.look("UPDATE artifact SET bytes = 1000000")
    bench.wait(DAY_S)
    removal.remove(bench.deployment, job, bench.now_ms)
    assert [line[2] for line in stored(bench)] == [200_000]


@probe()
def a_result_that_is_rendered_once_more_while_its_job_is_deleted_goes_with_it(bench: Bench) -> None:
    job = ended(bench, sample_result=True, seed=77)
    [sample] = bench.store.load("open_samples", parent=job)
    steer.cancel(bench.deployment, sample["id"], bench.now_ms)
    row = bench.store.load("job", id=sample["id"])[0]
    bench.meanwhile("remove_job", lambda: samples.retry_samples(bench.deployment, row, bench.now_ms))
    removal.remove(bench.deployment, job, bench.now_ms)
    assert bench.look("SELECT id FROM job WHERE ended_ms IS NULL OR removed_ms IS NULL") == []


@probe()
def a_job_that_is_deleted_while_its_result_is_to_be_rendered_once_more_is_not_rendered(bench: Bench) -> None:
    job = ended(bench, sample_result=True, seed=77)
    [sample] = bench.store.load("open_samples", parent=job)
    steer.cancel(bench.deployment, sample["id"], bench.now_ms)
    row = bench.store.load("job", id=sample["id"])[0]
    steer.cancel(bench.deployment, bench.submit(seed=1), bench.now_ms)  # on the same base, so that its files stay
    bench.meanwhile("say_why", lambda: removal.remove(bench.deployment, job, bench.now_ms))
    assert refused(BadInput, lambda: samples.retry_samples(bench.deployment, row, bench.now_ms))
    assert bench.look("SELECT id FROM job WHERE ended_ms IS NULL") == []


@probe()
def what_other_jobs_keep_stays_when_one_is_deleted(bench: Bench) -> None:
    job, other = ended(bench, 10), ended(bench, 10, seed=1)
    pin(bench, other, 10)
    removal.remove(bench.deployment, job, bench.now_ms)
    delete_given_up(bench.deployment, bench.now_ms)
    assert photo_is_there(bench)
    bench.wait(2 * DAY_S)
    bench.tick()
    assert len(bench.checkpoints(other)) == 1
    removal.remove(bench.deployment, other, bench.now_ms)
    delete_given_up(bench.deployment, bench.now_ms)
    assert bench.objects.objects == {}


@probe()
def a_photo_of_a_job_that_waits_stays_however_old_it_is(bench: Bench) -> None:
    bench.submit()
    bench.wait(400 * DAY_S)
    give_up_unused(bench.deployment, bench.now_ms)
    delete_given_up(bench.deployment, bench.now_ms)
    assert photo_is_there(bench)


@probe()
def a_job_at_work_is_not_deleted(bench: Bench) -> None:
    job = bench.submit()
    assert refused(BadInput, lambda: removal.remove(bench.deployment, job, bench.now_ms))
