"""The agent's step never blocks: edges that take their time, a clock that the test moves, the real service behind HTTP."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from errno import EACCES, EEXIST, EIO, EISDIR, ENAMETOOLONG, ENOSPC, ENOTDIR
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from gangline.adapters.host.host import LocalHost
from gangline.core.errors import Denied, GanglineError, Unreachable
from gangline.core.files import PART_BYTES, Beginning, File, Grant, Signed
from gangline.core.fleet.gauges import Gauges
from gangline.core.parsing import to_json
from gangline.core.runs.contract import EXIT_LEFT_OUT, Manifest, Prepared, Progress, parse_prepared
from gangline.core.runs.metrics import Reading
from gangline.core.runs.prepared import class_images_key, embeddings_key, latents_key
from gangline.core.runs.proof import Proof
from gangline.core.specs.command import CommandSpec
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.spec import spec_hash
from gangline.ports.server import Folder, Join, Upload
from gangline.ports.store import write
from gangline.ports.trainer import Made, Pictures, RunAccess, RunResult, Saved, Unfinished
from gangline.service.controller import Controller
from gangline.service.fleet.nodes import gone
from gangline.service.jobs.submit import submit
from gangline.wire.agent import HttpServer
from gangline.worker.agent import REFUSED_S_MAX, Agent
from gangline.worker.checkpoints import SAVE_ANSWER_S_MAX
from gangline.worker.edges import Edges
from gangline.worker.move import TRIES_OF_A_URL
from gangline.worker.shipping import UPLOAD_PREPARED_S
from tests.conftest import as_upload, file_at
from tests.service.access.test_access import rent
from tests.service.conftest import JOIN, POLICY, PROJECT, Service
from tests.wire.record import GAUGES

OUTPUT = b"the weights"
LONG_STEPS = 10_000
COMMAND = CommandSpec(command=("true",))


@dataclass
class SlowTask:
    """Has happened after `left` looks."""

    happen: Callable[[], None]
    left: int
    error: Exception | None = None
    result: Any = None

    def __post_init__(self) -> None:
        self.happen()  # the store looks at a URL when a transfer begins

    @property
    def done(self) -> bool:
        self.left -= 1
        return self.left < 0


@dataclass
class SlowTransfer:
    """Moves real bytes to and from the real store, each file in `looks` looks."""

    service: Service
    looks: int = 15
    idle: bool = True
    stops: int = 0
    sent: list[tuple[File, Signed]] = field(default_factory=list)

    def apart(self) -> "SlowTransfer":
        return self  # one attempt at a time uses it

    def describe(self, file: File, source: Path) -> SlowTask:
        return SlowTask(lambda: None, self.looks, result=as_upload(file, source.read_bytes()))

    def download(self, signed: Signed, file: File, to: Path, *, durable: bool) -> SlowTask:
        def happen() -> None:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(self.service.objects.read(urlsplit(signed.url).path.removeprefix("/v1/objects/")))

        return SlowTask(happen, self.looks)

    def upload(self, grant: Grant, file: File, source: Path) -> SlowTask:
        self.sent.append((file, next(signed for signed in grant.parts if signed)))
        return SlowTask(lambda: self.service.put(grant, source.read_bytes()), self.looks)

    def stop(self) -> None:
        self.stops += 1

    def list_hub(self, repo: str, commit: str, role: str) -> SlowTask:
        raise AssertionError("no base of the hub here")

    def download_from_hub(self, repo: str, commit: str, file: File, to: Path) -> SlowTask:
        raise AssertionError("no base of the hub here")


@dataclass
class AwayTransfer(SlowTransfer):
    """The first `tries` downloads of the first file fail, and so many uploads."""

    error: Exception = field(kw_only=True)
    tries: int = field(kw_only=True)
    first: Path | None = None
    tried: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)

    def upload(self, grant: Grant, file: File, source: Path) -> SlowTask:
        if len(self.sent) == self.tries:
            return super().upload(grant, file, source)
        (signed,) = grant.parts
        assert signed
        self.sent.append((file, signed))
        return SlowTask(lambda: None, 0, self.error)

    def download(self, signed: Signed, file: File, to: Path, *, durable: bool) -> SlowTask:
        self.first = self.first or to
        if to != self.first:
            return super().download(signed, file, to, durable=durable)
        self.urls.append(signed.url)
        if len(self.tried) == self.tries:
            return super().download(signed, file, to, durable=durable)
        self.tried.append(signed.url)
        return SlowTask(lambda: None, 0, self.error)


@dataclass
class ScriptedRun:
    """A trainer that says one thing after the other, a look at a time, and then exits."""

    directory: Path
    script: list[Progress]
    code: int = 0
    stopped: bool = False
    finishing: bool = False
    killed: bool = False
    asked: int = 0
    saved: list[Saved] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    slots: tuple[int, ...] = ()
    noted: list[str] = field(default_factory=list)

    def exit_code(self) -> int | None:
        if len(self.script) > 1 and not self.stopped:
            self.script.pop(0)
            return None
        return 75 if self.stopped else self.code

    def progress(self) -> Progress:
        return self.script[0]

    def take_readings(self) -> list[Reading]:
        taken, self.readings = self.readings, []
        return taken

    def failure(self) -> None:
        return None

    def checkpoints(self) -> list[Saved]:
        return self.saved

    def unfinished(self) -> Unfinished | None:
        return None

    def parts(self, folder: Path) -> tuple[Beginning, ...]:
        return ()

    def pictures(self) -> list[Pictures]:
        return []

    def place(self, folder: Folder, path: str) -> Path:
        return self.directory / folder / path

    def prepared(self) -> list[Made]:
        return self.made

    def printed(self, first_byte: int, most: int) -> bytes:
        return b"said\n"[first_byte : first_byte + most]

    def note(self, line: str) -> None:
        self.noted.append(line)

    def result(self) -> RunResult:
        (self.directory / "output").mkdir(exist_ok=True)
        (self.directory / "output" / "w").write_bytes(OUTPUT)
        import hashlib

        return RunResult((File(path="w", bytes=len(OUTPUT), sha256=hashlib.sha256(OUTPUT).hexdigest()),), ())

    def ask_to_save(self) -> None:
        self.asked += 1

    def ask_to_render(self, *, now: bool = False) -> None:
        raise AssertionError("no pictures were asked for")

    def ask_to_finish(self) -> None:
        self.finishing = True

    def ask_to_stop(self) -> None:
        self.stopped = True

    def kill(self) -> None:
        self.killed = True


@dataclass
class ScriptedTrainer:
    script: list[Progress]
    runs: list[ScriptedRun] = field(default_factory=list)
    prepared: int = 0
    proofs: list[Proof | None] = field(default_factory=list)
    full_disks: int = 0

    def prove(self) -> Proof | None:
        return self.proofs.pop(0) if self.proofs else Proof()

    def prepare(self) -> None:
        if self.full_disks:
            self.full_disks -= 1
            raise OSError(ENOSPC, "No space left on device")
        self.prepared += 1

    def start(self, kind: str, directory: Path, slots: tuple[int, ...], access: RunAccess) -> ScriptedRun:
        self.runs.append(ScriptedRun(directory, list(self.script), slots=slots))
        return self.runs[-1]


def looks(count: int, **said: Any) -> list[Progress]:
    return [Progress(**said)] * count


SCRIPT = [
    *looks(60, phase="preparing", steps=100),
    *looks(60, phase="training", step=50, steps=100, loss=0.5, seconds_per_step=0.2),
    *looks(60, phase="saving", step=100, steps=100, loss=0.4, seconds_per_step=0.2),
]


@dataclass
class Node:
    service: Service
    agent: Agent
    trainer: ScriptedTrainer
    host: LocalHost

    def step(self) -> None:
        """A second passes; the agent does what can be done in it."""
        self.service.wait(1)
        self.agent.step(self.service.now_ms / 1000)

    def lease(self) -> dict[str, Any] | None:
        rows = self.service.store.load("overdue_leases", now=2**62)
        if not rows:
            return None
        attempt = self.service.store.load("attempt", id=rows[0]["attempt"])[0]
        return dict(self.service.store.load("attempts", job=attempt["job"])[-1])


@pytest.fixture
def node(service: Service, tmp_path: Path) -> Node:
    return make_node(service, tmp_path, SlowTransfer(service))


def make_node(
    service: Service,
    tmp_path: Path,
    transfer: SlowTransfer,
    *,
    slots: int = 1,
    token: str = JOIN,
    machine: str = "m",
    rng: Random | None = None,
    gauges: Callable[[float], Gauges | None] = lambda _now_s: None,
    **said: Any,
) -> Node:
    host = LocalHost(tmp_path / "node")
    trainer = ScriptedTrainer(SCRIPT)
    server = HttpServer("http://testserver", token, service.http)  # type: ignore[arg-type]
    edges = Edges(server=server, transfer=transfer, trainer=trainer, host=host, rng=rng or Random(0), gauges=gauges)
    return Node(service, Agent(edges, Join(machine=machine, name="node-a", slots=slots), **said), trainer, host)


def test_every_phase_is_told_from_the_first_second_to_the_last_upload(node: Node) -> None:
    job = node.service.submit()
    told: list[tuple[str, int]] = []
    while node.service.state(job) != "succeeded":
        node.step()
        lease = node.lease()
        if lease and (lease["phase"], lease["step"]) not in told:
            told.append((lease["phase"], lease["step"]))
            assert lease["beat_ms"] > node.service.now_ms - 1000 * (POLICY.heartbeat_interval_s + 1)
    phases = [phase for phase, _ in told]
    assert phases == ["starting", "downloading", "preparing", "training", "saving", "uploading"]
    attempt = node.service.store.load("attempts", job=job)[0]
    assert (attempt["step"], attempt["loss"], attempt["seconds_per_step"]) == (100, 0.4, 0.2)
    assert node.service.ask("GET", f"/v1/jobs/{job}/logs").json()["text"] == "said\n"
    assert list((node.host.runs).iterdir()) == []


def test_what_is_measured_of_a_node_goes_with_its_claims_and_its_heartbeats(service: Service, tmp_path: Path) -> None:
    measured = [GAUGES]
    node = make_node(
        service, tmp_path, SlowTransfer(service), gauges=lambda _now_s: measured.pop() if measured else None
    )

    def newest() -> Any:
        return service.ask("GET", "/v1/nodes").json()[0]["gauges"]

    while measured:
        node.step()
    assert newest()["cpu_load"] == GAUGES.cpu_load
    job = service.submit()
    while not node.trainer.runs:
        node.step()
    service.wait(30)
    measured.append(replace(GAUGES, cpu_load=0.5))
    while measured:
        node.step()
    assert newest()["cpu_load"] == 0.5 and service.state(job) == "running"


def test_an_upload_that_takes_most_of_an_hour_does_not_stop_the_heartbeat(node: Node) -> None:
    job = node.service.submit()
    while not (node.lease() and node.lease()["phase"] == "training"):  # type: ignore[index]
        node.step()
    node.agent._edges.transfer.looks = 3300  # type: ignore[attr-defined]
    controller = Controller(node.service.deployment)
    while node.service.state(job) == "running":
        node.step()
        controller.tick(node.service.now_ms)
    assert node.service.state(job) == "succeeded"
    assert len(node.service.store.load("attempts", job=job)) == 1


def test_a_lost_lease_kills_the_trainer_and_wipes_the_run(node: Node) -> None:
    job = node.service.submit()
    while not node.trainer.runs:
        node.step()
    assert node.service.ask("POST", f"/v1/jobs/{job}/cancel").json()["summary"]["state"] == "canceled"
    while not node.trainer.runs[0].killed:
        node.step()
    assert list(node.host.runs.iterdir()) == []
    assert "the lease is lost" in node.agent.news[-1]


@pytest.mark.parametrize("phase", ["downloading", "training"])
def test_a_run_is_wiped_once_nothing_moves_its_files_any_more(node: Node, phase: str) -> None:
    transfer = node.agent._edges.transfer
    job = node.service.submit()
    while not (node.lease() and node.lease()["phase"] == phase):  # type: ignore[index]
        node.step()
    transfer.idle = False  # type: ignore[misc]
    assert node.service.ask("POST", f"/v1/jobs/{job}/cancel").json()["summary"]["state"] == "canceled"
    while not transfer.stops:  # type: ignore[attr-defined]
        node.step()
    for _ in range(20):
        node.step()
    assert node.agent.is_busy and list(node.host.runs.iterdir())
    transfer.idle = True  # type: ignore[misc]
    node.step()
    assert not node.agent.is_busy and not list(node.host.runs.iterdir())


def test_told_to_stop_while_it_downloads_a_node_hands_the_job_back_at_once(node: Node) -> None:
    node.agent._edges.transfer.looks = 3300  # type: ignore[attr-defined]
    job = node.service.submit()
    while not (node.lease() and node.lease()["phase"] == "downloading"):  # type: ignore[index]
        node.step()
    node.agent.ask_to_stop()
    steps = 0
    while not node.agent.stopped:
        node.step()
        steps += 1
    assert steps < 10 and node.agent._edges.transfer.stops  # type: ignore[attr-defined]
    assert node.service.state(job) == "queued"
    assert node.service.ask("GET", "/v1/nodes").json() == []


@pytest.mark.parametrize(
    ("error", "tries", "urls"),
    [
        (Unreachable("away"), TRIES_OF_A_URL - 1, 1),
        (Unreachable("away"), TRIES_OF_A_URL + 1, 2),
        (Denied("expired"), 3, 4),
    ],
)
def test_a_url_serves_while_the_store_is_away_and_another_is_asked_for_once_it_is_refused(
    service: Service, tmp_path: Path, error: GanglineError, tries: int, urls: int
) -> None:
    away = AwayTransfer(service, error=error, tries=tries)
    node = make_node(service, tmp_path, away)
    service.submit()
    while not node.trainer.runs:
        node.step()
    assert len(away.tried) == tries and len(set(away.urls)) == urls


@pytest.mark.parametrize("error", [Unreachable("away"), Denied("expired")])
def test_how_to_go_on_with_an_upload_is_asked_at_each_try(
    service: Service, tmp_path: Path, error: GanglineError
) -> None:
    """The answer says which parts have come in."""
    away = AwayTransfer(service, error=error, tries=3)
    node = make_node(service, tmp_path, away)
    job = service.submit()
    while service.state(job) != "succeeded":
        node.step()
    assert len({signed.url for _, signed in away.sent}) == len(away.sent) == 4


def test_what_goes_up_in_parts_is_hashed_in_the_background_and_described_to_the_server(node: Node) -> None:
    training(node, content=bytes(PART_BYTES + 1))
    while not node.agent._edges.transfer.sent:  # type: ignore[attr-defined]
        node.step()
    file, _ = node.agent._edges.transfer.sent[0]  # type: ignore[attr-defined]
    assert isinstance(file, Upload) and len(file.parts) == 2


def test_a_node_that_asks_for_work_has_a_trainer_stand_by(node: Node) -> None:
    for _ in range(3):
        node.step()
    assert node.trainer.prepared and not node.trainer.runs
    node.service.submit()
    while not node.trainer.runs:
        node.step()
    before = node.trainer.prepared
    for _ in range(3):
        node.step()
    assert node.trainer.prepared == before, "a node at work needs its memory"


def test_a_node_whose_disk_is_full_takes_no_job_until_a_trainer_can_stand_by(node: Node) -> None:
    node.service.submit()
    node.trainer.full_disks = 3
    node.step()
    assert node.agent.news == ["no trainer can be started here: No space left on device; trying again"]
    while not node.trainer.runs:
        node.step()
    assert node.trainer.full_disks == 0 and node.agent.news.count(node.agent.news[0]) == 1


@dataclass
class UnplaceableTransfer(SlowTransfer):
    """Every download ends in this error of the disk."""

    error: Exception = field(kw_only=True)

    def download(self, signed: Signed, file: File, to: Path, *, durable: bool) -> SlowTask:
        return SlowTask(lambda: None, 0, self.error)


def ended_by(service: Service, tmp_path: Path, error: Exception) -> str:
    """Return what a node reports of a job whose inputs it cannot place."""
    node = make_node(service, tmp_path, UnplaceableTransfer(service, error=error))
    job = service.submit()
    while not (attempts := service.store.load("attempts", job=job)) or attempts[0]["state"] == "live":
        node.step()
    assert "boom" in attempts[0]["because"]
    return service.look("SELECT kind FROM attempt")[0]["kind"]


@pytest.mark.parametrize("number", [ENAMETOOLONG, EISDIR, EEXIST, ENOTDIR])
def test_inputs_whose_names_no_disk_can_hold_are_bad_data_and_no_crash(
    service: Service, tmp_path: Path, number: int
) -> None:
    assert ended_by(service, tmp_path, OSError(number, "boom")) == "bad data"


def test_inputs_that_are_nested_too_deep_to_read_are_bad_data(service: Service, tmp_path: Path) -> None:
    assert ended_by(service, tmp_path, RecursionError("boom")) == "bad data"


@pytest.mark.parametrize(("number", "kind"), [(EIO, "crashed"), (EACCES, "crashed"), (ENOSPC, "disk full")])
def test_other_errors_of_a_nodes_disk_are_not_blamed_on_the_inputs(
    service: Service, tmp_path: Path, number: int, kind: str
) -> None:
    assert ended_by(service, tmp_path, OSError(number, "boom")) == kind


def test_the_terminal_says_once_why_a_node_gets_no_work_and_again_when_that_changes(node: Node) -> None:
    for _ in range(3):
        node.step()
    node.agent.news.clear()
    store, until_ms = node.service.store, node.service.now_ms + 3_600_000
    once = {
        "id": "m",
        "quarantines": 1,
        "judged_ms": -1,
        "until_ms": until_ms,
        "because": "",
        "now": node.service.now_ms,
    }
    [here] = store.load("nodes_of_machine", machine="m")

    def become(before: str, state: str, because: str) -> None:
        store.apply(write("set_node_state", id=here["id"], before=before, state=state, because=because))
        for _ in range(60):
            node.step()

    store.apply(write("quarantine_machine", **once))
    become("ready", "quarantined", "quarantined: 2 strikes: the trainer crashed")
    [said] = node.agent.news
    assert said.startswith("no work for now: node-a is quarantined until ")
    assert said.endswith(" UTC: 2 strikes: the trainer crashed")
    become("quarantined", "draining", "gives way")
    assert node.agent.news[1:] == ["no work for now: node-a is draining: gives way"]
    become("draining", "ready", "")
    become("ready", "draining", "gives way")
    assert len(node.agent.news) == 3


def test_a_node_for_which_no_job_waits_says_nothing_of_that(node: Node) -> None:
    for _ in range(60):
        node.step()
    assert node.agent.news == [line for line in node.agent.news if line.startswith("joined as ")]


def test_two_attempts_on_one_node_use_a_fresh_directory_each(node: Node) -> None:
    job = node.service.submit()
    while not node.trainer.runs:
        node.step()
    node.trainer.runs[0].script[:] = node.trainer.runs[0].script[:1]
    node.trainer.runs[0].code = 1
    controller = Controller(node.service.deployment)
    while len(node.trainer.runs) < 2:  # it is the only machine here, so its ban yields after a while
        node.step()
        controller.tick(node.service.now_ms)
    attempts = node.service.ask("GET", f"/v1/jobs/{job}").json()["attempts"]
    assert attempts[0]["state"] == "failed" and "exit code 1; its last output: said" in attempts[0]["because"]
    assert node.trainer.runs[0].directory != node.trainer.runs[1].directory
    assert node.service.now_ms - attempts[0]["ended_ms"] >= 1000 * POLICY.ban_yields_s


def test_told_with_a_heartbeat_to_stop_a_node_saves_and_hands_the_job_back(node: Node) -> None:
    job = node.service.submit()
    while not node.trainer.runs:
        node.step()
    assert node.service.ask("POST", f"/v1/jobs/{job}/pause").json()["summary"]["state"] == "running"
    while node.service.state(job) == "running":
        node.step()
    assert node.trainer.runs[0].stopped and not node.agent.stopped
    attempt = node.service.ask("GET", f"/v1/jobs/{job}").json()["attempts"][0]
    assert (node.service.state(job), attempt["state"]) == ("paused", "released")


def test_a_checkpoint_is_shipped_while_training_goes_on(node: Node) -> None:
    job = node.service.submit()
    while not node.trainer.runs:
        node.step()
    run = node.trainer.runs[0]
    manifest: Manifest = node.service.manifest(50)
    folder = run.directory / "checkpoints" / "000050"
    folder.mkdir(parents=True)
    (folder / "weights.safetensors").write_bytes(b"weights")
    run.saved.append(Saved(folder, manifest))
    while node.service.ask("GET", f"/v1/jobs/{job}").json()["summary"]["committed_step"] != 50:
        node.step()
        assert run.exit_code() is None
    assert PROJECT in node.service.store.load("checkpoints", job=job)[0]["prefix"]


def test_the_best_checkpoint_is_shipped_although_there_is_a_newer_one_and_others_are_not(node: Node) -> None:
    job = node.service.submit()
    while not node.trainer.runs:
        node.step()
    run = node.trainer.runs[0]
    for step in (20, 30, 40, 50):
        folder = run.directory / "checkpoints" / f"{step:06d}"
        folder.mkdir(parents=True)
        (folder / "weights.safetensors").write_bytes(b"weights")
        run.saved.append(Saved(folder, replace(node.service.manifest(step), best=step in (20, 30))))
    while node.service.ask("GET", f"/v1/jobs/{job}").json()["summary"]["committed_step"] != 50:
        node.step()
    assert [row["step"] for row in node.service.store.load("checkpoints", job=job)] == [50, 30]


@dataclass
class SavingRun(ScriptedRun):
    """A trainer in the midst of its training that takes a step in each look, and saves when it is asked, unless it is `deaf`."""

    service: Service | None = None
    content: bytes = b"weights"
    deaf: bool = False
    save_s: float | None = None
    step: int = 0
    spec_hash: str = ""
    phase: Any = "training"
    asked_at: list[int] = field(default_factory=list)

    def exit_code(self) -> int | None:
        self.step += 1
        return 75 if self.stopped else None

    def progress(self) -> Progress:
        return Progress(phase=self.phase, step=self.step, steps=100, loss=0.5, save_s=self.save_s)

    def ask_to_save(self) -> None:
        assert self.service
        self.asked_at.append(self.service.now_ms // 1000)
        if not self.deaf:
            self.save()

    def save(self) -> None:
        assert self.service
        folder = self.directory / "checkpoints" / f"{self.step:06d}"
        folder.mkdir(parents=True)
        (folder / "weights.safetensors").write_bytes(self.content)
        mine = self.spec_hash or spec_hash(self.service.spec(steps=LONG_STEPS))
        self.saved.append(Saved(folder, self.service.manifest(self.step, self.content, spec_hash=mine)))

    def pauses_s(self) -> list[int]:
        return [later - earlier for earlier, later in pairwise(self.asked_at)]


@dataclass
class SavingTrainer(ScriptedTrainer):
    service: Service = field(kw_only=True)
    said: dict[str, Any] = field(default_factory=dict)

    def start(self, kind: str, directory: Path, slots: tuple[int, ...], access: RunAccess) -> ScriptedRun:
        self.runs.append(SavingRun(directory, list(self.script), service=self.service, **self.said))
        return self.runs[-1]


def give_long_job(node: Node, **said: Any) -> str:
    """Submit a job, which the node will run as a `SavingRun`; return its id."""
    node.trainer = SavingTrainer(SCRIPT, service=node.service, said=said)
    node.agent._edges = replace(node.agent._edges, trainer=node.trainer)
    return node.service.submit(steps=LONG_STEPS)


def give_command(node: Node, trainer: SavingTrainer) -> str:
    """Submit a command, which the node will run with this trainer; return the job's id."""
    trainer.proofs.append(Proof(measured={"isolation": "uid"}))
    node.trainer, service = trainer, node.service
    node.agent._edges = replace(node.agent._edges, trainer=trainer)
    return submit(service.deployment, PROJECT, to_json(COMMAND), name="", request=None, now_ms=service.now_ms)


