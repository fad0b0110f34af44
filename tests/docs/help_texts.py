"""Every help text of the command line and every setting's sentence, one a line: `python -m tests.docs.help_texts` prints them.

Two printouts beside each other show what a change did to the words."""

from collections.abc import Iterator
from typing import Any

from gangline.cli.main import COMMANDS
from gangline.core.server.merging import list_settings
from gangline.core.server.settings import ServerSettings, WorkerSettings
from gangline.core.specs.fields import Needs
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.phases import DataRef, TrainingPhase, VaeLosses
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.specs.sections.previews import SamplePrompt
from gangline.core.specs.sections.subjects import SubjectEntry
from gangline.core.specs.settings import SettingGroup, settings_of

SPECS = (LoraSpec, ScratchSpec, Needs, SamplePrompt, SubjectEntry, DataRef, TrainingPhase, VaeLosses)


def of_command(path: str, command: Any) -> Iterator[tuple[str, str]]:
    """Yield each part of a command, of its options and arguments and of the commands below it, with its help text."""
    yield path, command.help or ""
    for parameter in command.params:
        name = "/".join([*parameter.opts, *parameter.secondary_opts])
        yield f"{path} {name}", getattr(parameter, "help", None) or ""
    for name, each in getattr(command, "commands", {}).items():
        yield from of_command(f"{path} {name}", each)


def help_texts() -> Iterator[tuple[str, str]]:
    """Yield what has a text, and that text."""
    for name, lazy in COMMANDS.items():
        yield f"gangline: {name}", lazy.help
        yield from of_command(f"gangline {name}", lazy.load(name.split()[-1]))
    for spec in SPECS:
        for name, setting in settings_of(spec).items():
            yield f"{spec.__name__}.{name}", setting.says
    for kind in (ServerSettings, WorkerSettings):
        for each in list_settings(kind()):
            yield f"[{each.section}] {each.name}", each.meaning
    for group in SettingGroup:
        yield f"group {group.name}", str(group)


if __name__ == "__main__":
    for place, text in sorted(set(help_texts())):
        print(f"{place}\t{' '.join(text.split())}")
