"""Training on data sets as a job: what may be handed in, what its node is given, who shows it."""

from typing import Any

import pytest

from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.parsing import to_json
from gangline.core.specs.fields import FilesBase, Needs
from gangline.core.specs.phases import DataRef, TrainingPhase
from gangline.core.specs.scratch import ScratchSpec
from gangline.ports.server import Assignment
from gangline.service.jobs.submit import submit
from tests.service.conftest import PROJECT, Service
from tests.service.test_rules import succeed

SET = {"place": "data/0-emoji.lance", "id": "x", "version": 1}


def submit_scratch(service: Service, **settings: Any) -> str:
    values: dict[str, Any] = {
        "base": FilesBase(files=(service.photo,)),
        "data": (DataRef(files=(service.photo,), **SET),),
        "phases": (TrainingPhase(steps=100, resolution=64, batch_size=8),),
        "new": ("unet",),
    }
    spec = to_json(ScratchSpec(**(values | settings)))
    return submit(service.deployment, PROJECT, spec, name="", request=None, now_ms=service.now_ms)


def paths(assignment: Assignment) -> set[str]:
    return {file.path for file in assignment.inputs}


def test_its_node_is_given_the_base_and_the_data_sets_that_were_uploaded(service: Service) -> None:
    job = submit_scratch(service)
    given = service.claim(service.join())
    assert given.job == job
    assert paths(given) == {"base/a.png", "data/0-emoji.lance/a.png"}
    assert given.kind == given.spec["kind"] == "scratch"


def test_a_data_set_in_a_bucket_is_read_where_it_lies(service: Service) -> None:
    submit_scratch(service, data=(DataRef(place="s3://sets/emoji.lance", id="x", version=1),))
    assert paths(service.claim(service.join())) == {"base/a.png"}


@pytest.mark.parametrize("place", ["data/0-emoji.lance", "/etc", "file:///etc", "../other-job"])
def test_no_job_names_a_path_of_a_node(service: Service, place: str) -> None:
    with pytest.raises(BadInput, match="no node can read"):
        submit_scratch(service, data=(DataRef(place=place, id="x", version=1),))


@pytest.mark.parametrize("place", ["base", "/data/x", "data/../base", "s3://sets/emoji.lance"])
def test_no_files_are_put_elsewhere_than_below_its_data(service: Service, place: str) -> None:
    with pytest.raises(BadInput, match="below data/"):
        submit_scratch(service, data=(DataRef(place=place, id="x", version=1, files=(service.photo,)),))


def test_a_data_set_that_was_not_uploaded_is_refused(service: Service) -> None:
    lacking = (DataRef(files=(File(path="a.png", bytes=1, sha256="0" * 64),), **SET),)
    with pytest.raises(BadInput, match=r"data/0-emoji\.lance/a\.png"):
        submit_scratch(service, data=lacking)


def test_it_waits_for_a_node_with_as_many_gpus_as_its_ranks(service: Service) -> None:
    job = submit_scratch(service, needs=Needs(slots=2))
    assert service.claim_nothing(service.join("small"))
    assert service.claim(service.join("large", slots=2)).job == job


def test_without_prompts_nothing_is_shown_of_it(service: Service) -> None:
    job = submit_scratch(service, sample_every_steps=10)
    node = service.join()
    succeed(service, node, service.claim(node).hold)
    assert service.state(job) == "succeeded"
    service.claim_nothing(node)


def test_its_result_is_shown_by_a_job_of_one_gpu(service: Service) -> None:
    submit_scratch(service, needs=Needs(slots=2), sample_prompts=("a cat",))
    node = service.join("large", slots=2)
    succeed(service, node, service.claim(node).hold)
    shown = service.claim(service.join("small"))
    assert shown.spec["kind"] == "sample"
    assert not any(path.startswith("data/") for path in paths(shown))
