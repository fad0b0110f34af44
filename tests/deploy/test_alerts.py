"""The alerts of deploy/: Prometheus understands them, they fire when they should, and name only metrics and sections that exist."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.adapters.objects.local import LocalObjects
from gangline.api.operating.exposition import ProcessMetrics, expose
from gangline.service.operating.measure import ServiceMetrics
from tests.conftest import ROOT
from tests.deploy.rendered import FOLDER, manifests
from tests.docs.snippets import snippets
from tests.docs.test_links import anchors
from tests.service.conftest import a_service

ALERTS = ROOT / "deploy" / "alerts.yaml"
PAGE = ROOT / "docs" / "operate.md"
METRIC = re.compile(r"\bgangline_\w+")
PARTS = ("_bucket", "_count", "_sum")


def promtool(*words: str) -> str:
    found = shutil.which("promtool")
    assert found, "promtool is missing: apt-get install prometheus"
    ran = subprocess.run((found, *words), capture_output=True, text=True, cwd=ROOT / "deploy", check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


@pytest.fixture
def exported(tmp_path: Path) -> set[str]:
    """The names of all metrics that a server exports, those without a sample too."""
    with a_service(tmp_path, str(tmp_path / "db.sqlite"), LocalObjects(tmp_path / "store", "secret")) as service:
        metrics = ServiceMetrics(service.deployment)
        families = [*metrics.of_process(), *metrics.of_database(service.now_ms)]
        measured = expose(ProcessMetrics(), families).decode()
    declared = re.findall(r"^# TYPE (\w+) (\w+)$", measured, re.MULTILINE)
    assert {kind for _, kind in declared} <= {"gauge", "counter", "histogram"}
    return {name for name, _ in declared} | {"gangline_ready"}


def without_part(name: str) -> str:
    return next((name.removesuffix(part) for part in PARTS if name.endswith(part)), name)


def test_prometheus_understands_each_way_to_scrape_that_the_page_shows(tmp_path: Path) -> None:
    shown = [each.text for each in snippets(PAGE) if "scrape_configs" in each.text]
    assert len(shown) == 2
    token = "/etc/prometheus/gangline-token"
    (tmp_path / "token").touch()
    for text in shown:
        assert "/etc/prometheus/gangline/alerts.yaml" in text and token in text
        here = text.replace("/etc/prometheus/gangline/alerts.yaml", str(ALERTS)).replace(token, f"{tmp_path}/token")
        # Debian's Prometheus was built without Kubernetes.
        here = re.sub(r"kubernetes_sd_configs: .*", "static_configs: [{targets: [pod]}]", here)
        (tmp_path / "prometheus.yml").write_text(here)
        promtool("check", "config", str(tmp_path / "prometheus.yml"))
    (server,) = (each for each in manifests(FOLDER / "base" / "server.yaml") if each["kind"] == "Deployment")
    ((label, value),) = server["spec"]["template"]["metadata"]["labels"].items()
    assert f"__meta_kubernetes_pod_label_{re.sub('[^a-z]', '_', label)}], regex: {value}," in shown[1]


def test_prometheus_understands_every_rule() -> None:
    assert "SUCCESS: 16 rules found" in promtool("check", "rules", "alerts.yaml")


def test_every_alert_fires_at_what_it_says_and_at_nothing_else() -> None:
    promtool("test", "rules", "alerts.test.yaml")


def test_every_alert_is_tried() -> None:
    tried = (ROOT / "deploy" / "alerts.test.yaml").read_text()
    assert [rule["alert"] for rule in alerts() if f'alertname="{rule["alert"]}"' not in tried] == []


def test_alerts_name_only_metrics_that_a_server_exports(exported: set[str]) -> None:
    named = {without_part(name) for rule in rules() for name in METRIC.findall(str(rule["expr"]))}
    assert len(named) > 15
    assert named - exported == set()


def test_the_page_names_every_metric_and_no_other(exported: set[str]) -> None:
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("| `gangline_")]
    named = {name for line in table for name in METRIC.findall(line.split(" | ")[0])}
    ours = {name for name in exported if name.startswith("gangline_")}
    assert (named - ours, ours - named) == (set(), set())


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_where_the_page_says_what_to_do(rule: dict[str, Any]) -> None:
    said = rule["annotations"]
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert said["summary"].endswith(".") and said["description"].endswith(".")
    page, _, anchor = said["runbook"].partition("#")
    assert ROOT / page == PAGE and anchor in anchors(PAGE)
    assert rule["alert"] in PAGE.read_text() or anchor in ("is-it-well", "logs")
