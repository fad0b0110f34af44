"""The option `--var` of commands that read a recipe."""

from typing import Annotated

import typer

VariableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--var",
        metavar="NAME=VALUE",
        help="Give a variable of the recipe this value. Repeat it for several; `gangline docs training` explains variables.",
        show_default=False,
    ),
]