def training(node: Node, **said: Any) -> SavingRun:
    """A run of `SavingRun` on a node, from its first step on."""
    give_long_job(node, **said)
    while not node.trainer.runs:
        node.step()
    return node.trainer.runs[0]  # type: ignore[return-value]


def test_when_a_checkpoint_has_gone_up_the_trainer_is_asked_for_the_next(node: Node) -> None:
    run = training(node)
    node.agent._edges.transfer.looks = 30  # type: ignore[attr-defined]
    while len(run.asked_at) < 4:
        node.step()
    assert all(30 <= pause_s <= 34 for pause_s in run.pauses_s()), run.pauses_s()


def test_it_is_not_asked_more_often_than_the_policy_says(node: Node) -> None:
    run = training(node)
    node.agent._edges.transfer.looks = 1  # type: ignore[attr-defined]
    while len(run.asked_at) < 4:
        node.step()
    assert all(POLICY.save_interval_s <= pause_s <= POLICY.save_interval_s + 1 for pause_s in run.pauses_s())


def test_what_the_owner_asks_is_saved_at_once_and_once(node: Node) -> None:
    run = training(node, save_s=9.0)  # its rhythm would be a quarter of an hour
    node.agent._edges.transfer.looks = 25  # type: ignore[attr-defined]
    job = node.service.ask("GET", "/v1/jobs").json()["jobs"][0]["id"]
    while node.service.ask("GET", f"/v1/jobs/{job}").json()["summary"]["phase"] != "training":
        node.step()
    before, asked_s = len(run.asked_at), node.service.now_ms // 1000
    for _ in range(2):
        assert node.service.ask("POST", f"/v1/jobs/{job}/save").json()["asked"] == ["save"]
    while node.service.ask("GET", f"/v1/jobs/{job}").json()["asked"]:
        node.step()
    for _ in range(int(2 * POLICY.heartbeat_interval_s)):
        node.step()
    assert len(run.asked_at) == before + 1
    assert run.asked_at[-1] - asked_s <= POLICY.heartbeat_interval_s + 1


