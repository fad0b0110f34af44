"""The images of `deploy/`, built of the real Containerfiles and run, the server's below a path behind Caddy: it and the worker's train the
demo's job through the proxy."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks.images import SERVER_BYTES_MAX, WORKER_BYTES_MAX, counted

from gangline.adapters.host.cache import Cache
from gangline.adapters.host.trainer.users import LOCKS
from gangline.core.specs.fields import FilesBase
from gangline.core.views import EndView, EventView
from gangline.data.bases import files_of_base
from tests.contract.pools.kubernetes import kubeconfig
from tests.deploy.images import CONTEXT, Container, Running, Workshop, started, why_not
from tests.deploy.proxied import Proxied, ending
from tests.inputs import BASE, ROOT, file_at
from tests.waiting import until

ASK_A_CLUSTER = """
import sys
from pathlib import Path
from gangline.adapters.pools.kubernetes.settings import KubernetesCluster
from gangline.adapters.pools.kubernetes.wire import KubernetesApi
from gangline.core.errors import Unreachable

Path("kubeconfig").write_text(sys.argv[1])
try:
    KubernetesApi(KubernetesCluster(kubeconfig=Path("kubeconfig")), {}).version()
except Unreachable as error:
    print(error.message)
"""
LACKING = why_not() or ("" if shutil.which("caddy") else "caddy not installed")
pytestmark = [pytest.mark.nightly, pytest.mark.skipif(bool(LACKING), reason=LACKING), pytest.mark.timeout(1800)]
AUTHORITY = "/tmp/authority.crt"
UPLOAD_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Images:
    workshop: Workshop
    server: str
    worker: str


@dataclass(frozen=True)
class Served:
    """A server's container, and the proxy before it."""

    container: Container
    home: Path
    proxied: Proxied

    def reached(self, token: str) -> dict[str, str]:
        return {"GANGLINE_SERVER": self.proxied.url, "GANGLINE_TOKEN": token, "SSL_CERT_FILE": AUTHORITY}

    @property
    def authority(self) -> list[str]:
        """Return the volume by which a container trusts the proxy's certificate."""
        return [f"{self.proxied.folder / 'authority.crt'}:{AUTHORITY}:ro"]

    def gangline(self, *words: str) -> str:
        """Run the command line of the server's image, as its operator."""
        environment = {**self.reached(self.proxied.token), "GANGLINE_HOME": "/tmp/user"}
        return self.container.run("gangline", *words, environment=environment, volumes=self.authority)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """Both, with the tiny base baked into the worker's."""
    context = tmp_path_factory.mktemp("context")
    for name in (".dockerignore", *CONTEXT):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, context / name)
    bake(context / "deploy" / "bases")
    workshop = Workshop(tmp_path_factory.mktemp("workshop"))
    workshop.make_base()
    yield Images(workshop, workshop.build("server", context), workshop.build("worker", context))
    shutil.rmtree(workshop.folder)


def bake(folder: Path) -> None:
    files = tuple(file_at(path, BASE) for path in files_of_base(BASE))
    cache = Cache(folder)
    for file in files:
        shutil.copyfile(BASE / file.path, cache.place(file.sha256))
    cache.remember(FilesBase(files=files).id, files)


