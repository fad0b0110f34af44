"""Which files of a model in diffusers' layout a run needs. Pure: it sees names only."""

import re
from pathlib import PurePosixPath

PARTS = ("scheduler", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "unet", "vae")
WEIGHTS = ".safetensors"
TEXTS = (".json", ".txt", ".model")


def files_needed(names: list[str]) -> list[str]:
    """The configuration, the tokenizers and one set of safetensors for each part, half precision where both are there.

    >>> files_needed(["model_index.json", "unet/config.json", "unet/w.safetensors", "unet/w.fp16.safetensors", "x.ckpt"])
    ['model_index.json', 'unet/config.json', 'unet/w.fp16.safetensors']
    """
    wanted = [name for name in names if _belongs(name)]
    return sorted(name for name in wanted if not _has_smaller_twin(name, set(wanted)))


def _belongs(name: str) -> bool:
    path = PurePosixPath(name)
    if name == "model_index.json":
        return True
    if len(path.parts) != 2 or path.parts[0] not in PARTS:
        return False
    return path.suffix in (WEIGHTS, *TEXTS)


def _has_smaller_twin(name: str, names: set[str]) -> bool:
    """Whether the same weights are there in fp16: `unet/w.safetensors` beside `unet/w.fp16.safetensors`."""
    if not name.endswith(WEIGHTS) or name.endswith(f".fp16{WEIGHTS}"):
        return False
    return name.removesuffix(WEIGHTS) + f".fp16{WEIGHTS}" in names


WITH_WEIGHTS = ("text_encoder", "text_encoder_2", "unet", "vae")
SHARD = re.compile(r"-(\d{5})-of-(\d{5})")


def is_complete(names: list[str]) -> bool:
    """Whether a folder with these files has every part: a download that was cut off has not."""
    whole = {"model_index.json", "scheduler/scheduler_config.json"}
    whole |= {f"{part}/config.json" for part in WITH_WEIGHTS}
    tokenizers = all(any(name.startswith(f"{part}/") for name in names) for part in ("tokenizer", "tokenizer_2"))
    return whole <= set(names) and tokenizers and all(_has_weights(part, names) for part in WITH_WEIGHTS)


def _has_weights(part: str, names: list[str]) -> bool:
    weights = [name for name in names if name.startswith(f"{part}/") and name.endswith(WEIGHTS)]
    shards = [match for name in weights if (match := SHARD.search(name))]
    if not shards:
        return bool(weights)
    return {int(match[1]) for match in shards} == set(range(1, int(shards[0][2]) + 1))
