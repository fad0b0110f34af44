"""Run a trainer as a program: read its directory, obey signals, and turn errors into a failure report and an exit code."""

import argparse
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from gangline.core.errors import BadInput, GanglineError, Unreachable
from gangline.core.files import UNPLACEABLE
from gangline.core.parsing import InvalidSpec
from gangline.core.runs.contract import (
    EXIT_BAD_INPUT,
    EXIT_FAILED,
    EXIT_LEFT_OUT,
    EXIT_PEER_GONE,
    Failure,
    TrainerFailureKind,
)
from gangline.data.place import KeyRefused, says_full
from gangline.posix import RunMemory
from gangline.train.checkpoints.manifest import OtherFormat
from gangline.train.checkpoints.prepared import LeftOut
from gangline.train.log import write_whole_lines
from gangline.train.run.contract import Orders, RunDirectory, obey_no_more
from gangline.train.run.library_output import silence_libraries
from gangline.train.run.memory import is_out_of_memory
from gangline.train.run.meter import Diverged, NoGradient
from gangline.train.run.numerics import OtherNumerics
from gangline.train.run.ranks import PeerGone


def kind_among(inputs: Path, error: Exception) -> TrainerFailureKind:
    """Return the failure kind of an error in a run whose input files lie below `inputs`.

    An input whose name no disk can hold counts as bad data; the same error outside of `inputs` does not.
    """
    if isinstance(error, OSError) and error.errno in UNPLACEABLE and isinstance(error.filename, str):
        return "bad data" if inputs in Path(error.filename).parents else failure_kind(error)
    return failure_kind(error)


def failure_kind(error: Exception) -> TrainerFailureKind:
    """Return what an error means for the run, as its report states it."""
    match error:
        case InvalidSpec():
            return "too old"  # the server accepted the spec, so this code is older than the server
        case Unreachable() | KeyRefused():
            return "download failed"
        case BadInput() | RecursionError():  # our code never nests that deep, but JSON from users may
            return "bad data"
        case Diverged():
            return "diverged"
        case NoGradient():
            return "no gradient"
        case OtherNumerics():
            return "other numerics"
        case OtherFormat():
            return "too old" if error.newer else "other format"
        case _ if is_out_of_memory(error):
            return "out of memory"
        case _:
            return "disk full" if says_full(error) else "crashed"


def main(work: Callable[[RunDirectory, Orders], int]) -> int:
    parser = argparse.ArgumentParser(description="Work in a directory that keeps the trainer contract.")
    parser.add_argument("directory", type=Path)
    run = RunDirectory(parser.parse_args().directory, RunMemory.told())
    orders = Orders()
    orders.obey_signals()
    write_whole_lines()
    silence_libraries()
    try:
        return work(run, orders)
    except LeftOut as error:
        print(error, file=sys.stderr)  # noqa: T201 - the job's log
        return EXIT_LEFT_OUT
    except PeerGone as error:  # the other rank reported its reason itself, or was killed
        print(error, file=sys.stderr)  # noqa: T201
        return EXIT_PEER_GONE
    except Exception as error:
        kind = kind_among(run.inputs, error)
        run.report_failure(Failure(kind=kind, because=str(error) or type(error).__name__))
        if not isinstance(error, GanglineError):
            traceback.print_exc()
            return EXIT_FAILED
        print(f"error: {error.message}", f"hint: {error.hint}" * bool(error.hint), sep="\n", file=sys.stderr)  # noqa: T201
        return EXIT_BAD_INPUT if kind == "bad data" else EXIT_FAILED
    finally:
        obey_no_more()
