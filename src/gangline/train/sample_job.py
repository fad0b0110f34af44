"""Render what a training job has learned, so far or at its end: `python -m gangline.train.sample_job DIRECTORY`.

`inputs/checkpoint` or `inputs/result` holds the weights; the pictures go into `output/`.
"""

import sys

from safetensors import SafetensorError
from safetensors.torch import load_file

from gangline.core.contract import EXIT_DONE, EXIT_STOPPED
from gangline.core.errors import BadInput
from gangline.core.lora_metadata import DIFFUSERS_FILE
from gangline.core.spec import SampleSpec
from gangline.train import checkpoint, numerics
from gangline.train.adapter import Adapter
from gangline.train.contract import Orders, RunDirectory
from gangline.train.lora import base_of
from gangline.train.program import main
from gangline.train.sample import render_comparison, render_step
from gangline.train.text import embed_all, tokenize


def render_job(run: RunDirectory, orders: Orders) -> int:
    """All pictures, or none: one that is told to stop begins anew elsewhere."""
    run.report_phase("preparing")
    task = run.read_task()
    assert isinstance(task, SampleSpec), "the agent starts this for what renders"
    spec, run.steps = task.of, task.pictures
    device = numerics.device()
    base = base_of(run, spec, device, numerics.dtype_of(spec.precision, device))
    texts = tokenize(base, [*spec.prompts_to_sample, ""])
    before = embed_all(base, texts)
    adapter = Adapter(base, spec)
    if task.checkpoint:
        take_weights(adapter, run)
    else:
        adapter.start_from(run.inputs / "result" / DIFFUSERS_FILE, base)
    with adapter.as_result(None):
        spoken = embed_all(base, texts) if spec.train_text_encoder else before
        run.report_phase("rendering")
        if task.checkpoint:
            pictures = render_step(base, spec, texts, spoken, run.output, task.step)
        else:
            pictures = render_comparison(base, spec, adapter, texts, before, spoken, run.output)
        for _ in pictures:
            run.step += 1
            run.report_phase("rendering")
            if orders.stop:
                return EXIT_STOPPED
    return EXIT_DONE


def take_weights(adapter: Adapter, run: RunDirectory) -> None:
    """Those that would be the result: the averaged ones where there are. Raises `BadInput` where they are another LoRA's."""
    folder = run.inputs / "checkpoint"
    averaged = folder / checkpoint.AVERAGED
    try:
        found = load_file(averaged if averaged.exists() else folder / checkpoint.WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"the checkpoint's weights cannot be read: {error}") from None
    if found.keys() != adapter.weights.keys():
        raise BadInput("the checkpoint's weights are of another LoRA")
    adapter.load(found)


if __name__ == "__main__":
    sys.exit(main(render_job))
