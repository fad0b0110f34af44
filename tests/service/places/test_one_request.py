"""The seeds' own request: a bucket or a URL, and a prompt, in one call."""

from pathlib import Path

import pytest

from gangline.core.specs.fields import FilesBase, parse_base
from gangline.service.content import bases
from gangline.service.content.bases import BaseStatement
from tests.service.conftest import PROJECT, Service
from tests.service.places.conftest import allow
from tests.service.places.site import Site, packed, picture
from tests.service.places.test_imports import fetch_all


@pytest.fixture
def named(service: Service, tmp_path: Path) -> Service:
    """With a base that has a name."""
    base = FilesBase(files=(service.photo,))
    bases.add(
        service.deployment,
        PROJECT,
        "tiny",
        base,
        None,
        BaseStatement(family="sdxl", prediction_type="v_prediction"),
        service.now_ms,
    )
    return allow(service, tmp_path)


def test_one_request_makes_a_job_from_an_address_and_a_prompt(named: Service, site: Site) -> None:
    url = site.put("timber.zip", packed({"1.png": picture()}))
    body = {"kind": "lora", "base": "tiny", "photos": url, "prompt": "a photo of sks dog", "name": "timber", "steps": 5}
    answer = named.ask("POST", "/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    summary, spec = answer.json()["summary"], answer.json()["spec"]
    assert (summary["name"], summary["state"], summary["because"]) == (
        "timber",
        "queued",
        "its photos are being fetched",
    )
    assert (spec["prediction_type"], spec["output_name"], spec["steps"]) == ("v_prediction", "timber", 5)
    assert parse_base(spec["base"]) == FilesBase(files=(named.photo,))
    fetch_all(named.deployment)
    assert named.claim(named.join()).job == summary["id"]


def test_a_line_of_a_batch_may_be_written_so_too(named: Service, site: Site) -> None:
    url = site.put("timber.zip", packed({"1.png": picture()}))
    lines = f'{{"base": "tiny", "photos": "{url}", "prompt": "sks dog"}}\n{{"base": "tiny", "photos": 5, "prompt": "sks dog"}}\n'
    answer = named.ask("POST", "/v1/jobs/batch", content=lines)
    jobs = [line for line in answer.text.splitlines() if '"job":"job-' in line]
    assert len(jobs) == 1 and "photos" in answer.text.splitlines()[1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"base": "unknown"}, "there is no base unknown"),
        ({"base": 5}, "base"),
        ({"name": "a\nb"}, "name"),
        ({"name": 5}, "name"),
        ({"phots": "x"}, "phots"),
        ({"photos": "dogs/"}, "is not an address that this server can fetch from"),
        ({"photos": "s3://bucket/dogs/"}, "has no source for s3://bucket/dogs/"),
    ],
)
def test_what_is_wrong_with_it_is_said(named: Service, change: dict, said: str) -> None:
    body = {"base": "tiny", "photos": "https://a.example/x.zip", "prompt": "sks dog"} | change
    answer = named.ask("POST", "/v1/jobs", json=body)
    assert answer.status_code in (404, 422) and said in answer.json()["detail"], answer.text


def test_a_spec_that_stands_apart_is_taken_as_before(named: Service) -> None:
    answer = named.ask("POST", "/v1/jobs", json={"spec": {}, "name": "x"})
    assert answer.status_code == 422 and {each["field"] for each in answer.json()["problems"]} >= {
        "base",
        "photos",
        "prompt",
    }
