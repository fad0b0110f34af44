"""The picture of one job's timeline: every part has its words, colour is never the only cue, and it brings no style of its own."""

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from gangline.core.charts.colours import colour
from gangline.core.charts.job_timeline import PATTERNS, SHAPES, draw_job_timeline, draw_timeline_parts, machine_letters
from gangline.core.charts.phases import MARKS, PHASES, WAITING, TimelineMark, TimelineSegment

SVG = "{http://www.w3.org/2000/svg}"
AT = {"attempt": "a-1", "node_name": "node-1", "machine": "m-1", "gpu": "A100"}
SEGMENTS = (
    TimelineSegment(from_ms=0, to_ms=60_000, phase="queued"),
    TimelineSegment(from_ms=60_000, to_ms=90_000, phase="downloading", **AT),
    TimelineSegment(from_ms=90_000, to_ms=600_000, phase="training", **AT, ended="interrupted", because="<silent>"),
    TimelineSegment(from_ms=600_000, to_ms=660_000, phase="queued"),
    TimelineSegment(from_ms=660_000, to_ms=900_000, phase="training", attempt="a-2", node_name="node-2", machine="m-2"),
)
COMMIT = TimelineMark(at_ms=300_000, kind="committed", attempt="a-1", node_name="node-1", machine="m-1", step=40)
MARKS_HERE = (
    COMMIT,
    TimelineMark(at_ms=600_000, kind="interrupted", attempt="a-1", node_name="node-1", because="it fell silent"),
    TimelineMark(at_ms=600_000, kind="banned", machine="m-1", node_name="node-1", because="it failed & failed"),
)


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 - our own


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [group for group in root.iter(f"{SVG}g") if name in (group.get("class") or "").split()]


def titles(root: ElementTree.Element, name: str) -> list[str]:
    return [group.findtext(f"{SVG}title") or "" for group in of_class(root, name)]


def test_every_part_has_its_words() -> None:
    root = parsed(draw_job_timeline(SEGMENTS, MARKS_HERE, "<dog>"))
    assert root.findtext(f"{SVG}title") == "<dog>"
    assert [words.partition(":")[0] for words in titles(root, "phase")] == [
        "queued",
        "downloading on node-1",
        "training on node-1",
        "queued",
        "training on node-2",
    ]
    first, second = titles(root, "node")
    assert first == "node-1 (A100): 9 min 00 s from 1970-01-01 00:01:00 UTC, interrupted, <silent>"
    assert second.endswith("at work")
    assert titles(root, "mark") == [
        "committed step 40 on node-1 after 5 min 00 s",
        "interrupted on node-1 after 10 min 00 s: it fell silent",
        "banned on node-1 after 10 min 00 s: it failed & failed",
    ]


def test_bars_are_as_wide_as_their_time_and_have_the_colour_and_the_letter_of_their_machine() -> None:
    root = parsed(draw_job_timeline(SEGMENTS, ()))
    bars = [group.findall(f"{SVG}rect")[0] for group in of_class(root, "phase")]
    widths = [float(bar.get("width", "0")) for bar in bars]
    assert sum(widths) == pytest.approx(940, abs=0.5) and widths[2] == pytest.approx(940 * 510 / 900, abs=0.1)
    assert [bar.get("fill") for bar in bars] == ["none", colour("m-1"), colour("m-1"), "none", colour("m-2")]
    letters = [group.findtext(f"{SVG}text") for group in of_class(root, "node")]
    assert letters == ["A", "B"]
    legend = [group.findtext(f"{SVG}text") for group in of_class(root, "legend")]
    assert legend == ["A node-1", "B node-2", "downloading", "training"]


def test_a_page_has_the_same_in_parts() -> None:
    parts = draw_timeline_parts(SEGMENTS, MARKS_HERE, "<dog>")
    whole, plot, lanes = (
        parsed(svg) for svg in (draw_job_timeline(SEGMENTS, MARKS_HERE, "<dog>"), parts.plot, parts.lanes)
    )
    for name in ("node", "phase", "mark"):
        assert titles(plot, name) == titles(whole, name)
    assert of_class(plot, "legend") == []
    assert [each.text for each in lanes.iter(f"{SVG}text")] == ["node", "phase", "marks", "saved"]
    legend = [parsed(svg).findtext(f"{SVG}text") for entries in parts.legend for svg in entries]
    assert legend == [group.findtext(f"{SVG}text") for group in of_class(whole, "legend")]
    assert not re.search(r"style|script|href|\son\w+=", "".join([parts.plot, parts.lanes, *sum(parts.legend, ())]))


