"""`gangline estimate`: days and dollars of a training from scratch, by the number and kind of GPUs."""

import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from gangline.cli.output import Output, OutputOption, check_place, duration, out, print_json, say, table
from gangline.cli.scratch import plan_of, spec_of, with_settings
from gangline.core.errors import BadInput, NotFound

if TYPE_CHECKING:  # what `--help` need not wait for
    from gangline.cli.measure import Measured
    from gangline.core.estimate import Estimate, Row, Step
    from gangline.core.scratch import ScratchSpec

RECIPE = "A training recipe"
MEASURED, PRICES, INTERRUPTIONS, DATA = "What was measured", "Prices", "Interruptions", "Storage and egress"
OF_A_PHASE = {"samples": "--samples", "gpus": "--gpus", "images_per_second": "--images-per-second"}
SUFFIXES = (".svg", ".png")


def estimate(
    outline: Annotated[
        Path | None,
        typer.Argument(help="A TOML file, or a recipe of `gangline scratch`; options add to it.", show_default=False),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Run the trainer on this machine first, for a short time, in the place of --gpus and --images-per-second.",
            rich_help_panel=RECIPE,
        ),
    ] = False,
    measure_s: Annotated[
        float, typer.Option(metavar="X", min=0.1, max=600, help="So long in each phase.", rich_help_panel=RECIPE)
    ] = 20.0,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="A data set to measure on, in the place of the recipe's: a folder, or s3://.", rich_help_panel=RECIPE
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            help="The model to measure with, in the place of the recipe's: a folder in diffusers' layout.",
            rich_help_panel=RECIPE,
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Any setting of the recipe anew, as TOML: --set needs.slots=4.", rich_help_panel=RECIPE
        ),
    ] = None,
    samples: Annotated[
        str | None, typer.Option(metavar="N", help="Images to train on, each as often as it comes.")
    ] = None,
    gpus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N,N…",
            help="Numbers of GPUs measured. Of a recipe's phases once, or once for each.",
            rich_help_panel=MEASURED,
        ),
    ] = None,
    images_per_second: Annotated[
        list[str] | None,
        typer.Option(
            metavar="X,X…",
            help="Of all GPUs together, one by one. With a recipe once for each phase.",
            rich_help_panel=MEASURED,
        ),
    ] = None,
    batch_size: Annotated[
        str | None, typer.Option(metavar="N", help="Images of a step over all GPUs.", rich_help_panel=MEASURED)
    ] = None,
    microbatch: Annotated[
        str | None, typer.Option(metavar="N", help="Images that a GPU takes at a time.", rich_help_panel=MEASURED)
    ] = None,
    phases: Annotated[
        list[str] | None,
        typer.Option(
            "--phase",
            metavar="NAME:SAMPLES:GPUS=X,…[:MICROBATCH]",
            help="Of several, in place of --samples, --gpus and --images-per-second. May be repeated.",
            rich_help_panel=MEASURED,
        ),
    ] = None,
    measured_on: Annotated[
        str | None, typer.Option(metavar="GPU", help="The kind of GPU.", rich_help_panel=MEASURED)
    ] = None,
    precompute_gpu_hours: Annotated[
        str | None, typer.Option(metavar="X", help="Of what is made once before training.", rich_help_panel=MEASURED)
    ] = None,
    predict: Annotated[str | None, typer.Option(metavar="N,N…", help="Numbers of GPUs not measured.")] = None,
    usd_per_gpu_hour: Annotated[
        str | None,
        typer.Option(metavar="X[,N=X…]", help="The price; of N GPUs another one.", rich_help_panel=PRICES),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=USD", help="A kind of GPU and its price per hour. May be repeated.", rich_help_panel=PRICES
        ),
    ] = None,
    interruptions_per_node_hour: Annotated[
        str | None, typer.Option(metavar="X", help="How often a node is taken away.", rich_help_panel=INTERRUPTIONS)
    ] = None,
    gpus_per_node: Annotated[
        str | None, typer.Option(metavar="N", help="[default: 8]", rich_help_panel=INTERRUPTIONS)
    ] = None,
    checkpoint_s: Annotated[
        str | None,
        typer.Option(metavar="X", help="A checkpoint stops training so long.", rich_help_panel=INTERRUPTIONS),
    ] = None,
    restart_s: Annotated[
        str | None,
        typer.Option(metavar="X", help="From an interruption until training goes on.", rich_help_panel=INTERRUPTIONS),
    ] = None,
    dataset_gb: Annotated[str | None, typer.Option(metavar="X", rich_help_panel=DATA)] = None,
    dataset_images: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Read again in every epoch, as nodes keep no cache; else once.", rich_help_panel=DATA
        ),
    ] = None,
    checkpoint_gb: Annotated[
        str | None, typer.Option(metavar="X", help="Of each; two are kept.", rich_help_panel=DATA)
    ] = None,
    storage_usd_per_gb_month: Annotated[str | None, typer.Option(metavar="X", rich_help_panel=DATA)] = None,
    egress_usd_per_gb: Annotated[str | None, typer.Option(metavar="X", rich_help_panel=DATA)] = None,
    figures: Annotated[
        list[Path] | None,
        typer.Option("--figure", metavar="FILE", help="Draw days against GPUs: .svg or .png. May be repeated."),
    ] = None,
    output: OutputOption = Output.text,
) -> None:
    """Days and dollars by the number and kind of GPUs, from a measured throughput.

    It can be measured here: gangline estimate recipes/sd2_base.toml --measure --data laion.lance --base sd2 --usd-per-gpu-hour 2.
    Numbers of GPUs that were not measured are predicted by a law that is fitted to the others. docs/estimate.md tells how.
    """
    from gangline.core.estimate import estimate as estimate_outline
    from gangline.core.outline import Outline, parse_outline

    for figure in figures or []:
        _check_figure(figure)
    hint = "either --usd-per-gpu-hour, or --gpu with the price of each kind"
    _refuse(usd_per_gpu_hour and gpu, "prices are given twice", hint=hint)
    settings = {
        "predict": _numbers("--predict", predict),
        "gpu": _pairs("--gpu", gpu or []),
        **_prices(usd_per_gpu_hour),
    }
    tables = {
        "precompute": {"gpu_hours": precompute_gpu_hours},
        "interruptions": {
            "per_node_hour": interruptions_per_node_hour,
            "gpus_per_node": gpus_per_node,
            "checkpoint_s": checkpoint_s,
            "restart_s": restart_s,
        },
        "data": {
            "dataset_gb": dataset_gb,
            "dataset_images": dataset_images,
            "checkpoint_gb": checkpoint_gb,
            "storage_usd_per_gb_month": storage_usd_per_gb_month,
            "egress_usd_per_gb": egress_usd_per_gb,
        },
    }
    batch = {"batch_size": batch_size, "microbatch": microbatch}
    file = _read(outline) if outline else {}
    is_recipe = _is_recipe(file)
    options = {} if phases or ("phases" in file and not is_recipe) else OF_A_PHASE
    measured: list[Measured] = []

    def asked(own: list[dict[str, Any]], kind: str | None = None) -> Outline:
        on = _given({"measured_on": measured_on or kind})
        joined = _joined({} if is_recipe else file, own, settings | on, tables)
        return parse_outline(_with_batch(joined, batch), options)

    if not is_recipe:
        for option, value in {"--measure": measure, "--data": data, "--base": base, "--set": setting}.items():
            _refuse(value, f"{option} is for a training recipe", hint="such as recipes/sd2_base.toml")
        wanted = asked(_phases(samples, gpus or [], images_per_second or [], phases or []))
    else:
        _refuse(samples or phases, "phases are given twice", hint="either in the recipe or as options")
        _refuse(batch_size, "batch_size is given twice", hint="the phases of the recipe have it")
        recipe = with_settings(file, setting or []) | _given({"data": data, "base": base})
        recipe = _with_batch(recipe, {"microbatch": microbatch})
        spec = spec_of(recipe)
        if not measure:
            for option, value in {"--data": data, "--base": base}.items():
                _refuse(value, f"{option} is for --measure", hint="throughput that is given needs neither")
            wanted = asked(_of_recipe(spec, gpus or [], images_per_second or []))
        else:
            from gangline.cli.measure import CPU, gpu_here, measure_phases

            hint = "either --measure, or --gpus and --images-per-second"
            _refuse(gpus or images_per_second, "throughput is given and to be measured", hint=hint)
            kind = gpu_here()
            no_gpu = "this machine has no GPU, and its CPU tells nothing of any"
            _refuse(gpu and kind == CPU, no_gpu, hint="leave --gpu out")
            asked(_as_measured(spec, [1.0 for _ in spec.phases]), kind)  # what is wrong is told before it takes time
            measured = list(measure_phases(plan_of(recipe), kind, measure_s))
            wanted = asked(_as_measured(spec, [each.images_per_second for each in measured]), kind)
    found = estimate_outline(wanted)
    for figure in figures or []:
        _draw(found, figure)
    if output is Output.json:
        print_json(asdict(found) | ({"measured": measured} if measured else {}))
    else:
        out.print(_as_page(found))


