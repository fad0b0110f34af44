"""Run a command whose checkpoints lie in memory, and continue it with its folder on disk where memory becomes short."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gangline.core.errors import UserError
from gangline.core.runs.contract import EXIT_STOPPED
from gangline.exec.plan import EXIT_OVERTAKEN, ExecPlan, Stopped, Summary, Tools
from gangline.exec.run import Exec
from gangline.exec.run_prefix import RunPrefix
from gangline.exec.start import newest_readable
from gangline.ports.notifier import Notifier
from gangline.ports.workspace import FolderInMemory
from gangline.posix import signals_handled_by


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
        size = newest.bytes if newest else 0
        if why_not := self.folder.enter(size):
            return self._on_disk(why_not)
        tools = self.tools_for(self.folder.place)
        tools.say(f"checkpoints are kept in memory, in {self.folder.place}")
        watch = _Watch(self.folder, tools.notifier, tools.notice)
        run = Exec(self.plan, replace(tools, notifier=watch, notice=watch.notice))
        try:
            ended = run()
        except UserError:
            if lack := self.folder.lack(size):  # it had no room for the checkpoint to resume from
                return self._on_disk(lack)
            self._discard_if_empty()
            raise
        if not run.signals and (lack := self._lack(ended, watch)):
            return self._continue(lack, ended, tools)
        self._leave(tools, stored_all=ended.exit_code == 0 and run.stored_all)
        return ended

    def _lack(self, ended: Summary, watch: "_Watch") -> str:
        """Return how memory became short, if that is why the command ended."""
        if ended.exit_code in (0, EXIT_OVERTAKEN):
            return ""
        if ended.exit_code == EXIT_STOPPED:
            return watch.lack if ended.because == watch.lack else ""
        return self.folder.lack(watch.size)

    def _continue(self, lack: str, ended: Summary, tools: Tools) -> Summary:
        """Continue on disk. If that is not possible, or a signal comes before it has begun, what was in memory stays there."""
        try:
            with signals_handled_by(_stop):  # a run that begins meanwhile has a handler of its own
                return self._on_disk(lack)
        except Stopped:
            pass
        except UserError as error:
            tools.say(f"{error.message}: {error.hint}")
        return ended

    def _on_disk(self, because: str) -> Summary:
        self.folder.move_to_disk()
        tools = self.tools_for(self.folder.link)
        tools.say(f"checkpoints are written to disk: {because}")
        return Exec(self.plan, tools)()

    def _leave(self, tools: Tools, *, stored_all: bool) -> None:
        link = self.folder.link
        if self._discard_if_empty():
            return
        if stored_all and self.folder.discard():
            tools.say(f"{link} was in memory and is deleted: all of it is in {self.prefix.address}")
        else:
            tools.say(f"what {link} has is in memory until this machine restarts")

    def _discard_if_empty(self) -> bool:
        return self.folder.is_empty and self.folder.discard()


def _stop(number: int, frame: object) -> None:
    raise Stopped


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