def test_an_owner_who_wants_the_end_has_it_with_the_steps_that_were_taken(node: Node) -> None:
    job = node.service.submit()
    while not node.trainer.runs:
        node.step()
    run = node.trainer.runs[0]
    assert node.service.ask("POST", f"/v1/jobs/{job}/finish").json()["asked"] == ["finish"]
    while not run.finishing:
        node.step()
    run.script = looks(2, phase="saving", step=50, steps=100, loss=0.4, seconds_per_step=0.2)
    while node.service.state(job) != "succeeded":
        node.step()
    shown = node.service.ask("GET", f"/v1/jobs/{job}").json()["summary"]
    assert (shown["step"], shown["steps"]) == (50, 100)


def test_a_trainer_that_is_not_started_yet_is_asked_when_it_is(node: Node) -> None:
    job = node.service.submit()
    while node.service.state(job) != "running":
        node.step()
    assert not node.trainer.runs
    node.service.ask("POST", f"/v1/jobs/{job}/finish")
    while not (node.trainer.runs and node.trainer.runs[0].finishing):
        node.step()


def test_a_trainer_that_does_not_answer_is_not_waited_for_for_ever(node: Node) -> None:
    run = training(node, deaf=True)
    while not run.asked_at:
        node.step()
    run.deaf, before = False, node.service.now_ms
    while len(run.asked_at) < 2:
        node.step()
    assert node.service.now_ms - before <= 1000 * (SAVE_ANSWER_S_MAX + 1)


