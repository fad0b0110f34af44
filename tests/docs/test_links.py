"""Every link of a page leads somewhere."""

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.pages import FENCE

PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)\s]+))?\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for path, anchor in LINK.findall(page.read_text()):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{path}#{anchor}")
    return broken


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_to_a_file_and_its_heading(page: Path) -> None:
    assert broken_links(page) == []


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One page\n[a](page.md#one-page) [b](#one-page) [c](#two) [d](gone.md) [e](https://example.org)\n[f](not here.md)"
    )
    assert broken_links(page) == ["#two", "gone.md#", "not here.md#"]
