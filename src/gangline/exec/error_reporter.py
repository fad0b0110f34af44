"""Work beside a command: what goes wrong there is said, and does not end it."""

import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

from gangline.core.display import printable
from gangline.core.errors import GanglineError
from gangline.exec.run_prefix import Abandoned

T = TypeVar("T")


class ErrorReporter:
    """Call it with what is to be done. Each warning is said once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: set[str] = set()

    def __call__(self, step: Callable[[], T]) -> T | None:
        """None where it went wrong. Raises `Abandoned`."""
        try:
            return step()
        except Abandoned:
            raise
        except (GanglineError, OSError) as error:
            self.warn(error.message if isinstance(error, GanglineError) else str(error))
        except Exception as error:  # a fault of ours: the command must not pay for it
            if self.warn(repr(error)):
                sys.stderr.write(printable(traceback.format_exc(), keep="\n"))
        return None

    def warn(self, what: str) -> bool:
        """Whether it is the first time."""
        if what in self._said:
            return False
        self._said.add(what)
        self._say(f"warning: {what}")
        return True
