"""Read the metadata of a LoRA's file, whichever tool wrote it, and amend it when the file is changed. It opens no files."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gangline.core.models.families import Family

HASHES = ("sshs_model_hash", "sshs_legacy_hash", "modelspec.hash_sha256")
OF_THE_FORM = ("format", "lora_adapter_metadata", "gangline_dora_scale")
"""Fields about the names and the scales of the tensors, which are other ones in another form."""
DYNAMIC = "Dynamic"
"""kohya's word where layers differ."""
TAGS_SHOWN = 10

FIELDS: dict[str, tuple[str, ...]] = {
    "title": ("modelspec.title", "ss_output_name"),
    "author": ("modelspec.author",),
    "base": ("ss_sd_model_name",),
    "base version": ("ss_base_model_version", "modelspec.architecture"),
    "prediction": ("modelspec.prediction_type", "modelspec.predict_key"),
    "zero terminal SNR": ("ss_zero_terminal_snr",),
    "trigger": ("modelspec.trigger_phrase",),
    "steps": ("ss_steps", "ss_max_train_steps"),
    "epochs": ("ss_num_epochs",),
    "images": ("ss_num_train_images",),
    "resolution": ("ss_resolution", "modelspec.resolution"),
    "learning rate": ("ss_unet_lr", "ss_learning_rate"),
    "learning rate of the text encoders": ("ss_text_encoder_lr",),
    "optimizer": ("ss_optimizer",),
    "network module": ("ss_network_module",),
    "clip skip": ("ss_clip_skip",),
    "merged from": ("modelspec.merged_from",),
    "licence": ("modelspec.license",),
    "comment": ("ss_training_comment",),
}
SAYS_NOTHING = ("", "None", "null")


class LayerSize(NamedTuple):
    """`rank` is None for a product of whole factors; `wide` says that the layer is a convolution of more than a pixel."""

    rank: int | None
    alpha: float
    wide: bool


def words_of_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return what the file says of its training, by what people call it. What it does not say is left out."""
    said = {"trained by": _trainer(metadata)}
    for called, fields in FIELDS.items():
        said[called] = next((metadata[field] for field in fields if metadata.get(field, "") not in SAYS_NOTHING), "")
    return {called: value for called, value in (said | {"tags": _tags(metadata)}).items() if value}


def _trainer(metadata: Mapping[str, str]) -> str:
    if "Gangline" in metadata.get("ss_training_comment", ""):
        return "Gangline"
    if "ss_sd_scripts_commit_hash" in metadata:
        return "kohya's sd-scripts, or a program that uses them"
    return "a tool that writes kohya's metadata" if any(name.startswith("ss_") for name in metadata) else ""


def _tags(metadata: Mapping[str, str]) -> str:
    """Return the most frequent tags of the captions, with their counts over all folders."""
    counts: Counter[str] = Counter()
    try:
        for folder in json.loads(metadata.get("ss_tag_frequency", "{}")).values():
            counts.update({str(tag).strip(): int(count) for tag, count in folder.items()})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return ""
    return ", ".join(f"{tag} ({count})" for tag, count in counts.most_common(TAGS_SHOWN))


def amended(metadata: Mapping[str, str], done: str = "") -> dict[str, str]:
    """Return the metadata of a file made from the one with `metadata`: without hashes, and with what was `done` before its comment, as
    kohya's scripts write it."""
    left_out = (*HASHES, *OF_THE_FORM)
    carried = {name: value for name, value in metadata.items() if name not in left_out}
    if done:
        before = carried.get("ss_training_comment", "")
        carried["ss_training_comment"] = done if before in SAYS_NOTHING else f"{done}; {before}"
    return carried


def shared_metadata(files: list[Mapping[str, str]]) -> dict[str, str]:
    """Return the fields that all files have with the same value, but for their comments."""
    first = amended(files[0])
    first.pop("ss_training_comment", None)
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in files)}


def network_fields(layers: Iterable[LayerSize], family: Family, *, of_lycoris: bool) -> dict[str, str]:
    """Return kohya's fields about a network with layers of these sizes."""
    sizes = list(layers)
    wide = [size for size in sizes if size.wide]
    narrow = [size for size in sizes if not size.wide] or wide
    args = {"conv_dim": _same(size.rank for size in wide), "conv_alpha": _same(size.alpha for size in wide)}
    return {
        "ss_network_module": "lycoris.kohya" if of_lycoris else "networks.lora",
        "ss_network_dim": _same(size.rank for size in narrow),
        "ss_network_alpha": _same(size.alpha for size in narrow),
        "ss_network_args": json.dumps(args if wide else {}, sort_keys=True),
        "ss_v2": str(family.kohya_v2),
    }


def _same(values: Iterable[float | None]) -> str:
    """Return the one value, or that there are several."""
    found = set(values)
    return str(found.pop()) if len(found) == 1 else DYNAMIC
