"""A node gets the kinds of jobs that it proved to have the libraries of; one that failed its probe gets none."""

from typing import Any

import pytest

from gangline.ports.server import Committed, Join
from gangline.service.access.access import DEFAULT_POOL
from gangline.service.fleet import operating
from gangline.service.fleet.health import begin_trials
from gangline.service.fleet.nodes import join_pool
from gangline.service.jobs import query
from tests.service.conftest import PROJECT, Service
from tests.service.jobs.test_samples import commit, train
from tests.service.jobs.test_scratch import submit_scratch
from tests.service.test_rules import rent

NO_LANCE = "lance is not installed: pip install 'gangline[data]'"
NO_TORCH = "torch is not installed: pip install 'gangline[train]'"
BARE: dict[str, Any] = {"kinds": (), "problems": dict.fromkeys(("lora", "scratch", "sample"), NO_TORCH)}
FOR_LORAS: dict[str, Any] = {"kinds": ("lora", "sample"), "problems": {"scratch": NO_LANCE}}


def seen(service: Service, node: str) -> tuple[str, str]:
    """As `gangline nodes ls` shows it."""
    return next(
        (view.state, view.because)
        for view in operating.nodes(service.deployment, None, service.now_ms)
        if view.id == node
    )


def test_a_node_without_libraries_is_here_and_says_why_but_gets_no_job(service: Service) -> None:
    job = service.submit()
    node = service.join(**BARE)
    assert seen(service, node) == ("quarantined", f"failed its probe: {NO_TORCH}")
    assert service.claim_nothing(node) == f"node-a is quarantined: failed its probe: {NO_TORCH}"
    assert service.state(job) == "queued"


@pytest.mark.parametrize("aspect", ["card", "burst", "disk", "memory", "probe"])
def test_a_node_with_all_libraries_whose_card_disk_or_memory_fails_gets_no_job(service: Service, aspect: str) -> None:
    service.submit()
    node = service.join(problems={aspect: "it is too small"})
    assert seen(service, node) == ("quarantined", "failed its probe: it is too small")
    service.claim_nothing(node)


def test_a_node_without_the_libraries_of_one_kind_gets_only_the_others(service: Service) -> None:
    scratch, node = submit_scratch(service), service.join(**FOR_LORAS)
    assert seen(service, node) == ("ready", f"no libraries for scratch: {NO_LANCE}")
    service.claim_nothing(node)
    lora = service.submit()
    assert service.claim(node).job == lora
    assert service.claim(service.join("node-b")).job == scratch


def test_nor_does_it_get_one_that_was_begun_elsewhere(service: Service) -> None:
    scratch, other = submit_scratch(service), service.join("node-b")
    service.claim(other)
    node = service.join(**FOR_LORAS)
    service.wait(3600)
    service.tick()
    assert service.state(scratch) == "queued"
    service.claim_nothing(node)


def test_a_job_that_waits_for_libraries_says_which_node_lacks_which(service: Service) -> None:
    scratch = submit_scratch(service)
    service.join(**FOR_LORAS)
    because = query.job(service.deployment, PROJECT, scratch, service.now_ms).summary.because
    assert (
        because
        == f"no node can take it: node-a has no libraries for scratch: {NO_LANCE}; start a worker: `gangline worker`"
    )


def test_a_node_whose_gangline_does_not_know_a_kind_does_not_get_it(service: Service) -> None:
    submit_scratch(service)
    service.claim_nothing(service.join(kinds=("lora",)))


def test_pictures_are_left_to_no_node_without_libraries_for_them(service: Service) -> None:
    trainer = service.join("node-b")
    training = train(service, trainer)
    free = service.join(kinds=("lora",), problems={"sample": NO_TORCH})
    assert commit(service, trainer, training, 10) == Committed(render=True)
    service.claim_nothing(free)


def test_a_failed_probe_is_no_quarantine_that_ends_by_itself(service: Service) -> None:
    node = service.join(**BARE)
    service.wait(60)
    begin_trials(service.deployment, service.now_ms)
    assert seen(service, node)[0] == "quarantined"


def test_a_machine_that_failed_its_probe_and_passes_it_now_is_ready_at_once(service: Service) -> None:
    job = service.submit()
    service.join(**BARE)
    node = service.join()
    assert seen(service, node) == ("ready", "")
    assert service.claim(node).job == job


def test_a_card_that_computed_wrong_and_passes_now_is_on_trial(service: Service) -> None:
    service.join(problems={"burst": "the card computes wrong"})
    assert seen(service, service.join())[0] == "on_trial"


def test_a_rented_node_that_fails_its_probe_joins_as_that_and_is_to_end(service: Service) -> None:
    rent(service, "node-1", pool="cloud")
    service.join("node-a", node="node-1", **BARE)
    assert seen(service, "node-1") == ("quarantined", f"failed its probe: {NO_TORCH}")


def test_what_it_measured_decides_no_numerics(service: Service) -> None:
    numerics = set()
    for speed in ("400 TFLOP/s", "401 TFLOP/s"):
        request = Join(machine="m", name="node-a", gpu="H100", capabilities={"torch": "2"}, measured={"burst": speed})
        node = join_pool(service.deployment, request, DEFAULT_POOL, service.now_ms).node
        row = service.look(f"SELECT numerics, capabilities FROM node WHERE id = '{node}'")[0]
        assert speed in row["capabilities"]
        numerics.add(row["numerics"])
    assert len(numerics) == 1


def test_who_goes_after_a_failed_probe_is_gone_with_its_reason(service: Service) -> None:
    node = service.join(**BARE)
    service.wait(service.deployment.policy.node_silent_s + 1)
    service.tick()
    row = service.look(f"SELECT state, because FROM node WHERE id = '{node}'")[0]
    assert row == {"state": "gone", "because": f"failed its probe: {NO_TORCH}"}
