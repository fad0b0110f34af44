"""The settings of a Slurm cluster, which the server's own file holds, and of a pool on it, which any operator may change.

What runs as the server's user, programs and shell lines, stands in the cluster's settings alone."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from gangline.core.parsing import Checked
from gangline.core.policy import STRICT, Exact
from gangline.core.server.settings import NodePrice, TrustLevel

OURS = frozenset(
    (
        "array",
        "chdir",
        "clusters",
        "comment",
        "dependency",
        "error",
        "export",
        "export-file",
        "get-user-env",
        "gpus",
        "gres",
        "help",
        "hold",
        "job-name",
        "nodes",
        "ntasks",
        "open-mode",
        "output",
        "parsable",
        "partition",
        "quiet",
        "requeue",
        "no-requeue",
        "signal",
        "test-only",
        "time",
        "uid",
        "wait",
        "wrap",
    )
)
"""Options of sbatch that the driver sets itself or that would break what it promises."""
NAME = "letters, digits, `.`, `_` and `-`"


def _why_no_partitions(text: str) -> str:
    return "" if all(map(is_slurm_name, text.split(","))) else f"must be names of {NAME}, separated by commas"


def _why_no_gpu_type(text: str) -> str:
    return "" if not text or is_slurm_name(text) else f"must be a name of {NAME}"


def _why_no_options(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        return f"cannot be split into words: {str(error).lower()}"
    for word in words:
        name = word.removeprefix("--").partition("=")[0]
        if not word.startswith("--") or not name:
            return f"must be long options with their values, like --account=lab, not {word}"
        # sbatch takes an abbreviation for the option that begins with it.
        if any(option.startswith(name) for option in OURS):
            return f"must not have --{name}, which Gangline sets itself"
    return ""


def is_slurm_name(text: str) -> bool:
    """Return whether a text means only itself to Slurm's programs: no list, no pattern, no option."""
    return text.isascii() and text[:1].isalnum() and all(each.isalnum() or each in "._-" for each in text)


Line = Annotated[str, MaxLen(4000), Exact()]
PartitionNames = Annotated[str, MinLen(1), MaxLen(1000), Exact(), Checked(_why_no_partitions)]
GpuType = Annotated[str, MaxLen(100), Exact(), Checked(_why_no_gpu_type)]
SbatchOptions = Annotated[str, MaxLen(4000), Exact(), Checked(_why_no_options)]
Minutes = Annotated[float, Ge(0), Le(1e6), Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCluster:
    """How this server reaches a Slurm cluster, and how a worker is started on its nodes."""

    __pydantic_config__: ClassVar[Any] = STRICT
    programs: Annotated[Line, "The folder of sbatch, squeue and Slurm's other programs (default: those in PATH)."] = ""
    conf: Annotated[Line, "The cluster's slurm.conf, if it is not where Slurm's programs look for it."] = ""
    options: Annotated[
        SbatchOptions,
        "Further options of sbatch for every job, e.g. `--account=lab --cpus-per-task=8 --mem=48G`.",
    ] = ""
    folder: Annotated[
        Path | None,
        "Jobs run in this folder and write what they print there; this server and all nodes must see it under this path (default: "
        ".local/share/gangline/slurm in the home folder of the server's user).",
    ] = None
    scratch: Annotated[
        Line,
        "Workers keep caches and runs in this folder on each node's own disk, e.g. `/local/$USER` (default: gangline-UID in "
        "TMPDIR, else in /tmp).",
    ] = ""
    prepare: Annotated[Line, "A line for the shell that runs on a node before the worker, e.g. `module load cuda`."] = (
        ""
    )
    worker: Annotated[
        Line,
        "The program that runs a worker on a node, as words for the shell, e.g. `/opt/venv/bin/gangline worker` (default: "
        "`gangline worker` if gangline is installed there, else worker.sh as this server serves it).",
    ] = ""
    timeout_s: Annotated[
        Annotated[float, Gt(0), Le(600), Exact()], "Each of Slurm's programs is stopped after this long, in seconds."
    ] = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """Which jobs a pool submits to a cluster. A job is a node."""

    __pydantic_config__: ClassVar[Any] = STRICT
    partition: Annotated[
        PartitionNames, "The partition that jobs are submitted to, or several, separated by commas: each is an offer."
    ]
    gpus: Annotated[
        Annotated[int, Ge(0), Le(64), Exact()],
        "Each node has this many GPUs of one of the cluster's machines; 0 makes nodes without a GPU.",
    ] = 1
    gpu_type: Annotated[
        GpuType,
        "Only GPUs of this type are used, as the cluster's GRES names it, e.g. a100 (default: each type is an offer).",
    ] = ""
    gpu: Annotated[
        Annotated[str, MaxLen(100), Exact()],
        "The GPU's name as jobs ask for it and as nodes report it, e.g. `NVIDIA A100-SXM4-80GB` (default: the type in GRES).",
    ] = ""
    gpu_memory_gb: Annotated[
        Annotated[float, Ge(0), Le(10_000), Exact()],
        "The memory of each GPU in GB. Slurm does not report it; with 0 no job that needs GPU memory starts a node here.",
    ] = 0.0
    trust: Annotated[TrustLevel, "Nodes have this trust tier; a job with `--trust N` runs where it is at least N."] = 0
    price_usd_per_hour: Annotated[
        NodePrice | None,
        "A node costs this much an hour, 0 if it is free. Without a price, costs of the pool are unknown.",
    ] = None
    time_limit_minutes: Annotated[
        Annotated[int, Ge(5), Le(1_000_000), Exact()] | None,
        "Slurm ends a job after this many minutes; the worker saves two minutes before (default: the partition's own limit).",
    ] = None
    queue_minutes_max: Annotated[
        Minutes,
        "A job is submitted only if Slurm expects to start it within this many minutes; otherwise the offer counts as taken.",
    ] = 10.0

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.partition.split(",")))
