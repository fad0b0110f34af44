"""Run a step beside a command: an error is reported and does not end the command."""

import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

from gangline.core.display import printable
from gangline.core.errors import GanglineError
from gangline.exec.run_prefix import Abandoned

T = TypeVar("T")


class ErrorReporter:
    """Reports errors of the steps that it is called with; each warning is shown once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: set[str] = set()

    def __call__(self, step: Callable[[], T]) -> T | None:
        """Return the step's result; None if it failed. Raises `Abandoned`."""
        try:
            return step()
        except Abandoned:
            raise
        except (GanglineError, OSError) as error:
            self.warn(error.message if isinstance(error, GanglineError) else str(error))
        except Exception as error:  # a bug in Gangline must not end the user's command
            if self.warn(repr(error)):
                sys.stderr.write(printable(traceback.format_exc(), keep="\n"))
        return None

    def warn(self, what: str) -> bool:
        """Show the warning; return False if it was shown before."""
        if what in self._said:
            return False
        self._said.add(what)
        self._say(f"warning: {what}")
        return True
