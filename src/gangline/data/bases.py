"""Base models on this machine: a folder in diffusers' layout, or one safetensors file as kohya's scripts, ComfyUI and Civitai use."""

import json
import statistics
from collections.abc import Collection
from pathlib import Path
from typing import Any

from gangline.core.errors import BadInput
from gangline.core.models.bases import (
    INDEX,
    TEXT_ENCODERS,
    files_needed,
    is_weights_of,
    missing_parts,
    parts_of,
    single_files,
    vae_files_needed,
)
from gangline.core.models.recognition import (
    TELLS_V_OF_SD2,
    WANTED,
    Header,
    RecognisedModel,
    pipeline_of,
    recognise_file,
    recognise_folder,
)
from gangline.data.safetensors_header import PICKLES, read_header, read_values, refuse_pickle


def describe_base(path: Path) -> RecognisedModel:
    """Recognise the base at `path` from its configurations or its file's header alone. Raise `BadInput` that names the file."""
    single = single_file_of(path)
    if single is None:
        return _describe_folder(path)
    header = read_header(single)
    return recognise_file(header, _spread(single, header))


def files_of_base(path: Path) -> list[Path]:
    """Return the files of a base that a run needs. Raise `BadInput` if it is not a base, or incomplete."""
    describe_base(path)
    if path.is_file():
        return [path]
    names = names_below(path)
    if INDEX in names:
        missing = missing_parts(names, parts_of(read_json(path / INDEX)))
        if missing:
            raise BadInput(f"the base {path} lacks {', '.join(missing)}", hint=_why_missing(path, missing))
    return [path / name for name in files_needed(names)]


def files_to_begin(path: Path, new: Collection[str], *, alone: str = "") -> list[Path]:
    """Return the files of a folder in diffusers' layout without the weights of the parts in `new`; `text_encoders` stands for both of them.

    Raise `BadInput` if a file is missing: of any part, or only of the part that is trained `alone`.
    """
    describe_base(path)
    names = names_below(path)
    if INDEX not in names:
        raise BadInput(f"{path} is not a folder in diffusers' layout", hint="training from scratch needs such a folder")
    begun = {*new, *(TEXT_ENCODERS if "text_encoders" in new else ())}
    parts = parts_of(read_json(path / INDEX))
    needed = (alone,) if alone else parts
    lacking = missing_parts(names, tuple(part for part in needed if part not in begun))
    lacking += [part for part in needed if part in begun and f"{part}/config.json" not in names]
    if lacking:
        raise BadInput(f"the base {path} lacks {', '.join(lacking)}", hint=_why_missing(path, lacking))
    return [path / name for name in files_needed(names) if not is_weights_of(name, begun)]


def files_of_vae(path: Path) -> list[Path]:
    """Return the files of a VAE that replaces a base's. Raise `BadInput` if there is none."""
    if path.is_file():
        read_header(path)
        return [path]
    found = [path / name for name in vae_files_needed(names_below(path))]
    if not any(file.suffix == ".safetensors" for file in found):
        raise BadInput(
            f"{path} holds no VAE", hint=_why_missing(path, [""]) or "give its folder, or one safetensors file"
        )
    return found


def single_file_of(path: Path) -> Path | None:
    """Return the file with the whole base, or None if it is a folder in diffusers' layout. Raise `BadInput` if it is neither."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise BadInput(f"there is no base {path}", hint="give a folder, a .safetensors file, or a hub id NAME/MODEL")
    if (path / INDEX).is_file():
        return None
    found = single_files([entry.name for entry in path.iterdir()])
    if len(found) == 1:
        return path / found[0]
    if found:
        raise BadInput(f"{path} holds {len(found)} models: {', '.join(sorted(found)[:5])}", hint="give the path of one")
    for entry in sorted(path.iterdir()):
        refuse_pickle(entry)
    raise BadInput(f"{path} holds no model: neither {INDEX} nor a .safetensors file", hint=WANTED)


def names_below(folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]


def read_json(path: Path) -> Any:
    """Return the JSON object in a configuration file. Raise `BadInput` if there is none."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput(f"the base has no {path.parent.name}/{path.name}", hint="is it complete?") from None
    except (OSError, ValueError, RecursionError):
        raise BadInput(f"{path.parent.name}/{path.name} of the base cannot be read", hint="download it again") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path.parent.name}/{path.name} of the base is not a configuration", hint="download it again")
    return value


def _spread(path: Path, header: Header) -> float | None:
    """Return the deviation of the weights that tell what SD 2 predicts; None if there are none, or their dtype is not read here."""
    values = read_values(path, header, TELLS_V_OF_SD2) if TELLS_V_OF_SD2 in header.tensors else []
    return statistics.pstdev(values) if values else None


def _describe_folder(path: Path) -> RecognisedModel:
    pipeline = pipeline_of(path.name, read_json(path / INDEX))
    encoder = path / "text_encoder" / "config.json"
    return recognise_folder(
        path.name,
        pipeline,
        unet=read_json(path / "unet" / "config.json"),
        text_encoder=read_json(encoder) if encoder.exists() else {},
        scheduler=read_json(path / "scheduler" / "scheduler_config.json"),
    )


def _why_missing(path: Path, parts: list[str]) -> str:
    for part in parts:
        folder = path / part
        pickles = sorted(file.name for file in folder.glob("*") if file.suffix.lower() in PICKLES)
        if pickles:
            where = f"{part}/{pickles[0]}" if part else pickles[0]
            return f"{where} is a pickle, which Gangline does not load: convert it to safetensors"
    return "is it complete?" if any(parts) else ""
