"""Each block of YAML of the page about Kubernetes is what it says: a manifest that a cluster takes, or a template of Pods that are."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from gangline.adapters.pools.kubernetes.manifest import pod_of
from gangline.adapters.pools.kubernetes.settings import KubernetesSettings
from gangline.adapters.pools.kubernetes.template import why_no_template
from gangline.ports.pool import Rental
from tests.conftest import ROOT
from tests.docs.snippets import Snippet, snippets

PAGE = ROOT / "docs" / "pools" / "kubernetes.md"
BLOCKS = [each for each in snippets(PAGE) if each.language == "yaml"]
VERSIONS = ("1.25", "1.31", "1.37")


def place(block: Snippet) -> str:
    return block.place


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [read for read in (yaml.safe_load(each.text) for each in BLOCKS) if read["kind"] == kind]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("block", BLOCKS, ids=place)
def test_every_manifest_is_one_that_kubernetes_knows(block: Snippet, version: str) -> None:
    read = yaml.safe_load(block.text)
    if read["kind"] == "Pod":
        assert why_no_template(read) == ""
        read = pod_of(Rental(name="a", server="http://a", token="t"), KubernetesSettings(), "pool-1", read)
    kubernetes_validate.validate(read, version, strict=True)


def test_the_page_has_what_it_speaks_of() -> None:
    assert [len(of_kind(kind)) for kind in ("Role", "RoleBinding", "Pod")] == [1, 1, 4]
    (role,), (binding,) = of_kind("Role"), of_kind("RoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_the_role_has_the_rights_that_are_used_and_no_more() -> None:
    (role,) = of_kind("Role")
    rights = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    used = {("pods", verb) for verb in ("create", "get", "list", "delete")} | {("pods/log", "get")}
    assert rights == used  # as the driver's requests are: tests/contract/pools/test_kubernetes_wire.py


def test_the_home_of_a_worker_is_its_pods_own() -> None:
    """Several Pods of one machine, each with some of its GPUs, cannot share one."""
    homes = 0
    for pod in of_kind("Pod"):
        volumes = {each["name"]: each for each in pod["spec"].get("volumes", [])}
        for container in pod["spec"].get("containers", []):
            mounted = {each["mountPath"]: volumes[each["name"]] for each in container["volumeMounts"]}
            (home,) = (each["value"] for each in container["env"] if each["name"] == "GANGLINE_HOME")
            assert "emptyDir" in mounted[home]
            homes += 1
    assert homes