# What was asked


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise NotFound(f"there is no outline {path} ({error.strerror})", hint="give a TOML file, or options") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a text", hint="an outline is TOML") from None
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        raise BadInput(f"{path} is not TOML: {said[:1].lower()}{said[1:]}", hint="docs/estimate.md has one") from None


def _is_recipe(file: dict[str, Any]) -> bool:
    """Raises `BadInput` for one that trains a LoRA."""
    is_lora = file.get("kind") == "lora" or ("kind" not in file and bool({"prompt", "rank"} & file.keys()))
    hint = 'give an outline, or a recipe with kind = "scratch"'
    _refuse(is_lora, "the recipe trains a LoRA, which takes minutes, not days", hint=hint)
    return "kind" in file


def _refuse(given: object, because: str, *, hint: str) -> None:
    if given:
        raise BadInput(because, hint=hint)


def _of_recipe(spec: "ScratchSpec", gpus: list[str], rates: list[str]) -> list[dict[str, Any]]:
    """Its phases, with throughputs once for each of them."""
    from gangline.core.outline import phases_of

    phases = phases_of(spec)
    has = f"the recipe has {len(phases)} phases ({', '.join(phase['name'] for phase in phases)}), and"
    hint = "give --gpus, and --images-per-second once for each phase, in their order, or --measure"
    _refuse(not (gpus and rates), "the recipe says nothing of how fast its phases are", hint=hint)
    _refuse(len(rates) != len(phases), f"{has} --images-per-second is given {_times(rates)}", hint=hint)
    hint = "give it once for all phases, or once for each, in their order"
    _refuse(len(gpus) not in (1, len(phases)), f"{has} --gpus is given {_times(gpus)}", hint=hint)
    gpus = gpus if len(gpus) > 1 else gpus * len(phases)
    return [
        phase | {"gpus": _numbers("--gpus", counts), "images_per_second": _numbers("--images-per-second", rate)}
        for phase, counts, rate in zip(phases, gpus, rates, strict=True)
    ]


