"""Simulate the rendering of samples."""

from collections.abc import Callable
from pathlib import Path

from gangline.core.files import Beginning, File
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.runs import contract
from gangline.core.runs.contract import EXIT_DONE, EXIT_STOPPED, Failure, Progress
from gangline.core.runs.metrics import Reading
from gangline.ports.server import Folder
from gangline.ports.trainer import Made, Pictures, RunResult, Saved
from gangline.sim.node.host import SimHost
from gangline.sim.node.lineage import content_sha256, lineage_of
from gangline.sim.scenario import MachineModel
from gangline.sim.world import World

RENDER_S = 4.0
PICTURE_BYTES = 1_500_000


def picture(path: str, sha256: str) -> File:
    return File(path=path, bytes=PICTURE_BYTES, sha256=sha256)


class SimRendering:
    """A run that renders samples of a checkpoint or a result after `start_s` and the time to render. Without those weights it crashes."""

    def __init__(
        self, world: World, host: SimHost, machine: MachineModel, news: Callable[[], None], directory: Path
    ) -> None:
        self.directory = directory
        self._world = world
        self._news = news
        self._spec = host.specs[directory]
        self._code: int | None = None
        self._dead = False
        lineage = lineage_of(self._spec["of"])
        shown = ("checkpoint", "state.safetensors") if self._spec["checkpoint"] else ("result", DIFFUSERS_FILE)
        self._sha256 = content_sha256(
            lineage if self._spec["checkpoint"] else f"result of {lineage}", self._spec["step"]
        )
        good = host.files.get(directory.joinpath(contract.INPUTS, *shown)) == self._sha256
        self._end_later(machine.start_s + RENDER_S * machine.slowness, EXIT_DONE if good else 1)

    def _end_later(self, seconds: float, code: int) -> None:
        def end() -> None:
            if not self._dead and self._code is None:
                self._code = code
                self._news()

        self._world.after(seconds, "rendering", end)

    def exit_code(self) -> int | None:
        return self._code

    def progress(self) -> Progress:
        return Progress(phase="rendering", steps=1)

    def take_readings(self) -> list[Reading]:
        return []

    def failure(self) -> Failure | None:
        return None

    def checkpoints(self) -> list[Saved]:
        return []

    def unfinished(self) -> None:
        return None

    def parts(self, folder: Path) -> tuple[Beginning, ...]:
        return ()

    def pictures(self) -> list[Pictures]:
        return []

    def place(self, folder: Folder, path: str) -> Path:
        return self.directory / folder / path

    def prepared(self) -> list[Made]:
        return []

    def printed(self, first_byte: int, most: int) -> bytes:
        return b"rendering\n"[first_byte : first_byte + most]

    def note(self, line: str) -> None:
        """Do nothing: what a simulated trainer prints is the same whatever happens."""

    def result(self) -> RunResult:
        return RunResult(output=(picture(contract.picture_name(0, 1), self._sha256),), samples=())

    def ask_to_save(self) -> None:
        raise AssertionError("only training is saved")

    def ask_to_render(self, *, now: bool = False) -> None:
        raise AssertionError("only training is asked for pictures")

    def ask_to_finish(self) -> None:
        raise AssertionError("only training is finished early")

    def ask_to_stop(self) -> None:
        self._end_later(0, EXIT_STOPPED)

    def kill(self) -> None:
        self._dead = True
