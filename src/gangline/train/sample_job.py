"""Render pictures from a training job, during it or at its end: `python -m gangline.train.sample_job DIRECTORY`.

`inputs/checkpoint` or `inputs/result` holds the weights; the pictures are written to `output/`.
"""

import sys
from collections.abc import Iterable, Iterator

from gangline.core.errors import BadInput, Damaged
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.runs.contract import EXIT_DONE, EXIT_STOPPED, PHOTOS, SAMPLES
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sample import texts_to_show
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.specs.spec import SampleSpec
from gangline.train.checkpoints.stored import averaged_or_not
from gangline.train.lora import trainer as lora
from gangline.train.lora.adapter import Adapter
from gangline.train.lora.comparison import render_comparison
from gangline.train.lora.result import write_step
from gangline.train.model.base import base_at
from gangline.train.model.sample import render_step
from gangline.train.model.text import embed_all, tokenize
from gangline.train.program import main
from gangline.train.run import numerics
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.scratch.denoiser import Denoiser
from gangline.train.tensors import Tensors

PICTURE_BYTES = 16 * 2**20
"""So much memory a picture may take, at most, before it is on the node's disk: one of 2048 x 2048 pixels has 12 MB."""


def render_job(run: RunDirectory, orders: Orders) -> int:
    """Render all pictures and return the exit code. A job that has to stop starts from the beginning elsewhere: it keeps no partial
    result."""
    run.report_phase("preparing")
    task = run.read_task()
    assert isinstance(task, SampleSpec), "the agent starts this for what renders"
    run.steps = task.pictures
    run.place_output(task.pictures * PICTURE_BYTES)
    pictures = render_lora(run, task, task.of) if isinstance(task.of, LoraSpec) else of_model(run, task, task.of)
    for _ in pictures:
        run.step += 1
        run.report_phase("rendering")
        if orders.stop:
            return EXIT_STOPPED
    return EXIT_DONE


def render_lora(run: RunDirectory, task: SampleSpec, spec: LoraSpec) -> Iterator[object]:
    """Yield the pictures of a LoRA: of a checkpoint its pictures alone, of a result each beside the base's."""
    device = numerics.device()
    base = lora.base_of(run, spec, device, numerics.dtype_of(spec.precision, device))
    texts = tokenize(base, texts_to_show(spec))
    before = embed_all(base, texts)
    adapter = Adapter(base, spec)
    if task.checkpoint:
        take_weights(adapter, learned(run, task.step))
    else:
        adapter.start_from(run.inputs / "result" / DIFFUSERS_FILE, base)
    with adapter.at_rest():
        spoken = embed_all(base, texts) if spec.train_text_encoder else before
        run.report_phase("rendering")
        if task.checkpoint and spec.keep_loras:
            write_step(run.output, base, spec, adapter, task.step)
        pictures: Iterable[object] = (
            render_step(base, spec, texts, spoken, run.output, task.step)
            if task.checkpoint
            else render_comparison(
                base,
                spec,
                adapter,
                texts,
                before,
                spoken,
                run.output,
                run.inputs / "result" / SAMPLES / PHOTOS,
                task.step,
            )
        )
        yield from pictures


def of_model(run: RunDirectory, task: SampleSpec, spec: ScratchSpec) -> Iterator[object]:
    """Yield the pictures of a whole model.

    A result is a complete model. A checkpoint holds only the trained parts, so the other parts come from the base.
    """
    device = numerics.device()
    dtype = numerics.dtype_of(spec.precision, device)
    folder = run.inputs / ("base" if task.checkpoint else "result")
    base = base_at(folder, spec, device, dtype)
    if task.checkpoint:
        take_parts(Denoiser(base, spec), learned(run, task.step))
    texts = tokenize(base, texts_to_show(spec))
    spoken = embed_all(base, texts)
    run.report_phase("rendering")
    yield from render_step(base, spec, texts, spoken, run.output, task.step)


def learned(run: RunDirectory, step: int) -> Tensors:
    """Return the weights of the checkpoint of `step`, averaged if it has averages. Raise `BadInput` if they cannot be read."""
    try:
        return averaged_or_not(run.inputs / "checkpoint", step)
    except Damaged as error:
        raise BadInput(f"the checkpoint's weights cannot be read: {error.message}") from None


def take_parts(network: Denoiser, found: Tensors) -> None:
    """Load the checkpoint's trained parts. Raise `BadInput` if they are damaged or of another model."""
    network.requires_grad_(False).eval()
    for part, module in network.parts.items():
        own = {name.removeprefix(f"{part}."): tensor for name, tensor in found.items() if name.startswith(f"{part}.")}
        lacking = [name for name, _ in module.named_parameters() if name not in own]
        if not own or set(own) - {name for name, _ in module.named_parameters()}:
            raise BadInput("the checkpoint's weights belong to another model")
        module.load_state_dict(own, strict=not lacking)


def take_weights(adapter: Adapter, found: Tensors) -> None:
    """Load the checkpoint's LoRA. Raise `BadInput` if it is damaged or another one."""
    if found.keys() != adapter.weights.keys():
        raise BadInput("the checkpoint's weights belong to another LoRA")
    adapter.load(found)


if __name__ == "__main__":
    sys.exit(main(render_job))
