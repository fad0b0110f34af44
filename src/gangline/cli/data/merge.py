"""`gangline merge`: a base and a LoRA as one file."""

from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.data.lora_options import StoredPrecision, check_exists, check_not_there, stored_dtype
from gangline.cli.output import Output, OutputOption, print_json, say
from gangline.compose.settings import needing
from gangline.core.words import counted


def merge_command(
    lora: Annotated[
        Path, typer.Argument(help="Merge this LoRA or DoRA, a file of a job or of another tool.", show_default=False)
    ],
    base: Annotated[
        Path,
        typer.Option(
            help="Merge it into this base, on which it was trained: a folder in diffusers' layout, or a .safetensors file.",
            show_default=False,
        ),
    ],
    to: Annotated[Path, typer.Option(help="Write this file, which must not exist yet.", show_default=False)],
    precision: Annotated[StoredPrecision, typer.Option(help="Store the weights in this precision.")] = "fp16",
    output: OutputOption = Output.text,
) -> None:
    """Merge a LoRA into its base, and write one .safetensors file in the original layout.

    A1111, Forge, ComfyUI and diffusers (`from_single_file`) load the file as a model. It behaves like the base with the LoRA at strength 1,
    also where a tool computes a DoRA in another way. Merging runs on the CPU and needs memory for the model in fp32 and once more in the
    chosen precision.
    """
    for path in (lora, base):
        check_exists(path, hint="check the path; `hf download` downloads models from the hub")
    check_not_there(to, force=None)
    merge_into_base([(lora, 1.0)], base, to, precision, output)


def merge_into_base(
    given: list[tuple[Path, float]], base: Path, to: Path, precision: StoredPrecision, output: Output
) -> None:
    """Merge LoRAs at these strengths into a base, and say so."""
    with needing("train"):
        from gangline.train.lora.merge import merge_loras
    made = merge_loras(given, base, to, stored_dtype(precision))
    if output is Output.json:
        print_json({"path": str(made.path), "family": made.family, "layers": made.layers, "precision": precision})
    else:
        say(f"{made.path}: {made.family} with {counted(made.layers, 'layer')} changed, in {precision}")