def test_a_trainer_is_not_asked_while_it_does_not_train(node: Node) -> None:
    run = training(node, phase="saving")
    for _ in range(60):
        node.step()
    assert run.asked_at == []


def test_a_trainer_that_was_told_to_stop_is_asked_for_nothing_more(node: Node) -> None:
    run = training(node)
    while not run.asked_at:
        node.step()
    node.agent.ask_to_stop()
    asked = len(run.asked_at)
    while not node.agent.stopped:
        node.step()
    assert len(run.asked_at) == asked


def made(run: ScriptedRun, key: str, content: bytes = b"latents") -> Made:
    """As the trainer leaves it in its directory."""
    folder = run.directory / "prepared" / key
    folder.mkdir(parents=True)
    (folder / "photos.safetensors").write_bytes(content)
    return Made(folder, Prepared(key=key, files=(file_at(folder / "photos.safetensors", folder),)))


def own_key(service: Service, kind: str = "latents") -> str:
    keys = {"latents": latents_key, "embeddings": embeddings_key}
    return keys[kind](service.spec(), {"torch": "2"})


def test_what_one_run_prepares_is_there_for_the_next_job_of_the_same_data(node: Node) -> None:
    first = node.service.submit()
    while not node.trainer.runs:
        node.step()
    key = own_key(node.service)
    node.trainer.runs[0].made.append(made(node.trainer.runs[0], key))
    while node.service.state(first) != "succeeded":
        node.step()
    node.service.submit(rank=8)
    while len(node.trainer.runs) < 2:
        node.step()
    folder = node.trainer.runs[1].directory / "inputs" / "prepared" / key
    assert (folder / "photos.safetensors").read_bytes() == b"latents"
    assert parse_prepared(json.loads((folder / "manifest.json").read_text())).key == key
    kinds = [event["kind"] for event in node.service.ask("GET", f"/v1/jobs/{first}/events").json()]
    assert kinds.count("prepared") == 1


