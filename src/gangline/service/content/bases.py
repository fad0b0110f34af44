"""The registry of a project's bases: each has a name, a pinned content and the facts that are known about it.

A gated base is mirrored before it is used.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from gangline.core.canonical import canonical_json
from gangline.core.display import NAME_MAX, printable
from gangline.core.errors import BadInput, NotFound, Unreachable
from gangline.core.models.bases import ROLES, UNKNOWN, ModelRole, is_base_name
from gangline.core.models.recognition import RecognisedModel
from gangline.core.specs.fields import Base, FilesBase, HubBase, base_to_json
from gangline.core.specs.spec import Spec, TrainingSpec
from gangline.core.views import BaseView
from gangline.ports.hub import HubFile, HubModel
from gangline.ports.store import Row, Write, write
from gangline.service.access.requests import KeyedRequest, apply_once, made_before
from gangline.service.content import mirror
from gangline.service.content.blobs import check_here, naming
from gangline.service.content.on_hub import files_wanted, recognise
from gangline.service.deployment import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseStatement:
    """The owner's statement about a base. It overrides the detected fields."""

    family: str = ""
    prediction_type: str = ""
    licence: str = ""
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pinned:
    """A model pinned to its content, with its length in bytes, and the hub's answer if it is on the hub."""

    model: Base
    bytes: int
    on_hub: HubModel | None = None


def add(
    deployment: Deployment,
    project: str,
    name: str,
    base: Base,
    vae: Base | None,
    said: BaseStatement,
    now_ms: int,
    request: KeyedRequest | None = None,
) -> BaseView:
    """Add a base under a name. Raise `BadInput` if the name is invalid or stands for another base, or the base cannot be trained."""
    earlier = made_before(deployment, request)
    if earlier:
        return get_base(deployment, project, earlier)
    if not is_base_name(name):
        raise BadInput(
            f"{name!r} is not a valid name for a base", hint="use letters, digits, dots and hyphens, up to 100"
        )
    model, own_vae = _pin(deployment, project, base, "base"), _pin(deployment, project, vae, "vae") if vae else None
    found = _recognise(deployment, model)
    licence = said.licence or (printable(model.on_hub.licence)[:NAME_MAX] if model.on_hub else "") or UNKNOWN
    values = {
        "base": canonical_json(base_to_json(model.model)),
        "base_id": model.model.id,
        "vae": canonical_json(base_to_json(own_vae.model)) if own_vae else "",
        "vae_id": own_vae.model.id if own_vae else "",
        "family": said.family or (found.family.name if found else UNKNOWN),
        "prediction_type": said.prediction_type or (found.prediction_type if found else UNKNOWN),
        "licence": licence,
        "because": said.because or (found.because if found else ""),
        "bytes": model.bytes + (own_vae.bytes if own_vae else 0),
    }
    models = zip(ROLES, (model, own_vae), strict=True)
    mirrors = [_mirroring(project, each, role) for role, each in models if each and _is_gated(each)]
    files = [file for each in (base, vae) if isinstance(each, FilesBase) for file in each.files]
    held = naming(project, files, now_ms)
    if not deployment.store.apply(
        *held, write("name_base", project=project, name=name, **values, now=now_ms), *mirrors
    ):
        raise Unreachable("files of this base are being deleted, as nothing used them", hint="try again in a minute")
    kept = get_base(deployment, project, name)
    if (kept.id, kept.vae) != (model.model.id, json.loads(values["vae"] or "null")):
        raise BadInput(
            f"{name} stands for another base already", hint=f"remove that one with `gangline bases rm {name}`"
        )
    apply_once(deployment, request, name, now_ms)  # a repeated request that comes before this finds the same base
    return kept


def bases_of(deployment: Deployment, project: str) -> list[BaseView]:
    return [_view(deployment, project, row) for row in deployment.store.load("bases", project=project)]


def base_of_content(deployment: Deployment, project: str, base: str) -> BaseView | None:
    """Return the first base of the list, by name, whose content has this id; None if there is none."""
    rows = deployment.store.load("bases", project=project)
    return next((_view(deployment, project, row) for row in rows if row["base_id"] == base), None)


def get_base(deployment: Deployment, project: str, name: str) -> BaseView:
    """Return the base of this name. Raise `NotFound` if there is none."""
    rows = deployment.store.load("base", project=project, name=name)
    if not rows:
        raise NotFound(
            f"there is no base {name}", hint="`gangline bases ls` lists them, `gangline bases add` makes them"
        )
    return _view(deployment, project, rows[0])


def forget(deployment: Deployment, project: str, name: str) -> None:
    """Delete the name only: jobs refer to bases by content."""
    deployment.store.apply(write("forget_base", project=project, name=name))


