"""What a browser does with the messages of a stream, as far as the list of jobs needs it: htmx's swaps of elements by their ids."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"input", "img", "br"})


@dataclass(frozen=True, slots=True)
class Element:
    """An element: `inner` is what stands between its tags."""

    attributes: dict[str, str]
    text: str
    inner: str

    @property
    def id(self) -> str:
        return self.attributes.get("id", "")


class _Splitter(HTMLParser):
    """Finds the elements that stand side by side in a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self._html, self._lines = html, [0]
        for line in html.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._depth = 0
        self.found = list[Element]()
        self.feed(html)

    def _at(self) -> int:
        line, place = self.getpos()
        return self._lines[line - 1] + place

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        if not self._depth:
            self._begin, self._attributes = self._at(), {name: value or "" for name, value in attrs}
            self._inner = self._begin + len(self.get_starttag_text() or "")
        self._depth += 1

    def handle_endtag(self, tag: str) -> None:
        self._depth -= 1
        if not self._depth:
            at = self._at()
            text = self._html[self._begin : self._html.index(">", at) + 1]
            self.found.append(Element(self._attributes, text, self._html[self._inner : at]))


def elements(html: str) -> list[Element]:
    return _Splitter(html).found


def row_text(row: Element) -> str:
    """The row as a page has it, whether it came as a row or as its replacement."""
    return row.text.replace(' hx-swap-oob="outerMorph"', "")


@dataclass
class ListPage:
    """The list of an open page: its rows by their ids, in their order, and the element below them."""

    rows: dict[str, str] = field(default_factory=dict)
    end: str = "end"

    def show(self, html: str) -> None:
        """Show these rows below those that are there: the page as it was loaded, or more of it."""
        *rows, last = elements(html)
        assert last.id in ("more", "end") and not self.rows.keys() & {row.id for row in rows}
        self.rows |= {row.id: row_text(row) for row in rows}
        self.end = last.id

    def receive(self, html: str) -> None:
        """Do what a message says. Where its elements go is looked up before the first of them is there. What is there already is not
        inserted again, and what comes above that goes above it."""
        there = {*self.rows, self.end, "jobs"}
        for each in elements(html):
            if each.id in there:
                self._swap(each, there)

    def _swap(self, each: Element, there: set[str]) -> None:
        match each.attributes["hx-swap-oob"]:
            case "delete":
                del self.rows[each.id]
            case "outerMorph":
                self.rows[each.id] = row_text(each)
            case "afterbegin":
                self.rows = {row.id: row_text(row) for row in elements(each.inner)} | self.rows
            case "innerMorph":
                self.rows = {}
                self.show(each.inner)
            case "beforebegin":
                above = dict[str, str]()
                for row in elements(each.inner):
                    if row.id in there:
                        self.rows, above = dict(self._with(row.id, above)), {}
                    else:
                        above[row.id] = row_text(row)
                self.rows = dict(self._with(each.id, above))
            case other:
                raise AssertionError(other)

    def _with(self, below: str, new: dict[str, str]) -> Iterator[tuple[str, str]]:
        for job, row in self.rows.items():
            if job == below:
                yield from new.items()
            yield job, row
        if below == self.end:
            yield from new.items()
