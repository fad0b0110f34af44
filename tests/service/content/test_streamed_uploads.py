"""A checkpoint is uploaded part by part while it is written, each signed for exactly its bytes, and counts once it is whole."""

import hashlib

from gangline.core.files import PART_BYTES, Beginning, Beginnings, Grant, part_ranges
from gangline.core.jobs.keys import attempt_prefix
from gangline.ports.server import Committed, Downloads, Grants, Hold, Refused, Released, Stale, Urls
from gangline.service.jobs import checkpoint
from gangline.service.jobs.finish import finish
from tests.service.conftest import POLICY, PROJECT, Service
from tests.service.content.test_object_stores import database, grant, lesser, objects, read_back  # noqa: F401 - fixtures
from tests.service.jobs.test_one_at_a_time import commit

CONTENT = b"1" * PART_BYTES + b"2" * PART_BYTES + b"the rest"
PIECES = [CONTENT[part.start : part.stop] for part in part_ranges(len(CONTENT))]


def begin(service: Service, node: str, hold: Hold, first: int, *pieces: bytes, step: int = 10) -> Grants | Stale:
    parts = tuple(hashlib.sha256(piece).hexdigest() for piece in pieces)
    file = Beginning(path="weights.safetensors", bytes=len(CONTENT), first=first, parts=parts)
    request = Beginnings(step=step, files=(file,))
    return checkpoint.sign_beginnings(service.deployment, node, hold, request, service.now_ms)


def granted(answer: Grants | Stale) -> Grant:
    assert isinstance(answer, Grants)
    return answer.files[0]


def test_parts_that_came_while_the_checkpoint_was_written_are_not_asked_for_again(service: Service) -> None:
    job, node = service.submit(), service.join("node-a")
    hold = service.claim(node).hold
    for number, piece in enumerate(PIECES[:2]):
        part = granted(begin(service, node, hold, number, piece))
        assert [each is not None for each in part.parts] == [number == each for each in range(3)]
        service.put(part, CONTENT)
    assert isinstance(commit(service, node, hold, 10, CONTENT), Refused), "it is not whole"
    rest = grant(service, node, hold, 10, CONTENT)
    assert [part is None for part in rest.parts] == [True, True, False]
    service.put(rest, CONTENT)
    assert commit(service, node, hold, 10, CONTENT) == Committed()
    read_back(service)
    assert service.store.load("checkpoints", job=job)[0]["verified"] == 1
    finish(service.deployment, node, hold, Released(), service.now_ms)
    other = service.join("node-b")
    new = service.claim(other)
    keys = Downloads(keys=tuple(file.key for file in new.resume[0].files))
    urls = checkpoint.sign_downloads(service.deployment, other, new.hold, keys, service.now_ms)
    assert isinstance(urls, Urls) and service.send("GET", urls.urls[0]).content == CONTENT


def test_a_part_that_turns_out_otherwise_is_asked_for_again_or_never_counts(service: Service) -> None:
    job, node = service.submit(), service.join("node-a")
    hold = service.claim(node).hold
    other = b"0" * PART_BYTES
    service.put(granted(begin(service, node, hold, 0, other)), other)
    whole = grant(service, node, hold, 10, CONTENT)
    service.put(whole, CONTENT)
    commit(service, node, hold, 10, CONTENT)
    read_back(service)
    kept = service.store.load("checkpoints", job=job)
    # A store that lists no hash of a part refuses to join it, or accepts it until it is read back.
    assert [row["verified"] for row in kept] == ([] if whole.parts[0] is None else [1])


def test_what_was_streamed_by_a_node_that_died_is_swept(service: Service) -> None:
    job, node = service.submit(), service.join("node-a")
    hold = service.claim(node).hold
    service.put(granted(begin(service, node, hold, 0, PIECES[0])), CONTENT)
    key = f"{attempt_prefix(PROJECT, job, hold.attempt)}/checkpoints/000010/weights.safetensors"
    assert len(service.objects.uploads(key)) == 1
    finish(service.deployment, node, hold, Released(), service.now_ms)
    assert isinstance(begin(service, node, hold, 1, PIECES[1]), Stale), "who has lost the lease streams nothing"
    service.wait(POLICY.orphans_s + 1)
    service.tick()
    assert service.objects.uploads(key) == []


def test_a_checkpoint_of_another_length_begins_another_upload(service: Service) -> None:
    service.submit()
    node = service.join("node-a")
    hold = service.claim(node).hold
    service.put(granted(begin(service, node, hold, 0, PIECES[0])), CONTENT)
    longer = CONTENT + b"!"
    service.put(grant(service, node, hold, 10, longer), longer)
    assert commit(service, node, hold, 10, longer) == Committed()


def test_a_late_request_for_parts_takes_nothing_from_the_upload_that_was_declared_meanwhile(service: Service) -> None:
    service.submit()
    node = service.join("node-a")
    hold = service.claim(node).hold
    whole = grant(service, node, hold, 10, CONTENT)
    service.put(Grant(parts=whole.parts[:1]), CONTENT)
    assert granted(begin(service, node, hold, 1, PIECES[1])).parts == (None, None, None)
    service.put(Grant(parts=(None, *whole.parts[1:])), CONTENT)
    assert commit(service, node, hold, 10, CONTENT) == Committed()
    assert granted(begin(service, node, hold, 1, PIECES[1])).parts == (None, None, None), "nor from what is committed"
