"""Build the site of the docs: `make docs`, or `python -m tests.docs.site.build [--serve]`.

Everything that a reader would stumble over is an error: a link to nothing, a page that no navigation has, a request to another host."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tests.conftest import ROOT
from tests.docs.site.stage import stage

CONFIG = "zensical.toml"
ZENSICAL = (sys.executable, "-m", "zensical")
LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}
RELATIONS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
LOADED_ON_DEMAND = {"mermaid", "glightbox"}
"""Classes for which the theme's script loads a program from another host."""
LOOK_S = 0.5


class SiteError(Exception):
    """What is wrong with the site, a line for each fault."""


def build(config: Path = ROOT / CONFIG, root: Path = ROOT) -> Path:
    """Build the site that a file describes, and return its folder. Raise `SiteError` if anything is wrong with it."""
    settings = tomllib.loads(config.read_text())["project"]
    pages, site = config.parent / settings["docs_dir"], config.parent / settings["site_dir"]
    stage(pages, root)
    shutil.rmtree(site, ignore_errors=True)
    faults = list(navigation_faults(settings["nav"], pages))
    ran = subprocess.run(
        (*ZENSICAL, "build", "--strict", "--clean", "-f", config), capture_output=True, text=True, check=False
    )
    if ran.returncode:
        faults.append(re.sub(r"\x1b\[[\d;]*m", "", ran.stdout + ran.stderr).partition("Traceback")[0])
    else:
        faults.extend(f"{path}: {fault}" for path, fault in requests_elsewhere(site))
        faults.extend(f"{path}: is shown otherwise than on GitHub: {line}" for path, line in misread(site))
    if faults:
        raise SiteError("\n".join(faults))
    return site


def named(nav: Iterable[Any]) -> Iterator[str]:
    """Yield each page of a navigation."""
    for entry in nav:
        for found in entry.values() if isinstance(entry, dict) else (entry,):
            yield from named(found) if isinstance(found, list) else (found,)


def navigation_faults(nav: Iterable[Any], pages: Path) -> Iterator[str]:
    """Yield each page that no navigation has, that it has twice, and that it has and is not there."""
    listed = list(named(nav))
    there = {path.relative_to(pages).as_posix() for path in pages.rglob("*.md")}
    yield from (f"{page}: add it to `nav` of {CONFIG}" for page in sorted(there - set(listed)))
    yield from (f"{page}: {CONFIG} has it in `nav`, and it is not there" for page in sorted(set(listed) - there))
    yield from (
        f"{page}: {CONFIG} has it in `nav` twice"
        for page in sorted({each for each in listed if listed.count(each) > 1})
    )


class Loads(HTMLParser):
    """Collects what a browser loads to show a page, and lines of paragraphs that look like Markdown."""

    def __init__(self) -> None:
        super().__init__()
        self.loads, self.classes, self.lines = list[str](), set[str](), list[str]()
        self._paragraph = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.classes.update(given.get("class", "").split())
        self._paragraph = tag == "p" or (self._paragraph and tag not in ("pre", "code"))
        if tag == "link" and RELATIONS & set(given.get("rel", "").split()):
            self.loads.append(given.get("href", ""))
        elif tag in LOADS:
            self.loads.append(given.get(LOADS[tag], ""))

    def handle_endtag(self, tag: str) -> None:
        self._paragraph = self._paragraph and tag != "p"

    def handle_data(self, data: str) -> None:
        if self._paragraph:
            self.lines += re.findall(r"^(?:[-*] |\d+\. |\|.*\||```|#+ ).*$", data, re.MULTILINE)


def read(page: Path) -> Loads:
    found = Loads()
    found.feed(page.read_text())
    return found


def requests_elsewhere(site: Path) -> Iterator[tuple[str, str]]:
    """Yield what a page or a style sheet would load from another host."""
    for page in sorted(site.rglob("*.html")):
        found = read(page)
        for address in found.loads:
            if re.match(r"(?:https?:)?//", address):
                yield page.name, f"loads {address}"
        for name in sorted(LOADED_ON_DEMAND & found.classes):
            yield page.name, f"has the class {name}, for which the theme loads a program from another host"
    for sheet in sorted(site.rglob("*.css")):
        for address in re.findall(r"""(?:url\(|@import )["']?((?:https?:)?//[^"')]+)""", sheet.read_text()):
            yield sheet.name, f"loads {address}"


def misread(site: Path) -> Iterator[tuple[str, str]]:
    """Yield lines that GitHub reads as a list, a table, a heading or code, and the site as text of a paragraph."""
    for page in sorted(site.rglob("*.html")):
        for line in read(page).lines:
            yield page.name, line


def serve() -> None:
    """Serve the site, and lay its pages out again whenever one is saved."""
    config = ROOT / CONFIG
    pages = ROOT / tomllib.loads(config.read_text())["project"]["docs_dir"]
    stage(pages)
    Thread(target=_follow, args=(pages,), daemon=True).start()
    subprocess.run((*ZENSICAL, "serve", "-f", config), check=False)


def _follow(pages: Path) -> None:
    sources = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.*"))
    seen = {path: path.stat().st_mtime_ns for path in sources}
    while not Event().wait(LOOK_S):
        now = {path: path.stat().st_mtime_ns for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.*"))}
        if now != seen:
            stage(pages)
            seen = now


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve()
    else:
        try:
            print(f"{build().relative_to(ROOT)}/index.html")
        except SiteError as error:
            sys.exit(str(error))
