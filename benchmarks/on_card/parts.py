"""The parts in the order in which they are run: what tells most of a card comes first, as its time may be over before the last."""

from functools import partial
from pathlib import Path

from benchmarks.on_card import beside, encode, exact, kernels, quantised, render, scratch, step
from benchmarks.on_card.part import Part


def parts(peers: list[Path], rounds: int) -> dict[str, Part]:
    """Without peers there is no `beside`."""
    every = (
        Part("exact", exact.cases),
        Part("step", step.cases, sum_up=step.sum_up),
        Part("beside", partial(beside.cases_with, peers, rounds), sum_up=beside.sum_up),
        Part("scratch", scratch.cases),
        Part("render", render.cases),
        Part("encode", encode.cases, packages=("pyarrow",)),
        Part("profile", kernels.cases),
        Part("quantised", quantised.cases, packages=("bitsandbytes",), sum_up=quantised.sum_up),
        Part("compiled", step.compiled_cases),
        Part("compiled-scratch", scratch.compiled_cases),
    )
    return {part.name: part for part in every if peers or part.name != "beside"}
