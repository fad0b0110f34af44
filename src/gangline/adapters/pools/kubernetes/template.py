"""Read the Pod template of the server's owner, and refuse what would break what the driver promises."""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from gangline.core.errors import BadInput, UserError

CONTAINER = "worker"
SHARED_MEMORY = "gangline-shared-memory"
"""The names of the container that the worker runs in, and of the volume that is its /dev/shm."""
LABELS = "gangline/"
LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
SHM = "/dev/shm"  # noqa: S108 - a mount point in a container
TEMPLATE_BYTES_MAX = 1 << 20
HINT = "docs/pools/kubernetes.md says what a template may have"
NAMED_BY_US = ("name", "generateName", "namespace", "uid", "ownerReferences", "finalizers")
FIXED: Mapping[str, Any] = {
    "restartPolicy": "Never",
    "automountServiceAccountToken": False,
    # Else the worker's installer is the first process of its namespace, which the kernel spares the SIGTERM of a stop.
    "shareProcessNamespace": True,
}
"""What a template may repeat, but not change."""
SET_BY_US = ("nodeName", "terminationGracePeriodSeconds")
PARTS: Mapping[str, type] = {
    "metadata.labels": dict,
    "metadata.annotations": dict,
    "spec.nodeSelector": dict,
    "spec.tolerations": list,
    "spec.volumes": list,
    "spec.containers": list,
    "spec.initContainers": list,
    "spec.containers.0.env": list,
    "spec.containers.0.volumeMounts": list,
    "spec.containers.0.resources": dict,
    "spec.containers.0.resources.limits": dict,
    "spec.containers.0.resources.requests": dict,
}
"""What a Pod is made of by merging, and so must have its type; the API server checks all else."""


def read_template(path: Path) -> dict[str, Any]:
    """Return the Pod of a YAML file. Raises `BadInput` if it is none or has what Gangline sets itself, and `UserError` if it cannot be
    read."""
    import yaml

    called = f"the Pod template {path}"
    try:
        with path.open("rb") as file:
            text = file.read(TEMPLATE_BYTES_MAX + 1)
    except OSError as error:
        raise UserError(
            f"{called} cannot be read: {error.strerror}", hint="name another file in the server's settings"
        ) from None
    if len(text) > TEMPLATE_BYTES_MAX:
        raise BadInput(f"{called} has more than {TEMPLATE_BYTES_MAX:,} bytes", hint=HINT)
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        said = str(error).splitlines()[-1].strip() if str(error) else type(error).__name__
        raise BadInput(f"{called} is no YAML: {said}", hint=HINT) from None
    if len(documents) != 1:
        raise BadInput(f"{called} has {len(documents)} documents; it must be one Pod", hint=HINT)
    because = why_no_template(documents[0]) or _why_no_json(documents[0])
    if because:
        raise BadInput(f"{called} {because}", hint=HINT)
    return documents[0]


def why_no_template(given: Any) -> str:
    """Return why this cannot be the Pod that every node begins as; '' if it can."""
    if not isinstance(given, dict) or (given.get("apiVersion"), given.get("kind")) != ("v1", "Pod"):
        return "is no Pod: it must have apiVersion: v1 and kind: Pod"
    for part in ("metadata", "spec"):
        if not isinstance(given.get(part, {}), dict):
            return f"is no Pod: {part} is no mapping"
    return next(chain(_misshapen(given), _refused(given)), "")


def _why_no_json(given: Any) -> str:
    """YAML has dates and bytes, which a Pod cannot have."""
    try:
        json.dumps(given, allow_nan=False)
    except (TypeError, ValueError) as error:
        return f"has a value that no Pod can have, a text perhaps that needs quotes: {error}"
    return ""


def _misshapen(pod: Mapping[str, Any]) -> Iterator[str]:
    for place, kind in PARTS.items():
        found: Any = pod
        for part in place.split("."):
            if part == "0":
                found = found[0] if found else {}
                if not isinstance(found, dict):
                    yield "is no Pod: spec.containers has an entry that is no mapping"
                    return
            elif isinstance(found, dict):
                found = found.get(part, {} if part in ("metadata", "spec") else kind())
        if not isinstance(found, kind):
            yield f"is no Pod: {place.replace('.0', '')} is no {'mapping' if kind is dict else 'list'}"
            return
        if kind is list and not all(isinstance(each, dict) for each in found):
            yield f"is no Pod: {place.replace('.0', '')} has an entry that is no mapping"
            return


def _refused(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a template of the right shape has that Gangline sets itself. Its first reason counts: later ones may rest on it."""
    metadata, spec = pod.get("metadata", {}), pod.get("spec", {})
    yield from (
        f"must not have metadata.{name}, which Gangline sets itself" for name in NAMED_BY_US if name in metadata
    )
    yield from (
        f"must not have the label {name}: {LABELS} is Gangline's own"
        for name in metadata.get("labels", {})
        if str(name).startswith(LABELS)
    )
    yield from (
        f"must not change spec.{name}: for a node it is {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in FIXED.items()
        if spec.get(name, value) != value
    )
    yield from (f"must not have spec.{name}, which Gangline sets itself" for name in SET_BY_US if name in spec)
    yield from (
        f"must not tolerate {each.get('key')}: Gangline does, for 30 seconds"
        for each in spec.get("tolerations", [])
        if each.get("key") in LOST
    )
    yield from (
        f"must not have a volume {SHARED_MEMORY}, which is Gangline's own"
        for each in spec.get("volumes", [])
        if each.get("name") == SHARED_MEMORY
    )
    yield from _refused_container(spec.get("containers", []))


def _refused_container(containers: list[dict[str, Any]]) -> Iterator[str]:
    others = [str(each.get("name")) for each in containers if each.get("name") != CONTAINER]
    if others or len(containers) > 1:
        named = f"a container {others[0]}" if others else f"two containers {CONTAINER}"
        yield (
            f"must not have {named}: a node ends with its only container, {CONTAINER}; what runs beside it is an init container with "
            "restartPolicy: Always"
        )
    for container in containers[:1]:
        yield from (
            f"must not have {name} in the container {CONTAINER}, which Gangline sets itself"
            for name in ("command", "args")
            if name in container
        )
        yield from (
            f"must not set {each.get('name')}: variables of the worker's access are Gangline's own"
            for each in container.get("env", [])
            if each.get("name") in ("GANGLINE_SERVER", "GANGLINE_TOKEN", "GANGLINE_NODE")
        )
        yield from (
            f"must not mount anything at {SHM}, where each node has memory"
            for each in container.get("volumeMounts", [])
            if str(each.get("mountPath", "")).rstrip("/") == SHM
        )