def with_base_named(deployment: Deployment, project: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return the spec with base and VAE resolved, which may be texts: a name of the project's, or ORGANISATION/NAME on the hub.

    A name brings the VAE and the prediction type that were given with it, unless the spec has its own. Raise `BadInput` or `NotFound`.
    """
    named = dict[str, Any]()
    if isinstance(name := value.get("base"), str) and is_base_name(name):
        found = base_named(deployment, project, name)
        own = {"vae": found.vae} if found.vae else {}
        kind = {"prediction_type": found.prediction_type} if found.prediction_type != UNKNOWN else {}
        value, named = own | kind | value, {"base": found.base}
    for role in ROLES:
        text = named.get(role, value.get(role))
        if isinstance(text, str):
            repo, _, revision = text.partition("@")
            named[role] = {"source": "hub", "repo": repo, "revision": revision or "main"}
    return value | named


def base_named(deployment: Deployment, project: str, name: str) -> BaseView:
    """Return the base of this name. Raise `BadInput` if it is still being mirrored."""
    found = get_base(deployment, project, name)
    if found.state != "ready":
        raise BadInput(f"{name} is not ready yet: {found.why}", hint=f"`gangline bases show {name}` shows its progress")
    return found


def pinned(deployment: Deployment, project: str, spec: Spec) -> Spec:
    """Return the spec with commits for revisions, so that the job means the same for ever.

    Raise `BadInput` if a model is gated and not mirrored, or cannot be trained.
    """
    if not isinstance(spec, TrainingSpec):
        return spec
    base = _pinned(deployment, project, spec.base, "base")
    licence = spec.base_licence or _known_licence(deployment, project, base)
    vae = {"vae": _pinned(deployment, project, spec.vae, "vae")} if spec.vae else {}
    return replace(spec, base=base, base_licence=licence, **vae)


def _known_licence(deployment: Deployment, project: str, base: Base) -> str:
    """Return the licence of a named base with this content; "" if there is none."""
    known = {row["base_id"]: row["licence"] for row in deployment.store.load("bases", project=project)}
    return known.get(base.id, UNKNOWN).replace(UNKNOWN, "")


def _pinned(deployment: Deployment, project: str, model: Base, role: ModelRole) -> Base:
    if not isinstance(model, HubBase):
        return model
    commit = deployment.hub.pin(model.repo, model.revision)
    fixed = replace(model, revision=commit)
    row = mirror.find(deployment, project, fixed.id, role)
    if row and row["state"] != "ready":
        raise BadInput(
            f"{model.repo} is gated, and still being copied: {how_far(row)}", hint="try again when the copy is complete"
        )
    if row or commit == model.revision:
        return fixed
    found = deployment.hub.look(model.repo, commit)
    files_wanted(fixed, found, role)
    if found.gated:
        raise BadInput(
            f"{model.repo} is gated on the hub, and nodes have no token for it",
            hint=f"let this server copy it once: gangline bases add {model.repo}",
        )
    return fixed


def _pin(deployment: Deployment, project: str, model: Base, role: ModelRole) -> _Pinned:
    if isinstance(model, FilesBase):
        check_here(deployment, project, {file.path: file for file in model.files})
        return _Pinned(model=model, bytes=sum(file.bytes for file in model.files))
    found = deployment.hub.look(model.repo, model.revision)
    fixed = _Pinned(model=replace(model, revision=found.commit), bytes=0, on_hub=found)
    return replace(fixed, bytes=sum(each.bytes for each in _wanted(fixed, role)))


def _wanted(model: _Pinned, role: ModelRole) -> list[HubFile]:
    assert isinstance(model.model, HubBase) and model.on_hub is not None, "only the hub lists what is not here"
    return files_wanted(model.model, model.on_hub, role)


def _is_gated(model: _Pinned) -> bool:
    return model.on_hub is not None and model.on_hub.gated


def _mirroring(project: str, model: _Pinned, role: ModelRole) -> Write:
    assert isinstance(model.model, HubBase), "only the hub has gates"
    files = [{"path": each.path, "bytes": each.bytes, "sha256": each.sha256} for each in _wanted(model, role)]
    where = {"repo": model.model.repo, "revision": model.model.revision}
    size = sum(each["bytes"] for each in files)
    return write(
        "begin_mirror", project=project, base=model.model.id, role=role, **where, files=json.dumps(files), bytes=size
    )


def _recognise(deployment: Deployment, model: _Pinned) -> RecognisedModel | None:
    """Return what a base on the hub was recognised as. For uploaded files, return None: only their owner knows."""
    if model.on_hub is None or not isinstance(model.model, HubBase):
        return None
    return recognise(deployment.hub, model.model, model.on_hub)


def _view(deployment: Deployment, project: str, row: Row) -> BaseView:
    ids = zip(ROLES, (row["base_id"], row["vae_id"]), strict=True)
    copies = [copy for role, model in ids if model and (copy := mirror.find(deployment, project, model, role))]
    behind = next((copy for copy in copies if copy["state"] != "ready"), None)
    lacking = sum(copy["bytes"] - copy["done_bytes"] for copy in copies)
    return BaseView(
        name=row["name"],
        base=json.loads(row["base"]),
        vae=json.loads(row["vae"]) if row["vae"] else None,
        id=row["base_id"],
        family=row["family"],
        prediction_type=row["prediction_type"],
        licence=row["licence"],
        because=row["because"],
        bytes=row["bytes"],
        state=behind["state"] if behind else "ready",
        fetched_bytes=row["bytes"] - lacking,
        why=how_far(behind) if behind else "",
        made_ms=row["made_ms"],
    )


def how_far(copy: Row) -> str:
    here = f"{copy['done_bytes'] / 1e9:.2f} of {copy['bytes'] / 1e9:.2f} GB are copied"
    return f"{here}; {copy['because']}" if copy["because"] else here
