"""Lay the pages of the site out: those of docs/, and three of the root, with links that lead to each other there.

On GitHub a link may lead to any file of the repository. The site has pages and pictures alone, so a link to another file becomes its
words. GitHub draws diagrams in Mermaid, for which a site would load a program from another host: here they become tables."""

import re
import shutil
from os.path import normpath
from pathlib import Path, PurePosixPath
from posixpath import relpath

from tests.conftest import ROOT

OF_ROOT = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
"""Pages of the root by their paths on the site. Who reads the README on GitHub begins on the site with its index."""

DOCS = "docs"
ASIDE = r"^ *```.*?^ *```|`[^`\n]+`"
LINK = r"(?P<picture>!?)\[(?P<words>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<to>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)"
CODE_OR_LINK = re.compile(rf"{ASIDE}|{LINK}", re.MULTILINE | re.DOTALL)
DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```", re.MULTILINE | re.DOTALL)
MOVE = re.compile(r"^ *(\S+) --> (\S+?)(?:: (.+))?$", re.MULTILINE)


def site_path(path: str, root: Path = ROOT) -> str | None:
    """Return where a file of the repository is on the site; None if it is not there."""
    if path in OF_ROOT:
        return OF_ROOT[path]
    below = path.removeprefix(f"{DOCS}/")
    return below if below != path and (root / path).is_file() else None


def staged(text: str, page: str, root: Path = ROOT) -> str:
    """Return a page, of which `page` is the path in the repository, as the site shows it."""
    here = PurePosixPath(site_path(page, root) or page).parent

    def link(found: re.Match[str]) -> str:
        words, to = found["words"], found["to"]
        if words is None or not to or re.match(r"[a-z]+:", to):
            return found[0]
        target = normpath(PurePosixPath(page).parent / to)
        there = site_path(target, root)
        if there is None:  # a name that is nowhere stays a link, and the build refuses it
            return words if (root / target).exists() else found[0]
        return f"{found['picture']}[{words}]({relpath(there, here)}{found['anchor'] or ''})"

    return CODE_OR_LINK.sub(link, DIAGRAM.sub(table_of_moves, text))


def table_of_moves(diagram: re.Match[str]) -> str:
    """Return a table of a state diagram's arrows."""
    moves = [(before, after, why) for before, after, why in MOVE.findall(diagram[1]) if after != "[*]"]
    rows = [f"| {before.replace('[*]', 'new')} | {after} | {why} |" for before, after, why in moves]
    return "\n".join(["| from | to | why |", "|---|---|---|", *rows])


def stage(to: Path, root: Path = ROOT) -> None:
    """Write all pages and pictures of the site into a folder, in place of what it held."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(root / DOCS, to)
    pages = {path.relative_to(root).as_posix() for path in (root / DOCS).rglob("*.md")}
    for page in sorted(pages | (set(OF_ROOT) - {"README.md"})):
        at = to / str(site_path(page, root))
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(staged((root / page).read_text(), page, root))