def test_what_shows_somebodys_photos_is_wiped_with_the_run_and_class_images_stay(node: Node) -> None:
    spec = {"class_prompt": "a dog"}
    first = node.service.submit(**spec)
    while not node.trainer.runs:
        node.step()
    latents, images = own_key(node.service), class_images_key(node.service.spec(**spec))
    of_class = made(node.trainer.runs[0], images, b"pictures of a dog")
    node.trainer.runs[0].made += [made(node.trainer.runs[0], latents), of_class]
    while node.service.state(first) != "succeeded":
        node.step()
    second = node.service.submit(**spec)
    while node.service.state(second) != "succeeded":
        node.step()
    cached = [path.read_bytes() for path in node.host._cache.folder.iterdir() if path.is_file()]
    assert b"pictures of a dog" in cached and b"latents" not in cached
    assert list(node.host.runs.iterdir()) == []


def preparing(node: Node, *, slowly: bool = False) -> tuple[str, ScriptedRun]:
    """A job whose trainer has prepared something and not trained yet."""
    job = node.service.submit()
    while not node.trainer.runs:
        node.step()
    if slowly:
        node.agent._edges.transfer.looks = 3300  # type: ignore[attr-defined]
    run = node.trainer.runs[0]
    run.made.append(made(run, own_key(node.service)))
    return job, run


