"""`gangline --help` is quick however many commands there are, and says of each what the command says of itself."""

import inspect
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from gangline.cli.main import COMMANDS, app


def test_the_help_imports_no_command() -> None:
    program = "import sys; from gangline.cli.main import app; app(standalone_mode=False); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True)
    ours = [name for name in ran.stdout.splitlines()[-1].split() if name.startswith("gangline.")]
    assert "gangline.cli.main" in ours
    assert not [name for name in ours if name.startswith("gangline.cli.") and name.count(".") > 2]
    assert not [name for name in ours if name.startswith(("gangline.compose", "gangline.service", "gangline.wire"))]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_with_the_first_sentences_of_its_own_help(name: str) -> None:
    loaded = COMMANDS[name].load(name)
    first = inspect.cleandoc(loaded.help).split("\n\n")[0]
    assert " ".join(first.split()) == COMMANDS[name].help
    assert loaded.name == name


def test_a_command_that_does_not_exist_is_refused_with_the_nearest_name() -> None:
    ran = CliRunner().invoke(app, ["jbos"])
    assert ran.exit_code == 2
    assert "No such command 'jbos'. Did you mean 'jobs'?" in ran.output


def test_options_after_the_program_of_exec_are_the_programs_own() -> None:
    assert COMMANDS["exec"].load("exec").context_settings == {"allow_interspersed_args": False}
    assert COMMANDS["train"].load("train").context_settings == {"allow_interspersed_args": True}