@pytest.fixture(scope="module")
def served(images: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    found = Proxied(folder)
    with images.workshop.container(images.server) as container, ending(found.start_caddy()) as found.caddy:
        shutil.copyfile(found.authority, folder / "authority.crt")
        command = container.command(
            *("gangline", "server", "--port", str(found.port), "-o", "json"), environment={"GANGLINE_URL": found.url}
        )
        with started(command, folder / "server.log") as running:
            until(lambda: "join_token" in running.printed or not running.is_running)
            said = json.loads(next(line for line in running.printed.splitlines() if line.startswith("{")))
            found.token, found.join_token = said["operator_key"], said["join_token"]
            home = Path(images.workshop.do("mount", container.name)) / "var" / "lib" / "gangline"
            yield Served(container, home, found)
            running.end()


@pytest.fixture(scope="module")
def node(images: Images, served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    reached = served.reached(served.proxied.join_token)
    # Here containers see each other's processes, so they must not give runs the same user, either.
    LOCKS.mkdir(parents=True, exist_ok=True)
    with images.workshop.container(images.worker) as container:
        command = container.command(
            "gangline", "worker", environment=reached, volumes=[f"{LOCKS}:{LOCKS}", *served.authority]
        )
        with started(command, tmp_path_factory.mktemp("node") / "worker.log") as running:
            until(lambda: "isolation " in running.printed or not running.is_running)
            yield running
            running.end()


def test_the_images_are_as_small_as_was_promised(images: Images) -> None:
    assert counted("server", images.workshop.bytes_of_layers(images.server)) < SERVER_BYTES_MAX
    assert counted("worker", images.workshop.bytes_of_layers(images.worker)) < WORKER_BYTES_MAX


def test_the_server_is_no_root_and_its_home_is_its_own(served: Served) -> None:
    assert served.container.run("id", "-u") == "10001"
    assert (served.home.stat().st_uid, served.home.stat().st_mode & 0o777) == (10001, 0o700)


def test_the_server_has_what_buckets_a_database_and_a_cluster_need(served: Served) -> None:
    modules = "botocore.session, obstore, psycopg, kubernetes.client, kubernetes.config, kubernetes.watch, gangline.web"
    modules += ", PIL._imaging, PIL._avif"
    served.container.run("python", "-c", f"import {modules}\nimport zoneinfo; zoneinfo.ZoneInfo('Europe/Berlin')")
    said = served.container.run("python", "-c", ASK_A_CLUSTER, kubeconfig("http://127.0.0.1:1"))
    assert said == "the Kubernetes API at 127.0.0.1:1 does not answer: no connection"


def test_the_demos_job_is_trained_with_the_base_of_the_workers_image(
    served: Served, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events come through the proxy as they happen."""
    monkeypatch.setenv("SSL_CERT_FILE", str(served.proxied.authority))
    words = ("examples/subject", "--base", "assets/tiny-sdxl", "--recipe", "tiny_subject", "--steps", "20")
    job = json.loads(served.gangline("train", *words, "--hold-out", "crying-cat.png", "--detach", "-o", "json"))["id"]
    assert forget_base(served.home), "so the worker cannot download it"
    node: Running = request.getfixturevalue("node")

    with served.proxied.client() as client:
        messages = [*client.events.follow(job, timeout_s=900)]
    assert isinstance(messages[-1], EndView), node.printed
    seen = {each.kind for each in messages if isinstance(each, EventView)}
    assert {"claimed", "prepared", "succeeded"} <= seen, f"{seen}\n{node.printed}"
    shown = json.loads(served.gangline("jobs", "show", job, "-o", "json"))["summary"]
    assert shown["state"] == "succeeded", f"{shown['because']}\n{node.printed}"


def test_a_large_upload_passes(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(served.proxied.authority))
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(UPLOAD_BYTES)
    with served.proxied.client() as client:
        assert client.files.upload([large], tmp_path)[0].bytes == UPLOAD_BYTES


def forget_base(home: Path) -> int:
    """Delete the weights of the base from the server's store, and return how many files there were."""
    weights = {path.stat().st_size: path.read_bytes() for path in BASE.rglob("*.safetensors")}
    found = [
        path for path in home.rglob("*") if path.is_file() and weights.get(path.stat().st_size) == path.read_bytes()
    ]
    for path in found:
        path.unlink()
    return len(found)


def test_no_run_can_read_the_agents_token(served: Served, node: Running) -> None:
    assert node.is_running and ("isolation uid" in node.printed or "isolation sandbox" in node.printed)
    look = 'id -u; cat /proc/[0-9]*/environ 2>/dev/null | tr "\\0" "\\n" | grep -c GANGLINE_TOKEN; true'
    job = json.loads(served.gangline("run", "-o", "json", "--", "sh", "-c", look))
    printed = served.gangline("logs", job["summary"]["id"]).splitlines()
    uid, found = (int(line) for line in printed if line.isdigit())
    assert uid > 0 and found == 0
