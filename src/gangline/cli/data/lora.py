"""`gangline lora`: files of LoRAs, as any tool wrote them. Nothing here needs a server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gangline.cli.data.lora_options import (
    RANK_MAX,
    DtypeOption,
    LayersOption,
    LoraFamilyOption,
    LoraFileArgument,
    OverwriteOption,
    StoredPrecision,
    TargetOption,
    check_exists,
    check_not_there,
    family_of,
    stored_dtype,
    words_of_family,
)
from gangline.cli.data.merge import merge_into_base
from gangline.cli.output import Output, OutputOption, print_json, say
from gangline.compose.settings import needing
from gangline.core.errors import BadInput
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.train.lora.files.resize import Method, Rule

app = typer.Typer(no_args_is_help=True)


@app.command("info")
def lora_info_command(
    file: LoraFileArgument, layers_per_block: LayersOption = None, output: OutputOption = Output.text
) -> None:
    """Show what a LoRA is: its format, family, ranks, alphas, norms, hashes and metadata, and whether it is damaged.

    AutoV2 is Civitai's hash of the whole file, the hash of the tensors is kohya's sshs_model_hash, and Civitai's AutoV3 is its first 12
    digits. The exit code is 1 if the file is damaged.
    """
    check_exists(file)
    with needing("train"):
        from gangline.train.lora.files.describe import describe_lora
    found = describe_lora(file, layers_per_block)
    if output is Output.json:
        print_json(found)
    else:
        from gangline.cli.data.lora_tables import show_description

        show_description(found)
    if found.problems:
        raise typer.Exit(1)


@app.command("convert")
def convert_lora_command(
    file: LoraFileArgument,
    to: TargetOption,
    form: Annotated[
        Literal["kohya", "diffusers", "peft"],
        typer.Option(
            help="Write the names of kohya's scripts (ComfyUI, A1111, Forge), of diffusers, or a folder with an adapter of PEFT for each "
            "model.",
            show_default=False,
        ),
    ],
    dtype: DtypeOption = None,
    fold_alpha: Annotated[
        bool,
        typer.Option(
            "--fold-alpha",
            help="Multiply each layer's scale into its weights, for tools that read neither alphas nor settings.",
        ),
    ] = False,
    family: LoraFamilyOption = None,
    layers_per_block: LayersOption = None,
    force: OverwriteOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Rename a LoRA for other tools. Its weights stay as they are, to the bit, unless --dtype or --fold-alpha is given."""
    check_exists(file)
    check_not_there(to, force=force, folder=form == "peft")
    with needing("train"):
        from gangline.train.lora.files.convert import convert_lora
    made = convert_lora(
        file,
        to,
        form,
        dtype=stored_dtype(dtype) if dtype else None,
        fold_alpha=fold_alpha,
        family=family_of(family),
        layers_per_block=layers_per_block,
    )
    if output is Output.json:
        print_json(made)
    else:
        folded = f", the scales of {made.folded} multiplied into their weights" if made.folded else ""
        say(f"{made.path}: {counted(made.layers, 'layer')} of {words_of_family(made.family)} for {form}{folded}")


@app.command("merge")
def merge_loras_command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE[:WEIGHT]...",
            help="Add these LoRAs up, each times its weight (default: 1).",
            show_default=False,
        ),
    ],
    to: TargetOption,
    base: Annotated[
        Path | None,
        typer.Option(
            help="Merge them into this base, a folder in diffusers' layout or a .safetensors file, and write the whole model, in fp16 "
            "unless --dtype is given.",
            show_default=False,
        ),
    ] = None,
    rank: Annotated[
        int | None,
        typer.Option(
            help="Approximate the sum at this rank (default: the sum of the ranks, which is exact).",
            min=1,
            max=RANK_MAX,
            show_default=False,
        ),
    ] = None,
    dtype: DtypeOption = None,
    family: LoraFamilyOption = None,
    layers_per_block: LayersOption = None,
    force: OverwriteOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Merge LoRAs with each other, or all of them into a base.

    For example `gangline lora merge a.safetensors:0.7 b.safetensors:0.3 --to c.safetensors`."""
    given = [_weighted(text) for text in files]
    for path, _ in given:
        check_exists(path)
    check_not_there(to, force=force)
    if base:
        if rank or family or layers_per_block:
            raise BadInput(
                "--rank, --family and --layers-per-block are for LoRAs that are merged with each other",
                hint="leave them out",
            )
        check_exists(base)
        merge_into_base(given, base, to, dtype or "fp16", output)
        return
    with needing("train"):
        from gangline.train.lora.files.combine import combine_loras
    made = combine_loras(
        given,
        to,
        rank=rank,
        dtype=stored_dtype(dtype) if dtype else None,
        family=family_of(family),
        layers_per_block=layers_per_block,
    )
    if output is Output.json:
        print_json(made)
    else:
        kept = "" if rank is None else f", {made.kept:.2%} of the sum's norm"
        ranks = f"{made.rank_least}" if made.rank_least == made.rank_most else f"{made.rank_least} to {made.rank_most}"
        say(f"{made.path}: {counted(made.layers, 'layer')} of {words_of_family(made.family)}, rank {ranks}{kept}")


@app.command("resize")
def resize_lora_command(
    file: LoraFileArgument,
    to: TargetOption,
    rank: Annotated[
        int | None,
        typer.Option(help="Give every layer at most this rank.", min=1, max=RANK_MAX, show_default=False),
    ] = None,
    conv_rank: Annotated[
        int | None,
        typer.Option(
            help="Give convolutions that are wider than a pixel at most this rank (default: --rank).",
            min=1,
            max=RANK_MAX,
            show_default=False,
        ),
    ] = None,
    energy: Annotated[
        float | None,
        typer.Option(
            help="Give each layer the least rank that keeps this share of its squared Frobenius norm, e.g. 0.95.",
            show_default=False,
        ),
    ] = None,
    sv_fro: Annotated[
        float | None,
        typer.Option(
            help="Keep this share of each layer's Frobenius norm, as kohya's resize_lora.py does.", show_default=False
        ),
    ] = None,
    sv_ratio: Annotated[
        float | None,
        typer.Option(
            help="Keep the singular values that are greater than a layer's largest divided by this, as kohya's resize_lora.py does.",
            show_default=False,
        ),
    ] = None,
    family: LoraFamilyOption = None,
    layers_per_block: LayersOption = None,
    force: OverwriteOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Give a LoRA a lower rank, the same for all layers or for each as much as it needs. The file is written in kohya's names."""
    check_exists(file)
    check_not_there(to, force=force)
    with needing("train"):
        from gangline.train.lora.files.resize import resize_lora
    rule = _rule(rank, conv_rank, {"energy": energy, "sv_fro": sv_fro, "sv_ratio": sv_ratio})
    made = resize_lora(file, to, rule, family=family_of(family), layers_per_block=layers_per_block)
    if output is Output.json:
        print_json(made)
    else:
        from gangline.cli.data.lora_tables import show_resized

        show_resized(made)
        say(
            f"{made.path}: {counted(made.layers, 'layer')} of {words_of_family(made.family)}, {made.kept:.2%} of the norm kept"
        )


