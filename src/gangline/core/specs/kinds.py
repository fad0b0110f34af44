"""Kinds of jobs, each declared once: how its spec is read, which program does it, where it stands in the queue, what it needs.

A new kind is a spec with its parser, a program that keeps the trainer contract, and an entry here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeGuard

from gangline.core.specs.caption import CaptionSpec, caption_hash, caption_workload, parse_caption
from gangline.core.specs.command import CommandSpec, command_hash, command_workload, parse_command
from gangline.core.specs.lora import LoraSpec, lora_hash, lora_workload, parse_lora
from gangline.core.specs.sample import SampleSpec, Spec, parse_sample, sample_hash
from gangline.core.specs.scratch import ScratchSpec, parse_scratch, scratch_hash, scratch_workload

Queue = Literal["training", "pictures"]
Need = Literal["data sets", "prepared files", "weights"]
ResultKind = Literal["lora", "model", "pictures", "files"]
Extra = Literal["captions", "data", "train"]
LIBRARIES: Mapping[Extra, tuple[str, ...]] = MappingProxyType(
    {
        "train": (
            "torch",
            "numpy",
            "safetensors",
            "diffusers",
            "transformers",
            "peft",
            "accelerate",
            "bitsandbytes",
            "prodigyopt",
            "schedulefree",
        ),
        "captions": ("onnxruntime",),
        "data": ("numpy", "obstore", "lance"),
    }
)
"""What `pip install 'gangline[EXTRA]'` brings, by the names under which it is imported. Some are loaded by a setting of a job alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """`hash` is equal for specs that ask for the same result, `workload` for those that ask the same of a machine. A node runs `program`
    as `python -m PROGRAM DIRECTORY`.

    It needs the libraries of `extras`, and `loads` is the module that it works in: with that, they are imported. A command has its own;
    only torch must be there, as without it hardly one could do anything.

    `queue`: pictures are rendered where there is nothing to train. `needs`, besides a base: data sets that nodes read, files that
    other jobs prepared, weights that another job has saved. `command` submits one, and is empty where nobody does. A program that is not
    `ours` reports steps if it likes, and is started by itself, not in a process that has loaded libraries.
    """

    name: str
    title: str
    spec: type[Any]
    parse: Callable[[object], Any]
    hash: Callable[[Any], str]
    workload: Callable[[Any], str]
    program: str
    loads: str
    extras: tuple[Extra, ...]
    queue: Queue
    needs: frozenset[Need]
    result: ResultKind
    command: str = ""
    ours: bool = True

    @property
    def renders(self) -> bool:
        """Whether it shows what another job has learned: the spec of that is the field `of` of its own."""
        return self.result == "pictures"


def _of_pictures(spec: SampleSpec) -> str:
    return f"pictures of {kind_of(spec.of).workload(spec.of)}"


_ALL = (
    JobKind(
        name="lora",
        title="LoRAs",
        spec=LoraSpec,
        parse=parse_lora,
        hash=lora_hash,
        workload=lora_workload,
        program="gangline.train.lora",
        loads="gangline.train.lora.trainer",
        extras=("train",),
        queue="training",
        needs=frozenset({"prepared files"}),
        result="lora",
        command="gangline train PHOTOS --recipe RECIPE",
    ),
    JobKind(
        name="scratch",
        title="training on data sets",
        spec=ScratchSpec,
        parse=parse_scratch,
        hash=scratch_hash,
        workload=scratch_workload,
        program="gangline.train.scratch.launch",
        loads="gangline.train.scratch.trainer",
        extras=("train", "data"),
        queue="training",
        needs=frozenset({"data sets"}),
        result="model",
        command="gangline scratch RECIPE",
    ),
    JobKind(
        name="command",
        title="commands",
        spec=CommandSpec,
        parse=parse_command,
        hash=command_hash,
        workload=command_workload,
        program="gangline.compose.job",
        loads="torch",
        extras=(),
        queue="training",
        needs=frozenset(),
        result="files",
        command="gangline run -- COMMAND",
        ours=False,
    ),
    JobKind(
        name="caption",
        title="captions",
        spec=CaptionSpec,
        parse=parse_caption,
        hash=caption_hash,
        workload=caption_workload,
        program="gangline.train.caption",
        loads="gangline.train.caption.job",
        extras=("train", "captions"),
        queue="training",
        needs=frozenset(),
        result="files",
        command="gangline captions write PHOTOS --model FOLDER",
    ),
    JobKind(
        name="sample",
        title="pictures",
        spec=SampleSpec,
        parse=parse_sample,
        hash=sample_hash,
        workload=_of_pictures,
        program="gangline.train.sample_job",
        loads="gangline.train.sample_job",
        extras=("train",),
        queue="pictures",
        needs=frozenset({"weights"}),
        result="pictures",
    ),
)
KINDS: Mapping[str, JobKind] = MappingProxyType({kind.name: kind for kind in _ALL})
SUBMITTED = tuple(kind for kind in _ALL if kind.command)
DEFAULT_KIND = "lora"
"""The kind of a spec that does not say its own: those of the first release did not."""


def kind_of(spec: Spec | SampleSpec) -> JobKind:
    return KINDS[spec.kind]


def needs_data_sets(spec: Spec | SampleSpec) -> TypeGuard[ScratchSpec]:
    return "data sets" in kind_of(spec).needs


def needs_prepared_files(spec: Spec | SampleSpec) -> TypeGuard[LoraSpec]:
    return "prepared files" in kind_of(spec).needs


def reads_buckets(task: Mapping[str, Any]) -> bool:
    """Return whether a task, as JSON, names data sets in buckets: its trainer needs the node's keys for them, and the network."""
    if "data sets" not in KINDS[task["kind"]].needs:
        return False
    return any("://" in str(data.get("place", "")) for data in task.get("data", ()))


def wants_network(task: Mapping[str, Any]) -> bool:
    """Return whether a task, as JSON, wants the network: most run without, where a node can cut it."""
    return reads_buckets(task) or bool(task.get("network", False))


def wants_packages(task: Mapping[str, Any]) -> bool:
    """Return whether a task, as JSON, wants packages installed before it begins."""
    return bool(task.get("requirements"))


def needs_weights(spec: Spec | SampleSpec) -> TypeGuard[SampleSpec]:
    return "weights" in kind_of(spec).needs
