"""The synchronous client is the asynchronous one without `async` and `await`: `python -m tests.wire.sync_client` makes it again."""

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

from tests.conftest import ROOT

SOURCE, MADE = (ROOT / "src" / "gangline" / "wire" / name for name in ("aio", "client"))
BY_HAND = {"__init__.py", "calls.py", "waits.py"}
HEAD = "# Made of {source} by `python -m tests.wire.sync_client`: change that file, and make this one again.\n"
NAMES = {
    "aio": "client",
    "aclose": "close",
    "aclosing": "closing",
    "aiter_bytes": "iter_bytes",
    "aread": "read",
    "asynccontextmanager": "contextmanager",
    "anext": "next",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
}
"""Names that others have chosen; of ours, those of the asynchronous client begin with `Async` or `async_`."""
DROPPED = {"async", "await"}


def synchronous(text: str) -> str:
    """Return the source of a module without what makes it asynchronous, not formatted yet. Comments and docstrings stay."""
    lines = text.splitlines(keepends=True)
    changes: list[tuple[int, int, int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and (new := renamed(token.string)) != token.string:
            (row, begin), (_, end) = token.start, token.end
            if not new:  # with the space after it
                end += 1
            changes.append((row - 1, begin, end, new))
    for row, begin, end, new in reversed(changes):
        lines[row] = lines[row][:begin] + new + lines[row][end:]
    return "".join(lines)


def renamed(name: str) -> str:
    if name in DROPPED:
        return ""
    return NAMES.get(name) or re.sub(r"^(Async(?=[A-Z])|async_)", "", name)


def made() -> dict[str, str]:
    """Return the text of each file of the synchronous client that is made, by its name."""
    found: dict[str, str] = {}
    for source in sorted(SOURCE.glob("*.py")):
        if source.name not in BY_HAND:
            text = HEAD.format(source=source.relative_to(ROOT)) + synchronous(source.read_text())
            found[source.name] = formatted(text, MADE / source.name)
    return found


def formatted(text: str, target: Path) -> str:
    """Return a source as the linter wants it: some names are shorter now, and are sorted elsewhere."""
    ruff = Path(sys.executable).with_name("ruff")
    for step in (("check", "--select", "I", "--fix", "--quiet"), ("format", "--quiet")):
        command = [ruff, *step, "--stdin-filename", target, "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


if __name__ == "__main__":
    for name, text in made().items():
        (MADE / name).write_text(text)
