"""Races and rules about bases by name, what is copied of them, and what is prepared once."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gangline.core.errors import Unreachable
from gangline.core.files import File
from gangline.core.runs.contract import Prepared
from gangline.core.runs.prepared import latents_key
from gangline.core.specs.fields import FilesBase, HubBase
from gangline.core.specs.spec import parse_spec
from gangline.ports.hub import HubFile, HubModel
from gangline.ports.server import Done, Hold, Keep
from gangline.service.content import bases, prepared
from gangline.service.content.bases import BaseStatement
from gangline.service.content.mirror import TURN_S, mirror
from gangline.service.deployment import Deployment
from gangline.sim.service import NoHub
from tests.sim.mutants.bench import PROJECT, Bench, is_stale, probe

CONFIG = json.dumps({"_class_name": "StableDiffusionXLPipeline"}).encode()
CONTENT = {
    "model_index.json": CONFIG,
    "unet/config.json": b"{}",
    "scheduler/scheduler_config.json": b"{}",
    "unet/w.safetensors": b"u",
}
COMMIT = "c" * 40
MODEL = HubBase(repo="a/b", revision=COMMIT)
FILES = FilesBase(files=(File(path="w.safetensors", bytes=1, sha256="e" * 64),))


@dataclass
class Gated(NoHub):
    """`reading` is called before each file is read."""

    reading: Callable[[], object] = lambda: None

    def look(self, repo: str, revision: str) -> HubModel:
        files = tuple(HubFile(path=path, bytes=len(content), sha256=None) for path, content in CONTENT.items())
        return HubModel(commit=COMMIT, gated=True, licence="mine", files=files)

    def read(self, repo: str, commit: str, path: str, part: range | None = None) -> bytes:
        self.reading()
        return CONTENT[path]


def add(bench: Bench, hub: Gated, base: Any = MODEL) -> Deployment:
    deployment = replace(bench.deployment, hub=hub)
    bases.add(deployment, PROJECT, "ours", base, None, BaseStatement(), bench.now_ms)
    return deployment


def copied(bench: Bench) -> tuple[str, int]:
    """The state of the copy, and how many files of it are there."""
    return bench.store.look("SELECT state, done_files FROM mirror")[0]  # type: ignore[return-value]


@probe()
def a_name_that_is_given_again_stays_with_its_base(bench: Bench) -> None:
    deployment = add(bench, Gated())
    assert bases.add(deployment, PROJECT, "ours", MODEL, None, BaseStatement(), bench.now_ms).id == MODEL.id


@probe()
def what_is_copied_already_is_not_begun_anew_when_its_base_is_named_again(bench: Bench) -> None:
    deployment = add(bench, Gated())
    assert len(list(mirror(deployment))) == len(CONTENT) and copied(bench) == ("ready", len(CONTENT))
    bases.add(deployment, PROJECT, "again", MODEL, None, BaseStatement(), bench.now_ms)
    assert copied(bench) == ("ready", len(CONTENT))


@probe()
def two_servers_do_not_copy_the_same(bench: Bench) -> None:
    deployment = add(bench, Gated())
    first, second = mirror(deployment), mirror(replace(deployment, server="another"))
    next(first)
    assert list(second) == []
    assert len(list(first)) == len(CONTENT) - 1


@probe()
def of_two_servers_that_want_the_turn_in_the_same_moment_one_has_it(bench: Bench) -> None:
    reads: list[int] = []
    hub = Gated()
    deployment = add(bench, hub)
    hub.reading = lambda: reads.append(1)
    other = mirror(replace(deployment, server="another"))
    bench.meanwhile("take_mirror", lambda: next(other))
    assert list(mirror(deployment)) == [] and len(reads) == 1


@probe()
def a_server_whose_turn_has_gone_to_another_writes_nothing_more(bench: Bench) -> None:
    deployment = add(bench, Gated())
    late, other = mirror(deployment), mirror(replace(deployment, server="another"))
    next(late)
    bench.wait(TURN_S + 1)
    next(other)
    before = bench.store.look("SELECT * FROM mirror")
    assert list(late) == [] and bench.store.look("SELECT * FROM mirror") == before


@probe()
def a_server_that_fails_late_does_not_take_the_turn_from_another(bench: Bench) -> None:
    hub = Gated()
    deployment = add(bench, hub)
    other = mirror(replace(deployment, server="another"))

    def meanwhile() -> None:
        hub.reading = lambda: None
        bench.wait(TURN_S + 1)
        next(other)
        raise Unreachable("the hub is away")

    hub.reading = meanwhile
    assert list(mirror(deployment)) == []
    assert len(list(other)) == len(CONTENT) - 1 and copied(bench) == ("ready", len(CONTENT))


# What is prepared once


def made(bench: Bench, job: str) -> Prepared:
    spec = parse_spec(json.loads(bench.look("SELECT spec FROM job WHERE id = ?", job)[0]))
    file = File(path="photos.safetensors", bytes=10, sha256="d" * 64)
    return Prepared(key=latents_key(spec, {}), files=(file,))


def keep(bench: Bench, node: str, hold: Hold, found: Prepared, *, upload: bool = True) -> Any:
    if upload:
        below = replace(found.files[0], path=f"{found.key}/{found.files[0].path}")
        bench.upload(node, hold, "prepared", below)
    return prepared.record_prepared(bench.deployment, node, hold, Keep(manifest=found.to_json()), bench.now_ms)


def kept(bench: Bench) -> int:
    return bench.look("SELECT COUNT(*) FROM prepared")[0]


@probe()
def what_is_kept_twice_is_kept_and_told_once(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    assert keep(bench, node, hold, made(bench, job)) == Done()
    assert keep(bench, node, hold, made(bench, job), upload=False) == Done()
    assert kept(bench) == 1 and bench.look("SELECT COUNT(*) FROM event WHERE kind = 'prepared'") == [1]


@probe()
def what_a_node_prepared_that_loses_its_lease_in_this_moment_is_not_offered(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    found = made(bench, job)
    bench.meanwhile("add_prepared", lambda: bench.release(node, hold))
    assert is_stale(keep(bench, node, hold, found)) and kept(bench) == 0


@probe()
def what_a_job_was_given_in_this_moment_is_not_pruned(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    keep(bench, node, hold, made(bench, job))
    bench.release(node, hold)
    bench.wait(bench.policy.prepared_s + 1)
    again: list[str] = []
    bench.meanwhile("forget_prepared", lambda: again.append(bench.take(bench.join("other"), job).attempt))
    prepared.prune_prepared(bench.deployment, bench.now_ms)
    assert again and kept(bench) == 1
    assert any("/prepared/" in key for key in bench.objects.objects)