def _as_measured(spec: "ScratchSpec", rates: list[float]) -> list[dict[str, Any]]:
    """Its phases, with what each of them does on the GPUs of one machine."""
    from gangline.core.outline import phases_of

    return [
        phase | {"gpus": [spec.needs.slots], "images_per_second": [rate]}
        for phase, rate in zip(phases_of(spec), rates, strict=True)
    ]


def _times(given: list[str]) -> str:
    return {1: "once", 2: "twice"}.get(len(given), f"{len(given)} times")


def _phases(samples: str | None, gpus: list[str], rates: list[str], phases: list[str]) -> list[dict[str, Any]]:
    for option, given in {"--gpus": gpus, "--images-per-second": rates}.items():
        hint = "once for each phase of a recipe; of an outline's phases --phase tells all"
        _refuse(len(given) > 1, f"{option} is given {_times(given)}", hint=hint)
    counts = _numbers("--gpus", gpus[0] if gpus else None)
    rate = _numbers("--images-per-second", rates[0] if rates else None)
    simple = _given({"samples": _number(samples), "gpus": counts, "images_per_second": rate})
    if simple and phases:
        raise BadInput(
            "phases are given twice",
            hint="either --phase, or --samples, --gpus and --images-per-second of a single one",
        )
    return [simple] if simple else [_phase(text) for text in phases]


