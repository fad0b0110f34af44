"""What the service learns of a command while it runs."""

from gangline.core.parsing import to_json
from gangline.core.specs.command import parse_command
from gangline.ports.server import Beat, Done
from gangline.service.jobs import query, renew
from gangline.service.jobs.finish import finish
from gangline.service.jobs.submit import submit
from tests.service.conftest import PROJECT, Service
from tests.service.jobs.test_one_at_a_time import result


def test_the_number_of_its_steps_is_known_once_it_prints_it(service: Service) -> None:
    spec = to_json(parse_command({"command": ["true"]}, options=True))
    job = submit(service.deployment, PROJECT, spec, name="", request=None, now_ms=service.now_ms)
    node = service.join(measured={"isolation": "uid"})
    hold = service.claim(node).hold
    renew.renew(service.deployment, node, hold, Beat(phase="training", step=3), service.now_ms)
    assert query.job(service.deployment, PROJECT, job, service.now_ms).summary.steps == 0
    beat = Beat(phase="training", step=4, steps=40, seconds_per_step=2.0, loss=0.5)
    renew.renew(service.deployment, node, hold, beat, service.now_ms)
    summary = query.job(service.deployment, PROJECT, job, service.now_ms).summary
    assert (summary.steps_done, summary.eta_s) == ("4/40", 72.0)


def test_a_node_changes_the_steps_of_no_job_whose_spec_has_them(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    steps = service.store.load("job", id=job)[0]["steps"]
    renew.renew(service.deployment, node, hold, Beat(phase="training", step=1, steps=7), service.now_ms)
    assert service.store.load("job", id=job)[0]["steps"] == steps != 7


def test_a_training_job_that_succeeds_ends_at_its_last_step_and_a_command_at_that_which_it_printed_last(
    service: Service,
) -> None:
    command = to_json(parse_command({"command": ["true"]}, options=True))
    ended = list[tuple[str, int]]()
    for submitted in (
        service.submit,
        lambda: submit(service.deployment, PROJECT, command, name="", request=None, now_ms=service.now_ms),
    ):
        job, node = submitted(), service.join(measured={"isolation": "uid"})
        hold = service.claim(node).hold
        renew.renew(service.deployment, node, hold, Beat(phase="training", step=4, steps=40), service.now_ms)
        assert finish(service.deployment, node, hold, result(service, node, hold), service.now_ms) == Done()
        found = query.job(service.deployment, PROJECT, job, service.now_ms)
        ended.append((found.summary.steps_done, found.attempts[-1].step))
    steps = service.spec().steps
    assert ended == [(f"{steps}/{steps}", steps), ("4/40", 4)]
