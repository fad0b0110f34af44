"""Secrets of commands: whoever may use them gets them with the claim, and nobody reads them elsewhere."""

import io
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangline.adapters.sealing import JweSealer
from gangline.compose.access import SEALING_KEY, keep_sealing_keys
from gangline.core.errors import BadInput, UserError
from gangline.core.parsing import to_json
from gangline.core.specs.command import parse_command
from gangline.ports.server import Assignment, NoWork
from gangline.service.access.secrets import open_secrets, reseal, secrets_of
from gangline.service.jobs.claim import claim
from gangline.service.jobs.submit import submit as submit_job
from tests.conftest import Typed
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.served import serving

VALUE = "hf_abcdefgh-0123"
KEY, OTHER_KEY = "a key of 32 characters, or longer", "another key of 32 characters, too"


def keep(service: Service, name: str = "HF_TOKEN", value: str = VALUE) -> None:
    answer = service.ask("PUT", f"/v1/secrets/{name}", json={"value": value})
    assert answer.status_code == 200, answer.text


def spec_of(*secrets: str) -> dict[str, Any]:
    return to_json(parse_command({"command": ["true"], "secrets": secrets}, options=True))


def submit(service: Service, *secrets: str) -> str:
    answer = service.ask("POST", "/v1/jobs", json={"spec": spec_of(*secrets)})
    assert answer.status_code == 201, answer.text
    return answer.json()["summary"]["id"]


@pytest.fixture
def node(service: Service) -> str:
    return service.join("node-a", measured={"isolation": "uid"})


def with_keys(service: Service, *keys: str) -> Service:
    """The same database, served by a server with these keys."""
    return replace(service, deployment=replace(service.deployment, sealer=JweSealer(keys)))


def test_a_command_gets_the_secrets_that_it_names_and_no_others(service: Service, node: str) -> None:
    keep(service)
    keep(service, "WANDB_API_KEY", "another-value")
    submit(service, "HF_TOKEN")
    assignment = service.claim(node)
    assert assignment.secrets == {"HF_TOKEN": VALUE}
    assert VALUE not in repr(assignment) and VALUE not in str(assignment.spec)


def test_no_answer_but_the_claim_has_a_value_and_the_database_has_none(service: Service, node: str) -> None:
    keep(service)
    job = submit(service, "HF_TOKEN")
    paths = ("/v1/secrets", "/v1/jobs", f"/v1/jobs/{job}", f"/v1/jobs/{job}/events")
    answers = "".join(service.ask("GET", path).text for path in paths)
    assert '"HF_TOKEN"' in answers and VALUE not in answers
    rows = service.store.load("secrets", project=None)
    assert [row["name"] for row in rows] == ["HF_TOKEN"] and VALUE not in str([dict(row) for row in rows])


def test_a_secret_is_of_one_project_alone(service: Service) -> None:
    keep(service)
    service.add_project("other")
    assert secrets_of(service.deployment, "other") == []
    with pytest.raises(BadInput, match="this project has no secret HF_TOKEN"):
        open_secrets(service.deployment, "other", ["HF_TOKEN"])
    row = service.store.load("secrets", project=PROJECT)[0]
    assert service.deployment.sealer is not None
    assert service.deployment.sealer.open("other", "HF_TOKEN", row["sealed"]) is None, "not even if its row is copied"


def test_a_job_that_names_an_unknown_secret_is_refused_with_a_sentence(service: Service) -> None:
    answer = service.ask("POST", "/v1/jobs", json={"spec": spec_of("HF_TOKEN", "OTHER")})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("this project has no secrets HF_TOKEN and OTHER")


def test_a_job_whose_secret_is_removed_is_paused_and_runs_once_it_is_set_again(service: Service, node: str) -> None:
    keep(service)
    job, other = submit(service, "HF_TOKEN"), submit(service)
    assert service.ask("DELETE", "/v1/secrets/HF_TOKEN").status_code == 204
    assert service.claim(node).job == other, "the job after it does not wait"
    found = service.ask("GET", f"/v1/jobs/{job}").json()["summary"]
    assert (found["state"], found["because"]) == (
        "paused",
        "this project has no secret HF_TOKEN; resume the job once it is set",
    )
    keep(service, value="set-again")
    assert service.ask("POST", f"/v1/jobs/{job}/resume").status_code == 200
    assert service.claim(service.join("node-b", measured={"isolation": "uid"})).secrets == {"HF_TOKEN": "set-again"}


