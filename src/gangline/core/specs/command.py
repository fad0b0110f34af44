"""The spec of a job that runs a command of its owner's: any program, with what it needs and how its checkpoints are recognised."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from gangline.core.access import OWN, VARIABLE, why_no_variable
from gangline.core.canonical import digest
from gangline.core.display import has_words
from gangline.core.files import File, Files, is_safe_path
from gangline.core.parsing import Checked, InvalidSpec, Problem, parse_as, to_json
from gangline.core.specs.fields import STEPS_MAX
from gangline.core.specs.sections.shared import PlacementSettings
from gangline.core.specs.settings import (
    PLACE,
    RESULT,
    WATCH,
    WORKLOAD,
    Setting,
    SettingGroup,
    deciding,
    hashed,
    section,
)

LayoutName = Literal[
    "accelerate", "kohya", "simpletuner", "lightning", "hf-trainer", "dcp", "onetrainer", "manifest", "files", "folder"
]
"""How a library writes its checkpoints (gangline.core.command.layout)."""
SCRIPTS = (".py", ".sh")
REQUIREMENTS = "requirements.txt"
"""The name of that file among the inputs of a run."""
SILENT_S = 3600.0
WORDS_MAX, WORD_MAX = 4096, 32_768


def _why_no_path(path: str) -> str:
    good = is_safe_path(path) and not path.startswith(".")
    return "" if good else "must be a path below the working directory, such as output or runs/first"


def _why_no_setting(setting: str) -> str:
    name, equals, value = setting.partition("=")
    if not equals or not VARIABLE.fullmatch(name) or "\0" in value:
        return f"{name!r} is not a variable with its value: write NAME=VALUE"
    return f"{name} begins with {OWN}, which is for the worker's own settings" if name.startswith(OWN) else ""


def _why_no_word(word: str) -> str:
    return "has a null character" if "\0" in word else ""


PathBelow = Annotated[str, MinLen(1), MaxLen(500), Checked(_why_no_path)]
VariableName = Annotated[str, MinLen(1), MaxLen(200), Checked(why_no_variable)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtFolder:
    """A folder that is brought to the node: `files` below `name` in the command's working directory."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    name: PathBelow
    files: Annotated[Files, MinLen(1), MaxLen(100_000)]


@dataclass(frozen=True, slots=True)
class NoBase:
    """Where other kinds of jobs have the model that they start from."""

    id: str = ""


