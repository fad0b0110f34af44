"""Read a command's environment: is it one of several processes, and which W&B run does it belong to? All of this is pure."""

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
"""Variables in which launchers say how many they start. SLURM_JOB_NUM_NODES is not one of them: a batch script of Slurm runs once whatever
it says, and only what `srun` starts has a step."""
ANOTHER = ("RANK", "NODE_RANK", "GROUP_RANK", "LOCAL_RANK", "SKYPILOT_NODE_RANK", "SLURM_PROCID", "SLURM_NODEID")
"""Variables with the number of this process, from 0."""
SYSTEMS = {"darwin": "macOS", "win32": "Windows"}


def one_of_several(environment: Mapping[str, str]) -> str:
    """Return the variable that says that a launcher starts several of these, as NAME=VALUE; empty if none does."""
    sizes = [*SEVERAL, *(["WORLD_SIZE"] if environment.get("RANK") else [])]  # alone it may be a setting of the command
    found = [name for name in sizes if _number(environment, name) > 1] + [
        name for name in ANOTHER if _number(environment, name) > 0
    ]
    return f"{found[0]}={environment[found[0]]}" if found else ""


def wandb_settings(begun: Mapping[str, Begun], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make all runs below a prefix one W&B run (https://docs.wandb.ai/models/runs/resuming). Variables that the
    user set are kept."""
    if environment.keys() & {"WANDB_RUN_ID", "WANDB_SWEEP_ID"}:
        return {}
    first = begun[min(begun)]
    told = {"WANDB_RUN_ID": digest([first.run, first.at_ms, list(first.command)])[:16], "WANDB_RESUME": "allow"}
    return {name: value for name, value in told.items() if name not in environment}


def unsupported_system(platform: str) -> str:
    """Return the name of a system that `gangline exec` does not support; empty for Linux."""
    return "" if platform == "linux" else SYSTEMS.get(platform, platform)


def _number(environment: Mapping[str, str], name: str) -> int:
    word = environment.get(name, "")
    return int(word) if word.isascii() and word.isdecimal() else 0
