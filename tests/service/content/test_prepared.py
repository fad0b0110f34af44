"""What one attempt prepares is offered to whom it fits, and to an attempt that comes later as it was to the job's first."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from gangline.core.files import File
from gangline.core.runs.contract import Prepared
from gangline.core.runs.prepared import class_images_key, embeddings_key, latents_key
from gangline.core.specs.fields import Needs
from gangline.ports.server import Assignment, Done, Downloads, Failed, Hold, Keep, Refused, Stale, Uploads, Urls
from gangline.service.attempts import load_node
from gangline.service.content.prepared import DAY_MS, prune_prepared, record_prepared
from gangline.service.content.prepared import offered_files as offers
from gangline.service.content.sweep import sweep_attempts
from gangline.service.jobs.checkpoint import sign_downloads, sign_uploads
from gangline.service.jobs.finish import finish
from gangline.sim.store import ServerKilled
from tests.conftest import as_upload
from tests.service.conftest import PROJECT, Before, Service

BITS = {"torch": "2"}


def made(key: str, content: bytes = b"latents") -> Prepared:
    file = File(path="photos.safetensors", bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    return Prepared(key=key, files=(file,))


def hand_over(
    service: Service, node: str, hold: Hold, prepared: Prepared, content: bytes = b"latents"
) -> Done | Stale | Refused:
    """Its files, then its manifest."""
    for file in prepared.files:
        upload = as_upload(replace(file, path=f"{prepared.key}/{file.path}"), content)
        granted = sign_uploads(
            service.deployment, node, hold, Uploads(folder="prepared", files=(upload,)), service.now_ms
        )
        assert not isinstance(granted, Stale)
        service.put(granted.files[0], content)
    return told(service, node, hold, prepared)


def told(service: Service, node: str, hold: Hold, prepared: Prepared) -> Done | Stale | Refused:
    return record_prepared(
        service.deployment, node, hold, Keep(manifest=json.loads(json.dumps(prepared.to_json()))), service.now_ms
    )


def begin(service: Service, name: str = "node-a", **settings: Any) -> tuple[str, str, Assignment]:
    """A job on a node of its own."""
    job, node = service.submit(**settings), service.join(name)
    taken = service.claim(node)
    assert taken.job == job
    return job, node, taken


def offered(taken: Assignment) -> list[str]:
    return [each.key for each in taken.prepared]


def test_what_one_job_prepared_is_offered_to_the_next_of_the_same_data(service: Service) -> None:
    _, node, taken = begin(service)
    assert taken.prepared == ()
    key = latents_key(service.spec(), BITS)
    assert hand_over(service, node, taken.hold, made(key)) == Done()
    _, other, second = begin(service, "node-b", rank=8)
    (offer,) = second.prepared
    assert (offer.key, [stored.path for stored in offer.files]) == (key, ["photos.safetensors"])
    urls = sign_downloads(service.deployment, other, second.hold, Downloads(keys=(offer.files[0].key,)), service.now_ms)
    assert isinstance(urls, Urls) and service.send("GET", urls.urls[0]).content == b"latents"


def test_what_does_not_fit_a_job_is_not_offered(service: Service) -> None:
    _, node, taken = begin(service)
    for key in (latents_key(service.spec(), BITS), embeddings_key(service.spec(), BITS)):
        hand_over(service, node, taken.hold, made(key))
    _, _, cut = begin(service, "node-b", resolution=512)
    assert offered(cut) == [embeddings_key(service.spec(), BITS)]
    _, _, said = begin(service, "node-c", prompt="sks cat")
    assert offered(said) == [latents_key(service.spec(), BITS)]


def test_latents_are_offered_under_equal_numerics_alone_and_class_images_to_all(service: Service) -> None:
    _, node, taken = begin(service, class_prompt="a dog")
    spec = service.spec(class_prompt="a dog")
    for key in (latents_key(spec, BITS), class_images_key(spec)):
        hand_over(service, node, taken.hold, made(key))
    service.submit(class_prompt="a dog")
    other = service.join("node-b", capabilities={"python": "another"})
    assert offered(service.claim(other)) == [class_images_key(spec)]


def test_what_is_prepared_stays_in_its_project(service: Service) -> None:
    _, node, taken = begin(service)
    hand_over(service, node, taken.hold, made(latents_key(service.spec(), BITS)))
    service.submit(service.add_project("other"))
    assert service.claim(service.join("node-b")).prepared == ()


def test_what_a_less_trusted_node_made_is_not_for_a_job_that_demands_trust(service: Service) -> None:
    _, node, taken = begin(service)
    hand_over(service, node, taken.hold, made(latents_key(service.spec(), BITS)))
    spec, numerics = service.spec(), load_node(service.deployment, node).numerics
    for trust, count in ((0, 1), (1, 0)):
        demanding = replace(spec, needs=Needs(trust=trust))
        assert len(offers(service.deployment, PROJECT, taken.job, demanding, numerics, service.now_ms)) == count


def test_an_attempt_that_comes_later_is_given_what_the_first_was_given(service: Service) -> None:
    """Class images that somebody else made meanwhile would be others than those that its first steps saw."""
    spec = service.spec(class_prompt="a dog")
    key = class_images_key(spec)
    first, node, taken = begin(service, class_prompt="a dog")
    _, other, rival = begin(service, "node-b", class_prompt="a dog", rank=8)
    service.wait(1)
    hand_over(service, other, rival.hold, made(key, b"the other's"), b"the other's")
    finish(service.deployment, node, taken.hold, Failed(kind="crashed", because="boom"), service.now_ms)
    service.wait(1000)
    again = service.claim(service.join("node-c"))
    assert again.job == first and again.prepared == (), "it makes its own, as its first attempt did"
    third = service.join("node-d")
    hand_over(service, node_of(service, again), again.hold, made(key, b"its own"), b"its own")
    finish(
        service.deployment, node_of(service, again), again.hold, Failed(kind="crashed", because="boom"), service.now_ms
    )
    service.wait(1000)
    last = service.claim(third)
    assert last.job == first
    assert [service.objects.read(stored.key) for each in last.prepared for stored in each.files] == [b"its own"]


def node_of(service: Service, taken: Assignment) -> str:
    return service.store.load("attempt", id=taken.hold.attempt)[0]["node"]


def test_who_lost_its_lease_adds_nothing(service: Service) -> None:
    job, node, taken = begin(service)
    prepared = made(latents_key(service.spec(), BITS))
    assert service.ask("POST", f"/v1/jobs/{job}/cancel").status_code == 200
    assert isinstance(told(service, node, taken.hold, prepared), Stale)
    _, _, second = begin(service, "node-b")
    assert second.prepared == ()


def test_saying_it_twice_is_saying_it_once(service: Service) -> None:
    job, node, taken = begin(service)
    prepared = made(latents_key(service.spec(), BITS))
    assert hand_over(service, node, taken.hold, prepared) == told(service, node, taken.hold, prepared) == Done()
    events = service.ask("GET", f"/v1/jobs/{job}/events").json()
    assert [event["because"] for event in events if event["kind"] == "prepared"] == [
        "latents are kept for other jobs (0.0 MB)"
    ]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("../../escape", "this job does not prepare"),
        (f"latents-{'0' * 32}-{'0' * 32}", "this job does not prepare"),
    ],
)
def test_what_is_not_this_jobs_is_refused(service: Service, key: str, says: str) -> None:
    _, node, taken = begin(service)
    answer = told(service, node, taken.hold, made(key))
    assert isinstance(answer, Refused) and says in answer.because


def test_what_is_not_in_the_object_store_is_refused(service: Service) -> None:
    _, node, taken = begin(service)
    answer = told(service, node, taken.hold, made(latents_key(service.spec(), BITS)))
    assert isinstance(answer, Refused) and "is not in the object store" in answer.because


def test_a_manifest_that_is_none_is_refused(service: Service) -> None:
    _, node, taken = begin(service)
    answer = record_prepared(service.deployment, node, taken.hold, Keep(manifest={"key": 1}), service.now_ms)
    assert isinstance(answer, Refused)


def test_what_no_job_used_for_long_goes_and_what_is_used_stays(service: Service) -> None:
    job, node, taken = begin(service)
    used, unused = latents_key(service.spec(), BITS), embeddings_key(service.spec(), BITS)
    for key in (used, unused):
        hand_over(service, node, taken.hold, made(key, key.encode()), key.encode())
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    service.wait(service.deployment.policy.prepared_s - 1)
    assert set(offered(begin(service, "node-b", prompt="sks cat")[2])) == {used}
    service.wait(2)
    prune_prepared(service.deployment, service.now_ms)
    assert [row["key"] for row in service.look("SELECT key FROM prepared")] == [used]
    kept = "\n".join(service.objects.list(f"projects/{PROJECT}/jobs"))
    assert used in kept and unused not in kept


def test_the_sweep_of_an_attempt_leaves_what_others_may_use(service: Service) -> None:
    job, node, taken = begin(service)
    key = latents_key(service.spec(), BITS)
    hand_over(service, node, taken.hold, made(key))
    assert service.ask("POST", f"/v1/jobs/{job}/cancel").status_code == 200
    service.wait(service.deployment.policy.orphans_s + 1)
    sweep_attempts(service.deployment, service.now_ms)
    assert len(begin(service, "node-b")[2].prepared) == 1
    assert any(key in name for name in service.objects.list(f"projects/{PROJECT}/jobs"))


def test_when_it_was_used_is_known_to_the_day(service: Service) -> None:
    job, node, taken = begin(service)
    hand_over(service, node, taken.hold, made(latents_key(service.spec(), BITS)))
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    job, _, _ = begin(service, "node-b")
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    first = service.look("SELECT used_ms, made_ms FROM prepared")[0]
    assert first["used_ms"] == first["made_ms"]
    service.wait(DAY_MS / 1000 + 1)
    begin(service, "node-c")
    assert service.look("SELECT used_ms FROM prepared")[0]["used_ms"] == service.now_ms


def test_a_node_that_joins_again_is_known_to_hold_the_bases_of_its_machine(service: Service) -> None:
    base = service.spec().base.id
    node = service.join("node-a", bases=(base,))
    assert [row["base"] for row in service.look(f"SELECT base FROM node_base WHERE node = '{node}'")] == [base]


def killed() -> None:
    raise ServerKilled


def test_what_was_forgotten_and_not_deleted_goes_with_the_next_sweep(service: Service) -> None:
    job, node, taken = begin(service)
    key = latents_key(service.spec(), BITS)
    hand_over(service, node, taken.hold, made(key))
    service.ask("POST", f"/v1/jobs/{job}/cancel")
    service.wait(service.deployment.policy.prepared_s + 1)
    sweep_attempts(service.deployment, service.now_ms)
    dies = replace(service.deployment, objects=Before(service.objects, "delete", killed))
    with pytest.raises(ServerKilled):
        prune_prepared(dies, service.now_ms)
    assert any(key in name for name in service.objects.list(f"projects/{PROJECT}/jobs"))
    sweep_attempts(service.deployment, service.now_ms)
    assert not any(key in name for name in service.objects.list(f"projects/{PROJECT}/jobs"))
