"""A replay: of each recorded moment it answers what the simulated service answered then, and nothing can be changed."""

import asyncio
import json
import sqlite3
from io import BytesIO
from itertools import pairwise, takewhile
from typing import Any

import httpx
import pytest
from PIL import Image

from gangline.core.errors import Forbidden, Unreachable
from gangline.ports.store import write
from gangline.sim.replay.app import COOKIE, OPEN_MAX, Replay
from gangline.sim.replay.objects import SIDE, ReplayObjects
from gangline.sim.replay.recording import INTERVAL_MS, PAGE_BYTES, PLAIN_BYTES_MAX, SNAPSHOTS_MAX, Recording
from gangline.sim.replay.store import ReplayStore
from gangline.sim.simulation import Simulation
from gangline.sim.store import SimStore
from gangline.sim.world import START_MS, World
from tests.sim.replay.conftest import Live

# What it shows


def test_at_every_moment_a_replay_answers_what_the_service_answered_then(live: Live, client: httpx.Client) -> None:
    moments = [snapshot.ms for snapshot in live.recording.snapshots]
    assert len(moments) > 90
    for ms in moments:
        for path, answer in live.answers[ms].items():
            assert client.get(path, params={"at": ms}).json() == answer, (ms, path)
    states = {job["state"] for ms in moments for job in live.answers[ms]["/v1/jobs"]["jobs"]}
    assert states >= {"queued", "running", "succeeded"}, "else the test compares little"


def test_the_newest_snapshot_until_the_moment_answers_and_the_last_one_by_default(
    live: Live, client: httpx.Client
) -> None:
    moments = [snapshot.ms for snapshot in live.recording.snapshots]

    def at(ms: int) -> Any:
        return client.get("/v1/jobs", params={"at": ms}).json()

    assert at(moments[40] + 1) == at(moments[41] - 1) == live.answers[moments[40]]["/v1/jobs"]
    assert at(0) == live.answers[moments[0]]["/v1/jobs"]
    end = live.answers[moments[-1]]["/v1/jobs"]
    assert at(moments[-1] + 10**9) == client.get("/v1/jobs").json() == end
    assert {job["state"] for job in end["jobs"]} == {"succeeded"}


def test_a_cookie_names_the_moment_for_all_requests_and_a_parameter_overrides_it(
    live: Live, client: httpx.Client
) -> None:
    early, late = (live.recording.snapshots[number].ms for number in (20, 60))
    client.cookies.set(COOKIE, str(early))
    assert client.get("/v1/jobs").json() == live.answers[early]["/v1/jobs"]
    assert client.get("/v1/jobs", params={"at": late}).json() == live.answers[late]["/v1/jobs"]
    client.cookies.set(COOKIE, "of another program")
    assert client.get("/v1/jobs").json() == live.answers[live.recording.snapshots[-1].ms]["/v1/jobs"]


def test_the_moments_are_listed_for_a_slider(live: Live, client: httpx.Client) -> None:
    found = client.get("/replay").json()
    assert found["title"] == "Ten jobs, and every node is taken back once"
    assert found["moments_ms"] == [snapshot.ms for snapshot in live.recording.snapshots]
    assert (found["start_ms"], found["end_ms"]) == (START_MS, live.simulation.world.now_ms)
    between = [after - before for before, after in pairwise(found["moments_ms"][:-1])]
    assert max(between) < 2 * live.recording.interval_ms


def test_every_project_of_the_scenario_is_shown_without_a_key(client: httpx.Client) -> None:
    jobs = client.get("/v1/jobs", headers={"Gangline-Project": "other"}).json()["jobs"]
    assert len(jobs) == 2
    assert client.get("/v1/jobs", headers={"Authorization": "Bearer unknown"}).status_code == 200


