"""The commands of docs/deploy.md and docs/tls.md name files, services, secrets and settings that are there."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest

from tests.conftest import ROOT
from tests.deploy.rendered import FOLDER, OVERLAYS, containers, manifests, merged, name_of, rendered
from tests.deploy.test_files import COMPOSE, DEPLOY, IS_NEWER, KUBERNETES, UNITS, known_variables, lacking, ran
from tests.docs.snippets import commands, snippets, why_not_understood

PAGE = ROOT / "docs" / "deploy.md"
VERBS = {
    "docker": {"build", "up", "exec", "logs", "stop", "run", "start", "restart", "ps"},
    "kubectl": {"create", "apply", "rollout", "exec", "patch"},
}
OF_THE_READER = {
    "/dev/stdin",
    "join-token",
    "salad-key",
    "/etc/gangline",
    "/etc/systemd/system/caddy.service.d",
    "/etc/systemd/system/gangline-server.service.d",
}
"""What `install` takes that the page or its reader had made before."""


def lines(program: str) -> Iterator[list[str]]:
    """Yield the words behind a program, each time that the page runs it: itself, by sudo, or in a container."""
    for snippet in snippets(PAGE):
        for words in commands(snippet.text) if snippet.language == "sh" else ():
            for at, word in enumerate(words):
                runs = {*words[:at]} <= {"sudo", "env", "GANGLINE_HOME=/var/lib/gangline"} or words[at - 1] in (
                    "--",
                    "server",
                )
                if runs and "=" not in word and word.rpartition("/")[2] == program:
                    yield words[at + 1 :]


def test_every_command_of_gangline_is_understood() -> None:
    found = [*lines("gangline")]
    assert len(found) >= 3
    assert [why_not_understood(words) for words in found if why_not_understood(words)] == []


def test_compose_is_asked_for_services_and_profiles_that_are_there() -> None:
    for words in lines("docker"):
        if words[0] != "compose":
            assert words[0] in ("push", "run") or (ROOT / words[words.index("-f") + 1]).is_file(), words
            continue
        verb = next(at for at, word in enumerate(words) if word in VERBS["docker"])
        if "--profile" in words:
            assert words[words.index("--profile") + 1] in COMPOSE["services"]["worker"]["profiles"]
        named = [word for word in words[verb + 1 :] if not word.startswith("-")]
        if words[verb] in ("exec", "logs", "stop", "start", "restart"):
            assert named[0] in COMPOSE["services"]
        if words[verb] == "up":
            assert {*named} <= COMPOSE["services"].keys()
    assert {name for name in ("example.env", "make-secrets") if (DEPLOY / name).exists()} == {
        "example.env",
        "make-secrets",
    }


def test_kubectl_applies_folders_and_makes_the_secrets_that_their_pods_name(tmp_path: Path) -> None:
    subprocess.run([DEPLOY / "make-secrets", tmp_path], check=True)
    made = {each.name for each in tmp_path.iterdir()}
    secrets, applied = dict[str, list[set[str]]](), set[str]()
    for words in lines("kubectl"):
        assert next(word for word in words if word in VERBS["kubectl"])
        if "--kustomize" in words:
            applied.add(words[words.index("--kustomize") + 1])
        if "generic" in words:
            pairs = [word.removeprefix("--from-file=").split("=") for word in words if word.startswith("--from-file=")]
            assert {path for _, path in pairs} <= {f"secrets/{name}" for name in made}
            assert {name for name, _ in pairs} <= known_variables()
            secrets.setdefault(words[words.index("generic") + 1], []).append({name for name, _ in pairs})
        if "--patch-file" in words:
            assert words[words.index("--patch-file") + 1] == "deploy/kubernetes/restore.yaml"
        for word in words:
            if word.startswith("deployment/"):
                assert word.partition("/")[2] in {each["metadata"]["name"] for each in rendered(FOLDER / "one-node")}
    assert applied == {f"deploy/kubernetes/{name}" for name in OVERLAYS}
    wanted = set[str]()
    for _, container in containers(rendered(FOLDER / "postgres-s3")):
        wanted |= {each["secretRef"]["name"] for each in container.get("envFrom", ())}
        for each in container["env"]:
            if reference := each.get("valueFrom", {}).get("secretKeyRef"):
                assert all(reference["key"] in names for names in secrets[reference["name"]])
                wanted.add(reference["name"])
    assert secrets.keys() == wanted


def test_the_certificate_has_the_name_that_the_ingress_takes() -> None:
    (ingress,) = manifests(FOLDER / "ingress" / "ingress.yaml")
    (made,) = (words for words in lines("kubectl") if "tls" in words)
    assert ingress["spec"]["tls"][0]["secretName"] == made[made.index("tls") + 1]


@pytest.mark.parametrize("folder", OVERLAYS)
def test_a_pod_in_which_a_backup_is_restored_has_what_the_server_has_and_runs_none(folder: str) -> None:
    (patch,) = manifests(FOLDER / "restore.yaml")
    (server,) = (each for each in rendered(FOLDER / folder) if name_of(each) == name_of(patch))
    waiting = merged(server, patch)
    kubernetes_validate.validate(waiting, KUBERNETES[-1], strict=True)
    assert (waiting["spec"]["replicas"], waiting["metadata"]["namespace"]) == (1, server["metadata"]["namespace"])
    ((before, of), (after, found)) = containers([server, waiting])
    assert before["volumes"] == after["volumes"]
    assert {name for name in of if of[name] != found.get(name)} == {
        "args",
        "startupProbe",
        "livenessProbe",
        "readinessProbe",
    }
    assert found["command"][0] == "sleep"


def test_no_file_that_may_hold_a_secret_is_made_for_everybody() -> None:
    made = {words[-1] for words in lines("tee")}
    assert made and not [path for path in made if path.startswith("/etc/gangline")]
    for words in lines("install"):
        if "/etc/gangline/" in words[-1]:
            assert words[words.index("-m") + 1] == "0600", words


def test_systemd_starts_units_whose_files_the_page_installs() -> None:
    for words in lines("install"):
        source = next(word for word in words if not word.startswith("-") and not word.isdecimal())
        assert source in OF_THE_READER or (ROOT / source).is_file(), source
    started = {words[-1] for words in lines("systemctl") if words[0] in ("enable", "restart")}
    assert started == {*(unit.stem for unit in UNITS), "caddy"}


def test_every_secret_file_of_a_unit_is_named_on_the_page() -> None:
    text = PAGE.read_text()
    for unit in UNITS:
        for line in unit.read_text().splitlines():
            if line.startswith("LoadCredential="):
                name, _, path = line.partition("=")[2].partition(":")
                assert path == f"/etc/gangline/{name}"
                assert f"`{name}`" in text or f"/etc/gangline/{name}" in text


@lacking("caddy")
def test_caddy_understands_what_the_page_about_tls_shows(tmp_path: Path) -> None:
    shown = [each for each in snippets(ROOT / "docs" / "tls.md") if "reverse_proxy" in each.text]
    assert len(shown) == 2
    for each in shown:
        newer = re.sub(r"buffer_requests.*\n +max_buffer_size", "request_buffers", each.text)  # as the page says
        (tmp_path / "Caddyfile").write_text(newer if IS_NEWER else each.text)
        found = ran("caddy", "adapt", "--config", tmp_path / "Caddyfile", "--adapter", "caddyfile", HOME=str(tmp_path))
        assert found.returncode == 0, found.stderr


def test_the_example_of_an_environment_has_every_value_of_the_compose_file() -> None:
    lines_of_example = (DEPLOY / "example.env").read_text().splitlines()
    named = {line.partition("=")[0] for line in lines_of_example if line and not line.startswith("#")}
    assert named == set(re.findall(r"\$\{(\w+):", (DEPLOY / "compose.yaml").read_text()))


@pytest.mark.skipif(shutil.which("dash") is None, reason="dash is not installed")
def test_the_script_is_one_for_any_shell() -> None:
    found = ran("dash", "-n", DEPLOY / "make-secrets")
    assert (found.returncode, found.stderr) == (0, "")
