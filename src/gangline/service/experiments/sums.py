"""Sum up the jobs of experiments that are at rest, without reading each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from gangline.core.job import ENDED
from gangline.core.jobs.lists.ids import as_list
from gangline.ports.store import Row
from gangline.service.deployment import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSums:
    """The jobs of an experiment by state, `held` among them, and sums over them. `price` is the mean one of a step, in micro-dollars, of
    the jobs that trained and whose cost is known; None if there is none. `tried` counts those that a node had, `unpriced` those of them
    whose nodes had no known price; `dropped` those that halving ended, and `dropped_steps` what these did not train. `has_best`: the job
    that was recorded as its best is still there."""

    jobs: int
    counts: Mapping[str, int]
    micro_usd: int
    price: float | None
    tried: int
    unpriced: int
    dropped: int
    dropped_steps: int
    has_best: bool


def sums_at_rest(deployment: Deployment, experiments: Sequence[Row]) -> dict[str, ExperimentSums]:
    """Return the sums of those of these experiments, given their rows, whose jobs have all ended and have no node any more."""
    if not experiments:
        return {}
    rows = deployment.store.load("sums_of_experiments", **as_list([row["id"] for row in experiments]))
    by_experiment = {name: list(of_one) for name, of_one in groupby(rows, lambda row: row["experiment"])}
    best = [row["best"] for row in experiments if row["best"]]
    there = {row["job"] for row in deployment.store.load("runs_there", **as_list(best))} if best else set[str]()
    return {
        row["id"]: _summed(by_experiment[row["id"]], has_best=row["best"] in there)
        for row in experiments
        if row["id"] in by_experiment and _is_at_rest(by_experiment[row["id"]])
    }


def _is_at_rest(rows: Sequence[Row]) -> bool:
    return all(row["state"] in ENDED and not row["live"] for row in rows)


def _summed(rows: Sequence[Row], *, has_best: bool) -> ExperimentSums:
    def total(name: str) -> int:
        return sum(row[name] for row in rows)

    dropped = [row for row in rows if row["state"] == "canceled"]
    return ExperimentSums(
        jobs=total("jobs"),
        counts={row["state"]: row["jobs"] for row in rows},
        micro_usd=total("micro_usd"),
        price=total("priced_micro_usd") / total("priced_steps") if total("priced_steps") else None,
        tried=total("tried"),
        unpriced=total("unpriced"),
        dropped=sum(row["dropped"] for row in dropped),
        dropped_steps=sum(row["dropped_steps"] for row in dropped),
        has_best=has_best,
    )
