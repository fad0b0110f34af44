"""What the commands of `gangline lora` have in common: options, and checks of files before anything is read."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from gangline.cli.data.data_options import DTYPES
from gangline.core.errors import BadInput
from gangline.core.models.families import FAMILIES, Family, FamilyName

if TYPE_CHECKING:
    import torch

RANK_MAX = 4096
StoredPrecision = Literal["fp16", "bf16", "fp32"]

LoraFileArgument = Annotated[
    Path, typer.Argument(help="Read this LoRA, a .safetensors file of a job or of another tool.", show_default=False)
]
TargetOption = Annotated[Path, typer.Option("--to", help="Write this file.", show_default=False)]
OverwriteOption = Annotated[bool, typer.Option("--force", help="Overwrite a file that exists already.")]
LoraFamilyOption = Annotated[
    FamilyName | None,
    typer.Option("--family", help="State the family of the base, if the file does not show it.", show_default=False),
]
LayersOption = Annotated[
    int | None,
    typer.Option(
        "--layers-per-block",
        help="State how many layers each block of the base's U-Net has (default: 2, as in the published models).",
        min=1,
        max=16,
        show_default=False,
    ),
]
DtypeOption = Annotated[
    StoredPrecision | None,
    typer.Option("--dtype", help="Store the weights in this precision (default: as they are).", show_default=False),
]


def check_exists(path: Path, hint: str = "check the path") -> None:
    if not path.exists():
        raise BadInput(f"{path} does not exist", hint=hint)


def check_not_there(to: Path, *, force: bool | None, folder: bool = False) -> None:
    """Check the name of a file or folder to write. `force` is None where nothing may be overwritten."""
    if to.exists() and not force:
        or_else = "" if force is None else ", or --force to overwrite it"
        raise BadInput(f"{to} exists already", hint=f"pass another name with --to{or_else}")
    if folder:
        if to.exists() and not (to.is_dir() and _is_of_peft(to)):
            raise BadInput(f"{to} is not a folder of adapters, and is left alone", hint="pass another name with --to")
        return
    if to.suffix != ".safetensors":
        raise BadInput(
            f"{to.name} does not have the name of a safetensors file", hint="end the name of --to in .safetensors"
        )
    if to.is_dir():
        raise BadInput(f"{to} is a folder", hint="pass the name of a file with --to")


def _is_of_peft(folder: Path) -> bool:
    """Return whether a folder has nothing but adapters in it, so that it may be overwritten."""
    return all((entry / "adapter_config.json").is_file() for entry in folder.iterdir())


def stored_dtype(given: StoredPrecision) -> "torch.dtype":
    import torch

    return getattr(torch, DTYPES[given])


def family_of(name: FamilyName | None) -> Family | None:
    return FAMILIES[name] if name else None


def words_of_family(family: str) -> str:
    return next(FAMILIES[name].words for name in get_args(FamilyName) if name == family)