def _phase(text: str) -> dict[str, Any]:
    name, *rest = text.split(":")
    if len(rest) not in (2, 3):
        raise BadInput(f"--phase {text} is no phase", hint="for example --phase 256px:1126400000:8=1100,16=2180")
    measured = [pair.partition("=") for pair in rest[1].split(",")]
    return _given(
        {
            "name": name,
            "samples": _number(rest[0]),
            "gpus": [_number(gpus) for gpus, _, _ in measured],
            "images_per_second": [_number(rate) for _, _, rate in measured],
            "microbatch": _number(rest[2]) if len(rest) == 3 else None,
        }
    )


def _prices(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    usual, *at = text.split(",")
    return {"usd_per_gpu_hour": _number(usual), "usd_per_gpu_hour_at": _pairs("--usd-per-gpu-hour", at)}


def _pairs(option: str, texts: list[str]) -> dict[str, Any] | None:
    parts = [text.rpartition("=") for text in texts]
    for name, equals, value in parts:
        if not (name and equals and value):
            raise BadInput(f"{option} {value or name} names no price", hint="a name or number, =, and dollars")
    names = [_number(name.strip().lower()) for name, _, _ in parts]
    for (name, _, _), known in zip(parts, names, strict=True):
        _refuse(names.count(known) > 1, f"{option} gives {name.strip()} two prices", hint="give each of them once")
    return {name.strip(): _number(value) for name, _, value in parts} or None


def _joined(
    file: dict[str, Any], phases: list[dict[str, Any]], settings: dict[str, Any], tables: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """What the file says, and the options over it."""
    if phases and "phases" in file:
        raise BadInput("phases are given twice", hint="either in the outline or as options")
    unlike = {"gpu": ("usd_per_gpu_hour", "usd_per_gpu_hour_at"), "usd_per_gpu_hour": ("gpu",)}
    given = _given(settings)
    replaced = {name for option, others in unlike.items() if option in given for name in others}
    kept = {name: value for name, value in file.items() if name not in replaced}
    asked = kept | given | ({"phases": phases} if phases else {})
    if "phases" not in asked:
        hint = "give an outline, or --samples, --gpus, --images-per-second and --usd-per-gpu-hour"
        raise BadInput("there is no phase to estimate", hint=hint)
    for name, table_ in tables.items():
        own = _given({key: _number(value) for key, value in table_.items()})
        if own:
            before = asked.get(name, {})
            asked[name] = before | own if isinstance(before, dict) else before
    return asked


def _with_batch(asked: dict[str, Any], batch: dict[str, str | None]) -> dict[str, Any]:
    """For the phases that say nothing of it."""
    own = _given({name: _number(value) for name, value in batch.items()})
    phases = asked.get("phases")
    if not own or not isinstance(phases, list):
        return asked
    return asked | {"phases": [own | phase if isinstance(phase, dict) else phase for phase in phases]}


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _numbers(option: str, text: str | None) -> list[Any] | None:
    if not text:
        return None if text is None else []
    parts = text.split(",")
    _refuse(
        not all(part.strip() for part in parts),
        f"{option} {text} is no list of numbers",
        hint=f"for example {option} 8,16",
    )
    return [_number(part) for part in parts]


def _number(text: str | None) -> Any:
    """A number where it is one, 2.8672e9 too; else the text, of which the outline's check says what it should be."""
    if text is None:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# The figure


def _check_figure(file: Path) -> None:
    if file.suffix.lower() not in SUFFIXES:
        raise BadInput(f"{file} is no figure", hint=f"its name ends with {' or '.join(SUFFIXES)}")
    check_place(file, "--figure")


def _draw(found: "Estimate", file: Path) -> None:
    from gangline.cli.estimate_figure import draw

    try:
        draw(found, file)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise BadInput(f"{file} cannot be written: {why}", hint="give another place") from None
    say(f"the figure is in {file}")


# The page


def _as_page(found: "Estimate") -> Group:
    parts: list[Table | Text] = [_table(found)]
    if len(found.rows[0].phases) > 1:
        parts += [Text(), _phase_table(found)]
    lines = [*_reasons(found), *map(_law, found.steps), *found.notes]
    return Group(*parts, Text(), *map(Text, lines))


def _table(found: "Estimate") -> Table:
    rows = found.rows
    kinds, interrupted = any(row.gpu for row in rows), any(row.interruptions for row in rows)
    kept = any(row.usd_storage or row.usd_egress for row in rows)
    columns = ["gpu"] * kinds + [">GPUs", ">images/s", ">efficiency", ">days", ">band"]
    columns += [">lost", ">checkpoint every"] * interrupted + [">GPUs $", ">storage $", ">egress $"] * kept
    made = table(*columns, ">$", ">$ band", "row")
    for row in rows:
        cells = [row.gpu] * kinds + [str(row.gpus), f"{row.images_per_second:.1f}", f"{row.efficiency:.1%}"]
        cells += [f"{row.days:.2f}", _band(row, row.days_low, row.days_high, ".2f")]
        if interrupted:
            cells += [f"{row.share_lost:.2%}", duration(row.checkpoint_interval_s)]
        if kept:
            cells += [_usd(row.usd_gpus), _usd(row.usd_storage), _usd(row.usd_egress)]
        made.add_row(*cells, _usd(row.usd), _band(row, row.usd_low, row.usd_high, ",.0f"), row.how)
    return made


def _phase_table(found: "Estimate") -> Table:
    kinds = any(row.gpu for row in found.rows)
    made = table("phase", *["gpu"] * kinds, ">GPUs", ">microbatches", ">images/s", ">days", ">$", "row")
    for name in [part.phase for part in found.rows[0].phases]:
        for row in found.rows:
            part = next(part for part in row.phases if part.phase == name)
            rate = "–" if part.images_per_second is None else f"{part.images_per_second:.1f}"
            count = "–" if part.microbatches_per_step is None else str(part.microbatches_per_step)
            cells = [str(row.gpus), count, rate, f"{part.days:.2f}", _usd(part.usd), part.how]
            made.add_row(name, *[row.gpu] * kinds, *cells)
    return made


def _band(row: "Row", low: float, high: float, form: str) -> str:
    return "" if low == high else f"{low:{form}} – {high:{form}}"


def _usd(amount: float) -> str:
    return f"{amount:,.2f}" if amount < 100 else f"{amount:,.0f}"


def _reasons(found: "Estimate") -> Iterator[str]:
    """Why each predicted row is as it is; those with the same reason together."""
    reasons = defaultdict[str, list[str]](list)
    several = len(found.steps) > 1
    for row in found.rows:
        for part in row.phases:
            if part.how in ("interpolated", "extrapolated"):
                words = f"{part.how}{f' ({part.phase})' if several else ''}, {part.because}"
                reasons[words].append(f"{row.gpu} {row.gpus}".strip())
    for reason, rows in reasons.items():
        yield f"{', '.join(rows)}: {reason}"
    if reasons:
        yield f"a band is meant to hold {found.band_share:.0%} of what would be measured, unless its reason says otherwise"


def _law(step: "Step") -> str:
    what = f"a step of {step.batch_size} images" if step.batch_size else "an image"
    exposed = f", with one microbatch {step.exposed_s:.3g} s more" if step.exposed_s else ""
    return f"{step.phase}: {what} takes {step.shared_s:.5g} s ÷ GPUs + {step.fixed_s:.3g} s{exposed}"
