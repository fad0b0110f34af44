"""docs/reference/cli.md is what the command line says, with every command and option."""

import re

from tests.docs.cli_reference import CLI_PAGE, cli_reference, leaves


def test_the_reference_of_commands_is_what_their_help_says() -> None:
    assert CLI_PAGE.read_text() == cli_reference(), "write it again: python -m tests.docs.cli_reference"


def test_the_reference_has_every_option_of_every_command() -> None:
    page = CLI_PAGE.read_text()
    shared = page.partition("## Options of nearly every command\n")[2].partition("\n## ")[0]
    commands = dict(leaves())
    assert len(commands) > 80
    for name, command in commands.items():
        (section,) = re.findall(rf"^##+ gangline {re.escape(name)}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden and parameter.name != "help":
                assert [each for each in parameter.opts if f"`{each}`" not in section + shared] == [], name
