"""The files of `deploy/`: each is valid for who reads it, and names no variable, setting, option or address that is not there."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml

from gangline.api.serve import ENDING_S, FINISHING_S, NOTICES_END_S, TELLING_ENDS_S
from gangline.compose.buckets import S3_OPTIONS
from gangline.core.policy import Policy
from gangline.core.server.merging import find_overrides, list_settings, merge_settings, secret_variables
from gangline.core.server.programs import DEFAULT_PORT, SECRETS_OF_BUCKETS
from gangline.core.server.settings import ServerSettings, WorkerSettings, merge_file
from tests.conftest import ROOT
from tests.deploy.proxied import NEWER_BUFFERS, WITH_REQUEST_BUFFERS, caddy_version
from tests.deploy.rendered import FOLDER, OVERLAYS, Manifest, containers, manifests, name_of, rendered
from tests.docs.snippets import why_not_understood

DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
EXPOSURE_MAX = {"gangline-server.service": 20, "gangline-worker.service": 40}
"""In tenths, of `systemd-analyze security`; 96 is a unit that says nothing."""
IS_NEWER = caddy_version() >= WITH_REQUEST_BUFFERS
KUBERNETES = ("1.28.0", kubernetes_validate.latest_version())
BUFFERS = (
    pytest.param({}, marks=pytest.mark.skipif(IS_NEWER, reason="of Caddy before 2.6.4"), id="older"),
    pytest.param(NEWER_BUFFERS, marks=pytest.mark.skipif(not IS_NEWER, reason="of Caddy from 2.6.4"), id="newer"),
)
OF_OTHERS = {*S3_OPTIONS, "FORWARDED_ALLOW_IPS"}
"""Variables that libraries read: boto's, and uvicorn's."""


def lacking(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


def ran(*command: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    words = [str(each) for each in command]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=DEPLOY, env=os.environ | environment, timeout=60
    )


# Variables


def known_variables() -> set[str]:
    secrets = {*secret_variables(ServerSettings), *secret_variables(WorkerSettings), *SECRETS_OF_BUCKETS}
    return (
        OF_OTHERS
        | set(_variables(ServerSettings))
        | set(_variables(WorkerSettings))
        | {f"{each}_FILE" for each in secrets}
    )


def _variables(kind: type) -> Iterator[str]:
    yield from (each.variable for each in list_settings(merge_file(kind, "", "the test").settings) if each.variable)


def variables_of_compose() -> dict[str, Any]:
    return {
        name: value for each in ("server", "worker") for name, value in COMPOSE["services"][each]["environment"].items()
    }


def variables_of_units() -> dict[str, str]:
    lines = [line for unit in UNITS for line in unit.read_text().splitlines()]
    pairs = [line.removeprefix("Environment=").partition("=") for line in lines if line.startswith("Environment=")]
    return {name: value for name, _, value in pairs}


def variables_of_pods(folder: str) -> dict[str, str]:
    return {
        each["name"]: each.get("value", "") for _, of in containers(rendered(FOLDER / folder)) for each in of["env"]
    }


def test_every_variable_that_a_file_sets_is_one_that_gangline_reads() -> None:
    named = {
        *variables_of_compose(),
        *variables_of_units(),
        *(name for each in OVERLAYS for name in variables_of_pods(each)),
    }
    assert len(named) > 12
    assert named <= known_variables(), named - known_variables()
    assert not {"GANGLINE_URI", "GANGLINE_URL_FILE"} & known_variables()


def test_the_values_of_variables_are_ones_that_their_settings_may_have() -> None:
    for values in (
        {**variables_of_compose(), "GANGLINE_URL": "https://gangline.example.org/gangline"},
        *(variables_of_pods(each) for each in OVERLAYS),
    ):
        for kind in (ServerSettings, WorkerSettings):
            merge_settings(kind, {}, "the test", find_overrides(kind, values, {}))


def test_the_settings_of_the_cluster_are_read() -> None:
    (settings,) = (each for each in rendered(FOLDER / "one-node") if each["kind"] == "ConfigMap")
    for name, text in settings["data"].items():
        assert merge_file(ServerSettings, text, name).settings.policy.stop_grace_s == Policy().stop_grace_s


# What is started, how it is asked and how it is stopped


def commands() -> Iterator[list[str]]:
    for unit in UNITS:
        (line,) = (line for line in unit.read_text().splitlines() if line.startswith("ExecStart="))
        yield line.split()[1:]
    for folder in OVERLAYS:
        yield from ([str(word) for word in of["args"]] for _, of in containers(rendered(FOLDER / folder)))


def test_every_command_is_understood() -> None:
    found = list(commands())
    assert {words[0] for words in found} == {"server", "worker"}
    assert [why_not_understood(words) for words in found if why_not_understood(words)] == []


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def test_whoever_is_stopped_has_the_time_that_it_needs() -> None:
    leaves_service_s = 5
    needed = {"server": ENDING_S + leaves_service_s, "worker": Policy().stop_grace_s}
    given = [(name, seconds(COMPOSE["services"][name]["stop_grace_period"])) for name in needed]
    for unit in UNITS:
        (line,) = (line for line in unit.read_text().splitlines() if line.startswith("TimeoutStopSec="))
        given.append((unit.stem.removeprefix("gangline-"), int(line.partition("=")[2])))
    for pod, of in containers(rendered(FOLDER / "postgres-s3")):
        drained_s = sum(float(each["value"]) for each in of["env"] if each["name"] == "GANGLINE_DRAIN_S")
        given.append((of["name"], pod["terminationGracePeriodSeconds"] - drained_s))
    assert len(given) == 6
    assert all(has > needed[name] for name, has in given), given


def test_the_texts_say_how_long_a_server_takes_to_stop() -> None:
    assert FINISHING_S + 2 * NOTICES_END_S + TELLING_ENDS_S < ENDING_S
    finishing, ending = f"{FINISHING_S} s", f"{ENDING_S:g} s"
    for file in (
        ROOT / "docs" / "operate.md",
        DEPLOY / "systemd" / "gangline-server.service",
        FOLDER / "base" / "server.yaml",
    ):
        text = file.read_text()
        assert finishing in text and ending in text, file


def test_probes_and_proxies_ask_the_port_that_the_server_listens_on() -> None:
    assert COMPOSE["services"]["caddy"]["environment"]["UPSTREAMS"] == f"server:{DEFAULT_PORT}"
    assert f"127.0.0.1:{DEFAULT_PORT}" in (DEPLOY / "Caddyfile").read_text()
    assert f"127.0.0.1:{DEFAULT_PORT}/readyz" in COMPOSE["services"]["server"]["healthcheck"]["test"][-1]
    (server,) = (of for _, of in containers(rendered(FOLDER / "one-node")) if of["name"] == "server")
    assert server["ports"] == [{"name": "http", "containerPort": DEFAULT_PORT}]
    asked = {name: server[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness")}
    assert {each["port"] for each in asked.values()} == {"http"}
    assert [each["path"] for each in asked.values()] == ["/healthz", "/readyz"]


def test_a_server_that_lost_its_database_is_not_restarted() -> None:
    (server,) = (of for _, of in containers(rendered(FOLDER / "postgres-s3")) if of["name"] == "server")
    assert server["livenessProbe"]["tcpSocket"] == {"port": "http"}
    assert "httpGet" not in server["livenessProbe"]


def test_one_of_several_servers_answers_until_proxies_have_noticed_that_it_stops_and_the_only_one_ends_at_once() -> (
    None
):
    (server,) = (of for _, of in containers(rendered(FOLDER / "postgres-s3")) if of["name"] == "server")
    probe = server["readinessProbe"]
    noticed_s = probe["periodSeconds"] * probe["failureThreshold"]
    assert float(variables_of_pods("postgres-s3")["GANGLINE_DRAIN_S"]) >= noticed_s
    assert float(variables_of_pods("one-node")["GANGLINE_DRAIN_S"]) == 0
    assert "lifecycle" not in server


def test_the_bucket_is_the_one_that_caddy_leads_to() -> None:
    bucket = urlsplit(COMPOSE["services"]["server"]["environment"]["GANGLINE_OBJECTS"]).netloc
    assert f"-bucket={bucket}" in COMPOSE["services"]["s3"]["command"]
    assert f"reverse_proxy /{bucket}* {{$FILES_UPSTREAM:" in (DEPLOY / "parts" / "files.caddy").read_text()


# Compose


@lacking("docker-compose")
def test_docker_compose_understands_its_file() -> None:
    found = ran("docker-compose", "-f", "compose.yaml", "--env-file", "example.env", "config")
    assert found.returncode == 0, found.stderr
    services = yaml.safe_load(found.stdout)["services"]
    assert services.keys() == COMPOSE["services"].keys()
    assert {name for name, each in services.items() if "profiles" in each} == {"worker"}
    assert services["server"]["environment"]["GANGLINE_URL"] == "https://gangline.example.org"
    assert services["worker"]["environment"]["GANGLINE_SERVER"] == "https://gangline.example.org"


@lacking("docker-compose")
def test_docker_compose_says_which_value_lacks(tmp_path: Path) -> None:
    (tmp_path / "env").touch()
    found = ran("docker-compose", "-f", "compose.yaml", "--env-file", tmp_path / "env", "config")
    assert found.returncode != 0
    assert "set SITE_HOST in .env" in found.stderr


def test_every_service_is_of_one_version_restarts_and_has_time_to_stop() -> None:
    for name, service in COMPOSE["services"].items():
        assert "build" in service or service["image"].rpartition(":")[2][0].isdecimal(), name
        assert (service["restart"], "stop_grace_period" in service) == ("unless-stopped", True), name
    waited_for = {name for each in COMPOSE["services"].values() for name in each.get("depends_on", ())}
    assert {name for name, each in COMPOSE["services"].items() if "healthcheck" in each} == waited_for - {"caddy"}


# Secrets


def test_the_script_makes_every_secret_of_the_compose_file_and_keeps_it(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    assert ran(DEPLOY / "make-secrets", folder).returncode == 0
    made = {each.name: each.read_text().strip() for each in folder.iterdir() if each.is_file()}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {f"secrets/{name}" for name in made} == {each["file"] for each in COMPOSE["secrets"].values()}
    assert {name for each in COMPOSE["services"].values() for name in each.get("secrets", ())} == COMPOSE[
        "secrets"
    ].keys()
    assert ran(DEPLOY / "make-secrets", folder).returncode == 0
    assert made == {each.name: each.read_text().strip() for each in folder.iterdir() if each.is_file()}
    assert {name for name, value in made.items() if not value} == {"hf-token", "mail-password"}, "which are of others"
    mounted = COMPOSE["services"]["server"]["environment"]["GANGLINE_POOL_SECRETS"]
    assert f"./secrets/pools:{mounted}:ro" in COMPOSE["services"]["server"]["volumes"]
    assert (folder / "pools").is_dir()
    values = {
        "GANGLINE_OPERATOR_KEY": made["operator-key"],
        "GANGLINE_JOIN_TOKEN": made["join-token"],
        "GANGLINE_SECRETS_KEY": made["secrets-key"],
        "GANGLINE_DATABASE_URL": made["database-url"],
        "GANGLINE_METRICS_TOKEN": made["metrics-token"],
    }
    program = merge_settings(ServerSettings, {}, "the test", find_overrides(ServerSettings, values, {})).settings.server
    assert [getattr(program, name.lower().removeprefix("gangline_")) for name in values] == list(values.values())
    assert urlsplit(program.database_url).password == made["postgres-password"]
    assert urlsplit(program.database_url).hostname in COMPOSE["services"]
    (identity,) = json.loads(made["s3.json"])["identities"]
    assert identity["credentials"] == [{"accessKey": made["s3-access-key"], "secretKey": made["s3-secret-key"]}]


def test_no_file_holds_a_secret() -> None:
    secrets = {*secret_variables(ServerSettings), *secret_variables(WorkerSettings), *SECRETS_OF_BUCKETS}
    everywhere = {
        **variables_of_compose(),
        **variables_of_units(),
        **variables_of_pods("one-node"),
        **variables_of_pods("postgres-s3"),
    }
    assert {name for name, value in everywhere.items() if name in secrets and value} == set()


# Kubernetes


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("folder", OVERLAYS)
def test_every_manifest_is_one_of_kubernetes(folder: str, version: str) -> None:
    found = rendered(FOLDER / folder)
    kinds = [each["kind"] for each in found]
    assert {"Deployment", "Service", "Role", "NetworkPolicy", "Ingress", "ConfigMap"} <= set(kinds)
    for each in found:
        kubernetes_validate.validate(each, version, strict=True)


@lacking("kubectl")
@pytest.mark.parametrize("folder", OVERLAYS)
def test_kustomize_renders_what_these_tests_look_at(folder: str) -> None:
    found = ran("kubectl", "kustomize", FOLDER / folder)
    assert (found.returncode, found.stderr) == (0, "")
    ours = rendered(FOLDER / folder)
    assert {name_of(each): each for each in yaml.safe_load_all(found.stdout)} == {name_of(each): each for each in ours}
    assert len({name_of(each) for each in ours}) == len(ours)


def test_a_manifest_with_a_misspelt_field_is_found() -> None:
    (wrong,) = (each for each in rendered(FOLDER / "one-node") if each["kind"] == "Service")
    wrong["spec"]["picks"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES[-1], strict=True)


def test_every_file_of_the_folders_is_used() -> None:
    for folder in (each.parent for each in FOLDER.glob("*/kustomization.yaml")):
        of = yaml.safe_load((folder / "kustomization.yaml").read_text())
        used = {*of["resources"], *(each["path"] for each in of.get("patches", ())), "kustomization.yaml"}
        assert {each.name for each in folder.iterdir()} <= used, folder


def _one(found: list[Manifest], kind: str, name: str) -> Manifest:
    (one,) = (each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return one


@pytest.mark.parametrize("folder", OVERLAYS)
def test_what_a_manifest_names_is_there(folder: str) -> None:
    found = rendered(FOLDER / folder)
    assert {each["metadata"].get("namespace", "gangline") for each in found} == {"gangline"}
    for workload in (each for each in found if each["kind"] == "Deployment"):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
        pod = workload["spec"]["template"]["spec"]
        volumes = {each["name"]: each for each in pod["volumes"]}
        for container in pod["containers"]:
            assert {each["name"] for each in container["volumeMounts"]} == volumes.keys()
            assert container["image"].startswith("registry.example.org/gangline-")
        for volume in volumes.values():
            if "configMap" in volume:
                _one(found, "ConfigMap", volume["configMap"]["name"])
            if "persistentVolumeClaim" in volume:
                _one(found, "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
    server = _one(found, "Deployment", "gangline-server")
    _one(found, "ServiceAccount", server["spec"]["template"]["spec"]["serviceAccountName"])
    service = _one(found, "Service", "gangline-server")
    assert service["spec"]["selector"] == server["spec"]["selector"]["matchLabels"]
    worker = {
        each["name"]: each.get("value")
        for each in _one(found, "Deployment", "gangline-worker")["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert worker["GANGLINE_SERVER"] == f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    (rule,) = _one(found, "Ingress", "gangline")["spec"]["rules"]
    assert variables_of_pods(folder)["GANGLINE_URL"] == f"https://{rule['host']}"


def test_one_node_has_one_server_on_its_volume_and_two_servers_share_nothing_but_database_and_bucket() -> None:
    one, two = rendered(FOLDER / "one-node"), rendered(FOLDER / "postgres-s3")
    alone, both = _one(one, "Deployment", "gangline-server")["spec"], _one(two, "Deployment", "gangline-server")["spec"]
    assert (alone["replicas"], alone["strategy"]) == (1, {"type": "Recreate"})
    assert {"name": "home", "persistentVolumeClaim": {"claimName": "gangline-home"}} in alone["template"]["spec"][
        "volumes"
    ]
    assert not [each for each in one if each["kind"] == "PodDisruptionBudget"]
    assert both["replicas"] == 2
    assert _one(two, "PodDisruptionBudget", "gangline-server")["spec"]["minAvailable"] == 1
    assert {"name": "home", "emptyDir": {}} in both["template"]["spec"]["volumes"]
    assert "GANGLINE_OBJECTS" in variables_of_pods("postgres-s3")


def test_the_role_lets_a_server_rent_nodes_and_do_nothing_else() -> None:
    role = _one(manifests(FOLDER / "base" / "rbac.yaml"), "Role", "gangline-nodes")
    assert {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]} == {
        *(("pods", verb) for verb in ("create", "delete", "get", "list")),
        ("pods/log", "get"),
    }


# systemd and Caddy


@lacking("systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_its_units_and_finds_them_closed(tmp_path: Path, unit: Path) -> None:
    here = tmp_path / unit.name
    here.write_text(
        unit.read_text().replace("/opt/gangline/bin/gangline", "/bin/true")
    )  # which would have to be installed
    found = ran("systemd-analyze", "verify", here)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")
    limit = EXPOSURE_MAX[unit.name]
    found = ran("systemd-analyze", "security", "--offline=true", f"--threshold={limit}", here)
    assert found.returncode == 0, found.stdout.splitlines()[-1]


def test_compose_sets_the_buffers_that_the_caddyfile_names_for_its_newer_caddy() -> None:
    text = (DEPLOY / "Caddyfile").read_text()
    named = dict(re.findall(r'\b([A-Z]+)="([^"]*)"', text))
    assert named == NEWER_BUFFERS
    older = {name: re.search(rf"{{\${name}:max_buffer_size (\w+)}}", text) for name in ("BODIES", "BATCHES")}
    assert {name: f"request_buffers {found[1]}" for name, found in older.items() if found} | {"BUFFERING": ""} == named
    image, _, tag = COMPOSE["services"]["caddy"]["image"].partition(":")
    assert image == "docker.io/library/caddy" and re.match(r"2\.\d\d", tag)


@lacking("caddy")
@pytest.mark.parametrize("buffers", BUFFERS)
@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SITE_ADDRESS": "gangline.example.org", "SITE_PATH": "", "SITE_TLS": "", "UPSTREAMS": "server:8420"},
        {"SITE_PATH": "/gangline", "SITE_TLS": "tls internal", "UPSTREAMS": "a:8420 b:8420"},
    ],
    ids=["defaults", "compose", "path"],
)
def test_caddy_understands_its_file(tmp_path: Path, environment: dict[str, str], buffers: dict[str, str]) -> None:
    command = ("caddy", "validate", "--config", "Caddyfile", "--adapter", "caddyfile")
    found = ran(*command, HOME=str(tmp_path), **environment, **buffers)
    assert found.returncode == 0, found.stderr
    found = ran("caddy", "fmt", "Caddyfile")
    assert [line.rstrip() for line in found.stdout.splitlines()] == (DEPLOY / "Caddyfile").read_text().splitlines()
