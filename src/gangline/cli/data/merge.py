"""`gangline merge`: a base and a LoRA as one file."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from gangline.cli.output import Output, OutputOption, print_json, say
from gangline.compose.settings import needing
from gangline.core.errors import BadInput
from gangline.core.words import counted

DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


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
    precision: Annotated[
        Literal["fp16", "bf16", "fp32"], typer.Option(help="Store the weights in this precision.")
    ] = "fp16",
    output: OutputOption = Output.text,
) -> None:
    """Merge a LoRA into its base, and write one .safetensors file in the original layout.

    A1111, Forge, ComfyUI and diffusers (`from_single_file`) load the file as a model. It behaves like the base with the LoRA at strength 1,
    also where a tool computes a DoRA in another way. Merging runs on the CPU and needs memory for the model in fp32 and once more in the
    chosen precision.
    """
    with needing("train"):
        import torch

        from gangline.train.lora import merge as merging
    for path in (lora, base):
        if not path.exists():
            raise BadInput(f"{path} does not exist", hint="check the path; `hf download` downloads models from the hub")
    if to.exists():
        raise BadInput(f"{to} exists already", hint="pass another name with --to")
    if to.suffix != ".safetensors":
        raise BadInput(
            f"{to.name} does not have the name of a safetensors file", hint="end the name of --to in .safetensors"
        )
    made = merging.merge_lora(lora, base, to, getattr(torch, DTYPES[precision]))
    if output is Output.json:
        print_json({"path": str(made.path), "family": made.family, "layers": made.layers, "precision": precision})
    else:
        say(f"{made.path}: {made.family} with {counted(made.layers, 'layer')} changed, in {precision}")
