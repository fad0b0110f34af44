"""Tables of settings on pages, as the specs declare them: `python -m tests.docs.tables_of_settings` writes them again."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import get_type_hints

from gangline.adapters.pools.command import CommandSettings
from gangline.adapters.pools.kubernetes.settings import KubernetesCluster, KubernetesSettings
from gangline.adapters.pools.salad.settings import SaladPoolSettings, SaladProvider
from gangline.adapters.pools.skypilot.settings import SkyPilotProvider, SkyPilotSettings
from gangline.adapters.pools.slurm.settings import SlurmCluster, SlurmSettings
from gangline.cli.admin.settings import setting_text
from gangline.cli.jobs.settings import option_name
from gangline.core.server.merging import list_settings
from gangline.core.server.settings import ServerSettings, WorkerSettings
from gangline.core.specs.caption import CaptionSpec
from gangline.core.specs.command import CommandSpec
from gangline.core.specs.fields import Needs
from gangline.core.specs.form import offered_settings
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.phases import DataRef, TrainingPhase, VaeLosses
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.specs.sections.continuing import Continued
from gangline.core.specs.sections.previews import SamplePrompt
from gangline.core.specs.sections.subjects import SubjectEntry
from gangline.core.specs.settings import Setting, SettingGroup, default_of, groups_of
from tests.conftest import ROOT

BEGIN = "\n## Every setting\n"
TRAINING, SCRATCH = ROOT / "docs" / "training.md", ROOT / "docs" / "scratch.md"
RUN = ROOT / "docs" / "run.md"
CAPTIONS = ROOT / "docs" / "captions.md"
SERVER = ROOT / "docs" / "reference" / "settings.md"
SALAD = ROOT / "docs" / "pools" / "salad.md"
KUBERNETES = ROOT / "docs" / "pools" / "kubernetes.md"
SKYPILOT = ROOT / "docs" / "pools" / "skypilot.md"
SLURM, COMMAND = ROOT / "docs" / "pools" / "slurm.md", ROOT / "docs" / "pools" / "command.md"

Name = Callable[[type, str], str]


def table(of: type, group: SettingGroup, settings: Mapping[str, Setting], called: Name, head: str) -> str:
    rows = [f"| `{called(of, name)}` | {default_of(of, name)} | {one.says} |" for name, one in settings.items()]
    return "\n".join([f"### {group}", "", f"| {head} | default | |", "|---|---|---|", *rows, ""])


def of_training() -> str:
    of = [(each, group, settings) for each in (LoraSpec, Needs) for group, settings in offered_settings(each).items()]
    inner = (
        table(kind, *each, _name, "setting")
        for kind in (SamplePrompt, SubjectEntry, Continued)
        for each in groups_of(kind).items()
    )
    return "\n".join((*(table(*one, option_name, "option") for one in of), *inner))


def _name(_: type, name: str) -> str:
    return name


def of_options(spec: type) -> str:
    of = [(each, group, settings) for each in (spec, Needs) for group, settings in offered_settings(each).items()]
    return "\n".join(table(*one, option_name, "option") for one in of)


def of_scratch() -> str:
    specs = (ScratchSpec, Needs, SamplePrompt, DataRef, TrainingPhase, VaeLosses, Continued)
    of = [(each, group, dict(settings)) for each in specs for group, settings in groups_of(each).items()]
    return "\n".join(table(*one, _name, "setting") for one in of)


def of_server() -> str:
    """Return the settings of a server and a worker, with the variables and options that override the file."""
    listed = {
        (each.section, each.name): each for kind in (ServerSettings, WorkerSettings) for each in list_settings(kind())
    }
    parts: dict[str, list[str]] = {}
    for each in listed.values():
        default = f"{setting_text(each.default)} {each.unit}".strip() if each.default not in (None, "", ()) else "none"
        also = ", ".join(f"`{name}`" for name in (each.variable, each.option) if name)
        parts.setdefault(each.section, []).append(f"| `{each.name}` | {default} | {also} | {each.meaning} |")
    head = ["| setting | default | variable, option | |", "|---|---|---|---|"]
    return "\n".join("\n".join([f"### `[{name}]`", "", *head, *rows, ""]) for name, rows in parts.items())


def of_fields(heading: str, kind: type) -> str:
    """Return the settings of a dataclass: each field is annotated with its sentence."""
    hints = get_type_hints(kind, include_extras=True)
    rows = [
        f"| `{each.name}` | {_default(each.default)} | {hints[each.name].__metadata__[-1]} |"
        for each in fields(kind)
        if hasattr(hints[each.name], "__metadata__")
    ]
    return "\n".join([f"### {heading}", "", "| setting | default | |", "|---|---|---|", *rows, ""])


def _default(value: object) -> str:
    if value is MISSING:
        return "required"
    return "none" if value in (None, "", ()) else setting_text(value)


def written(page: str, tables: str) -> str:
    """The page with these tables for those below its heading, after what is said there first."""
    before, heading, below = page.partition(BEGIN)
    said, following = below.partition("\n### ")[0], _following(below)
    return f"{before}{heading}{said.rstrip(chr(10))}\n\n{tables}{following}"


def _following(below: str) -> str:
    """The chapters after it."""
    _, heading, rest = below.partition("\n## ")
    return heading + rest


PAGES = {
    TRAINING: of_training,
    SCRATCH: of_scratch,
    RUN: lambda: of_options(CommandSpec),
    CAPTIONS: lambda: of_options(CaptionSpec),
    SERVER: of_server,
    SALAD: lambda: "\n".join(
        [
            of_fields("`--driver salad`", SaladPoolSettings),
            of_fields("`[providers.NAME]` of gangline.toml", SaladProvider),
        ]
    ),
    SKYPILOT: lambda: "\n".join(
        [
            of_fields("`--driver skypilot`", SkyPilotSettings),
            of_fields("`[providers.NAME]` of gangline.toml", SkyPilotProvider),
        ]
    ),
    SLURM: lambda: "\n".join(
        [of_fields("`--driver slurm`", SlurmSettings), of_fields("`[providers.NAME]` of gangline.toml", SlurmCluster)]
    ),
    KUBERNETES: lambda: "\n".join(
        [
            of_fields("`--driver kubernetes`", KubernetesSettings),
            of_fields("`[providers.NAME]` of gangline.toml", KubernetesCluster),
        ]
    ),
    COMMAND: lambda: of_fields("`[providers.NAME]` of gangline.toml", CommandSettings),
}

if __name__ == "__main__":
    for page, tables in PAGES.items():
        page.write_text(written(page.read_text(), tables()))
