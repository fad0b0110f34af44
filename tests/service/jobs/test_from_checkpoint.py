"""A job that is submitted again goes on from the old one's checkpoint, which stays until the new job has one of its own."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gangline.compose.client import Client
from gangline.core.errors import BadInput, NotFound
from gangline.core.jobs.lists.filters import JobFilters
from gangline.core.runs.contract import MANIFEST, parse_manifest
from gangline.ports.server import Done, Downloads, Reject, Urls
from gangline.service.jobs import query, steer
from gangline.service.jobs.checkpoint import reject_damaged, sign_downloads
from gangline.service.jobs.lists.page import page_of_jobs
from gangline.service.retention.ages import expire_checkpoints
from gangline.service.retention.removal import remove, what_goes
from gangline.service.retention.storage import checkpoints
from tests.service.conftest import OPERATOR, PROJECT, Before, Service
from tests.service.jobs.test_one_at_a_time import commit, upload
from tests.service.retention.test_ages import after, steps, stored, trained
from tests.service.served import serving


def canceled(service: Service, *at: int) -> str:
    """A job that was canceled with checkpoints of these steps."""
    job, _, _ = trained(service, *at)
    steer.cancel(service.deployment, job, service.now_ms)
    return job


def again(service: Service, job: str) -> str:
    return steer.submit_again(service.deployment, PROJECT, job, service.now_ms, from_checkpoint=True)


def test_the_new_job_begins_where_the_old_one_was_safe(service: Service) -> None:
    old = canceled(service, 10, 20)
    new = again(service, old)
    shown = query.job(service.deployment, PROJECT, new, service.now_ms).summary
    assert (shown.step, shown.committed_step, shown.attempts) == (20, 20, 0)
    node = service.join("node-b")
    given = service.claim(node)
    assert given.job == new
    assert [found.step for found in given.resume] == [20, 10]
    wanted = Downloads(keys=tuple(file.key for file in given.resume[0].files))
    assert isinstance(sign_downloads(service.deployment, node, given.hold, wanted, service.now_ms), Urls)
    view = query.job(service.deployment, PROJECT, new, service.now_ms)
    assert view.attempts[0].from_step == 20 and view.steps_redone == 0
    assert (
        query.events_after(service.deployment, PROJECT, new, 0)[0].because == f"waits for a node, to resume from {old}"
    )


def test_without_being_asked_for_it_begins_at_the_start(service: Service) -> None:
    old = canceled(service, 10)
    steer.submit_again(service.deployment, PROJECT, old, service.now_ms)
    assert service.claim(service.join("node-b")).resume == ()


def test_the_old_checkpoints_outlive_their_age_until_the_new_job_has_its_own(service: Service) -> None:
    old = canceled(service, 10, 20)
    new = again(service, old)
    steer.pause(service.deployment, new, service.now_ms)
    after(service, 8)
    assert steps(service, old) == [20, 10]
    steer.resume(service.deployment, new, service.now_ms)
    kept = checkpoints(service.deployment, service.store.load("job", id=old)[0])
    assert {one.because for one in kept} == {"kept until the job that begins from it has a checkpoint of its own"}
    assert all(one.goes_ms is None for one in kept)
    node = service.join("node-b")
    hold = service.claim(node).hold
    upload(service, node, hold, 30, b"step 30")
    commit(service, node, hold, 30, b"step 30")
    service.tick()
    assert (steps(service, old), steps(service, new)) == ([], [30])
    service.wait(60)
    service.tick()
    assert service.claim(service.join("node-c")).resume[0].step == 30


def test_the_old_checkpoints_go_when_the_new_job_ends_without_one(service: Service) -> None:
    old = canceled(service, 10)
    new = again(service, old)
    after(service, 8)
    steer.cancel(service.deployment, new, service.now_ms)
    after(service, 0)
    assert (steps(service, old), stored(service, "checkpoints")) == ([], [])


def test_a_job_that_ended_before_it_had_one_hands_on_what_it_was_to_begin_from(service: Service) -> None:
    old = canceled(service, 10)
    between = again(service, old)
    steer.cancel(service.deployment, between, service.now_ms)
    again(service, between)
    assert [found.step for found in service.claim(service.join("node-b")).resume] == [10]


def test_a_damaged_one_is_rejected_and_the_one_before_it_is_used(service: Service) -> None:
    old = canceled(service, 10, 20)
    again(service, old)
    node = service.join("node-b")
    given = service.claim(node)
    newest = given.resume[0].id
    assert isinstance(
        reject_damaged(service.deployment, node, given.hold, Reject(checkpoint=newest, because="x"), service.now_ms),
        Done,
    )
    service.wait(60)
    service.tick()
    assert [found.step for found in service.claim(service.join("node-c")).resume] == [10]


def test_a_job_without_a_checkpoint_is_refused(service: Service) -> None:
    old = canceled(service)
    with pytest.raises(BadInput, match=f"{old} keeps no checkpoint"):
        again(service, old)
    assert len(page_of_jobs(service.deployment, PROJECT, JobFilters(), service.now_ms, limit=9).jobs) == 1


def test_checkpoints_that_are_inherited_in_the_moment_of_their_deletion_stay(service: Service) -> None:
    old = canceled(service, 10)
    service.wait(8 * 86_400)
    store = Before(service.store, "apply", lambda: again(service, old))
    expire_checkpoints(replace(service.deployment, store=store), service.now_ms)
    assert steps(service, old) == [10]


def test_checkpoints_that_are_deleted_in_the_moment_of_their_inheritance_are_no_beginning(service: Service) -> None:
    old = canceled(service, 10)
    service.wait(8 * 86_400)
    store = Before(service.store, "apply", lambda: expire_checkpoints(service.deployment, service.now_ms))
    with pytest.raises(BadInput, match="keeps no checkpoint any more"):
        steer.submit_again(replace(service.deployment, store=store), PROJECT, old, service.now_ms, from_checkpoint=True)


def test_an_old_job_is_not_deleted_while_another_is_to_begin_from_it(service: Service) -> None:
    old = canceled(service, 10)
    new = again(service, old)
    for act in (
        lambda: what_goes(service.deployment, service.store.load("job", id=old)[0], service.now_ms),
        lambda: remove(service.deployment, old, service.now_ms),
    ):
        with pytest.raises(BadInput, match=f"{new} begins from the checkpoint of {old}"):
            act()
    steer.cancel(service.deployment, new, service.now_ms)
    remove(service.deployment, old, service.now_ms)
    assert steps(service, old) == []


def test_a_job_that_must_stay_exact_goes_on_where_its_checkpoint_was_made(service: Service) -> None:
    job, node = service.submit(exact="required"), service.join(capabilities={"cpu": "one"})
    hold = service.claim(node).hold
    upload(service, node, hold, 10, b"step 10")
    commit(service, node, hold, 10, b"step 10")
    steer.cancel(service.deployment, job, service.now_ms)
    new = again(service, job)
    service.claim_nothing(service.join("node-b", capabilities={"cpu": "another"}))
    assert service.claim(node).job == new


def from_step(service: Service, job: str, step: int) -> str:
    return steer.submit_again(service.deployment, PROJECT, job, service.now_ms, from_step=step)


def test_it_may_begin_from_an_older_checkpoint_and_then_from_no_newer_one(service: Service) -> None:
    old = canceled(service, 10, 20)
    new = from_step(service, old, 10)
    shown = query.job(service.deployment, PROJECT, new, service.now_ms)
    assert shown.summary.committed_step == 10
    told = query.events_after(service.deployment, PROJECT, new, 0)[0].because
    assert told == f"waits for a node, to resume from step 10 of {old}"
    assert [found.step for found in service.claim(service.join("node-b")).resume] == [10]


def test_whoever_inherits_from_it_begins_from_the_same_step(service: Service) -> None:
    old = canceled(service, 10, 20)
    between = from_step(service, old, 10)
    steer.cancel(service.deployment, between, service.now_ms)
    again(service, between)
    assert [found.step for found in service.claim(service.join("node-b")).resume] == [10]


def test_a_step_that_is_not_kept_is_no_beginning(service: Service) -> None:
    old = canceled(service, 10, 20)
    with pytest.raises(NotFound, match=f"{old} keeps no checkpoint of step 15") as error:
        from_step(service, old, 15)
    assert error.value.hint == "it keeps those of these steps: 20, 10"


def test_a_checkpoint_is_downloaded_with_its_manifest(service: Service, tmp_path: Path) -> None:
    job, _, _ = trained(service, 10)
    with serving(service.app) as served, Client(served.url, OPERATOR) as client:
        folder = client.checkpoints.download(job, 10, tmp_path)
        with pytest.raises(NotFound, match="keeps no checkpoint of step 11"):
            client.checkpoints.get(job, 11)
    manifest = parse_manifest(json.loads((folder / MANIFEST).read_text()))
    assert folder == tmp_path / "000010" and manifest.step == 10
    (file,) = manifest.files
    assert (folder / file.path).read_bytes() == b"step 10"


def test_it_is_asked_for_over_http(service: Service) -> None:
    old = canceled(service, 10)
    made = service.ask("POST", f"/v1/jobs/{old}/retry", params={"from_checkpoint": "true"})
    assert made.status_code == 201 and made.json()["summary"]["committed_step"] == 10
    refused = service.ask("POST", f"/v1/jobs/{canceled(service)}/retry", params={"from_checkpoint": "true"})
    assert refused.status_code == 422 and "keeps no checkpoint" in refused.json()["detail"]
