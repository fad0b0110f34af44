"""What a list leaves out is read from texts, and what is no filter is refused with a sentence."""

import pytest

from gangline.core.errors import BadInput
from gangline.core.jobs.lists.filters import LABELS_ASKED_MAX, LabelFilter, parse_label_filters, parse_moment
from gangline.core.jobs.lists.labels import LABELS_MAX, parse_changes, parse_label, parse_labels, with_changes


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.25+00:00", 250),
        ("1969-12-31T23:59:59Z", -1000),
        ("1970-01-01t00:00:01z", 1000),
        ("1970-01-01T00:00:00.0005-00:00", 0),
    ],
)
def test_a_time_is_read_as_rfc_3339_writes_it(text: str, ms: int) -> None:
    assert parse_moment(text, "since") == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-01-31",
        "2026-01-31T18:00:00",
        "2026-13-01T00:00:00Z",
        "18:00Z",
        "0",
        "2026-W05-1T10Z",
        "20260131T180000Z",
        "2026-01-31T18Z",
        "2026-01-31T18:00:00+0100",
        "2026-01-31T18:00:00Z ",
        "٢٠٢٦-01-31T18:00:00Z",
    ],
)
def test_a_time_without_its_zone_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"until: .* is not a time with its zone") as refused:
        parse_moment(text, "until")
    assert "RFC 3339" in refused.value.hint


def test_a_label_is_asked_for_with_a_value_or_with_any() -> None:
    assert parse_label_filters(["team=a", "urgent", "note="]) == (
        LabelFilter("team", "a"),
        LabelFilter("urgent"),
        LabelFilter("note", ""),
    )
    assert parse_label_filters(["team", "team=a", "team=a"]) == (LabelFilter("team", "a"),)


@pytest.mark.parametrize("text", ["", "=a", "Team=a", "team=\x1b[2J", "t" * 64, f"team={'v' * 64}", "a b=c"])
def test_what_can_be_no_label_is_no_filter(text: str) -> None:
    with pytest.raises(BadInput, match="the label"):
        parse_label_filters([text])
    with pytest.raises(BadInput):
        parse_label(text)


def test_a_list_has_a_bounded_number_of_labels() -> None:
    with pytest.raises(BadInput, match=f"at most {LABELS_ASKED_MAX} labels"):
        parse_label_filters([f"key-{number}" for number in range(LABELS_ASKED_MAX + 1)])


def test_a_job_has_a_bounded_number_of_labels() -> None:
    full = {f"key-{number}": "" for number in range(LABELS_MAX)}
    assert with_changes(full, {"key-0": None, "other": "a"}) == {
        **{key: "" for key in full if key != "key-0"},
        "other": "a",
    }
    with pytest.raises(BadInput, match=f"{LABELS_MAX + 1} labels"):
        with_changes(full, {"other": "a"})
    with pytest.raises(BadInput, match="--label"):
        parse_labels([f"{key}=" for key in [*full, "other"]])


def test_changes_of_labels_are_written_as_kubectl_has_them() -> None:
    assert parse_changes(["team=b", "old-", "note=", "a/b-=-"]) == {"team": "b", "old": None, "note": "", "a/b-": "-"}
    with pytest.raises(BadInput, match="has no ="):
        parse_changes(["team"])
