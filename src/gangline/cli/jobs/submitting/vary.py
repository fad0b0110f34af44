"""Options by which `gangline train` becomes an experiment: several jobs over a grid of settings."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from gangline.core.errors import BadInput
from gangline.core.experiments.typed import parse_vary

PANEL = "Experiment"
VaryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="NAME=VALUE,VALUE",
        help="Submit an experiment: a job for each of these values of a setting, e.g. --vary rank=8,16. Repeat it for several settings; "
        "every combination is a job. Put a value with a comma into double quotes.",
        rich_help_panel=PANEL,
        show_default=False,
    ),
]
SeedsOption = Annotated[
    int | None,
    typer.Option(
        "--seeds",
        min=1,
        help="Train each combination with this many seeds, from the job's own on (default: 1).",
        rich_help_panel=PANEL,
        show_default=False,
    ),
]
AtOnceOption = Annotated[
    int | None,
    typer.Option(
        "--at-once",
        min=1,
        help="Let at most this many jobs of the experiment wait for a node or train at once (default: all).",
        rich_help_panel=PANEL,
        show_default=False,
    ),
]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget",
        min=0.000001,
        help="Start no job that would bring the experiment above this many dollars, and pause its jobs there (default: no limit).",
        rich_help_panel=PANEL,
        show_default=False,
    ),
]
ExperimentNameOption = Annotated[
    str,
    typer.Option(
        "--experiment", help="Name the experiment (default: the prompt).", rich_help_panel=PANEL, show_default=False
    ),
]
HalvingOption = Annotated[
    int | None,
    typer.Option(
        "--halving",
        min=2,
        metavar="ETA",
        help="Let only the best 1/ETA of the jobs continue at each rung (successive halving); it needs held-out photos.",
        rich_help_panel=PANEL,
        show_default=False,
    ),
]
HalvingFromOption = Annotated[
    int | None,
    typer.Option(
        "--halving-from",
        min=1,
        metavar="STEPS",
        help="Put the first rung at this step, and each other one at ETA times the step before (default: the first step at which the "
        "held-out loss is measured).",
        rich_help_panel=PANEL,
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOptions:
    """The options of an experiment, as they were typed."""

    vary: list[str] | None = None
    seeds: int | None = None
    at_once: int | None = None
    budget: float | None = None
    name: str = ""
    halving: int | None = None
    halving_from: int | None = None

    @property
    def wanted(self) -> bool:
        """Return whether there are several jobs. Raise `BadInput` for an option that only several have."""
        if self.vary or (self.seeds or 1) > 1:
            return True
        alone = {
            "--at-once": self.at_once,
            "--budget": self.budget,
            "--experiment": self.name,
            "--halving": self.halving,
            "--halving-from": self.halving_from,
        }
        given = [option for option, value in alone.items() if value]
        if given:
            raise BadInput(
                f"{given[0]} is for an experiment, and this is one job",
                hint="say how the jobs differ: --vary rank=8,16, or --seeds 3",
            )
        return False

    def asked(self, spec: dict[str, Any], labels: dict[str, str], name: str = "") -> dict[str, Any]:
        """Return the experiment as it is submitted; `name` counts where it has none of its own. Raise `BadInput`."""
        return {
            "name": self.name or name,
            "spec": spec,
            "vary": parse_vary(str(spec["kind"]), self.vary or []),
            "seeds": self.seeds or 1,
            "at_once": self.at_once,
            "budget_usd": self.budget,
            "halving": self._halving(spec),
            "labels": labels,
        }

    def _halving(self, spec: dict[str, Any]) -> dict[str, int] | None:
        if self.halving is None:
            if self.halving_from is not None:
                raise BadInput("--halving-from has no --halving", hint="--halving 3 lets the best third continue")
            return None
        first = self.halving_from or spec.get("held_out_every_steps")
        if not first:
            raise BadInput(
                "--halving compares held-out losses, and the jobs measure none while they train",
                hint="give --hold-out PHOTO and --held-out-every-steps STEPS",
            )
        return {"eta": self.halving, "min_steps": first}
