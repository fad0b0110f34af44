"""Races and rules about bytes in the object store: uploads in parts, what is swept, what is read back."""

from dataclasses import replace

from gangline.core.files import PART_BYTES, File
from gangline.core.jobs.keys import attempt_prefix
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.ports.server import Committed, Hold, Log, Refused, Succeeded
from gangline.service.content.sweep import sweep_attempts, sweep_uploads
from gangline.service.jobs import checkpoint, renew
from gangline.service.jobs.finish import finish
from gangline.service.jobs.submit import blob_here
from gangline.service.jobs.verify import verify
from gangline.sim.objects import simulated_parts
from tests.sim.mutants.bench import PROJECT, Bench, probe

SIZE = 3 * PART_BYTES + 1
SHA256 = "a" * 64
PARTS = tuple(part.sha256 or "" for part in simulated_parts(File(path="x", bytes=SIZE, sha256=SHA256)))


def large(bench: Bench, hold: Hold, step: int = 10) -> File:
    """Of a checkpoint."""
    return replace(bench.manifest(hold, step).files[0], bytes=SIZE)


def attempts_bytes(bench: Bench, hold: Hold) -> set[str]:
    """The names below an attempt, without the number of its checkpoint's step."""
    job = bench.look("SELECT job FROM attempt WHERE id = ?", hold.attempt)[0]
    prefix = attempt_prefix(PROJECT, job, hold.attempt)
    return {key.removeprefix(f"{prefix}/") for key in bench.objects.list(prefix)}


def sweep(bench: Bench) -> None:
    """As the service does of itself, when all URLs have expired for long."""
    bench.wait(bench.policy.orphans_s + 1)
    bench.tick()


# Uploads in parts