def seconds_to_stop(node: Node, job: str) -> float:
    node.agent.ask_to_stop()
    began_ms = node.service.now_ms
    while node.service.state(job) == "running":
        node.step()
    return (node.service.now_ms - began_ms) / 1000


def test_a_node_that_is_told_to_stop_leaves_what_it_prepared_to_the_next(node: Node) -> None:
    job, run = preparing(node)
    seconds_to_stop(node, job)
    kinds = [event["kind"] for event in node.service.ask("GET", f"/v1/jobs/{job}/events").json()]
    assert kinds.count("prepared") == 1 and run.progress().loss is None


def test_a_node_that_is_told_to_stop_does_not_wait_for_long_for_what_it_prepared(node: Node) -> None:
    job, _ = preparing(node, slowly=True)
    assert seconds_to_stop(node, job) < UPLOAD_PREPARED_S + 5


def test_once_it_has_trained_it_does_not_wait_for_it_at_all(node: Node) -> None:
    job, run = preparing(node, slowly=True)
    while run.progress().loss is None:
        node.step()
    assert seconds_to_stop(node, job) < UPLOAD_PREPARED_S / 2


def test_text_encoders_stay_away_where_embeddings_are_there_and_come_when_they_are_needed_after_all(node: Node) -> None:
    service = node.service
    files = [service.upload(name.encode(), name) for name in ("unet/w.safetensors", "text_encoder/w.safetensors")]
    config = service.upload(b"{}", "text_encoder/config.json")
    spec = {"base": FilesBase(files=(*files, config))}
    first = service.submit(**spec)
    while not node.trainer.runs:
        node.step()
    run = node.trainer.runs[0]
    assert (run.directory / "inputs" / "base" / "text_encoder" / "w.safetensors").exists()
    assert json.loads((run.directory / "left_out.json").read_text()) == []
    run.made.append(made(run, embeddings_key(service.spec(**spec), {})))
    while service.state(first) != "succeeded":
        node.step()
    node.host.discard(node.host.cached(files[1].sha256))
    second = service.submit(**spec, rank=8)
    while len(node.trainer.runs) < 2:
        node.step()
    run = node.trainer.runs[1]
    base = run.directory / "inputs" / "base"
    assert (base / "unet" / "w.safetensors").exists() and (base / "text_encoder" / "config.json").exists()
    assert not (base / "text_encoder" / "w.safetensors").exists()
    assert json.loads((run.directory / "left_out.json").read_text()) == ["text_encoder", "text_encoder_2"]
    run.code = EXIT_LEFT_OUT
    while len(node.trainer.runs) < 3:
        node.step()
    assert node.trainer.runs[2].directory == run.directory
    assert (base / "text_encoder" / "w.safetensors").read_bytes() == b"text_encoder/w.safetensors"
    assert json.loads((run.directory / "left_out.json").read_text()) == []
    while service.state(second) != "succeeded":
        node.step()
    assert len(service.store.load("attempts", job=second)) == 1


