"""A command group that imports a command only when it runs, so that `--help` costs the same however many commands there are."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command stands, `module:attribute` (a function, or a `Typer` of several), and its line in the group's help."""

    where: str
    help: str
    interspersed: bool = True
    """Whether options may follow the first argument; false where the arguments are another program's."""

    def load(self, name: str) -> Any:
        module, attribute = self.where.split(":")
        found = getattr(import_module(module), attribute)
        holder = typer.Typer(pretty_exceptions_enable=False)
        if isinstance(found, typer.Typer):
            holder.add_typer(found, name=name, help=self.help)
        else:
            holder.command(name, context_settings={"allow_interspersed_args": self.interspersed})(found)
        return get_group(holder).commands[name]


class LazyGroup(TyperGroup):
    """Lists commands by the lines of `table`; imports the one that is called. A name may have two words, where the first is a command
    that never begins with the second."""

    table: ClassVar[Mapping[str, LazyCommand]]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, command in self.table.items():
            self.add_command(TyperCommand(name, help=command.help))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if (both := " ".join(args[:2])) in self.table:
            return both, self.table[both].load(both), args[2:]
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in self.table:
            command = self.table[name].load(name)
        return name, command, rest
