"""What the environment of a command says, and is told: whether it is one of several, which run it is in W&B. All of this is pure."""

from collections.abc import Mapping

from gangline.core.canonical import digest
from gangline.core.command.lineage import Begun

SEVERAL = (
    "NNODES",
    "PET_NNODES",
    "GROUP_WORLD_SIZE",
    "SKYPILOT_NUM_NODES",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NUM_TASKS",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
)
"""How many a launcher starts. A batch script of Slurm runs once, whatever SLURM_JOB_NUM_NODES says: what `srun` starts has a step."""
ANOTHER = ("RANK", "NODE_RANK", "GROUP_RANK", "LOCAL_RANK", "SKYPILOT_NODE_RANK", "SLURM_PROCID", "SLURM_NODEID")
"""Which of them this is, from 0."""
SYSTEMS = {"darwin": "macOS", "win32": "Windows"}


def one_of_several(environment: Mapping[str, str]) -> str:
    """The setting which says that a launcher starts several of this; empty where none does."""
    sizes = [*SEVERAL, *(["WORLD_SIZE"] if environment.get("RANK") else [])]  # alone it may be told to the command
    found = [name for name in sizes if _number(environment, name) > 1] + [
        name for name in ANOTHER if _number(environment, name) > 0
    ]
    return f"{found[0]}={environment[found[0]]}" if found else ""


def wandb_settings(begun: Mapping[str, Begun], environment: Mapping[str, str]) -> dict[str, str]:
    """What makes one run of all that `begun` below a prefix (https://docs.wandb.ai/models/runs/resuming). What the user set stays."""
    if environment.keys() & {"WANDB_RUN_ID", "WANDB_SWEEP_ID"}:
        return {}
    first = begun[min(begun)]
    told = {"WANDB_RUN_ID": digest([first.run, first.at_ms, list(first.command)])[:16], "WANDB_RESUME": "allow"}
    return {name: value for name, value in told.items() if name not in environment}


def unsupported_system(platform: str) -> str:
    """The name of a system that `gangline exec` cannot work on; empty for Linux."""
    return "" if platform == "linux" else SYSTEMS.get(platform, platform)


def _number(environment: Mapping[str, str], name: str) -> int:
    word = environment.get(name, "")
    return int(word) if word.isascii() and word.isdecimal() else 0
