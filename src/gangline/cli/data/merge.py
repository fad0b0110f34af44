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
        Path, typer.Argument(help="The LoRA or DoRA: a file of a job's, or of another tool's.", show_default=False)
    ],
    base: Annotated[
        Path,
        typer.Option(
            help="The base that it was trained on: a folder in diffusers' layout, or a .safetensors file.",
            show_default=False,
        ),
    ],
    to: Annotated[
        Path, typer.Option(help="The file to write. One that is there is not written over.", show_default=False)
    ],
    precision: Annotated[
        Literal["fp16", "bf16", "fp32"], typer.Option(help="What its weights are stored in.")
    ] = "fp16",
    output: OutputOption = Output.text,
) -> None:
    """Write a base with a LoRA in its weights, as one .safetensors file in the original layout.

    A1111, Forge, ComfyUI and diffusers (`from_single_file`) load it as a model. It does what the LoRA does at strength 1, also where a tool
    computes a DoRA otherwise. It is made on the CPU and needs memory for the model in fp32 and once more in the chosen precision.
    """
    with needing("train"):
        import torch

        from gangline.train.lora import merge as merging
    for path in (lora, base):
        if not path.exists():
            raise BadInput(f"{path} is not there", hint="`hf download` fetches what is on the hub")
    if to.exists():
        raise BadInput(f"{to} is there already", hint="give another name with --to")
    if to.suffix != ".safetensors":
        raise BadInput(f"{to.name} is not named as what it will be", hint="let --to end in .safetensors")
    made = merging.merge_lora(lora, base, to, getattr(torch, DTYPES[precision]))
    if output is Output.json:
        print_json({"path": str(made.path), "family": made.family, "layers": made.layers, "precision": precision})
    else:
        say(f"{made.path}: {made.family} with {counted(made.layers, 'layer')} changed, in {precision}")