@section(SettingGroup.COMMAND)
class CommandSpec(PlacementSettings):
    """A command under a lease. Its checkpoints are recognised by the rules of `gangline.core.command.layout`."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Annotated[
        Literal["command"],
        Setting("This names the kind of job.", RESULT | WORKLOAD, group=SettingGroup.FILES, always=("command",)),
    ] = "command"
    command: Annotated[
        tuple[Annotated[str, MaxLen(WORD_MAX), Checked(_why_no_word)], ...],
        MinLen(1),
        MaxLen(WORDS_MAX),
        Setting(
            "Run this program with these arguments, without a shell. {checkpoint} in an argument becomes the path of the "
            "checkpoint to resume from; without one the argument is left out, and the option before it.",
            RESULT | WORKLOAD,
            always=("command",),
        ),
    ]
    code: Annotated[
        Files,
        MaxLen(100_000),
        Setting("Put these files into the working directory.", RESULT, group=SettingGroup.FILES),
    ] = ()
    data: Annotated[
        tuple[BroughtFolder, ...],
        MaxLen(64),
        Setting("Put these folders of files into the working directory.", RESULT, group=SettingGroup.FILES),
    ] = ()
    requirements: Annotated[
        File | None,
        Setting(
            "Install these packages of pip's into a virtual environment, which a node keeps for other jobs with the same file.",
            RESULT,
            group=SettingGroup.FILES,
        ),
    ] = None
    python: Annotated[
        str,
        MaxLen(500),
        Checked(_why_no_word),
        Setting(
            "Let `python` be this interpreter of the node, by its path or name (default: that of the worker).", RESULT
        ),
    ] = ""
    checkpoints: Annotated[
        PathBelow,
        Setting(
            "Keep what the command saves in this folder of its working directory; everything else in it is a result.",
            RESULT,
            group=SettingGroup.SAVING,
        ),
    ] = "output"
    results: Annotated[
        tuple[PathBelow, ...],
        MaxLen(64),
        Setting(
            "Keep these files and folders of the working directory as results, too.", RESULT, group=SettingGroup.SAID
        ),
    ] = ()
    layout: Annotated[
        LayoutName | Literal["auto"],
        Setting(
            "Expect checkpoints as this library writes them (auto: as any of them does).",
            WATCH,
            group=SettingGroup.SAVING,
        ),
    ] = "auto"
    complete_when: Annotated[
        str,
        MaxLen(500),
        Setting(
            "Take a checkpoint for complete once a path like this exists in the folder of checkpoints, e.g. step_*/done "
            "(default: by its layout).",
            WATCH,
            group=SettingGroup.SAVING,
        ),
    ] = ""
    step: Annotated[
        str,
        MaxLen(500),
        Setting(
            "Read a checkpoint's step where {step} is in this pattern of its name, e.g. run_{step}_*.pt (default: where "
            "its library writes it).",
            WATCH,
            group=SettingGroup.SAVING,
        ),
    ] = ""
    steps: Annotated[
        int,
        Ge(0),
        Le(STEPS_MAX),
        Setting("Show progress towards this many steps (default: what the command prints).", WATCH),
    ] = 0
    environment: Annotated[
        tuple[Annotated[str, MaxLen(WORD_MAX), Checked(_why_no_setting)], ...],
        MaxLen(200),
        Setting(
            "Set these variables of the environment, each as NAME=VALUE. Everybody who may see the job sees them.",
            RESULT,
        ),
    ] = ()
    secrets: Annotated[
        tuple[VariableName, ...],
        MaxLen(100),
        Setting(
            "Set the variable of this name to the project's secret of the same name (`gangline secrets set`).", RESULT
        ),
    ] = ()
    network: Annotated[
        bool,
        Setting("Let the command reach the network; in a sandbox it has none else.", PLACE),
    ] = False
    grace_s: Annotated[
        float,
        Ge(0),
        Le(3600),
        Setting("When the node must stop, give the command this long to save after SIGTERM.", WATCH, unit="s"),
    ] = 30.0
    silent_s: Annotated[
        float,
        Gt(0),
        Le(7 * 86_400),
        Setting("End an attempt that has neither printed nor saved anything for this long: it hangs.", WATCH, unit="s"),
    ] = SILENT_S
    exact: Annotated[
        Literal["off"],
        Setting("A command promises nothing about its last bits; `gangline verify-resume` compares them.", PLACE),
    ] = "off"

    base: ClassVar[NoBase] = NoBase()
    vae: ClassVar[None] = None
    sample_result: ClassVar[bool] = False
    sample_every_steps: ClassVar[None] = None
    sample_every_s: ClassVar[None] = None
    prompts_to_sample: ClassVar[tuple[()]] = ()
    checkpoint_every_s: ClassVar[float] = 86_400.0
    """When it saves is its own affair."""

    @property
    def title(self) -> str:
        """For people, where they gave the job no name."""
        script = next((word for word in self.command if PurePosixPath(word).suffix in SCRIPTS), self.command[0])
        name = PurePosixPath(script).name
        return name if has_words(name) else "a command"

    def input_files(self) -> dict[str, File]:
        """Every file of a run's `inputs/`, by its path below it."""
        brought = {f"data/{folder.name}/{file.path}": file for folder in self.data for file in folder.files}
        packages = {REQUIREMENTS: self.requirements} if self.requirements else {}
        return {f"code/{file.path}": file for file in self.code} | brought | packages

    def model_files(self) -> dict[str, File]:
        """None of them is a model's to Gangline."""
        return {}


def is_pattern_below(pattern: str) -> bool:
    """Return whether a pattern is one of paths below the folder of checkpoints."""
    return not pattern.startswith(("/", "./", "../")) and "**" not in pattern


def is_step_pattern(pattern: str) -> bool:
    """Return whether a pattern says where the step stands in a name, once."""
    return pattern.count("{step}") == 1


def parse_command(value: object, *, options: bool = False) -> CommandSpec:
    """A spec from JSON values. Raises `InvalidSpec` with every problem that it has."""
    spec: CommandSpec = parse_as(CommandSpec, value, options=options)
    names = [folder.name for folder in spec.data]
    within = any(one != two and one.startswith(f"{two}/") for one in names for two in names)
    problems = {
        Problem("command", "its first word is empty: name a program"): not spec.command[0].strip(),
        Problem("data", "two folders have the same name"): len(set(names)) < len(names),
        Problem("data", "a folder lies in another one"): within,
        Problem("data", "a folder has the name of the folder of checkpoints"): spec.checkpoints in names,
        Problem("python", "requirements are installed for the worker's own interpreter: give one of both"): bool(
            spec.python and spec.requirements
        ),
        Problem("secrets", "a variable of that name is in the environment, too"): any(
            setting.partition("=")[0] in spec.secrets for setting in spec.environment
        ),
        Problem("step", "must contain {step} exactly once"): bool(spec.step) and not is_step_pattern(spec.step),
        Problem(
            "complete_when", "must be a pattern of paths below the folder of checkpoints; * does not match a slash"
        ): not is_pattern_below(spec.complete_when),
    }
    found = tuple(problem for problem, wrong in problems.items() if wrong)
    if found:
        raise InvalidSpec(found)
    return spec


def command_hash(spec: CommandSpec) -> str:
    """Equal for jobs that ask for the same result, as `gangline.core.specs.spec.spec_hash`."""
    return digest(hashed(spec, RESULT))


def command_workload(spec: CommandSpec) -> str:
    """Equal for jobs that ask the same of a machine."""
    value = to_json(spec)
    felt = {name: value[name] for name in deciding(type(spec), WORKLOAD)}
    return digest(felt | {"code": value["code"], "slots": spec.needs.slots})[:16]