def test_a_node_says_when_it_joins_which_bases_it_has(node: Node) -> None:
    job = node.service.submit()
    while node.service.state(job) != "succeeded":
        node.step()
    assert node.host.bases() == (node.service.spec().base.id,)
    node.host.discard(node.host.cached(node.service.photo.sha256))
    assert node.host.bases() == ()


def test_a_node_joins_when_it_has_proved_itself_and_says_what_it_can_do(node: Node) -> None:
    node.trainer.proofs = [None, None, Proof(kinds=("lora",), problems={"scratch": "lance is not installed"})]
    for _ in range(2):
        node.step()
        assert node.agent.news == [] and node.trainer.prepared == 0
    node.step()
    assert len(node.agent.news) == 1 and "joined as node-a" in node.agent.news[0]
    (row,) = node.service.look("SELECT state, because, kinds FROM node")
    because = "no libraries for scratch: lance is not installed"
    assert row == {"state": "ready", "because": because, "kinds": ",lora,"}
    assert not node.agent.stopped and not node.agent.failed


def test_a_node_that_fails_its_probe_joins_so_that_it_is_seen_and_stops(node: Node) -> None:
    job = node.service.submit()
    node.trainer.proofs = [Proof(kinds=(), problems={"lora": "torch is not installed"})]
    node.step()
    assert node.agent.stopped and node.agent.failed == "failed its probe: torch is not installed"
    (row,) = node.service.look("SELECT state, because FROM node")
    assert row == {"state": "quarantined", "because": node.agent.failed}
    assert node.service.state(job) == "queued"


