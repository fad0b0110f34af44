"""docs/http.md: every command of the page is run, in its order, against a server, a bucket and a node that are there."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangline import Client
from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.adapters.places.bucket import BucketKey, SourceBucket
from gangline.compose.places import make_deliverer, make_fetcher
from gangline.core.server.settings import ServerSettings, merge_file
from gangline.service.content import bases
from gangline.service.content.bases import BaseStatement
from gangline.service.content.deliver import deliver
from tests.conftest import ROOT
from tests.servers import ACCESS_KEY, SECRET_KEY
from tests.service.conftest import PROJECT, Service, a_service
from tests.service.places.site import Site, a_site, picture
from tests.service.places.test_imports import fetch_all
from tests.service.served import serving
from tests.service.test_rules import succeed

PAGE = (ROOT / "docs" / "http.md").read_text()
SHELL = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
SETTINGS = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
PYTHON, FROM_HERE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PLACE = "s3://gangline/page"  # other tests have the rest of that bucket
HUB_BASE = "stabilityai/stable-diffusion-xl-base-1.0"

needs_tools = pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="the page needs curl and jq")


@pytest.fixture
def site() -> Iterator[Site]:
    with a_site() as site:
        site.put("1.png", picture())
        site.put("2.png", picture("blue"))
        yield site


@pytest.fixture
def service(
    tmp_path: Path, bucket: S3Bucket, site: Site, objects, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    """With the settings of the page, and photos where it says they lie."""
    assert SETTINGS
    for name in ("DOGS", "RESULTS"):
        monkeypatch.setenv(f"{name}_ACCESS_KEY", ACCESS_KEY)
        monkeypatch.setenv(f"{name}_SECRET_KEY", SECRET_KEY)
    monkeypatch.setenv("KENNEL_HUB_TOKEN", "hf_test")
    text = re.sub("(secret_env = .*)", rf'\1\nendpoint = "{bucket.endpoint}"', here(SETTINGS[1], site))
    text = text.replace("10.1.0.0/16", "127.0.0.0/8")
    settings = merge_file(ServerSettings, text, "gangline.toml").settings
    there = SourceBucket(bucket.name, BucketKey(access=ACCESS_KEY, secret=SECRET_KEY, endpoint=bucket.endpoint))
    there.put("page/dogs/timber/1.png", [picture()])
    there.put("page/dogs/timber/1.txt", [b"sks dog"])
    with a_service(tmp_path, str(tmp_path / "db.sqlite"), objects) as service:
        edges = {"fetcher": make_fetcher(tmp_path, settings), "deliverer": make_deliverer(settings)}
        service.deployment = replace(service.deployment, **edges, fetching=settings.fetching)
        service.app.state.deployment = service.deployment
        bases.add(service.deployment, PROJECT, "tiny", service.spec().base, None, BaseStatement(), service.now_ms)
        yield service


@pytest.fixture
def objects(tmp_path: Path):
    from gangline.adapters.objects.local import LocalObjects

    return LocalObjects(tmp_path / "store", "secret")


def here(text: str, site: Site) -> str:
    """What the page calls by invented names."""
    return (
        text.replace("s3://bucket/", f"{PLACE}/").replace("https://photos.example", site.url).replace(HUB_BASE, "tiny")
    )


class Shell:
    """Blocks of the page in one shell's variables, each of which must succeed."""

    def __init__(self, folder: Path, server: str, key: str) -> None:
        self.folder, self.before = folder, f"SERVER={server} KEY={key}\n"

    def run(self, block: str) -> str:
        words = ["bash", "-euo", "pipefail", "-c", self.before + block]
        environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        done = subprocess.run(
            words, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False, env=environment
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def remember_job(self) -> str:
        job = json.loads((self.folder / "job.json").read_text())["summary"]["id"]
        self.before += f"JOB={job}\n"
        return job


@needs_tools
def test_every_command_of_the_page_does_what_it_says(
    service: Service, site: Site, bucket: S3Bucket, tmp_path: Path
) -> None:
    first, submit, list_of_urls, follow, results, delivery, steer, find = SHELL
    assert "SERVER=" in first and "KEY=" in first
    (tmp_path / "shell").mkdir()
    with serving(service.app) as served:
        shell = Shell(tmp_path / "shell", served.url, service.key("member"))
        assert shell.run(here(submit, site)) == "its photos are being fetched\n"
        job = shell.remember_job()
        answer = shell.run(here(list_of_urls, site).replace("--fail-with-body ", ""))
        assert answer == "preset: is not a known field\n"
        right = (
            here(list_of_urls, site)
            .replace(',\n  "preset": null', "")
            .replace("jq -r .detail", "jq -r .summary.because")
        )
        assert shell.run(right) == "its photos are being fetched\n"
        fetch_all(service.deployment)
        node = service.join()
        assignment = service.claim(node)
        assert assignment.job == job and [file.path for file in assignment.inputs][1:] == [
            "captions/1.txt",
            "photos/1.png",
        ]
        succeed(service, node, assignment.hold)
        said = shell.run(follow)
        assert '"state": "succeeded"' in said and "fetched: 1 photo and 1 file of captions fetched" in said
        assert "event: end" in said
        assert "weights.safetensors" in shell.run(results)
        (file,) = service.deployment.store.load("artifacts", job=job)
        assert (tmp_path / "shell" / "results" / file["path"]).read_bytes() == service.objects.read(file["key"])
        assert shell.run(here(delivery, site)).split("\n")[:2] == ["waiting", f"waiting {PLACE}/results/timber/ "]
        fetch_all(service.deployment)
        delivered = json.loads((tmp_path / "shell" / "delivered.json").read_text())["summary"]["id"]
        while (assignment := service.claim(node)).job != delivered:
            succeed(service, node, assignment.hold)
        succeed(service, node, assignment.hold)
        for _ in deliver(service.deployment):
            pass
        there = SourceBucket("gangline", BucketKey(access=ACCESS_KEY, secret=SECRET_KEY, endpoint=bucket.endpoint))
        assert "page/results/timber/weights.safetensors" in dict(there.list("page/results/timber"))
        assert shell.run(steer).split("\n")[1:4] == ["paused", "queued", "canceled"]
        dog, labels, team, report, count = shell.run(here(find, site)).split()
        assert (dog, labels, team) == ("timber", '{"team":"audio"}', "audio")
        assert json.loads(report)["jobs"] == {"queued": 1}
        assert int(count) == len(service.ask("GET", "/v1/jobs").json()["jobs"])


def test_the_lines_of_python_run(service: Service, site: Site) -> None:
    with serving(service.app) as served:
        key = service.key("member")
        lines = here(PYTHON, site).replace("    for told in", "    stop(job)\n    for told in")
        printed: list[object] = []
        with Client(served.url, key) as other:
            names = {"print": printed.append, "stop": lambda job: other.jobs.cancel(job.id)}
            exec(lines, {"server": served.url, "key": key} | names)  # noqa: S102
    assert [getattr(told, "kind", "") for told in printed][:2] == ["submitted", "canceled"]


def test_photos_of_this_machine_are_uploaded_from_python(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-photos").mkdir()
    (tmp_path / "my-photos" / "1.png").write_bytes(picture())
    with serving(service.app) as served:
        key = service.key("member")
        with Client(served.url, key) as other:
            other.bases.add("pony", service.spec().base)
        names: dict[str, Any] = {"server": served.url, "key": key}
        exec(FROM_HERE, names)  # noqa: S102
    assert names["job"].spec["steps"] == 800 and names["job"].spec["train_text_encoder"]


def test_every_form_of_photos_of_the_page_is_understood() -> None:
    from gangline.core.places.places import parse_places

    forms = [json.loads(form) for form in re.findall(r"^\| `([\[\"{].*?)` \|", PAGE, re.MULTILINE)]
    assert len(forms) == 4
    for form in forms:
        assert parse_places(json.loads(json.dumps(form).replace("HOST", "photos.example")))
