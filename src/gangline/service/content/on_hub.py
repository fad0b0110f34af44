"""Find out what a model on the hub is: its commit, the files that a node downloads, whether it is gated, and its family."""

import json
from dataclasses import dataclass, replace
from typing import Any

from gangline.core.errors import BadInput, Denied
from gangline.core.models.bases import INDEX, ModelRole, files_of_role, missing_parts, parts_of
from gangline.core.models.families import FAMILIES, Family
from gangline.core.models.recognition import (
    WANTED,
    Header,
    RecognisedModel,
    header_of,
    pipeline_of,
    recognise_file,
    recognise_folder,
)
from gangline.core.specs.fields import HubBase
from gangline.ports.hub import Hub, HubFile, HubModel

CONFIGS = ("unet/config.json", "text_encoder/config.json", "scheduler/scheduler_config.json")
HEADER_LENGTH_BYTES = 8
HEADER_BYTES_MAX = 32 * 2**20
"""A longer header is refused, as it would be read into memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnHub:
    """A model on the hub. `model` is pinned to a commit; `files` are those that a node downloads.

    `opens` says whether the given token may read them. If not, only the hub's own data are known: `family` perhaps, and `recognised` is
    None. It is None for a VAE, too.
    """

    model: HubBase
    files: tuple[HubFile, ...]
    gated: bool
    opens: bool
    licence: str
    family: Family | None = None
    recognised: RecognisedModel | None = None

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def look_up(hub: Hub, model: HubBase, role: ModelRole, *, whole: bool = True) -> OnHub:
    """Look a model up; of its files, read only configurations and headers. `whole` requires the weights of all parts.

    Raise `BadInput` if it is no model that can be trained, `NotFound`, or `Unreachable`.
    """
    found = hub.look(model.repo, model.revision)
    fixed = replace(model, revision=found.commit)
    seen = OnHub(
        model=fixed,
        files=tuple(files_wanted(fixed, found, role)),
        gated=found.gated,
        opens=True,
        licence=found.licence,
    )
    if role == "vae":
        return seen
    try:
        recognised = recognise(hub, fixed, found, whole=whole)
    except Denied:
        return replace(seen, opens=False, family=_family_of_pipeline(found.pipeline))
    return replace(seen, family=recognised.family, recognised=recognised)


def files_wanted(model: HubBase, found: HubModel, role: ModelRole) -> list[HubFile]:
    """Return the files that a node downloads. Raise `BadInput` if there are none."""
    if role == "base" and found.pipeline:
        pipeline_of(model.repo, {"_class_name": found.pipeline})
    known = {each.path: each for each in found.files}
    wanted = files_of_role(list(known), role)
    if not wanted:
        raise BadInput(
            f"{model.repo} holds no model in safetensors that Gangline recognises",
            hint="name its .safetensors file here",
        )
    return [known[path] for path in wanted]


def recognise(hub: Hub, model: HubBase, found: HubModel, *, whole: bool = True) -> RecognisedModel:
    """Recognise a base by its configurations or the header of its file. Raise `BadInput` if it is unknown, `Denied` if it is gated."""
    names = [each.path for each in found.files]

    def read(path: str) -> Any:
        return _json(hub.read(model.repo, found.commit, path), path) if path in names else {}

    if INDEX in names:
        index = read(INDEX)
        pipeline = pipeline_of(model.repo, index)
        if whole and (missing := missing_parts(names, parts_of(index))):
            raise BadInput(
                f"{model.repo} at {model.revision} lacks {', '.join(missing)} in safetensors",
                hint="take another revision, or a copy of the model that has it",
            )
        return recognise_folder(model.repo, pipeline, **{path.partition("/")[0]: read(path) for path in CONFIGS})
    (single,) = files_wanted(model, found, "base")
    return recognise_file(_header(hub, model.repo, found.commit, single))


def _header(hub: Hub, repo: str, commit: str, file: HubFile) -> Header:
    length = int.from_bytes(hub.read(repo, commit, file.path, range(HEADER_LENGTH_BYTES)), "little")
    if not 0 < length <= HEADER_BYTES_MAX:
        raise BadInput(f"{file.path} of {repo} is not a safetensors file", hint=WANTED)
    start = HEADER_LENGTH_BYTES + length
    header = hub.read(repo, commit, file.path, range(HEADER_LENGTH_BYTES, start))
    return header_of(file.path, _json(header, file.path), start, file.bytes)


def _family_of_pipeline(pipeline: str) -> Family | None:
    """Return the family whose class in diffusers this is, if only one family has it."""
    possible = [family for family in FAMILIES.values() if family.pipeline == pipeline]
    return possible[0] if len(possible) == 1 else None


def _json(content: bytes, path: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise BadInput(f"{path} of the base cannot be read") from None