def test_phases_and_marks_differ_without_colour() -> None:
    drawn = [PATTERNS[phase] for phase in PHASES if phase not in WAITING]
    assert len(set(drawn)) == len(drawn)
    assert PATTERNS.keys() == PHASES.keys() and SHAPES.keys() == MARKS.keys()
    assert len({*SHAPES.values()}) == len(SHAPES)


def test_a_strict_content_security_policy_shows_it_at_any_width() -> None:
    svg = draw_job_timeline(SEGMENTS, MARKS_HERE, 'a"b')
    assert not re.search(r"style|script|href|\son\w+=", svg)
    root = parsed(svg)
    assert root.get("viewBox") and not root.get("width") and not root.get("height")
    assert root.get("fill") == "currentColor"


def test_a_name_from_outside_is_text() -> None:
    hostile = replace(SEGMENTS[4], node_name='"><script>\x1b', because="</title>", ended="failed")
    root = parsed(draw_job_timeline([hostile], [replace(COMMIT, because="<b>", node_name="&")]))
    assert "<script>" in titles(root, "node")[0] and not root.findall(f".//{SVG}script")


def test_marks_of_one_kind_on_one_pixel_are_drawn_once() -> None:
    many = [replace(COMMIT, at_ms=at, step=at) for at in range(300_000, 400_000, 10)]
    assert len(of_class(parsed(draw_job_timeline(SEGMENTS, many)), "mark")) <= 940 * 100 // 900 + 2


def test_marks_of_one_moment_lie_beside_each_other_and_checkpoints_below() -> None:
    root = parsed(draw_job_timeline(SEGMENTS, MARKS_HERE))
    places = [group.get("transform", "") for group in of_class(root, "mark")]
    at = [tuple(float(part) for part in place[len("translate(") : -1].split()) for place in places]
    (_, saved_y), (first_x, marks_y), (second_x, _) = at
    assert second_x - first_x >= 12 and saved_y > marks_y


def test_a_narrow_one_has_room_for_its_text() -> None:
    root = parsed(draw_job_timeline(SEGMENTS, MARKS_HERE, width=400))
    assert (root.get("viewBox") or "").startswith("0 0 400 ")
    axis = [float(text.get("x", "0")) for text in of_class(root, "axis")[0].findall(f"{SVG}text")]
    assert all(b - a > 30 for a, b in pairwise(axis))


@pytest.mark.parametrize("machines", [0, 1, 26, 60, 300])
def test_any_number_of_machines_has_a_place_in_the_legend(machines: int) -> None:
    segments = [
        replace(SEGMENTS[4], from_ms=at, to_ms=at + 1, attempt=f"a-{at}", machine=f"m-{at}", node_name="a node " * 9)
        for at in range(machines)
    ]
    root = parsed(draw_job_timeline(segments, ()))
    height = float((root.get("viewBox") or "").split()[3])
    places = [float(text.get("y", "0")) for group in of_class(root, "legend") for text in group.iter(f"{SVG}text")]
    assert len({*machine_letters(segments).values()}) == machines
    assert all(y < height < 350 for y in places)


def test_a_span_is_drawn_alone_with_the_letters_the_legend_and_the_clock_of_the_whole() -> None:
    whole = parsed(draw_job_timeline(SEGMENTS, MARKS_HERE))
    span = parsed(draw_job_timeline(SEGMENTS, MARKS_HERE, span_ms=(240_000, 630_000)))
    assert [words.partition(":")[0] for words in titles(span, "phase")] == ["training on node-1", "queued"]
    assert titles(span, "node") == [titles(whole, "node")[0]] and titles(span, "mark") == titles(whole, "mark")
    widths = [float(of.findall(f"{SVG}rect")[0].get("width", "0")) for of in of_class(span, "phase")]
    assert widths == [pytest.approx(940 * part / 390, abs=0.1) for part in (360, 30)]
    clock = [text.text for text in of_class(span, "axis")[0].findall(f"{SVG}text")]
    assert clock[0] == "4:00" and clock[-1] == "10:30"
    assert span.get("viewBox") == whole.get("viewBox")
    assert [span.get(name) for name in ("data-from", "data-to", "data-plot")] == ["240000", "630000", "50 990"]
    assert [whole.get(name) for name in ("data-from", "data-to")] == ["0", "900000"]


def test_a_short_span_of_a_long_job_has_hours_minutes_and_seconds() -> None:
    segments = [replace(SEGMENTS[2], from_ms=0, to_ms=9_000_000)]
    span = parsed(draw_job_timeline(segments, (), span_ms=(7_200_000, 7_230_000)))
    assert of_class(span, "axis")[0].findtext(f"{SVG}text") == "2:00:00"
