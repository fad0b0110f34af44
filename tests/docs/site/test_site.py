"""The site of the docs is built with every change, and each fault that a reader would meet is found."""

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.site.build import CONFIG, SiteError, build, navigation_faults, requests_elsewhere
from tests.docs.site.stage import OF_ROOT, site_path, staged

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built in a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / CONFIG, folder)
    return build(folder / CONFIG)


def test_the_site_has_every_page_and_a_search_of_its_own(site: Path) -> None:
    for page in (*PAGES, *OF_ROOT):
        there = site / Path(str(site_path(page))).with_suffix(".html")
        assert "<article" in there.read_text(), page
    assert "gangline worker" in (site / "search.json").read_text()
    assert (
        'class="md-search' in (site / "index.html").read_text()
        or "data-md-component=search" in (site / "index.html").read_text()
    )


def test_the_site_has_both_colours_and_a_logo_of_its_own(site: Path) -> None:
    text = (site / "index.html").read_text()
    assert 'data-md-color-scheme="default"' in text and 'data-md-color-scheme="slate"' in text
    assert re.search(r"images/logo\.svg", text) and (site / "images" / "logo.svg").is_file()
    assert "content.code.copy" in text


# A small site, with a fault each.

SMALL = """[project]
site_name = "Small"
docs_dir = "build/pages"
site_dir = "site"
use_directory_urls = false
nav = [{ "Start" = ["index.md", "other.md", "project/architecture.md", "project/contributing.md", "project/changelog.md"] }]
[project.theme]
font = FONT
[project.markdown_extensions]
tables = {}
pymdownx.superfences = {}
toc.slugify = { object = "pymdownx.slugs.slugify", kwds = { case = "lower" } }
"""


def built(folder: Path, index: str, font: str = "false", **more: str) -> Path:
    """Build a site of two pages and those of the root."""
    root = folder / "checkout"
    (root / "docs").mkdir(parents=True)
    for name in OF_ROOT:
        (root / name).write_text(f"# {name}\n")
    pages = {"index": index, "other": "# Other\n\n## Every setting: `a`, b & c\n"} | more
    for name, text in pages.items():
        (root / "docs" / f"{name}.md").write_text(text)
    config = folder / "zensical.toml"
    config.write_text(SMALL.replace("FONT", font))
    return build(config, root)


def test_links_lead_where_they_lead_on_github(tmp_path: Path) -> None:
    index = "# Start\n\n[a](other.md#every-setting-a-b--c) [b](../ARCHITECTURE.md) [c](../README.md) [d](#start)\n"
    text = (built(tmp_path, index) / "index.html").read_text()
    assert re.findall(r'<a href="([^"]+)">[abcd]</a>', text) == [
        "other.html#every-setting-a-b--c",
        "project/architecture.html",
        "index.html",
        "#start",
    ]


def test_a_link_to_nothing_and_a_missing_heading_are_found_and_so_is_a_page_that_no_navigation_has(
    tmp_path: Path,
) -> None:
    with pytest.raises(SiteError) as found:
        built(tmp_path, "# Start\n\n[a](nowhere.md) [b](other.md#nothing)\n", lost="# Lost\n")
    faults = str(found.value)
    assert "page does not exist" in faults and "anchor does not exist" in faults
    assert "lost.md: add it to `nav` of zensical.toml" in faults


def test_whatever_loads_something_from_another_host_or_is_not_read_as_on_github_is_found(tmp_path: Path) -> None:
    index = "# Start\n\n![a](https://example.org/a.png)\n\nA list:\n- one\n\nA table:\n| a | b |\n|---|---|\n"
    with pytest.raises(SiteError) as found:
        built(tmp_path, index, font='{ text = "Roboto", code = "Roboto Mono" }')
    faults = str(found.value)
    assert "index.html: loads https://example.org/a.png" in faults and "loads https://fonts" in faults
    assert "is shown otherwise than on GitHub: - one" in faults
    assert "is shown otherwise than on GitHub: | a | b |" in faults


def test_a_page_that_is_not_there_and_one_that_is_there_twice_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").touch()
    faults = list(navigation_faults([{"A": ["a.md", {"Again": "a.md"}, "b.md"]}], tmp_path))
    assert [fault.partition(":")[0] for fault in faults] == ["b.md", "a.md"]


def test_programs_that_the_theme_would_load_and_style_sheets_are_looked_through(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<pre class="mermaid">x</pre><script src="//cdn.example/x.js"></script>')
    (tmp_path / "a.css").write_text("@import url(https://fonts.example/css); a { background: url('b.png') }")
    found = [fault for _, fault in requests_elsewhere(tmp_path)]
    assert found == [
        "loads //cdn.example/x.js",
        "has the class mermaid, for which the theme loads a program from another host",
        "loads https://fonts.example/css",
    ]


# How a page becomes one of the site.


def test_a_link_to_a_file_that_is_no_page_becomes_its_words_and_code_stays() -> None:
    text = (
        "[the scripts](../examples/stock_script) and `[a](../examples/stock_script)`\n```md\n[b](../README.md)\n```\n"
    )
    assert staged(text, "docs/exec.md") == text.replace("[the scripts](../examples/stock_script)", "the scripts", 1)


def test_a_picture_and_a_page_of_the_root_keep_their_targets() -> None:
    text = "![x](docs/timeline.svg) [y](docs/exact.md#a)"
    assert staged(text, "ARCHITECTURE.md") == "![x](../timeline.svg) [y](../exact.md#a)"


def test_a_diagram_becomes_a_table() -> None:
    page = (ROOT / "docs" / "contributing" / "states.md").read_text()
    shown = staged(page, "docs/contributing/states.md")
    assert "mermaid" not in shown.partition("\n## ")[2] and "| from | to | why |" in shown
    assert shown.count("| new | queued |") == 1
