"""Select the files of a base that a run needs: of a folder in diffusers' layout, or one file with the whole model. It sees names only."""

import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Any, Literal

from gangline.core.models.families import FAMILIES, Family

INDEX = "model_index.json"
PARTS = ("scheduler", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "unet", "vae")
WITH_WEIGHTS = ("text_encoder", "text_encoder_2", "unet", "vae")
WEIGHTS = ".safetensors"
TEXTS = (".json", ".txt", ".model")
SHARD = re.compile(r"-(\d{5})-of-(\d{5})")
VARIANT = re.compile(r"^[^.]+\.(?:safetensors\.index\.)?([A-Za-z0-9_]+?)(?:-\d{5}-of-\d{5})?\.(?:safetensors|json)$")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
UNKNOWN = "unknown"
TEXT_ENCODERS = tuple(dict.fromkeys(part for family in FAMILIES.values() for part in family.text_parts))
"""The folders of text encoders in any family."""
ModelRole = Literal["base", "vae"]
ROLES: tuple[ModelRole, ...] = ("base", "vae")


def family_published_as(repo: str) -> Family | None:
    """Return the family of a base that its authors published as `repo` on the hub; None for others, whose files must be inspected."""
    return next((family for family in FAMILIES.values() if repo in family.published_as), None)


def is_base_name(text: str) -> bool:
    """Return whether a project may name a base so: it is neither a path nor an id of the hub."""
    return NAME.fullmatch(text) is not None


def files_of_role(names: list[str], role: ModelRole) -> list[str]:
    return files_needed(names) if role == "base" else vae_files_needed(names)


def files_needed(names: list[str]) -> list[str]:
    """Return the configuration, the tokenizers and one set of safetensors for each part, in half precision if there are both.

    Without a model_index.json it is the one safetensors file at the top, or nothing if there are several.

    >>> files_needed(["model_index.json", "unet/config.json", "unet/w.safetensors", "unet/w.fp16.safetensors", "x.ckpt"])
    ['model_index.json', 'unet/config.json', 'unet/w.fp16.safetensors']
    >>> files_needed(["model.safetensors", "model.preview.png"])
    ['model.safetensors']
    """
    if INDEX not in names:
        return single_files(names) if len(single_files(names)) == 1 else []
    wanted = [INDEX, *(name for part in PARTS for name in _needed_of(part, names))]
    return sorted(wanted)


def vae_files_needed(names: list[str]) -> list[str]:
    """Return the files of a VAE that replaces a base's VAE: a VAE's folder, the VAE of a whole base, or one safetensors file."""
    if INDEX in names:
        return _needed_of("vae", names)
    if "config.json" in names:
        below = [f"vae/{name}" for name in names]
        return [name.removeprefix("vae/") for name in _needed_of("vae", below)]
    return files_needed(names)


def single_files(names: list[str]) -> list[str]:
    """Return the safetensors files at the top, each of which may hold a whole model."""
    return [name for name in names if name.endswith(WEIGHTS) and "/" not in name]


def variant_of(names: list[str]) -> str | None:
    """Return which set of a part's weights is used: diffusers' `variant`, None for the set without a suffix.

    >>> variant_of(["w.safetensors", "w.fp16.safetensors"]), variant_of(["w.safetensors", "w.non_ema.safetensors"])
    ('fp16', None)
    """
    found = {_variant(PurePosixPath(name).name) for name in names if name.endswith(WEIGHTS)}
    if "fp16" in found:
        return "fp16"
    return None if None in found or not found else min(name for name in found if name)


def _needed_of(part: str, names: list[str]) -> list[str]:
    own = [name for name in names if PurePosixPath(name).parts[:-1] == (part,) and name.endswith((WEIGHTS, *TEXTS))]
    chosen = variant_of(own)
    return sorted(name for name in own if not _is_of_weights(name) or _variant(PurePosixPath(name).name) == chosen)


def _is_of_weights(name: str) -> bool:
    return name.endswith(WEIGHTS) or f"{WEIGHTS}.index." in name


def _variant(name: str) -> str | None:
    """Return `fp16` for `w.fp16.safetensors`, `w.fp16-00001-of-00002.safetensors` and `w.safetensors.index.fp16.json`."""
    match = VARIANT.match(name.replace(f"{WEIGHTS}.index.json", "json"))
    return match[1] if match and _is_of_weights(name) else None


def parts_of(index: Mapping[str, object]) -> tuple[str, ...]:
    """Return the parts that a model_index.json lists: SD 1.5 and SD 2 have one text encoder, SDXL has two."""
    return tuple(part for part in PARTS if _is_class(index.get(part)))


def _is_class(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(value)


def missing_parts(names: list[str], parts: tuple[str, ...]) -> list[str]:
    """Return which of `parts` are incomplete in a folder with these files, after an aborted download or in a copy without weights."""
    return [part for part in parts if not _is_whole(part, names)]


def _is_whole(part: str, names: list[str]) -> bool:
    if part == "scheduler":
        return "scheduler/scheduler_config.json" in names
    if part not in WITH_WEIGHTS:
        return any(name.startswith(f"{part}/") for name in names)
    return f"{part}/config.json" in names and _has_weights(part, names)


def _has_weights(part: str, names: list[str]) -> bool:
    weights = [name for name in _needed_of(part, names) if name.endswith(WEIGHTS)]
    shards = [match for name in weights if (match := SHARD.search(name))]
    if not shards:
        return bool(weights)
    return {int(match[1]) for match in shards} == set(range(1, int(shards[0][2]) + 1))


def is_complete(names: list[str], index: Mapping[str, object]) -> bool:
    """Return whether a folder has every part that its model_index.json lists."""
    parts = parts_of(index)
    return bool(parts) and INDEX in names and not missing_parts(names, parts)


def parts_left_out(spec: Mapping[str, Any], kinds: Collection[str]) -> tuple[str, ...]:
    """Return the parts of a base whose weights a run of `spec` need not download, given which `kinds` of files are prepared for it.

    These are the text encoders, unless they are trained. The VAE is always downloaded, as samples are rendered with it.
    """
    return TEXT_ENCODERS if "embeddings" in kinds and not spec.get("train_text_encoder") else ()


def is_weights_of(path: str, parts: Collection[str]) -> bool:
    """Return whether this file of a base has weights of one of `parts`."""
    return PurePosixPath(path).parts[0] in parts and path.endswith(WEIGHTS)
