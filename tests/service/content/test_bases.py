"""Bases by name: what they are is found out, they stand for one content, and what is gated on the hub is copied before it is used."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangline.adapters.hub import HuggingFaceHub
from gangline.adapters.objects.local import LocalObjects
from gangline.core.errors import BadInput, NotFound, Unreachable
from gangline.core.files import PART_BYTES
from gangline.core.jobs.keys import blob_key
from gangline.core.jobs.retry import PAUSE_S_FIRST
from gangline.core.models.bases import files_needed
from gangline.core.parsing import to_json
from gangline.core.specs.fields import FilesBase, HubBase
from gangline.core.specs.lora import LoraSpec
from gangline.ports.server import Downloads, Urls
from gangline.service.content import bases
from gangline.service.content.bases import BaseStatement
from gangline.service.content.mirror import TURN_S, mirror
from gangline.service.deployment import Deployment
from gangline.service.jobs.checkpoint import sign_downloads
from gangline.service.jobs.submit import submit
from tests.conftest import BASE, file_at
from tests.hub import COMMIT, REPO, TOKEN, FakeHub, fake_hub
from tests.service.conftest import PROJECT, Service

NAMES = [path.relative_to(BASE).as_posix() for path in BASE.rglob("*") if path.is_file()]
FILES = {name: file_at(BASE / name, BASE) for name in files_needed(NAMES)}
ON_HUB = HubBase(repo=REPO)
PINNED = HubBase(repo=REPO, revision=COMMIT)


@pytest.fixture
def hub(service: Service) -> Iterator[FakeHub]:
    with fake_hub(BASE, card={"license": "openrail++"}) as there:
        connect(service, there)
        yield there


@pytest.fixture
def gated(service: Service) -> Iterator[FakeHub]:
    with fake_hub(BASE, gated=True) as there:
        connect(service, there)
        yield there


def connect(service: Service, hub: FakeHub, token: str = TOKEN) -> None:
    service.deployment = replace(service.deployment, hub=HuggingFaceHub(hub.url, token))
    service.app.state.deployment = service.deployment


def add(service: Service, name: str = "tiny", base: Any = ON_HUB, at: Deployment | None = None, **said: str):
    return bases.add(at or service.deployment, PROJECT, name, base, None, BaseStatement(**said), service.now_ms)


def copy_all(service: Service) -> None:
    for _ in mirror(service.deployment):
        pass


def spec_with(service: Service, base: Any) -> dict[str, Any]:
    return to_json(LoraSpec(base=base, photos=(service.photo,), prompt="sks dog"))


def test_a_base_on_the_hub_is_pinned_and_recognised_and_its_licence_is_known(service: Service, hub: FakeHub) -> None:
    found = add(service)
    assert found.base == {"source": "hub", "repo": REPO, "revision": COMMIT}
    assert (found.family, found.prediction_type, found.licence) == ("sdxl", "v_prediction", "openrail++")
    assert (found.id, found.state) == (PINNED.id, "ready")
    assert found.bytes == sum(file.bytes for file in FILES.values())


def test_a_single_file_on_the_hub_is_recognised_by_its_header_alone(
    service: Service, tmp_path: Path, hub: FakeHub
) -> None:
    header: dict[str, Any] = {
        "model.diffusion_model.input_blocks.0.0.weight": {
            "dtype": "F16",
            "shape": [320, 4, 3, 3],
            "data_offsets": [0, 8],
        },
        "cond_stage_model.transformer.x": {"dtype": "F16", "shape": [4], "data_offsets": [8, 16]},
    }
    content = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(len(content).to_bytes(8, "little") + content + b"\0" * 16)
    hub.folder = tmp_path
    assert add(service).family == "sd15"


def test_what_is_said_of_a_base_goes_before_what_is_found(service: Service, hub: FakeHub) -> None:
    found = add(service, licence="mine", prediction_type="v_prediction")
    assert (found.licence, found.prediction_type, found.family) == ("mine", "v_prediction", "sdxl")


def test_files_are_known_as_whoever_handed_them_in_says(service: Service) -> None:
    found = add(service, "files", FilesBase(files=(service.photo,)), family="sd2")
    assert (found.family, found.prediction_type, found.licence) == ("sd2", "unknown", "unknown")
    assert found.id == FilesBase(files=(service.photo,)).id and found.bytes == service.photo.bytes


def test_files_that_were_not_uploaded_are_no_base(service: Service) -> None:
    missing = replace(service.photo, sha256="f" * 64)
    with pytest.raises(BadInput, match="not in the object store"):
        add(service, "files", FilesBase(files=(missing,)))


def test_a_name_stands_for_one_base_until_it_is_forgotten(service: Service, hub: FakeHub) -> None:
    first = add(service)
    assert add(service) == first
    with pytest.raises(BadInput, match="tiny stands for another base already"):
        add(service, base=FilesBase(files=(service.photo,)))
    bases.forget(service.deployment, PROJECT, "tiny")
    add(service, base=FilesBase(files=(service.photo,)))


def test_a_job_from_another_kind_of_model_is_refused_by_the_server_too(
    service: Service, tmp_path: Path, hub: FakeHub
) -> None:
    (tmp_path / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')
    hub.folder = tmp_path
    with pytest.raises(BadInput, match=f"{REPO} is a FluxPipeline"):
        submit(service.deployment, PROJECT, spec_with(service, ON_HUB), name="", request=None, now_ms=service.now_ms)


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "a b", "x" * 101, "ü"])
def test_a_name_can_be_no_path_and_no_hub_id(service: Service, name: str) -> None:
    with pytest.raises(BadInput, match="is not a valid name for a base"):
        add(service, name, FilesBase(files=(service.photo,)))


def test_a_job_goes_on_when_the_name_of_its_base_is_forgotten(service: Service, hub: FakeHub) -> None:
    found = add(service)
    job = submit(service.deployment, PROJECT, spec_with(service, PINNED), name="", request=None, now_ms=service.now_ms)
    bases.forget(service.deployment, PROJECT, found.name)
    assert service.claim(service.join()).job == job
    with pytest.raises(NotFound, match="there is no base tiny"):
        bases.get_base(service.deployment, PROJECT, "tiny")


def test_bases_are_their_projects_alone(service: Service, hub: FakeHub) -> None:
    add(service)
    service.add_project("other")
    assert bases.bases_of(service.deployment, "other") == [] and len(bases.bases_of(service.deployment, PROJECT)) == 1


def test_over_http_a_member_adds_and_a_viewer_reads(service: Service, hub: FakeHub) -> None:
    body = {"name": "tiny", "base": {"source": "hub", "repo": REPO}}
    made = service.ask("POST", "/v1/bases", service.key("member"), json=body)
    assert made.status_code == 201, made.text
    shown = service.ask("GET", "/v1/bases/tiny", service.key("viewer")).json()
    assert shown == made.json() == service.ask("GET", "/v1/bases").json()[0]
    assert service.ask("DELETE", "/v1/bases/tiny", service.key("member")).status_code == 204
    assert service.ask("GET", "/v1/bases").json() == []


# Gated


def test_a_gated_base_is_copied_and_then_nodes_read_it_without_any_token(service: Service, gated: FakeHub) -> None:
    found = add(service)
    assert (found.state, found.fetched_bytes) == ("fetching", 0)
    copy_all(service)
    found = bases.get_base(service.deployment, PROJECT, "tiny")
    assert (found.state, found.fetched_bytes) == ("ready", found.bytes)
    job = submit(service.deployment, PROJECT, spec_with(service, PINNED), name="", request=None, now_ms=service.now_ms)
    node = service.join()
    taken = service.claim(node)
    assert taken.job == job
    came = {stored.path: stored for stored in taken.inputs if stored.path.startswith("base/")}
    assert {path.removeprefix("base/") for path in came} == set(FILES)
    for path, stored in came.items():
        content = service.objects.read(stored.key)
        assert content == (BASE / path.removeprefix("base/")).read_bytes()
        assert stored.key == blob_key(PROJECT, stored.sha256)
    request = Downloads(keys=tuple(stored.key for stored in came.values()))
    assert isinstance(sign_downloads(service.deployment, node, taken.hold, request, service.now_ms), Urls)


def test_a_large_file_is_copied_in_parts_and_goes_on_where_it_was(
    service: Service, gated: FakeHub, tmp_path: Path
) -> None:
    content = bytes(range(256)) * (2 * PART_BYTES // 256) + b"end"
    gated.folder = tmp_path / "large"
    gated.folder.mkdir()
    (gated.folder / "config.json").write_text("{}")
    (gated.folder / "diffusion_pytorch_model.safetensors").write_bytes(content)
    vae = bases.add(
        service.deployment, PROJECT, "v", FilesBase(files=(service.photo,)), ON_HUB, BaseStatement(), service.now_ms
    )
    assert vae.state == "fetching"
    seen: list[int] = []
    while (found := bases.get_base(service.deployment, PROJECT, "v")).state == "fetching":
        seen.append(found.fetched_bytes)
        next(iter(mirror(service.deployment)), None)  # a server that dies after each step
    assert found.state == "ready" and len(set(seen)) >= 4
    assert gated.asked.count("diffusion_pytorch_model.safetensors") == 3, "each part once"


def test_of_several_servers_one_copies_and_another_goes_on_when_its_turn_ends(service: Service, gated: FakeHub) -> None:
    add(service)
    other = replace(service.deployment, server="another")
    steps = mirror(service.deployment)
    next(steps)
    assert list(mirror(other)) == []
    service.wait(TURN_S + 1)
    assert len(list(mirror(other))) > 1
    assert list(steps) == [], "who comes back late stops"
    assert bases.get_base(service.deployment, PROJECT, "tiny").state == "ready"


def test_a_job_that_needs_a_gated_base_is_told_how_to_have_it_copied_and_how_far_that_is(
    service: Service, gated: FakeHub
) -> None:
    with pytest.raises(BadInput, match="is gated on the hub") as refused:
        submit(service.deployment, PROJECT, spec_with(service, ON_HUB), name="", request=None, now_ms=service.now_ms)
    assert f"gangline bases add {REPO}" in refused.value.hint
    add(service)
    with pytest.raises(BadInput, match=r"still being copied: 0\.00 of"):
        submit(service.deployment, PROJECT, spec_with(service, PINNED), name="", request=None, now_ms=service.now_ms)


def test_a_hub_that_is_away_is_asked_again_later_each_time(service: Service, gated: FakeHub) -> None:
    add(service)
    there = service.deployment
    service.deployment = replace(there, hub=HuggingFaceHub("http://127.0.0.1:1"))
    copy_all(service)
    found = bases.get_base(service.deployment, PROJECT, "tiny")
    assert found.state == "fetching" and "the hub cannot be reached for the base" in found.why
    service.deployment = there
    copy_all(service)
    assert bases.get_base(service.deployment, PROJECT, "tiny").fetched_bytes == 0, "not yet"
    service.wait(PAUSE_S_FIRST + 1)
    copy_all(service)
    assert bases.get_base(service.deployment, PROJECT, "tiny").state == "ready"


def test_a_token_that_was_not_let_in_is_told_and_adding_again_tries_again(service: Service, gated: FakeHub) -> None:
    there = service.deployment
    connect(service, gated, "hf_of_nobody")
    with pytest.raises(Exception, match="is gated"):
        add(service)
    connect(service, gated)
    add(service)
    service.deployment = replace(there, hub=HuggingFaceHub(gated.url, "hf_of_nobody"))
    copy_all(service)
    found = bases.get_base(service.deployment, PROJECT, "tiny")
    assert found.state == "failed" and "is gated" in found.why
    service.deployment = there
    assert add(service).state == "fetching"
    copy_all(service)
    assert bases.get_base(service.deployment, PROJECT, "tiny").state == "ready"


def test_nothing_is_copied_for_a_name_that_was_forgotten(service: Service, gated: FakeHub) -> None:
    add(service)
    next(mirror(service.deployment))
    bases.forget(service.deployment, PROJECT, "tiny")
    assert list(mirror(service.deployment)) == []
    add(service)
    copy_all(service)
    assert bases.get_base(service.deployment, PROJECT, "tiny").state == "ready"


def test_bytes_that_are_not_what_the_hub_said_are_no_base(service: Service, gated: FakeHub, tmp_path: Path) -> None:
    add(service)
    assert isinstance(service.objects, LocalObjects)
    name = next(name for name in NAMES if name.endswith(".safetensors"))
    changed = tmp_path / "changed"
    for path in NAMES:
        (changed / path).parent.mkdir(parents=True, exist_ok=True)
        (changed / path).write_bytes((BASE / path).read_bytes())
    content = (BASE / name).read_bytes()
    (changed / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    gated.folder = changed
    copy_all(service)
    found = bases.get_base(service.deployment, PROJECT, "tiny")
    assert found.state == "failed" and f"{name} does not match its hash on the hub" in found.why


def test_a_hub_that_is_away_adds_nothing(service: Service) -> None:
    with pytest.raises(Unreachable):
        add(service)
    assert bases.bases_of(service.deployment, PROJECT) == []
