"""One way to a LoRA that takes its first step, for tests and benchmarks. It imports nothing that only tests need."""

from gangline.train.lora.adapter import Adapter
from gangline.train.lora.batches import LoraBatches
from gangline.train.lora.inputs import gather
from gangline.train.lora.trainer import Lora, base_of, sources
from gangline.train.run import numerics
from gangline.train.run.contract import Orders, RunDirectory


def learner_of(run: RunDirectory) -> tuple[Lora, LoraBatches]:
    """What `train` takes its first step with, and what it is fed."""
    spec = run.read_lora()
    numerics.choose_kernels(repeatable=spec.exact != "off")
    device = numerics.device()
    dtype = numerics.dtype_of(spec.precision, device)
    base = base_of(run, spec, device, dtype)
    fingerprint = numerics.fingerprint(device, dtype, spec)
    inputs = gather(run, base, spec, fingerprint, Orders())
    assert inputs is not None
    base.forget("vae", *([] if spec.train_text_encoder else ["text_encoders"]))
    lora = Lora(base, spec, Adapter(base, spec), fingerprint | {"data": inputs.digest})
    return lora, LoraBatches(sources(base, spec, inputs), device)
