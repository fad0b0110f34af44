"""Run a command whose checkpoints lie in memory, and continue it with its folder on disk where memory becomes short."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gangline.core.runs.contract import EXIT_STOPPED
from gangline.exec.plan import EXIT_OVERTAKEN, ExecPlan, Summary, Tools
from gangline.exec.run import Exec
from gangline.exec.run_prefix import RunPrefix
from gangline.exec.start import newest_readable
from gangline.ports.notifier import Notifier
from gangline.ports.workspace import FolderInMemory


@dataclass(frozen=True, slots=True)
class ExecInMemory:
    """A run of a command; call it once. `tools_for` makes the tools for the folder that they watch. Only a run that finds memory short is
    followed by another, on disk: to the command that is an interruption like any other, right after a checkpoint is safe."""

    plan: ExecPlan
    prefix: RunPrefix
    folder: FolderInMemory
    tools_for: Callable[[Path], Tools]

    def __call__(self) -> Summary:
        self.prefix.check()
        newest = newest_readable(self.prefix, self.prefix.find())
        if why_not := self.folder.enter(newest.bytes if newest else 0):
            return self._on_disk(why_not)
        tools = self.tools_for(self.folder.place)
        tools.say(f"checkpoints are kept in memory, in {self.folder.place}")
        watch = _Watch(self.folder, tools.notifier, tools.notice)
        run = Exec(self.plan, replace(tools, notifier=watch, notice=watch.notice))
        ended = run()
        if not run.signals and (lack := self._lack(ended, watch)):
            return self._on_disk(lack)
        if ended.exit_code == 0 and run.stored_all:
            self.folder.discard()
            tools.say(f"{self.folder.link} was in memory and is deleted: all of it is in {self.prefix.address}")
        else:
            tools.say(f"what {self.folder.link} has is in memory until this machine restarts")
        return ended

    def _lack(self, ended: Summary, watch: "_Watch") -> str:
        """Return how memory became short, if that is why the command ended."""
        if ended.exit_code in (0, EXIT_OVERTAKEN):
            return ""
        if ended.exit_code == EXIT_STOPPED:
            return watch.lack if ended.because == watch.lack else ""
        return self.folder.lack(watch.size)

    def _on_disk(self, because: str) -> Summary:
        self.folder.move_to_disk()
        tools = self.tools_for(self.folder.link)
        tools.say(f"checkpoints are written to disk: {because}")
        return Exec(self.plan, tools)()


class _Watch:
    """Looks whether memory has room for more checkpoints whenever one is safe; if not, that is a reason to stop the command."""

    def __init__(self, folder: FolderInMemory, notifier: Notifier, notice: Callable[[], str]) -> None:
        self.lack, self.size = "", 0
        self._folder = folder
        self._notifier = notifier
        self._notice = notice

    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        self._notifier.tell(kind, data)
        if kind == "exec.checkpoint":
            self.size = data["bytes"]
            self.lack = self.lack or self._folder.lack(self.size)

    def close(self, seconds: float) -> int:
        return self._notifier.close(seconds)

    def notice(self) -> str:
        return self._notice() or self.lack