def test_pictures_can_be_seen_logs_read_and_other_files_say_that_they_have_no_bytes(
    live: Live, client: httpx.Client
) -> None:
    first = live.simulation.jobs[0]
    assert "training" in client.get(f"/v1/jobs/{first}/logs").json()["text"]
    urls = {each["path"]: each["url"] for each in client.get(f"/v1/jobs/{first}/artifacts").json()}
    pictures = [client.get(url) for path, url in urls.items() if path.endswith(".png")]
    assert pictures
    for picture in pictures:
        with Image.open(BytesIO(picture.content)) as found:
            found.load()
            assert found.size == (SIDE, SIDE)
    thumbnails = client.get(f"/v1/jobs/{first}/pictures").json()
    assert {each["thumbnail"] for each in thumbnails} == {"ready"}
    small = client.get(f"/v1/jobs/{first}/pictures/{thumbnails[0]['sha256']}/thumbnail")
    with Image.open(BytesIO(small.content)) as found:
        assert (found.format, found.size) == ("JPEG", (SIDE, SIDE))
    weights = client.get(next(url for path, url in urls.items() if path.endswith(".safetensors")))
    assert (weights.status_code, weights.json()["detail"]) == (
        404,
        "a simulation keeps the name, size and SHA-256 of this file, and no bytes",
    )


def test_a_stream_of_a_moment_sends_what_was_there_and_stays_open(live: Live, client: httpx.Client) -> None:
    first, ms = live.simulation.jobs[0], live.recording.snapshots[30].ms
    with client.stream("GET", f"/v1/jobs/{first}/events/stream", params={"at": ms}) as stream:
        lines = stream.iter_lines()
        sent = [json.loads(line.removeprefix("data: ")) for line in takewhile(_is_no_progress, lines) if "data" in line]
    assert sent == live.answers[ms][f"/v1/jobs/{first}/events"]


def _is_no_progress(line: str) -> bool:
    return line != "event: progress"


# Nothing can be changed


def test_a_replay_refuses_every_unsafe_method(live: Live, client: httpx.Client) -> None:
    before = client.get("/v1/jobs").json()
    for method, path in (
        ("POST", "/v1/jobs"),
        ("POST", f"/v1/jobs/{live.simulation.jobs[0]}/cancel"),
        ("PUT", "/v1/objects/projects/default/x"),
        ("DELETE", "/replay"),
        ("PATCH", "/"),
    ):
        answer = client.request(method, path, json={})
        assert answer.status_code == 403, (method, path)
        assert answer.json()["detail"] == "this is a replay: nothing can be changed"
    assert client.get("/v1/jobs").json() == before


def test_a_store_of_a_replay_refuses_every_write_even_one_of_a_query(live: Live) -> None:
    snapshot = live.recording.snapshots[-1]
    store = ReplayStore(snapshot.database(), snapshot.ms)
    store.freeze()
    assert store.now_ms() == snapshot.ms
    with pytest.raises(Forbidden, match="nothing can be changed"):
        store.apply(write("add_project", id="new"))
    with pytest.raises(Forbidden, match="nothing can be changed"):
        store.change("add_project", id="new")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        store.load("add_project", id="new")
    store.close()
    with pytest.raises(Unreachable, match="was closed"):
        store.load("projects")


def test_no_object_of_a_replay_can_be_changed(live: Live) -> None:
    objects = ReplayObjects(live.simulation)
    before = dict(objects.objects)
    for change in (
        lambda: objects.write("key", b""),
        lambda: objects.begin("key"),
        lambda: objects.put_part("key", "upload", 1, b""),
        lambda: objects.complete("key", "upload", ()),
        lambda: objects.abort("key", "upload"),
        lambda: objects.delete([*before]),
    ):
        with pytest.raises(Forbidden, match="nothing can be changed"):
            change()
    assert objects.objects == before


def test_what_is_no_moment_is_refused(client: httpx.Client) -> None:
    for text in ("", "now", "-1", "1e3", "9" * 16, "\u0663"):
        answer = client.get("/v1/jobs", params={"at": text})
        assert (answer.status_code, answer.json()["detail"]) == (422, "at is no moment in milliseconds UTC"), text


