"""What `gangline datasets` shows of data sets, of their versions, and of what a check found."""

import time
from collections.abc import Sequence

from gangline.cli.output import duration, facts, format_time, out, say, table
from gangline.core.datasets.findings import TINY_BELOW, DatasetFindings
from gangline.core.datasets.views import DatasetRemovalView, DatasetVersionView, DatasetView
from gangline.core.words import counted, listed, size_words

NAMED_MAX = 3
"""Files of a finding that are named on the terminal; `-o json` has more."""


def counts_of(version: DatasetVersionView) -> str:
    counts = {"photo": version.photos, "caption file": version.captions, "mask": version.masks}
    return ", ".join(counted(count, noun) for noun, count in counts.items() if count or noun == "photo")


def print_datasets(found: Sequence[DatasetView]) -> None:
    rows = table("data set", "newest", "state", ">photos", ">captions", ">size", ">jobs", ">age")
    now_s = time.time()
    for each in found:
        version = each.newest
        rows.add_row(
            each.name,
            version.reference,
            version.state,
            f"{version.photos:,}",
            f"{version.captions:,}",
            size_words(version.bytes),
            str(each.jobs),
            duration(max(0.0, now_s - version.made_ms / 1000)),
        )
    out.print(rows)


def print_dataset(versions: Sequence[DatasetVersionView]) -> None:
    rows = table("version", "state", ">photos", ">captions", ">masks", ">size", ">jobs", "added", "because")
    for each in versions:
        rows.add_row(
            each.reference,
            each.state,
            f"{each.photos:,}",
            f"{each.captions:,}",
            f"{each.masks:,}",
            size_words(each.bytes),
            str(each.jobs),
            format_time(each.made_ms),
            each.because,
        )
    out.print(rows)


def print_version(version: DatasetVersionView) -> None:
    because = f": {version.because}" if version.because else ""
    out.print(
        facts(
            ("version", version.reference),
            ("state", f"{version.state}{because}"),
            ("files", f"{counts_of(version)}, {size_words(version.bytes)}"),
            ("jobs", str(version.jobs)),
            ("added", format_time(version.made_ms)),
            ("id", version.digest),
            *[("found", sentence) for sentence in sentences(version.findings)],
        )
    )


def say_findings(version: DatasetVersionView) -> None:
    """Say what a check found: it is advice."""
    for sentence in sentences(version.findings):
        say(sentence)


def sentences(found: DatasetFindings | None) -> list[str]:
    if found is None:
        return []
    said = list[str]()
    if found.duplicates_count:
        pairs = [f"{each.first} with {each.second}" for each in found.duplicates]
        said.append(
            f"{counted(found.duplicates_count, 'pair')} of photos look alike: {_named(pairs, found.duplicates_count)}"
        )
    if found.blurred_count:
        said.append(
            f"{counted(found.blurred_count, 'photo')} may be blurred: {_named([each.path for each in found.blurred], found.blurred_count)}"
        )
    if found.tiny_count:
        named = [f"{each.path} ({each.value:.0f})" for each in found.tiny]
        said.append(
            f"{counted(found.tiny_count, 'photo')} {'is' if found.tiny_count == 1 else 'are'} smaller than {TINY_BELOW} pixels: "
            f"{_named(named, found.tiny_count)}"
        )
    return [*said, *found.notes]


def _named(names: Sequence[str], count: int) -> str:
    shown = list(names[:NAMED_MAX])
    return listed([*shown, f"{count - len(shown):,} more"] if count > len(shown) else shown)


def removal_in_words(going: DatasetRemovalView) -> str:
    versions = ", ".join(f"{going.name}@{number}" for number in going.versions)
    kept = f"; {counted(going.kept_files, 'file')}, {size_words(going.kept_bytes)}, stay, as jobs or other versions use them"
    jobs = f"; {counted(going.jobs_count, 'ended job')} named it" if going.jobs_count else ""
    return (
        f"{versions}: {counted(going.files, 'file')}, {size_words(going.bytes)}{kept if going.kept_files else ''}{jobs}"
    )
