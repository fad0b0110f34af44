"""`gangline estimate`: days and dollars of a training from scratch, by the number and kind of GPUs."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.cli.jobs.scratch import override_recipe
from gangline.cli.output import Output, OutputOption, check_place, out, print_json, say
from gangline.cli.tools.estimate import options
from gangline.cli.tools.estimate.question import EstimateQuestion, GivenThroughput, OfRecipe, is_lora, read_file
from gangline.cli.tools.estimate.words import numbers, pairs, prices, refuse
from gangline.core.errors import BadInput

if TYPE_CHECKING:  # what `--help` need not wait for
    from gangline.core.estimates.estimate import Estimate

SUFFIXES = (".svg", ".png")


def estimate_command(
    outline: options.OutlineArgument = None,
    measure: options.MeasureOption = False,
    measure_s: options.MeasureSOption = 20.0,
    data: options.DataSetOption = None,
    where: options.DataWhereOption = None,
    base: options.BaseOption = None,
    setting: options.SettingOption = None,
    family: options.FamilyOption = None,
    photos: options.PhotosOption = 20,
    samples: options.SamplesOption = None,
    gpus: options.GpusOption = None,
    images_per_second: options.ImagesPerSecondOption = None,
    batch_size: options.BatchSizeOption = None,
    microbatch: options.MicrobatchOption = None,
    phases: options.PhasesOption = None,
    measured_on: options.MeasuredOnOption = None,
    precompute_gpu_hours: options.PrecomputeGpuHoursOption = None,
    predict: options.PredictOption = None,
    usd_per_gpu_hour: options.UsdPerGpuHourOption = None,
    gpu: options.GpuOption = None,
    interruptions_per_node_hour: options.InterruptionsPerNodeHourOption = None,
    gpus_per_node: options.GpusPerNodeOption = None,
    checkpoint_s: options.CheckpointSOption = None,
    restart_s: options.RestartSOption = None,
    dataset_gb: options.DatasetGbOption = None,
    dataset_images: options.DatasetImagesOption = None,
    checkpoint_gb: options.CheckpointGbOption = None,
    storage_usd_per_gb_month: options.StorageUsdPerGbMonthOption = None,
    egress_usd_per_gb: options.EgressUsdPerGbOption = None,
    figures: options.FiguresOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Estimate days and dollars for each number and kind of GPUs, from measurements or from a recipe alone.

    To measure on this machine: gangline estimate sd2_base --measure --data laion.lance --base sd2 --usd-per-gpu-hour 2.
    To compute from the recipe: gangline estimate sd2_base --gpu "H100 SXM=3" --gpu "B200=4.5" --gpus 8,64.
    Numbers of GPUs that were not measured are predicted by a law that is fitted to the measured ones. `gangline docs estimate` explains it.
    """
    from gangline.cli.tools.estimate.page import estimate_page

    file = read_file(outline) if outline else {}
    given = pairs("--gpu", gpu or [])
    if is_lora(file):
        unfit = {
            "--measure": measure,
            "--data": data,
            "--where": where,
            "--samples": samples,
            "--images-per-second": images_per_second,
            "--batch-size": batch_size,
            "--microbatch": microbatch,
            "--phase": phases,
            "--measured-on": measured_on,
            "--precompute-gpu-hours": precompute_gpu_hours,
            "--predict": predict,
            "--usd-per-gpu-hour": usd_per_gpu_hour,
            "--interruptions-per-node-hour": interruptions_per_node_hour,
            "--gpus-per-node": gpus_per_node,
            "--checkpoint-s": checkpoint_s,
            "--restart-s": restart_s,
            "--dataset-gb": dataset_gb,
            "--dataset-images": dataset_images,
            "--checkpoint-gb": checkpoint_gb,
            "--storage-usd-per-gb-month": storage_usd_per_gb_month,
            "--egress-usd-per-gb": egress_usd_per_gb,
            "--figure": figures,
        }
        for option, value in unfit.items():
            refuse(
                value,
                f"{option} cannot be used with a recipe of a LoRA",
                hint="pass --gpu, for which the minutes and dollars of a LoRA are computed",
            )
        refuse([text for text in gpus or [] if text != "1"], "a LoRA trains on one GPU", hint="leave --gpus out")
        recipe = override_recipe(file, setting or []) | ({"base": base} if base else {})
        _print_minutes(recipe, given or {}, family, photos, output)
        return
    for figure in figures or []:
        _check_figure(figure)
    hint = "pass either --usd-per-gpu-hour, or --gpu with the price of each kind"
    refuse(usd_per_gpu_hour and gpu, "prices are given twice", hint=hint)
    question = EstimateQuestion(
        settings={
            "predict": numbers("--predict", predict),
            "gpu": given,
            **prices(usd_per_gpu_hour),
        },
        file=file,
        tables={
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
        },
        batch={"batch_size": batch_size, "microbatch": microbatch},
        measured_on=measured_on,
        throughput=GivenThroughput(
            samples=samples, gpus=gpus or [], rates=images_per_second or [], phases=phases or []
        ),
        of_recipe=OfRecipe(
            measure=measure,
            measure_s=measure_s,
            data=data,
            where=where,
            base=base,
            family=family,
            settings=setting or [],
        ),
    )
    found, measured = question.estimate()
    for figure in figures or []:
        _draw(found, figure)
    if output is Output.json:
        print_json(asdict(found) | ({"measured": measured} if measured else {}))
    else:
        out.print(estimate_page(found))


def _print_minutes(
    recipe: dict[str, Any], prices: dict[str, Any], family: str | None, photos: int, output: Output
) -> None:
    from gangline.cli.tools.estimate.minutes import lora_minutes, minutes_page

    rows = lora_minutes(recipe, prices, family=family, photos=photos)
    if output is Output.json:
        print_json({"rows": [row.as_json() for row in rows]})
    else:
        out.print(minutes_page(rows))


def _check_figure(file: Path) -> None:
    if file.suffix.lower() not in SUFFIXES:
        raise BadInput(f"{file} does not name a figure", hint=f"end its name in {' or '.join(SUFFIXES)}")
    check_place(file, "--figure")


def _draw(found: "Estimate", file: Path) -> None:
    from gangline.cli.tools.estimate.figure import draw_estimate

    try:
        draw_estimate(found, file)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise BadInput(f"{file} cannot be written: {why}", hint="pass another file with --figure") from None
    say(f"the figure is in {file}")
