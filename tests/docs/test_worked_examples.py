"""Every worked example of docs/contributing runs against the real code, as the page has it."""

import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Response

from gangline.adapters.host.trainer import process as trainer_process
from gangline.adapters.host.trainer.process import ProcessTrainer
from gangline.adapters.host.trainer.run import ProcessRun
from gangline.adapters.objects.local import LocalObjects
from gangline.adapters.store import open_store, sqlite
from gangline.adapters.store.statements import migrations, split_statements
from gangline.cli import main as cli
from gangline.core.errors import GanglineError, Unreachable
from gangline.core.models import families
from gangline.core.models.recognition import recognise_file, recognise_folder
from gangline.core.runs.contract import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STOPPED, Failure
from gangline.core.runs.metrics import Reading
from gangline.core.specs.form import offered_settings
from gangline.core.specs.settings import SettingGroup, settings_of
from gangline.data.making.conversion import Conversion, left_out_counts
from gangline.data.making.convert import convert
from gangline.data.making.engine import Processes
from gangline.data.making.fetch import Fetching
from gangline.data.place import DataPlace
from gangline.ports.pool import Pool
from tests.conftest import Typed
from tests.contract import test_migrations
from tests.contract.pools.suite import PLACES, PoolSuite
from tests.data.made import encoded, picture
from tests.docs.pages import blocks, make_module
from tests.servers import served
from tests.service.conftest import OPERATOR, Service, a_service
from tests.service.served import serving
from tests.unit.models import test_families
from tests.unit.models.test_recognition import header
from tests.unit.specs.specs_of_every_setting import LORA_WITH_ALL, keys_of
from tests.waiting import until


@pytest.fixture
def module(tmp_path: Path) -> Callable[[str], ModuleType]:
    return lambda page: make_module(page, tmp_path)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    objects = LocalObjects(tmp_path / "store", "secret")
    with a_service(tmp_path, str(tmp_path / "db.sqlite"), objects) as service:
        yield service


# A pool driver


def provider() -> FastAPI:
    """A provider with room for two nodes, over HTTP."""
    app, clock = FastAPI(), itertools.count(1_000)
    instances: dict[str, dict[str, Any]] = {}

    @app.get("/offers")
    def offers() -> list[dict[str, Any]]:
        return [{"id": "small", "gpu": "RTX 4090", "gpu_memory_gb": 24, "usd_per_hour": 0.3}]

    @app.post("/instances")
    def start(wanted: dict[str, Any]) -> dict[str, Any]:
        if wanted["offer"] != "small":
            raise HTTPException(404)
        if sum(each["billed_to_ms"] is None for each in instances.values()) == PLACES:
            raise HTTPException(409)
        new = {"id": f"i-{len(instances)}", "billed_from_ms": next(clock), "billed_to_ms": None, "ended": ""}
        instances[new["id"]] = new | wanted
        return instances[new["id"]]

    @app.get("/instances")
    def list_all() -> list[dict[str, Any]]:
        return list(instances.values())

    @app.delete("/instances/{instance}")
    def stop(instance: str) -> Response:
        if instance not in instances:
            raise HTTPException(404)
        if instances[instance]["billed_to_ms"] is None:
            instances[instance] |= {"billed_to_ms": next(clock), "ended": "stopped"}
        return Response(status_code=204)

    return app


class SmallProvider:
    """The provider, and the page's driver of it."""

    def __init__(self, url: str, driver: Pool) -> None:
        self.driver = driver
        self._url = url

    def run(self, name: str) -> None:
        """A node of this provider runs at once."""

    def kill(self, name: str) -> None:
        (instance,) = [each["id"] for each in httpx.get(f"{self._url}/instances").json() if each["name"] == name]
        httpx.delete(f"{self._url}/instances/{instance}")


class TestPoolDriver(PoolSuite):
    @pytest.fixture
    def provider(self, module: Callable[[str], ModuleType]) -> Iterator[SmallProvider]:
        with served(provider()) as url:
            yield SmallProvider(url, module("pool-driver").ExamplePool(url, "a key"))


def test_the_pool_driver_says_so_where_its_provider_is_away(module: Callable[[str], ModuleType]) -> None:
    pool = module("pool-driver").ExamplePool("http://127.0.0.1:9", "a key")
    with pytest.raises(Unreachable, match="does not answer"):
        pool.list()


# A job setting


