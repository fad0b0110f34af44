"""Thousands of files that are no checkpoints cost next to nothing, and hide no checkpoint."""

from pathlib import Path
from threading import Event
from time import thread_time

import pytest

from gangline.adapters.host.script.workspace import LocalWorkspace
from gangline.core.command.layout import Rules, lacks
from tests.exec.chain import save

COUNT, FAR_S = 5_000, 999_999.0


@pytest.fixture(params=[".", "epoch_1"])
def below(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder of pictures: beside the checkpoints, and by a name that a checkpoint may have."""
    found = tmp_path / "out" / str(request.param)
    found.mkdir(parents=True)
    for number in range(COUNT):
        (found / f"{number:06d}.png").write_bytes(b"x")
    return found


def look(workspace: LocalWorkspace, now_s: float, *, ended: bool = False) -> list[str]:
    """As the watcher does: the names of those that are complete."""
    return [each.name for each in workspace.look(now_s, ended=ended) if not lacks(Rules(), each)]


def test_a_hundred_looks_at_what_does_not_change_cost_less_than_five_that_read_all(below: Path, tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "out", Rules())
    for now_s in (0.0, 100.0):
        look(workspace, now_s)
    begun_s = thread_time()
    look(workspace, 100.0, ended=True)
    all_s = thread_time() - begun_s
    begun_s = thread_time()
    for number in range(100):
        look(workspace, 100.0 + number / 100)
    assert thread_time() - begun_s < 5 * all_s
    workspace.close()


def test_a_checkpoint_among_them_is_found_at_once(below: Path, tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "out", Rules())
    for now_s in (0.0, 100.0):
        look(workspace, now_s)
    save(tmp_path / "out" / "checkpoint-5", 5, "five", 1000, Event())
    found = list[str]()
    while "checkpoint-5" not in found:
        workspace.wait(FAR_S)
        found = look(workspace, 100.0)
    taken = next(each for each in workspace.look(100.0) if each.name == "checkpoint-5")
    assert workspace.take(taken)
    workspace.close()