@probe()
def a_large_checkpoint_goes_up_in_parts_and_is_committed_once_all_are_there(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    file = large(bench, hold)
    grant = bench.grant(node, hold, "checkpoints", file, 10)
    assert len(grant.parts) == 4
    bench.objects.receive(grant, file, 0.5)
    assert isinstance(bench.commit(node, hold, 10, upload=False, files=(file,)), Refused)
    again = bench.grant(node, hold, "checkpoints", file, 10)
    assert [part is None for part in again.parts] == [True, True, False, False]
    bench.objects.receive(again, file)
    assert bench.commit(node, hold, 10, upload=False, files=(file,)) == Committed()
    assert bench.commit(node, hold, 10, upload=False, files=(file,)) == Committed()
    assert bench.look("SELECT verified FROM checkpoint") == [1] and not bench.objects.open
    assert bench.grant(node, hold, "checkpoints", file, 10).parts == (None,) * 4


@probe()
def two_requests_for_one_file_begin_one_upload(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    file = large(bench, hold)
    both = []
    bench.meanwhile("keep_upload", lambda: both.append(bench.grant(node, hold, "checkpoints", file, 10)))
    both.append(bench.grant(node, hold, "checkpoints", file, 10))
    assert both[0] == both[1] and len(bench.objects.open) == 1


@probe()
def of_two_that_begin_an_upload_in_the_same_moment_one_counts(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    file, both = large(bench, hold), []
    begin = bench.objects.begin

    def slowly(key: str) -> str:
        bench.objects.begin = begin
        both.append(bench.grant(node, hold, "checkpoints", file, 10))
        return begin(key)

    bench.objects.begin = slowly
    both.append(bench.grant(node, hold, "checkpoints", file, 10))
    assert both[0] == both[1] and len(bench.objects.open) == 1


@probe()
def other_bytes_under_the_same_name_are_another_upload_until_one_is_there(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    file = large(bench, hold)
    other = replace(file, sha256="b" * 64)
    first = bench.grant(node, hold, "checkpoints", other, 10)
    bench.objects.receive(first, other, 0.5)
    bench.objects.receive(bench.grant(node, hold, "checkpoints", file, 10), file)
    assert isinstance(bench.commit(node, hold, 10, upload=False, files=(other,)), Refused)
    assert bench.commit(node, hold, 10, upload=False, files=(file,)) == Committed()
    bench.objects.receive(bench.grant(node, hold, "checkpoints", other, 10), other)
    bench.commit(node, hold, 10, upload=False, files=(other,))
    prefix = bench.look("SELECT prefix FROM checkpoint")[0]
    assert bench.objects.objects[f"{prefix}/{file.path}"].sha256 == file.sha256


@probe()
def who_has_lost_the_lease_completes_nothing(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    file = large(bench, hold)
    bench.objects.receive(bench.grant(node, hold, "checkpoints", file, 10), file)
    bench.release(node, hold)
    bench.take(node, job)
    bench.commit(node, hold, 10, upload=False, files=(file,))
    finish(bench.deployment, node, hold, Succeeded(output=(file,)), bench.now_ms)
    assert not attempts_bytes(bench, hold) and not bench.checkpoints(job)


@probe()
def what_a_user_hands_in_goes_up_in_parts_too(bench: Bench) -> None:
    file = File(path="base", bytes=SIZE, sha256=SHA256)
    for share in (0.5, 1.0):
        offered = blob_here(bench.deployment, PROJECT, SHA256, SIZE, bench.now_ms, PARTS)
        assert offered.grant and not offered.present
        bench.objects.receive(offered.grant, file, share)
    assert blob_here(bench.deployment, PROJECT, SHA256, SIZE, bench.now_ms, PARTS).present
    bench.wait(bench.policy.uploads_s + 1)
    bench.tick()
    assert not bench.look("SELECT key FROM upload")
    assert blob_here(bench.deployment, PROJECT, SHA256, SIZE, bench.now_ms, PARTS).present


# Sweeps


@probe()
def what_an_ended_attempt_left_goes_and_what_is_referred_to_stays(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.commit(node, hold, 10)
    renew.append_log(bench.deployment, node, hold, Log(first_byte=0, text="said"), bench.now_ms)
    bench.upload(node, hold, "checkpoints", bench.manifest(hold, 20).files[0], 20)
    bench.upload(node, hold, "output", replace(bench.manifest(hold, 20).files[0], path="draft"))
    bench.objects.receive(
        bench.grant(node, hold, "checkpoints", large(bench, hold, 30), 30), large(bench, hold, 30), 0.5
    )
    left = attempts_bytes(bench, hold)
    bench.wait(bench.policy.orphans_s + 1)
    sweep_attempts(bench.deployment, bench.now_ms)
    assert attempts_bytes(bench, hold) == left and bench.objects.open, "it lives"
    bench.succeed(node, hold)
    left = attempts_bytes(bench, hold)
    bench.wait(bench.policy.url_s)
    sweep_attempts(bench.deployment, bench.now_ms)
    assert attempts_bytes(bench, hold) == left and bench.objects.open, "its URLs are valid"
    sweep(bench)
    kept = {"checkpoints/000010/state.safetensors", "logs/000000000000", f"output/{DIFFUSERS_FILE}"}
    assert attempts_bytes(bench, hold) == kept and not bench.objects.open
    assert not bench.look("SELECT key FROM upload")
    bench.audit.no_orphans()


@probe()
def what_an_attempt_left_stays_until_long_after_an_outage(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.upload(node, hold, "checkpoints", bench.manifest(hold, 20).files[0], 20)
    bench.release(node, hold)
    bench.wait(bench.policy.orphans_s + 1)
    bench.store.look(f"UPDATE service SET back_ms = {bench.now_ms}")
    sweep_attempts(bench.deployment, bench.now_ms)
    assert attempts_bytes(bench, hold)
    sweep(bench)
    assert not attempts_bytes(bench, hold)


@probe()
def an_attempt_is_swept_once_and_again_when_it_loses_a_checkpoint(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    for step in (10, 20):
        bench.commit(node, hold, step)
    bench.release(node, hold)
    sweep(bench)
    assert not bench.store.load("attempts_to_sweep", before=bench.now_ms, limit=1)
    node = bench.join("b")
    new = bench.take(node, job)
    newest = bench.checkpoints(job)[-1]
    bench.reject(node, new, newest)
    assert len(attempts_bytes(bench, hold)) == 2
    sweep(bench)
    assert attempts_bytes(bench, hold) == {"checkpoints/000010/state.safetensors"}


@probe()
def what_is_rejected_while_its_attempt_is_swept_goes_with_the_next_sweep(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.commit(node, hold, 10)
    bench.release(node, hold)
    bench.wait(bench.policy.orphans_s + 1)
    node = bench.join("b")
    new = bench.take(node, job)
    bench.meanwhile("mark_swept", lambda: bench.reject(node, new, bench.checkpoints(job)[-1]))
    sweep_attempts(bench.deployment, bench.now_ms)
    assert attempts_bytes(bench, hold)
    sweep_attempts(bench.deployment, bench.now_ms)
    assert not attempts_bytes(bench, hold)


@probe()
def what_was_forgotten_and_not_deleted_goes_with_the_next_sweep(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.commit(node, hold, 10)
    bench.commit(node, hold, 20)
    bench.release(node, hold)
    sweep(bench)
    node = bench.join("b")
    new = bench.take(node, job)
    delete, bench.objects.delete = bench.objects.delete, lambda keys: None  # the server dies between the two
    bench.commit(node, new, 30)
    bench.objects.delete = delete
    assert len(attempts_bytes(bench, hold)) == 2
    sweep(bench)
    assert len(attempts_bytes(bench, hold)) == 1


@probe()
def the_upload_that_a_dead_server_began_and_did_not_write_down_is_swept(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    file = large(bench, hold)
    prefix = attempt_prefix(PROJECT, job, hold.attempt)
    bench.grant(node, hold, "checkpoints", file, 10)
    bench.objects.begin(f"{prefix}/checkpoints/000010/{file.path}")
    bench.release(node, hold)
    sweep(bench)
    assert not bench.objects.open


@probe()
def an_upload_that_a_user_gave_up_goes_after_a_day_and_no_other(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.grant(node, hold, "checkpoints", large(bench, hold), 10)
    blob_here(bench.deployment, PROJECT, SHA256, SIZE, bench.now_ms, PARTS)
    bench.wait(bench.policy.uploads_s)
    sweep_uploads(bench.deployment, bench.now_ms)
    assert len(bench.objects.open) == 2
    bench.wait(1)
    sweep_uploads(bench.deployment, bench.now_ms)
    assert ["/attempts/" in upload.key for upload in bench.objects.open.values()] == [True]


@probe()
def an_upload_that_is_begun_anew_while_the_old_one_is_given_up_is_remembered(bench: Bench) -> None:
    blob_here(bench.deployment, PROJECT, SHA256, SIZE, bench.now_ms, PARTS)
    bench.wait(bench.policy.uploads_s + 1)
    bench.meanwhile("drop_upload", lambda: blob_here(bench.deployment, PROJECT, SHA256, SIZE, bench.now_ms, PARTS))
    sweep_uploads(bench.deployment, bench.now_ms)
    assert bench.look("SELECT begun FROM upload") == list(bench.objects.open)


# Reading back


@probe()
def what_the_store_does_not_attest_is_read_back_before_it_counts_as_verified(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.commit(node, hold, 10)
    bench.objects.unattested = True
    for step in (20, 30, 40):
        bench.commit(node, hold, step)
    assert len(bench.checkpoints(job)) == 3
    for _ in verify(bench.deployment):
        pass
    assert bench.look("SELECT step, verified FROM checkpoint WHERE state = 'committed' ORDER BY step") == [
        (30, 0),
        (40, 1),
    ]


@probe()
def what_is_read_back_as_other_bytes_is_rejected_once_and_says_why(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.commit(node, hold, 10)
    bench.objects.unattested = True
    bench.commit(node, hold, 20)
    key = next(key for key in bench.objects.objects if "/000020/" in key)
    bench.objects.objects[key].damaged = True
    newest = bench.checkpoints(job)[-1]
    bench.meanwhile("reject_checkpoint", lambda: bench.reject(node, hold, newest))
    for _ in verify(bench.deployment):
        pass
    assert bench.checkpoints(job, "rejected") == [newest] and bench.events(job).count("rejected") == 1
    bench.commit(node, hold, 30)
    key = next(key for key in bench.objects.objects if "/000030/" in key)
    del bench.objects.objects[key]
    for _ in verify(bench.deployment):
        pass
    [because] = bench.look("SELECT because FROM event WHERE kind = 'rejected' AND node IS NULL")
    assert because.startswith("the checkpoint of step 30 is damaged: state.safetensors")
    bench.checks._rejected.add(job)
    assert len(bench.checkpoints(job)) == 1


@probe()
def nothing_is_forgotten_while_nothing_is_verified(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.commit(node, hold, 5)
    bench.store.look("UPDATE checkpoint SET verified = 0")
    bench.objects.unattested = True
    for step in (10, 20, 30):
        bench.commit(node, hold, step)
    assert len(bench.checkpoints(job)) == 4
    checkpoint.prune(bench.deployment, job, bench.now_ms)
    assert len(bench.checkpoints(job)) == 4
    bench.store.look("UPDATE checkpoint SET verified = 1")
    checkpoint.prune(bench.deployment, job, bench.now_ms)
    assert len(bench.checkpoints(job)) == 2
