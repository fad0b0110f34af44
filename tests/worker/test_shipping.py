"""What a trainer leaves beside its checkpoints reaches the server, also what it wrote in its last moment."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gangline.core.runs.contract import Progress
from gangline.core.runs.metrics import Point, Reading
from gangline.core.runs.prepared import latents_key
from gangline.core.runs.proof import Proof
from gangline.ports.server import RESULTS_MAX
from gangline.ports.trainer import Pictures, RunAccess, RunResult
from tests.conftest import file_at
from tests.service.conftest import Service
from tests.worker.test_agent import ScriptedRun, ScriptedTrainer, SlowTransfer, made, make_node

LOOKS = 12
"""So often the node asks whether a trainer has ended until each of its loops has asked twice."""


@dataclass
class SuddenRun(ScriptedRun):
    """It does all its work in the moment before it is asked for its exit code for the `asked_max`-th time, and has ended then."""

    key: str = ""
    asked_max: int = 1
    times: int = 0
    words: bytes = b""
    shown: list[Pictures] = field(default_factory=list)

    def exit_code(self) -> int | None:
        self.times += 1
        if self.times == self.asked_max:
            self._work()
        return 0 if self.times >= self.asked_max else None

    def _work(self) -> None:
        self.words = b"last words\n"
        self.readings.append(Reading(point=Point(step=1, values={"loss": 0.5})))
        self.made.append(made(self, self.key, self.key.encode()))
        picture = self.directory / "samples" / "step-000001" / "prompt-00-seed-1.png"
        picture.parent.mkdir(parents=True)
        picture.write_bytes(b"picture")
        self.shown.append(Pictures(1, (file_at(picture, self.directory / "samples"),)))

    def printed(self, first_byte: int, most: int) -> bytes:
        return self.words[first_byte : first_byte + most]

    def pictures(self) -> list[Pictures]:
        return self.shown


@dataclass
class SuddenTrainer:
    """Each run ends one question later than the one before."""

    service: Service
    runs: list[SuddenRun] = field(default_factory=list)

    def prove(self) -> Proof:
        return Proof()

    def prepare(self) -> None:
        """It starts at once."""

    def start(self, kind: str, directory: Path, slots: tuple[int, ...], access: RunAccess) -> SuddenRun:
        asked_max = len(self.runs) + 1
        key = latents_key(self.service.spec(), {"torch": str(asked_max)})
        self.runs.append(SuddenRun(directory, [Progress(phase="preparing")], key=key, asked_max=asked_max))
        return self.runs[-1]


def test_whenever_a_trainer_ends_what_it_wrote_last_is_shipped(service: Service, tmp_path: Path) -> None:
    """Between any two questions of the node, its loops' own among them."""
    node: Any = make_node(service, tmp_path, SlowTransfer(service, looks=1))
    object.__setattr__(node.agent._edges, "trainer", SuddenTrainer(service))
    for _ in range(LOOKS):
        job = service.submit()
        while service.state(job) != "succeeded":
            node.step()
        assert service.ask("GET", f"/v1/jobs/{job}/logs").json()["text"] == "last words\n"
        assert [point["step"] for point in service.ask("GET", f"/v1/jobs/{job}/metrics").json()["points"]] == [1]
        assert "samples/step-000001/prompt-00-seed-1.png" in artifacts(service, job)
        kinds = [event["kind"] for event in service.ask("GET", f"/v1/jobs/{job}/events").json()]
        assert kinds.count("prepared") == kinds.count("rendered") == 1


def artifacts(service: Service, job: str) -> set[str]:
    return {row["path"] for row in service.store.load("artifacts", job=job)}


class ManyRun(ScriptedRun):
    """It ends well, with more files than a result may have."""

    def result(self) -> RunResult:
        (file,) = super().result().output
        return RunResult(tuple(replace(file, path=str(number)) for number in range(RESULTS_MAX + 1)), ())


@dataclass
class ManyTrainer(ScriptedTrainer):
    def start(self, kind: str, directory: Path, slots: tuple[int, ...], access: RunAccess) -> ScriptedRun:
        return ManyRun(directory, list(self.script))


def test_a_result_of_too_many_files_fails_its_attempt_and_the_reason_says_so(service: Service, tmp_path: Path) -> None:
    """The server refuses such an outcome: a job that only said it again would never end."""
    node: Any = make_node(service, tmp_path, SlowTransfer(service))
    object.__setattr__(node.agent._edges, "trainer", ManyTrainer([Progress(phase="training")]))
    job = service.submit()
    while not (attempts := service.ask("GET", f"/v1/jobs/{job}").json()["attempts"]) or not attempts[0]["ended_ms"]:
        node.step()
    assert "a result could not be uploaded: it has 1,001 files, and a result may have 1,000" in attempts[0]["because"]