def test_nobody_can_ask_the_provider_of_a_replay(client: httpx.Client) -> None:
    answer = client.get("/v1/pools/default/instances")
    assert answer.status_code == 503 and "there is no provider to ask" in answer.json()["detail"]


# What it costs


def test_recording_changes_nothing_of_a_simulation(live: Live) -> None:
    alone = Simulation(live.simulation.scenario, 0)
    assert alone.run() == live.simulation.outcome()


def test_a_snapshot_is_the_database_of_its_moment_to_the_byte(live: Live) -> None:
    assert live.recording.snapshots[-1].database() == live.simulation.store.serialize()


def test_many_snapshots_take_little_more_memory_than_a_few_databases(live: Live) -> None:
    database = len(live.simulation.store.serialize())
    assert live.recording.stored_bytes() < 3 * database < len(live.recording.snapshots) * database / 10


def test_only_the_newest_pages_are_not_compressed() -> None:
    world = World(0)
    store = SimStore(world)
    kept = {limit: Recording(world, store, plain_bytes_max=limit) for limit in (0, 100 * PAGE_BYTES, PLAIN_BYTES_MAX)}
    for number in range(40):
        world.now_ms += INTERVAL_MS
        store.apply(write("add_project", id=f"project-{number}"))
        for each in kept.values():
            each.look()
    compressed, some, plain = (each.stored_bytes() for each in kept.values())
    assert compressed < some < plain and some - compressed <= 100 * PAGE_BYTES
    databases = [[snapshot.database() for snapshot in each.snapshots] for each in kept.values()]
    assert databases[0] == databases[1] == databases[2] and databases[0][-1] == store.serialize()


def test_however_long_a_run_is_its_snapshots_are_bounded_and_regular() -> None:
    world = World(0)
    store = SimStore(world)
    recording, every_ms = Recording(world, store), 700
    for number in range(10_000):
        world.now_ms = START_MS + number * every_ms
        recording.look()
    recording.finish()
    moments = [snapshot.ms for snapshot in recording.snapshots]
    assert SNAPSHOTS_MAX / 2 <= len(moments) <= SNAPSHOTS_MAX + 1
    assert (moments[0], moments[-1]) == (START_MS, world.now_ms)
    between = [after - before for before, after in pairwise(moments[:-1])]
    assert max(between) - min(between) <= 2 * every_ms


def test_few_databases_are_open_at_a_time_and_one_in_use_stays(live: Live, replay: Replay) -> None:
    async def ask_all() -> list[int]:
        transport = httpx.ASGITransport(replay)
        async with httpx.AsyncClient(transport=transport, base_url="http://replay") as asking:
            moments = [snapshot.ms for snapshot in live.recording.snapshots[:40]]
            answers = await asyncio.gather(*(asking.get("/v1/jobs", params={"at": ms}) for ms in moments))
            again = [await asking.get("/v1/jobs", params={"at": ms}) for ms in moments[:10]]
        return [answer.status_code for answer in (*answers, *again)]

    assert set(asyncio.run(ask_all())) == {200}
    assert len(replay._open) == OPEN_MAX


def test_a_moment_that_nobody_asks_for_any_more_is_closed(live: Live, replay: Replay) -> None:
    async def leave_the_first() -> ReplayStore:
        transport = httpx.ASGITransport(replay)
        async with httpx.AsyncClient(transport=transport, base_url="http://replay") as asking:
            first, *others = (snapshot.ms for snapshot in live.recording.snapshots[: OPEN_MAX + 1])
            await asking.get("/v1/jobs", params={"at": first})
            store = replay._open[0].opening.result().store
            for ms in others:
                await asking.get("/v1/jobs", params={"at": ms})
        return store

    with pytest.raises(Unreachable, match="was closed"):
        asyncio.run(leave_the_first()).load("projects")
