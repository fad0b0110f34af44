"""The Containerfiles of `deploy/` as hadolint reads them, and what they promise by their words alone."""

import re
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

from gangline.core.server.programs import DEFAULT_PORT
from tests.deploy.images import CONTEXT
from tests.inputs import ROOT

DEPLOY = ROOT / "deploy"
FILES = sorted(DEPLOY.glob("Containerfile.*"))
OF_KUBERNETES = re.compile(r"^\s*(?:import kubernetes\b|from kubernetes\b).*$", re.MULTILINE)
SERVER, WORKER = (DEPLOY / f"Containerfile.{name}" for name in ("server", "worker"))


def instructions(path: Path) -> list[str]:
    """Return each instruction as one line, comments left out."""
    lines = (line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return re.sub(r"\s*\\\n\s*", " ", "\n".join(lines)).splitlines()


def stages(path: Path) -> list[list[str]]:
    words = instructions(path)
    begins = [number for number, each in enumerate(words) if each.startswith("FROM ")]
    return [words[begin:end] for begin, end in zip(begins, [*begins[1:], len(words)], strict=True)]


def last_stage(path: Path) -> list[str]:
    return stages(path)[-1]


@pytest.mark.parametrize("path", FILES, ids=[path.suffix[1:] for path in FILES])
def test_hadolint_finds_nothing(path: Path) -> None:
    program = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run([program, "--failure-threshold", "style", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", FILES, ids=[path.suffix[1:] for path in FILES])
def test_every_stage_begins_at_the_base_that_the_builder_names(path: Path) -> None:
    words = instructions(path)
    stages = {each.split()[3] for each in words if each.startswith("FROM ") and " AS " in each}
    begins = [each.split()[1] for each in words if each.startswith("FROM ")]
    assert set(begins) <= {"${BASE}", *stages}
    assert re.fullmatch(r"ARG BASE=\S+:\S+", words[0])


@pytest.mark.parametrize("path", FILES, ids=[path.suffix[1:] for path in FILES])
def test_all_packages_have_the_versions_that_the_tests_had(path: Path) -> None:
    installs = [each for each in instructions(path) if " pip" not in each and re.search(r"/pip\b.* install ", each)]
    assert installs
    for each in installs:
        assert all("constraints.txt" in call for call in each.split(" && ") if " install " in call and "pip" in call)
        assert "--no-cache-dir" in each


@pytest.mark.parametrize("path", FILES, ids=[path.suffix[1:] for path in FILES])
def test_the_wheel_is_built_by_what_the_tests_had_and_that_setting_is_in_no_image(path: Path) -> None:
    *earlier, last = stages(path)
    (building,) = (each for each in earlier if "COPY . ." in each)
    pinned = building[building.index("COPY . .") + 1]
    names = (
        "PIP_CONSTRAINT",
        "PIP_BUILD_CONSTRAINT",
    )  # pip reads the first one up to 25.2, and the second from 25.3 on
    assert pinned == "ENV " + " ".join(f"{name}=/src/constraints.txt" for name in names)
    assert "WORKDIR /src" in building
    assert "PIP_" not in " ".join(last) and not any(
        each[0].split()[1] == building[0].split()[-1] for each in (*earlier, last)
    )
    (backend,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert f"\n{backend.partition('>')[0]}==" in (ROOT / "constraints.txt").read_text()


@pytest.mark.parametrize("path", FILES, ids=[path.suffix[1:] for path in FILES])
def test_nothing_of_who_builds_is_in_an_image(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"(?i)(index-url|proxy|token|password|secret)\s*=?\s*(https?:|gl_)", text)
    assert "trusted-host" not in text and "PIP_INDEX" not in text


def test_the_server_is_nobody_in_particular_and_listens_where_the_docs_say() -> None:
    words = last_stage(SERVER)
    assert "USER 10001:10001" in words and f"EXPOSE {DEFAULT_PORT}" in words
    assert 'CMD ["server", "--host", "0.0.0.0"]' in words and 'ENTRYPOINT ["gangline"]' in words


def test_the_agent_of_a_worker_is_root_so_that_its_runs_need_not_be() -> None:
    words = last_stage(WORKER)
    assert not [each for each in words if each.startswith("USER ")]
    assert 'CMD ["worker"]' in words and 'ENTRYPOINT ["gangline"]' in words


def test_builds_see_no_more_than_the_wheel_is_made_of() -> None:
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"
    named = {"LICENSE", "NOTICE", "README.md", "pyproject.toml", "constraints.txt", "src"}
    shared = {"assets", "docs", "examples", "recipes"}
    assert set(CONTEXT) == named | shared | {"deploy/bases", "deploy/slim.sh"}
    assert all((ROOT / each).exists() for each in CONTEXT)


def test_of_the_client_of_kubernetes_no_class_is_named_that_images_lack() -> None:
    named = {name for path in (ROOT / "src").rglob("*.py") for name in OF_KUBERNETES.findall(path.read_text())}
    assert named == {"from kubernetes import client, config"}
    source = (ROOT / "src" / "gangline" / "adapters" / "pools" / "kubernetes" / "wire.py").read_text()
    assert set(re.findall(r"\bclient\.([A-Z]\w+)", source)) == {"ApiClient", "ApiException", "Configuration"}


def test_slimming_leaves_what_programs_load(tmp_path: Path) -> None:
    left = {
        "kubernetes/client/__init__.pyc",
        "kubernetes/client/models/__init__.pyc",
        "botocore/data/s3/service-2.json.gz",
        "botocore/data/endpoints.json",
        "bitsandbytes/libbitsandbytes_cpu.so",
        "bitsandbytes/libbitsandbytes_cuda130.so",
        "pyarrow/libarrow.so.2600",
        "numpy/testing/__init__.py",
        "torch/include/torch.h",
        "torch/tests/data.py",
    }
    removed = {
        "kubernetes/client/__init__.py",
        "kubernetes/client/api/core_v1_api.py",
        "kubernetes/client/models/__init__.py",
        "kubernetes/client/models/v1_pod.py",
        "kubernetes/aio/__init__.py",
        "aiohttp/__init__.py",
        "botocore/data/ec2/service-2.json.gz",
        "bitsandbytes/libbitsandbytes_cuda128.so",
        "bitsandbytes/libbitsandbytes_rocm72.so",
        "pyarrow/libarrow_flight.so.2600",
        "numpy/tests/test_all.py",
        "uvloop/loop.pyx",
    }
    for name in {each for each in (*left, *removed) if not each.endswith(".pyc")}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    command = ["/bin/sh", DEPLOY / "slim.sh", tmp_path, "cu130"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    )
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == left, done.stderr