@app.command("extract")
def extract_lora_command(
    base: Annotated[
        Path,
        typer.Argument(help="The base: a folder in diffusers' layout or a .safetensors file.", show_default=False),
    ],
    tuned: Annotated[
        Path, typer.Argument(help="A checkpoint of the same family that was made from it.", show_default=False)
    ],
    to: TargetOption,
    rank: Annotated[int, typer.Option(help="Give the LoRA this rank.", min=1, max=RANK_MAX)] = 32,
    conv_rank: Annotated[
        int | None,
        typer.Option(
            help="Extract the U-Net's ResNets and samplers too, 3 x 3 convolutions at this rank.",
            min=1,
            max=RANK_MAX,
            show_default=False,
        ),
    ] = None,
    text_encoder: Annotated[bool, typer.Option("--text-encoder", help="Extract the text encoders too.")] = False,
    dtype: Annotated[StoredPrecision, typer.Option(help="Store the weights in this precision.")] = "fp16",
    force: OverwriteOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Make a LoRA of the difference of two checkpoints. They are read layer by layer, so it needs no memory for the models."""
    for path in (base, tuned):
        check_exists(path)
    check_not_there(to, force=force)
    with needing("train"):
        from gangline.train.lora.files.extract import extract_lora
    from gangline.cli.data.lora_tables import EachTenth

    made = extract_lora(
        base,
        tuned,
        to,
        rank,
        conv_rank=conv_rank,
        text_encoder=text_encoder,
        dtype=stored_dtype(dtype),
        tell=EachTenth("layers"),
    )
    if output is Output.json:
        print_json(made)
    else:
        equal = f"; {counted(made.equal, 'layer')} did not change" if made.equal else ""
        found = f"{counted(made.layers, 'layer')} of {words_of_family(made.family)}"
        say(f"{made.path}: {found}, {made.kept:.2%} of their difference's norm{equal}")


def _weighted(text: str) -> tuple[Path, float]:
    """Parse FILE:WEIGHT. A colon that no number follows belongs to the file's name."""
    name, colon, weight = text.rpartition(":")
    try:
        number = float(weight) if colon else 1.0
    except ValueError:
        return Path(text), 1.0
    if not -100 <= number <= 100:
        raise BadInput(f"{text} has no usable weight", hint="give a number from -100 to 100")
    return Path(name if colon else text), number


def _rule(rank: int | None, conv_rank: int | None, methods: "dict[Method, float | None]") -> "Rule":
    from gangline.train.lora.files.resize import Rule

    given: dict[Method, float] = {name: value for name, value in methods.items() if value is not None}
    if len(given) > 1 or not (given or rank):
        raise BadInput(
            "the new ranks are not clear", hint="pass --rank, and at most one of --energy, --sv-fro and --sv-ratio"
        )
    for name, value in given.items():
        if not (value >= 1 if name == "sv_ratio" else 0 < value <= 1):
            raise BadInput(
                f"--{name.replace('_', '-')} {value:g} is out of range",
                hint="a ratio is 1 or more" if name == "sv_ratio" else "a share is above 0 and at most 1",
            )
    for method, parameter in given.items():
        return Rule(rank=rank, conv_rank=conv_rank, method=method, parameter=parameter)
    return Rule(rank=rank, conv_rank=conv_rank)
