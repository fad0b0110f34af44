"""What `gangline lora` prints on a terminal."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gangline.cli.output import facts, out, say, table
from gangline.core.models.families import FAMILIES
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.train.lora.files.describe import LoraDescription
    from gangline.train.lora.files.resize import Resized

LISTED_MAX = 10
STEP = 0.1


def show_description(found: "LoraDescription") -> None:
    """Print what the file is, its parts and blocks, what it says of itself and what is wrong with it."""
    family = FAMILIES[found.family].words if found.family in FAMILIES else "an unknown family"
    out.print(
        facts(
            ("file", f"{found.path}, {found.bytes:,} bytes"),
            ("kind", f"{found.kind} of {family}"),
            ("format", found.format),
            ("precision", _counts(found.dtypes)),
            ("SHA-256", found.sha256),
            ("AutoV2", found.autov2),
            ("hash of the tensors", found.tensors_sha256 + _match(found.hash_matches)),
            ("A1111's legacy hash", found.legacy_hash),
            *found.said.items(),
        )
    )
    parts = table("part", ">layers", "ranks", "ranks of convolutions", "alphas")
    for part in found.parts:
        parts.add_row(
            part.part, str(part.layers), _counts(part.ranks), _counts(part.conv_ranks) or "-", _counts(part.alphas)
        )
    out.print(parts)
    blocks = table("block", ">layers", ">norm of the change")
    for block in found.blocks:
        blocks.add_row(block.block, str(block.layers), "-" if block.norm is None else f"{block.norm:.4g}")
    out.print(blocks)
    _list("tensors that no kind of LoRA has", found.unknown)
    _list("problems", found.problems)


def _match(matches: bool | None) -> str:
    return {None: "", True: " (as the metadata says)", False: " (the metadata says another)"}[matches]


def _counts(values: Mapping[str, int]) -> str:
    return ", ".join(value if len(values) == 1 else f"{value} ({count})" for value, count in values.items())


def _list(title: str, lines: tuple[str, ...]) -> None:
    if lines:
        more = f", and {len(lines) - LISTED_MAX} more" if len(lines) > LISTED_MAX else ""
        say(f"{counted(len(lines), 'line')} of {title}: {'; '.join(lines[:LISTED_MAX])}{more}")


def show_resized(made: "Resized") -> None:
    rows = table("block", ">layers", "ranks", ">norm kept")
    for block in made.blocks:
        least, most = block.rank_least, block.rank_most
        rows.add_row(
            block.block, str(block.layers), str(most) if least == most else f"{least} to {most}", f"{block.kept:.2%}"
        )
    out.print(rows)


class EachTenth:
    """Say how far a long run is, each tenth of it."""

    def __init__(self, of_what: str) -> None:
        self._of_what = of_what
        self._said = 0.0

    def __call__(self, done: int, of: int) -> None:
        if done / of >= self._said + STEP:
            self._said = done / of
            say(f"{done} of {of} {self._of_what}")
