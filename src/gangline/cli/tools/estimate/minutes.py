"""What `gangline estimate` says of a recipe of a LoRA: minutes, dollars and memory by the kind of GPU. All of it is computed."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gangline.cli.output import duration, table
from gangline.cli.tools.estimate.words import refuse
from gangline.core.display import printable
from gangline.core.errors import BadInput

if TYPE_CHECKING:  # what `--help` need not wait for
    from rich.console import Group

    from gangline.core.estimates.forecast import Forecast


@dataclass(frozen=True, slots=True)
class MinutesRow:
    """`price` in dollars an hour; `card_gb` is what the card is sold with."""

    forecast: "Forecast"
    price: float
    card_gb: int

    def as_json(self) -> dict[str, Any]:
        own, seconds, usd = self.forecast, self.forecast.seconds, self.forecast.usd(self.price)
        assert seconds and usd and own.seconds_per_step, "a row was refused before"
        return {
            "gpu": own.gpu,
            "gpus": 1,
            "how": own.how,
            "steps": own.steps,
            "microbatch": own.microbatch,
            "seconds_per_step": asdict(own.seconds_per_step),
            "minutes": asdict(seconds.times(1 / 60)),
            "usd_per_gpu_hour": self.price,
            "usd": asdict(usd),
            "memory_gb_low": own.memory.low_gb,
            "memory_gb_high": own.memory.high_gb,
            "fits": own.memory.fits(self.card_gb),
            "band_share": own.share,
            "because": own.because,
        }


LEFT_OUT = "downloads, the start of a node, pictures on the way, checkpoints and uploads are left out"


def lora_minutes(
    recipe: dict[str, Any], prices: dict[str, Any], *, family: str | None, photos: int
) -> list["MinutesRow"]:
    """Return a row for each kind of GPU, with its price. Raises `BadInput`."""
    from gangline.cli.tools.estimate.computed import family_of_base, lora_of
    from gangline.core.estimates.forecast import forecast
    from gangline.core.gpus import find_kind

    refuse(
        not prices,
        "there is no kind of GPU to estimate for",
        hint='pass one with its price an hour, e.g. --gpu "RTX 4090=0.30"',
    )
    for name, price in prices.items():
        wrong = not isinstance(price, int | float) or not 0 <= price < 1e15
        refuse(
            wrong,
            f"--gpu {name}={price} does not have a valid price",
            hint="write a number of US dollars an hour, e.g. 0.30",
        )
    spec, own = lora_of(recipe, photos), family_of_base(recipe.get("base"), family)
    kinds = [find_kind(name) for name in prices]
    found = [forecast(spec, own, kind) for kind in kinds]
    for each in found:
        if each.seconds is None:
            raise BadInput(each.because[0], hint="leave this kind of GPU out, or change precision")
    return [
        MinutesRow(each, price, kind.memory_gb) for each, price, kind in zip(found, prices.values(), kinds, strict=True)
    ]


def minutes_page(rows: list[MinutesRow]) -> "Group":
    from rich.console import Group
    from rich.text import Text

    made = table("gpu", ">s/step", ">band", ">time", ">band", ">$", ">$ band", ">GB", "fits", "row")
    for row in rows:
        own, seconds, usd = row.forecast, row.forecast.seconds, row.forecast.usd(row.price)
        assert seconds and usd and own.seconds_per_step, "a row was refused before"
        step = own.seconds_per_step
        made.add_row(
            own.gpu,
            f"{step.middle:#.3g}",
            f"{step.low:#.3g} – {step.high:#.3g}",
            duration(seconds.middle),
            f"{_minutes(seconds.low)} – {_minutes(seconds.high)} min",
            f"{usd.middle:.3f}",
            f"{usd.low:.3f} – {usd.high:.3f}",
            f"{own.memory.low_gb:.1f} – {own.memory.high_gb:.1f}",
            own.memory.fits(row.card_gb),
            own.how,
        )
    firsts = [f"{row.forecast.gpu}: {row.forecast.because[0]}" for row in rows]
    lines = list(dict.fromkeys([*firsts, *(line for row in rows for line in row.forecast.because[1:])]))
    return Group(made, Text(), *(Text(printable(line)) for line in [*lines, LEFT_OUT]))


def _minutes(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes:.0f}" if minutes >= 10 else f"{minutes:.1f}"
