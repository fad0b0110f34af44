"""`gangline docs`: the guides of this version, read in a terminal."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gangline.adapters.package import DOCS, bundled
from gangline.cli.output import Output, OutputOption, out, print_json, say, table
from gangline.core.errors import NotFound


def docs_command(
    page: Annotated[
        str | None,
        typer.Argument(
            help="Show this page, e.g. training or reference/settings (default: list all pages).", show_default=False
        ),
    ] = None,
    output: OutputOption = Output.text,
) -> None:
    """Show a guide, or list all guides.

    Through a pipe a page is Markdown.
    """
    pages = {path.relative_to(bundled(DOCS)).with_suffix("").as_posix(): path for path in _pages()}
    if page is None:
        _list(pages, output)
        return
    name = page.removeprefix(f"{DOCS}/").removesuffix(".md")
    if name not in pages:
        raise NotFound(f"there is no page {page}", hint="`gangline docs` lists all pages")
    text = pages[name].read_text()
    if output is Output.json:
        print_json({"page": name, "path": str(pages[name]), "text": text})
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        typer.echo(text, nl=False)


def _pages() -> list[Path]:
    """Return the pages: guides first, then references, then the reasons for decisions."""
    return sorted(bundled(DOCS).rglob("*.md"), key=lambda path: (len(path.parts), path.parts[:-1] != (), path.parts))


def _list(pages: dict[str, Path], output: Output) -> None:
    titles = {name: path.read_text().partition("\n")[0].lstrip("# ") for name, path in pages.items()}
    if output is Output.json:
        print_json([{"page": name, "title": title, "path": str(pages[name])} for name, title in titles.items()])
        return
    rows = table("page", "about")
    for name, title in titles.items():
        rows.add_row(name, title)
    out.print(rows)
    say("`gangline docs PAGE` shows a page")