def test_a_node_whose_server_is_away_proves_itself_once(node: Node) -> None:
    node.trainer.proofs = [Proof(kinds=("lora",))]
    server = node.agent._edges.server

    def away(_: Join) -> None:
        raise Unreachable("nobody is there")

    object.__setattr__(node.agent._edges, "server", SimpleNamespace(join=away))
    node.step()
    object.__setattr__(node.agent._edges, "server", server)
    for _ in range(60):
        node.step()
    assert [row["kinds"] for row in node.service.look("SELECT kinds FROM node")] == [",lora,"]


def test_asked_to_stop_while_it_proves_itself_it_stops(node: Node) -> None:
    node.trainer.proofs = [None] * 9
    node.step()
    node.agent.ask_to_stop()
    node.step()
    assert node.agent.stopped and not node.agent.failed


def refused(node: Node, minutes: int) -> list[float]:
    """Step for so long; return the times at which the node asked to join."""
    server, asked = node.agent._edges.server, list[float]()

    def join(request: Join) -> Any:
        asked.append(node.service.now_ms / 1000)
        return server.join(request)

    object.__setattr__(node.agent._edges, "server", SimpleNamespace(join=join, claim=server.claim))
    for _ in range(60 * minutes):
        node.step()
    object.__setattr__(node.agent._edges, "server", server)
    return asked


def test_a_refused_node_that_nobody_watches_says_why_once_and_asks_again_at_least_once_a_minute(
    service: Service, tmp_path: Path
) -> None:
    node = make_node(service, tmp_path, SlowTransfer(service), patient=True)
    service.execute("UPDATE credential SET revoked_ms = 1 WHERE role = 'join'")
    asked = refused(node, 30)
    assert node.agent.news == ["this token was revoked (ask whoever gave it to you for another); trying again"]
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert max(pauses) <= REFUSED_S_MAX + 1 and sum(pauses[-5:]) > 5 * REFUSED_S_MAX / 2, "and hardly more often"
    service.execute("UPDATE credential SET revoked_ms = NULL, expires_ms = 1 WHERE role = 'join'")
    refused(node, 2)
    assert node.agent.news[1:] == ["this token has expired (ask whoever gave it to you for another); trying again"]
    service.execute("UPDATE credential SET expires_ms = NULL WHERE role = 'join'")
    job = service.submit()
    while service.state(job) != "succeeded":
        node.step()
    assert sum("joined as" in line for line in node.agent.news) == 1 and not node.agent.stopped


def test_a_node_that_proves_its_machine_sends_a_new_token_each_time_it_joins(service: Service, tmp_path: Path) -> None:
    tokens = iter(["", "first", "second"])

    def identity() -> str:
        token = next(tokens)
        if not token:
            raise Unreachable("the metadata service does not answer")
        return token

    node = make_node(service, tmp_path, SlowTransfer(service), patient=True, identity=identity)
    server, sent = node.agent._edges.server, list[str]()

    def join(request: Join) -> Any:
        sent.append(request.identity)
        return server.join(request)

    object.__setattr__(node.agent._edges, "server", SimpleNamespace(join=join, claim=server.claim))
    for _ in range(30):
        node.step()
    assert node.agent.news[0] == "the metadata service does not answer; trying again" and sent == ["first"]
    service.execute("DELETE FROM credential WHERE role = 'node'")
    for _ in range(30):
        node.step()
    assert sent == ["first", "second"]


def test_a_refused_node_at_a_terminal_ends_with_the_refusal(node: Node) -> None:
    node.service.execute("UPDATE credential SET revoked_ms = 1 WHERE role = 'join'")
    with pytest.raises(Denied, match="this token was revoked"):
        node.step()


def test_a_node_that_was_given_up_waits_and_stops_when_asked(service: Service, tmp_path: Path) -> None:
    token = rent(service, "node-of-yesterday")
    gone(service.deployment, "node-of-yesterday", "it did not join", service.now_ms)
    node = make_node(service, tmp_path, SlowTransfer(service), token=token, patient=True)
    node.agent._join = replace(node.agent._join, node="node-of-yesterday")
    refused(node, 5)
    [said] = node.agent.news
    assert said.startswith("this server no longer rents this node (its provider was asked to stop it)")
    node.agent.ask_to_stop()
    node.step()
    assert node.agent.stopped and not node.agent.failed


def test_a_second_machine_of_one_rental_is_told_that_the_first_is_at_work(service: Service, tmp_path: Path) -> None:
    token = rent(service, "rental")
    for machine in ("first", "second"):
        node = make_node(service, tmp_path / machine, SlowTransfer(service), token=token, patient=True)
        node.agent._join = replace(node.agent._join, machine=machine, node="rental")
        node.step()
        said = node.agent.news
    assert said == [
        "the node rental is already at work on another machine (stop one of the two; the server gives that node up when "
        "it falls silent, or when its provider shows that it has moved); trying again"
    ]
