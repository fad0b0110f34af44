"""Experiments over HTTP: what is submitted, shown and steered."""

from typing import Any

from gangline.core.parsing import to_json
from tests.service.conftest import Service

PATH = "/v1/experiments"


def body(service: Service, **given: Any) -> dict[str, Any]:
    settings = given.pop("settings", {})
    return {"name": "ranks", "spec": to_json(service.spec(**settings)), "vary": {"rank": [4, 8]}} | given


def submit(service: Service, **given: Any) -> dict[str, Any]:
    answer = service.ask("POST", PATH, json=body(service, **given))
    assert answer.status_code == 201, answer.text
    return answer.json()


def runs_of(service: Service, experiment: str) -> list[dict[str, Any]]:
    answer = service.ask("GET", f"{PATH}/{experiment}/runs")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_each_combination_is_a_job_with_a_name_of_its_own(service: Service) -> None:
    made = submit(service, vary={"rank": [4, 8], "learning_rate": [1e-4, 2e-4, 4e-4]}, at_once=2)
    assert (made["jobs"], made["settings"], made["state"]) == (6, ["rank", "learning_rate"], "running")
    assert made["counts"] == {"held": 5, "queued": 1}
    runs = runs_of(service, made["id"])
    assert [run["name"] for run in runs] == [f"ranks-{number:03d}" for number in range(1, 7)]
    assert runs[1]["settings"] == {"rank": 4, "learning_rate": 2e-4}
    job = service.ask("GET", f"/v1/jobs/{runs[1]['job']}").json()
    assert (job["spec"]["rank"], job["spec"]["learning_rate"], job["spec"]["output_name"]) == (4, 2e-4, "ranks-002")
