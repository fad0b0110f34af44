"""Make a virtual environment for a command, in an enclosure with the network: packages run code of their own when they are installed."""

import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from gangline.adapters.host.environments import Environments, KeptEnvironment
from gangline.adapters.host.trainer.beneath import opened_beneath
from gangline.adapters.host.trainer.isolation import Isolation
from gangline.adapters.host.trainer.run import LOG, described_file
from gangline.adapters.host.trainer.start import start_process
from gangline.core.errors import Damaged
from gangline.core.runs import contract
from gangline.core.specs.command import REQUIREMENTS
from gangline.posix import remove_tree

PIP = "-m pip install --no-input --no-cache-dir --disable-pip-version-check --progress-bar off --root-user-action ignore -r"
INSTALL = f'umask 022 && "$0" -m venv "$1" && exec "$1/bin/python" {PIP} {REQUIREMENTS}'


class Installation:
    """The environment of the requirements among a run's inputs: found, made, or made by another worker of this machine meanwhile.

    What the installation prints goes to the log of the run in `directory`.
    """

    def __init__(self, environments: Environments, isolation: Isolation, directory: Path) -> None:
        self._environments = environments
        self._isolation = isolation
        self._directory = directory
        self._requirements = directory / contract.INPUTS / REQUIREMENTS
        found = described_file(self._requirements.parent, REQUIREMENTS)
        self._kept: KeptEnvironment = environments.find(found.sha256)
        self._process: subprocess.Popen[bytes] | None = None
        self._code: int | None = None
        (directory / LOG).touch()

    @property
    def waits(self) -> bool:
        return self._process is None and self._code is None

    @property
    def place(self) -> Path:
        return self._kept.place

    def exit_code(self) -> int | None:
        """Return 0 once the environment can be used, another code if it cannot be made, None until then: ask again."""
        if self._code is None:
            self._code = self._look(self._process) if self._process else self._find()
        return self._code

    def printed(self, first_byte: int, most: int) -> bytes:
        with opened_beneath(self._directory, LOG) as log:
            log.seek(first_byte)
            return log.read(most)

    def release(self) -> None:
        """Stop making the environment, or using it. Repeated calls are no error."""
        if self._process:
            self._end()
            self._kept.delete()
        self._kept.let_go()

    def _find(self) -> int | None:
        """Use the environment if it is complete, else begin to make it, unless another worker does."""
        if self._kept.is_complete and self._kept.hold(alone=False):
            if self._kept.is_complete:  # it may have been deleted before it was held
                self._kept.use()
                return 0
        elif not self._kept.is_complete and self._kept.hold(alone=True) and not self._kept.is_complete:
            self._begin()
        return None

    def _begin(self) -> None:
        runs, around = self._directory.parent, self._directory.with_name(f"{self._directory.name}-installs")
        if self._isolation.level == "uid":
            self._environments.make_passable()
        self._kept.delete()  # what an agent left that was killed
        with ExitStack() as undo:
            undo.callback(self._kept.delete)
            self.place.mkdir()
            undo.callback(remove_tree, around)
            around.mkdir(mode=0o700)
            shutil.copyfile(self._requirements, around / REQUIREMENTS)
            self._enclosure = self._isolation.make(network=True, fills=self.place)
            undo.callback(self._enclosure.discard)
            inside = self._enclosure.take(around)
            self._around = runs / inside.relative_to(runs).parts[0]
            undo.callback(remove_tree, self._around)
            command = ["/bin/sh", "-c", INSTALL, sys.executable, str(self.place)]
            with (self._directory / LOG).open("ab") as log:
                self._process = start_process(
                    command, self._enclosure, below=inside, home=inside, stdin=subprocess.DEVNULL, log=log
                )
            undo.pop_all()

    def _look(self, process: "subprocess.Popen[bytes]") -> int | None:
        code = process.poll()
        if code is None:
            return None
        self._end()
        if code == 0:
            try:
                self._kept.complete()
            except (OSError, RecursionError) as error:
                self._kept.delete()
                raise Damaged(f"the installed packages cannot be taken over: {error}") from None
            self._kept.hold(alone=False)
        else:
            self._kept.delete()
        return code

    def _end(self) -> None:
        assert self._process
        self._enclosure.kill(self._process)
        remove_tree(self._around)
        self._process = None
