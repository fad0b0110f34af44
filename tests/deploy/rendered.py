"""The manifests of `deploy/kubernetes` as kustomize renders them, of what these folders use of it: resources, components, strategic merge
patches, and a namespace, labels and images for all."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("one-node", "postgres-s3")
KNOWN = {"apiVersion", "kind", "namespace", "labels", "resources", "components", "patches", "images"}
MERGED_BY = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}
"""The lists of the API that are merged by a field of their items (`x-kubernetes-patch-merge-key`). Others are replaced."""
WITHOUT_NAMESPACE = ("Namespace",)
Manifest = dict[str, Any]


def manifests(file: Path) -> list[Manifest]:
    return [each for each in yaml.safe_load_all(file.read_text()) if each]


def name_of(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def rendered(folder: Path) -> list[Manifest]:
    """Return what `kubectl apply -k FOLDER` applies. It is an error if a patch has no target."""
    of = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert of.keys() <= KNOWN, of.keys() - KNOWN
    found: dict[tuple[str, str], Manifest] = {}
    for each in (part for name in (*of["resources"], *of.get("components", ())) for part in _read(folder / name)):
        assert name_of(each) not in found, name_of(each)
        found[name_of(each)] = each
    for patch in (part for entry in of.get("patches", ()) for part in manifests(folder / entry["path"])):
        target = found[name_of(patch)]
        assert patch["metadata"]["namespace"] == target["metadata"]["namespace"]
        if patch.pop("$patch", "") == "delete":
            del found[name_of(patch)]
        else:
            found[name_of(patch)] = merged(target, patch)
    return [_with_common(of, each) for each in found.values()]


def merged(target: Any, patch: Any, within: str = "") -> Any:
    """Merge as the API does: tables by their names, and null removes."""
    if isinstance(target, dict) and isinstance(patch, dict):
        both = dict(target)
        for name, value in patch.items():
            if value is None:
                both.pop(name, None)
            else:
                both[name] = merged(both.get(name), value, name)
        return both
    key = MERGED_BY.get(within)
    if key and isinstance(target, list):
        before = {each[key]: each for each in target}
        patched = [merged(before.pop(each[key], None), each) for each in patch]
        return [*patched, *before.values()]
    return deepcopy(patch)


def containers(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """Yield each Pod's spec with each of its containers."""
    for each in manifests:
        if "template" in each.get("spec", {}):
            pod = each["spec"]["template"]["spec"]
            yield from ((pod, container) for container in pod["containers"])


def _read(place: Path) -> list[Manifest]:
    return rendered(place) if place.is_dir() else manifests(place)


def _with_common(of: Manifest, manifest: Manifest) -> Manifest:
    found = deepcopy(manifest)
    if "namespace" in of and found["kind"] not in WITHOUT_NAMESPACE:
        found["metadata"]["namespace"] = of["namespace"]
    for labels in of.get("labels", ()):
        found["metadata"].setdefault("labels", {}).update(labels["pairs"])
    images = {each["name"]: f"{each['newName']}:{each['newTag']}" for each in of.get("images", ())}
    for _, container in containers([found]):
        container["image"] = images.get(container["image"], container["image"])
    return found
