"""The first job of an experiment: what the plan of one job shows before all of them are submitted. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gangline.core.experiments.grid import combination_words, combinations, with_combination
from gangline.core.experiments.terms import ExperimentAsked
from gangline.core.parsing import parse_as, to_json
from gangline.core.specs.lora import LoraSpec, parse_lora
from gangline.core.words import counted

MODELS = frozenset({"base", "vae", "init_lora"})
"""Settings that are models: a plan shows what is known of one, which was looked up for that of all jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstJob:
    """`words` say which of the jobs it is, and `spec` is its own. If jobs differ in their models, it is what they have in common."""

    words: str
    spec: LoraSpec


def first_job(asked: Mapping[str, Any], spec: LoraSpec, jobs: int) -> FirstJob:
    """Return the first of the `jobs` that are asked for, given the settings that they have in common."""
    wanted: ExperimentAsked = parse_as(ExperimentAsked, dict(asked))
    combination = combinations(wanted, LoraSpec)[0]
    if MODELS & combination.keys():
        return FirstJob(words=f"the settings that all {counted(jobs, 'job')} share", spec=spec)
    values = f": {combination_words(combination)}" if combination else ""
    made = parse_lora(with_combination(to_json(spec), combination))
    return FirstJob(words=f"job 1 of {jobs}{values}", spec=made)