def test_the_job_setting_is_an_option_and_in_the_keys_of_what_it_decides(module: Callable[[str], ModuleType]) -> None:
    spec = module("job-setting").LoraSpecWithBlur
    assert settings_of(spec)["blur"].says == "Blur each photo by this radius before it is encoded."
    assert "blur" in offered_settings(spec)[SettingGroup.CUTTING]
    known = {field.name: getattr(LORA_WITH_ALL, field.name) for field in fields(LORA_WITH_ALL)}
    old, before, now = keys_of(LORA_WITH_ALL), keys_of(spec(**known)), keys_of(spec(**known, blur=2.0))
    assert before["hash"] == old["hash"]
    assert {key for key in now if now[key] != before[key]} == {"latents", "hash"}


# A model family


def test_the_model_family_is_whole_and_recognised(
    module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    family = module("model-family").BIG_G
    monkeypatch.setitem(families.FAMILIES, family.name, family)
    test_families.test_a_family_is_whole(family)
    test_families.test_no_two_families_look_the_same()
    found = recognise_file(header("cond_stage_model.bigg.ln_final.weight", "first_stage_model.encoder.conv_in.weight"))
    assert (found.family, found.because.partition(";")[0]) == (family, family.mark)
    unet, scheduler = {"in_channels": 4, "cross_attention_dim": 1280}, {"prediction_type": "epsilon"}
    folder = recognise_folder("some", family.pipeline, unet=unet, text_encoder={}, scheduler=scheduler)
    assert folder.family is family


# A trainer


@pytest.fixture
def begin(module: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Start the program of the page as a node does, in a new directory."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(trainer_process, "MODULES", {"example": module("trainer").__name__})

    def begin(name: str, spec: dict[str, Any], resume: Path | None = None) -> ProcessRun:
        run = tmp_path / name
        run.mkdir()
        (run / "spec.json").write_text(json.dumps(spec))
        if resume:
            shutil.copytree(resume, run / "resume" / resume.name)
        return ProcessTrainer().start("example", run)

    return begin


def ended(run: ProcessRun) -> int:
    until(lambda: run.exit_code() is not None)
    code = run.exit_code()
    assert code is not None
    return code


def test_the_trainer_stops_resumes_and_ends_with_the_same_bits(begin: Callable[..., ProcessRun]) -> None:
    spec = {"steps": 20_000}
    whole, first = begin("whole", spec), begin("first", spec)
    until(lambda: first.progress().step > 10)
    first.ask_to_save()
    until(lambda: bool(first.checkpoints()))
    first.ask_to_stop()
    assert ended(first) == EXIT_STOPPED
    saved = first.checkpoints()
    assert len(saved) == 2 and saved[-1].manifest.step == first.progress().step < spec["steps"]
    assert Reading in {type(reading) for reading in first.take_readings()}
    second = begin("second", spec, saved[-1].folder)
    assert (ended(second), ended(whole)) == (EXIT_DONE, EXIT_DONE)
    roots = [(run.directory / "output" / "root.json").read_bytes() for run in (whole, second)]
    assert roots[0] == roots[1]
    assert float.fromhex(json.loads(roots[0])["root"]) == pytest.approx(2**0.5, abs=0.01)
    report = (second.directory / "progress.jsonl").read_text().splitlines()
    assert json.loads(report[0])["step"] == saved[-1].manifest.step


def test_the_trainer_says_that_its_input_is_bad(begin: Callable[..., ProcessRun]) -> None:
    run = begin("bad", {"steps": "many"})
    assert ended(run) == EXIT_BAD_INPUT
    assert run.failure() == Failure(kind="bad data", because="steps is 'many', not a number of steps")


# A data source


def test_the_data_source_is_converted(module: Callable[[str], ModuleType], tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, count in (("a.sqlite", 5), ("b.sqlite", 2)):
        with closing(sqlite3.connect(source / name)) as database, database:
            database.execute("CREATE TABLE images (image BLOB, caption TEXT, author TEXT)")
            rows = [(encoded(picture(number), "PNG"), f"{name} {number}", "me") for number in range(count)]
            database.executemany("INSERT INTO images VALUES (?, ?, ?)", [*rows, (None, "nothing", "me")])
    place = DataPlace(str(source))
    found = module("data-source").DatabaseSource(place)
    conversion = Conversion(source=found, target=DataPlace(str(tmp_path / "made.lance")), rows=2)
    data, done = convert(conversion, place.entries(), Processes(1), Fetching())
    rows = data.table.to_table(columns=["captions", "author", "source"]).to_pylist()
    assert sorted(row["captions"][0] for row in rows) == [f"a.sqlite {n}" for n in range(5)] + [
        "b.sqlite 0",
        "b.sqlite 1",
    ]
    assert {row["author"] for row in rows} == {"me"} and "a.sqlite#5" in {row["source"] for row in rows}
    assert left_out_counts(done) == {"no image": 2}
    assert len(done) == 5, "no shard has rows of two files"


# A notifier

EXEC = """
import sys, time
from pathlib import Path
from gangline.cli.main import main
from gangline.compose import exec
from worked_notifier import EventLines

exec._make_notifier = lambda url, say: EventLines(Path(url), lambda: time.time_ns() // 1_000_000)
sys.argv[0] = "gangline"
main()
"""


def test_the_notifier_is_told_by_a_run_of_exec(module: Callable[[str], ModuleType], tmp_path: Path) -> None:
    module("notifier")
    script = "mkdir -p out/checkpoint-5 && echo '{\"global_step\": 5}' > out/checkpoint-5/trainer_state.json"
    words = ("exec", "--checkpoints", "out", "--to", "store", "--webhook", "told.jsonl", "--", "bash", "-c", script)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", EXEC, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    told = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    assert [each["type"] for each in told][:1] + [each["type"] for each in told][-1:] == ["exec.started", "exec.ended"]


def test_the_notifier_keeps_what_it_cannot_write_and_raises_nothing(
    module: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    lines = module("notifier").EventLines(tmp_path / "missing" / "told.jsonl", lambda: 1_000)
    lines.tell("exec.started", {"run": 1})
    assert lines.close(0) == 1
    (tmp_path / "missing").mkdir()
    assert lines.close(0) == 0
    assert json.loads((tmp_path / "missing" / "told.jsonl").read_text())["data"] == {"run": 1}


# A command


def test_the_command_is_registered_and_asks_the_server(
    module: Callable[[str], ModuleType], service: Service, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = blocks("cli-noun", "python")[1:]
    found = eval(f"{{{entry}}}", {"LazyCommand": cli.LazyCommand})  # noqa: S307 - a line of the page
    monkeypatch.setitem(sys.modules, "gangline.cli.admin.fleet", module("cli-noun"))
    for name, command in found.items():
        monkeypatch.setitem(cli.COMMANDS, name, command)
    for name in ("node-a", "node-b"):
        service.join(name)
    with serving(service.app) as server:
        options = ("--server", server.url, "--token", OPERATOR)
        code, printed, said = typed("fleet", "ls", *options, "-o", "json")
        assert (code, json.loads(printed)) == (0, [{"pool": "default", "state": "ready", "nodes": 2}]), said
        assert typed("fleet", "ls", *options)[1].split() == ["pool", "state", "nodes", "default", "ready", "2"]
    assert "Show how many nodes each pool has." in typed("--help")[1]


# An HTTP route


def test_the_route_is_mounted_and_answers_who_may_ask(module: Callable[[str], ModuleType], service: Service) -> None:
    service.app.include_router(module("http-route").router)
    service.submit()
    assert service.ask("GET", "/v1/backlog", service.key("viewer")).json() == {"jobs": 1, "more": False}
    assert service.ask("GET", "/v1/backlog", "no key").status_code == 401


# A migration


def test_the_migration_is_applied_to_a_database_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, statement = blocks("migration", "sql")
    database, newest = str(tmp_path / "db.sqlite"), migrations()[-1][0]
    test_migrations.of_version(database, newest)
    before = test_migrations.rows(database, "SELECT id, state, version FROM job")
    known = [*migrations(), (newest + 1, text)]
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "migrations", lambda: known)
        open_store(database).close()
    assert test_migrations.rows(database, "SELECT id, state, version, note FROM job") == [(*before[0], "")]
    assert test_migrations.rows(database, "PRAGMA user_version") == [(newest + 1,)]
    sql = split_statements({"jobs.sql": statement})["note_job"]
    with closing(sqlite3.connect(database)) as connection:
        values = {"id": before[0][0], "version": before[0][2], "note": "mine"}
        assert [connection.execute(sql, values).rowcount for _ in range(2)] == [1, 0]
        connection.execute("INSERT INTO ban (job, machine, because, at_ms) VALUES ('j', 'm', 'as before', 1)")
    with pytest.raises(GanglineError, match="newer Gangline"):
        open_store(database)
