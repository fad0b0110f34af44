# Made of src/gangline/wire/aio/experiments.py by `python -m tests.wire.sync_client`: change that file, and make this one again.
"""The client's requests about experiments: jobs that are submitted together over a grid of settings, and are steered as one."""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any
from uuid import uuid4

from gangline.core.experiments.best import BestView
from gangline.core.experiments.terms import ExperimentAsked
from gangline.core.experiments.views import ExperimentPage, ExperimentPlanView, ExperimentRunView, ExperimentView
from gangline.core.parsing import to_json
from gangline.wire.client.calls import Calls
from gangline.wire.http import path_of

PATH = "/v1/experiments"


class ExperimentCalls(Calls):
    """Experiments of the project. `experiment` is an id."""

    def submit(self, asked: ExperimentAsked | Mapping[str, Any], *, key: str = "") -> ExperimentView:
        """Submit jobs over a grid of settings, all or none. `asked` may be a mapping, such as
        `{"spec": spec, "vary": {"rank": [8, 16]}, "at_once": 4}`, with the `spec` that the jobs have in common; its photos were uploaded.

        `key` makes a retry safe after a lost answer: the same key returns the same experiment. Raise `BadInput` or `InvalidSpec` for what
        cannot be submitted.
        """
        return self._http.read(ExperimentView, "POST", PATH, _as_json(asked), key=key or uuid4().hex)

    def plan(self, asked: ExperimentAsked | Mapping[str, Any]) -> ExperimentPlanView:
        """Return what an experiment would take: jobs, steps, hours and dollars. Its files need not be uploaded, and nothing changes."""
        return self._http.read(ExperimentPlanView, "POST", f"{PATH}/plan", _as_json(asked))

    def list(self, *, limit: int | None = None) -> Iterator[ExperimentView]:
        """Yield the experiments, newest first, at most `limit` of them. Pages are read as they are needed."""
        params, left = dict[str, Any](), limit
        while left is None or left > 0:
            page = self._http.read(ExperimentPage, "GET", PATH, params=params)
            for experiment in page.experiments[:left]:
                yield experiment
            left = None if left is None else left - len(page.experiments)
            if page.next is None:
                return
            params["cursor"] = page.next

    def get(self, experiment: str) -> ExperimentView:
        """Return an experiment. Raise `NotFound`."""
        return self._http.read(ExperimentView, "GET", path_of("experiments", experiment))

    def runs(self, experiment: str) -> Iterator[ExperimentRunView]:
        """Yield the jobs of an experiment in the order of their numbers, with the settings in which they differ."""
        path = path_of("experiments", experiment, "runs")
        for run in self._http.read(tuple[ExperimentRunView, ...], "GET", path):
            yield run

    def best(self, experiment: str) -> BestView | None:
        """Return the best job so far; None while no job has measured anything to compare."""
        return (self.get(experiment)).best

    def stop(self, experiment: str) -> ExperimentView:
        """Cancel all jobs of an experiment that have not ended."""
        return self._http.read(ExperimentView, "POST", path_of("experiments", experiment, "stop"))

    def resume(self, experiment: str) -> ExperimentView:
        """Let the paused jobs of an experiment wait for their turn again."""
        return self._http.read(ExperimentView, "POST", path_of("experiments", experiment, "resume"))

    def change(
        self,
        experiment: str,
        *,
        at_once: int | None = None,
        budget_usd: float | None = None,
        any_number: bool = False,
        any_cost: bool = False,
    ) -> ExperimentView:
        """Change how many jobs run at once, and the budget; what is None stays. `any_number` and `any_cost` take the limits away."""
        given = {"at_once": at_once, "budget_usd": budget_usd, "any_number": any_number, "any_cost": any_cost}
        changes = {name: value for name, value in given.items() if value}
        return self._http.read(ExperimentView, "PATCH", path_of("experiments", experiment), changes)


def _as_json(asked: ExperimentAsked | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(asked, ExperimentAsked):
        return to_json(asked)
    return {name: to_json(value) if is_dataclass(value) else value for name, value in asked.items()}