def test_many_jobs_that_lack_a_secret_hold_up_no_other_project(service: Service, node: str) -> None:
    keep(service)
    lacking = [submit(service, "HF_TOKEN") for _ in range(30)]
    service.add_project("other")
    job = submit_job(service.deployment, "other", spec_of(), name="", request=None, now_ms=service.now_ms)
    service.ask("DELETE", "/v1/secrets/HF_TOKEN")
    assert service.claim(node).job == job, "in the first claim"
    paused = [each for each in lacking if service.state(each) == "paused"]
    refused = service.ask("POST", f"/v1/jobs/{paused[0]}/resume")
    assert refused.status_code == 422 and "this project has no secret HF_TOKEN" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("HF_TOKEN", "short", "a secret has 8 to 32,768 characters, and this one has 5"),
        ("HF_TOKEN", "x" * 32_769, "a secret has 8 to 32,768 characters, and this one has 32,769"),
        ("HF_TOKEN", "hidden\0value", "a secret has no null character"),
        ("1HF", "a-good-value", "'1HF' is not the name of a variable"),
        ("GANGLINE_TOKEN", "a-good-value", "is not the name of a variable that a job may have"),
    ],
)
def test_what_can_be_no_secret_is_refused_without_quoting_it(
    service: Service, name: str, value: str, says: str
) -> None:
    answer = service.ask("PUT", f"/v1/secrets/{name}", json={"value": value})
    assert answer.status_code == 422 and says in answer.json()["detail"]
    assert value[:6] not in answer.text or value == "short"


@pytest.mark.parametrize(
    "body", [{"value": [VALUE]}, {"value": {"a": VALUE}}, {"other": VALUE}, {"value": 31415926}, VALUE, [VALUE]]
)
def test_a_body_of_another_shape_is_refused_without_quoting_it(service: Service, body: object) -> None:
    answer = service.ask("PUT", "/v1/secrets/HF_TOKEN", json=body)
    assert answer.status_code == 422 and VALUE not in answer.text and "31415926" not in answer.text


def test_after_a_rotation_the_new_key_is_enough(service: Service) -> None:
    keep(service)
    both = with_keys(service, OTHER_KEY, KEY)
    reseal(both.deployment)
    reseal(both.deployment)
    new = with_keys(service, OTHER_KEY)
    assert open_secrets(new.deployment, PROJECT, ["HF_TOKEN"]) == {"HF_TOKEN": VALUE}
    assert [view.readable for view in secrets_of(service.deployment, PROJECT)] == [False]


def test_a_server_without_the_key_says_so_and_pauses_the_job(service: Service, node: str) -> None:
    keep(service)
    job = submit(service, "HF_TOKEN")
    lost = with_keys(service, OTHER_KEY)
    reseal(lost.deployment)
    assert [view.readable for view in secrets_of(lost.deployment, PROJECT)] == [False]
    assert isinstance(claim(lost.deployment, node, service.now_ms), NoWork)
    found = service.ask("GET", f"/v1/jobs/{job}").json()["summary"]
    assert found["state"] == "paused"
    assert found["because"].startswith(
        "this server cannot decrypt the secret HF_TOKEN: it was encrypted under another key"
    )
    service.ask("POST", f"/v1/jobs/{job}/resume")
    assert isinstance(claim(service.deployment, node, service.now_ms), Assignment), "the server with the key gives it"


def test_a_home_makes_its_key_once_for_its_owner_alone(tmp_path: Path) -> None:
    (key,) = keep_sealing_keys(tmp_path, "")
    assert keep_sealing_keys(tmp_path, "") == [key]
    assert stat.S_IMODE((tmp_path / SEALING_KEY).stat().st_mode) == 0o600
    assert keep_sealing_keys(tmp_path, f" {KEY.replace(',', '')}, {OTHER_KEY.replace(',', '')}\n") == [
        KEY.replace(",", ""),
        OTHER_KEY.replace(",", ""),
    ]
    (tmp_path / SEALING_KEY).write_text("short\n")
    with pytest.raises(UserError, match="holds no key") as raised:
        keep_sealing_keys(tmp_path, "")
    assert "short" not in str(raised.value)


@pytest.fixture
def secrets_command(service: Service, typed: Typed) -> Iterator[Callable[..., tuple[int, str, str]]]:
    with serving(service.app) as served:
        yield lambda *words: typed("secrets", *words, "--server", served.url, "--token", OPERATOR)


def test_the_commands_take_a_value_from_standard_input_or_a_file_and_print_none(
    service: Service,
    secrets_command: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{VALUE}\n".encode())))
    said = [secrets_command("set", "HF_TOKEN")]
    (tmp_path / "key").write_text("first line\nsecond line\n")
    said += [secrets_command("set", "A_KEY", "--file", tmp_path / "key"), secrets_command("ls")]
    assert [code for code, _, _ in said] == [0, 0, 0]
    assert "HF_TOKEN" in said[2][1] and "can be used" in said[2][1]
    assert not any(value in out + err for _, out, err in said for value in (VALUE, "second line"))
    wanted = ["A_KEY", "HF_TOKEN"]
    assert open_secrets(service.deployment, PROJECT, wanted) == {"A_KEY": "first line\nsecond line", "HF_TOKEN": VALUE}
    assert secrets_command("rm", "A_KEY")[0] == 0
    code, _, err = secrets_command("rm", "A_KEY")
    assert code == 2 and "there is no secret A_KEY" in err
