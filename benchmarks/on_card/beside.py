"""Our trainer and scripts of others as processes of their own, in turns, as benchmarks/trainer.py runs them."""

import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.on_card.part import Case, Rows
from benchmarks.on_card.results import Figures
from benchmarks.on_card.scale import Scale

OURS = "gangline"


def cases_with(peers: list[Path], rounds: int, scale: Scale) -> Iterator[Case]:
    for number in range(1, rounds + 1):
        for peer in (None, *peers):
            name = f"{peer.stem if peer else OURS}, round {number}"
            yield Case(name, partial(one_round, scale, name, peer))


def one_round(scale: Scale, name: str, peer: Path | None) -> Rows:
    from benchmarks.trainer import Case as Asked
    from benchmarks.trainer import Ours, Peer, alone, launcher

    base = scale.sdxl
    side = Peer(peer, base.folder, launcher(scale.folder / "stand-in")) if peer else Ours(base.folder, base.files)
    ran = alone(side, Asked(steps=14 if scale.tiny else 40, save_every=10 if scale.tiny else 20), scale.folder)
    yield {
        "what": name,
        "s/step": ran.step_s,
        "s to the first step": ran.to_first_step_s,
        "s/save": ran.save_s(),
        "GB": ran.memory_bytes / 1e9,
    }


def sum_up(rows: list[Figures]) -> list[Figures]:
    """The middle one of each column over the rounds."""
    by_side: dict[str, list[Figures]] = {}
    for row in rows:
        if "s/step" in row:
            by_side.setdefault(row["what"].rpartition(", round")[0], []).append(row)
    found: list[Figures] = []
    for side, rounds in by_side.items():
        row = {name: statistics.median(one[name] for one in rounds) for name in rounds[0] if name != "what"}
        found.append({"what": f"{side}, middle of {len(rounds)}"} | row)
        if OURS in by_side:
            ours = statistics.median(one["s/step"] for one in by_side[OURS])
            found[-1]["times ours"] = row["s/step"] / ours
    return found
