"""The programs for RunPod and Vast that come with Gangline, over stand-ins of `runpodctl` and `vastai`: these know the documented words and
answer in the documented form, and nothing else."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gangline.adapters.pools.command import CommandPool, CommandSettings
from gangline.core.errors import BadInput, Denied, Unreachable
from gangline.ports.pool import NoCapacity
from tests.conftest import ROOT
from tests.contract.pools.suite import PLACES, DoubleSuite, PoolSuite, alive, ask, found, names, rental, start

RUNPODCTL = f"""#!{sys.executable} -IS
import argparse, json, pathlib, sys
folder = pathlib.Path(sys.argv[0]).parent
state = folder / "pods.json"
pods = json.loads(state.read_text())
def fail(said):
    print(json.dumps({{"error": said, "code": "api_error"}}), file=sys.stderr)
    sys.exit(1)
words = argparse.ArgumentParser(allow_abbrev=False)
words.add_argument("-o", "--output", choices=["json", "yaml"], default="json")
nouns = words.add_subparsers(dest="noun", required=True)
gpu = nouns.add_parser("gpu", allow_abbrev=False).add_subparsers(dest="verb", required=True)
pod = nouns.add_parser("pod", allow_abbrev=False).add_subparsers(dest="verb", required=True)
def verb(of, called, /, **options):
    made = of.add_parser(called, allow_abbrev=False)
    made.add_argument("-o", "--output", choices=["json", "yaml"], default="json")
    for option, kind in options.items():
        made.add_argument(f"--{{option.replace('_', '-')}}", **({{"action": "store_true"}} if kind is bool else {{"type": kind}}))
    return made
verb(gpu, "list", include_unavailable=bool)
verb(pod, "list", all=bool, name=str, status=str)
verb(pod, "create", name=str, image=str, gpu_id=str, gpu_count=int, cloud_type=str, container_disk_in_gb=int, env=str, docker_args=str)
verb(pod, "delete").add_argument("pod")
verb(pod, "logs", tail=int).add_argument("pod")
asked = words.parse_args()
if (folder / "fails").exists() and (folder / "verb").read_text() in ("", asked.verb):
    fail((folder / "fails").read_text())
match asked.noun, asked.verb:
    case "gpu", "list":
        print(json.dumps([
            {{"gpuId": id, "displayName": id[7:], "memoryInGb": 24, "secureCloud": True, "communityCloud": True,
              "stockStatus": "High", "available": True}} for id in ("NVIDIA GeForce RTX 4090", "NVIDIA RTX A4000")]))
    case "pod", "list":
        print(json.dumps([each for each in pods if asked.all or each["desiredStatus"] == "RUNNING"]))
    case "pod", "create":
        if sum(each["desiredStatus"] == "RUNNING" for each in pods) >= {PLACES}:
            fail("failed to create pod: There are no longer any instances available with the requested specifications.")
        pods.append({{"id": f"pod{{len(pods)}}", "name": asked.name, "desiredStatus": "RUNNING", "imageName": asked.image,
            "gpuId": asked.gpu_id, "gpuCount": asked.gpu_count, "volumeInGb": 0, "costPerHr": 0.69,
            "createdAt": "2026-10-02 05:28:38.366 +0000 UTC"}})
        state.write_text(json.dumps(pods))
        (folder / "created").write_text(json.dumps([asked.env, asked.docker_args]))
        print(json.dumps(pods[-1]))
    case "pod", "delete":
        if all(each["id"] != asked.pod for each in pods):
            fail("api error: pod not found (404)")
        # Ids are counted here, so a deleted pod stays under a name that nothing lists.
        for each in pods:
            each.update({{"name": "", "desiredStatus": "TERMINATED"}} if each["id"] == asked.pod else {{}})
        state.write_text(json.dumps(pods))
        print(json.dumps({{"deleted": True, "id": asked.pod}}))
    case "pod", "logs":
        print(json.dumps({{"source": "container", "line": "no CUDA here", "ts": "2026-10-02T05:28:38Z"}}))
"""

VASTAI = f"""#!{sys.executable} -IS
import argparse, json, pathlib, sys
folder = pathlib.Path(sys.argv[0]).parent
state = folder / "instances.json"
instances = json.loads(state.read_text())
def fail(code, said):
    print(json.dumps({{"error": True, "status_code": code, "msg": said}}), file=sys.stderr)
    sys.exit(0)
words = argparse.ArgumentParser(allow_abbrev=False)
verbs = words.add_subparsers(dest="verb", required=True)
def verb(called, /, **options):
    made = verbs.add_parser(called, allow_abbrev=False)
    made.add_argument("--raw", action="store_true")
    for option, kind in options.items():
        made.add_argument(f"--{{option}}", **({{"action": "store_true"}} if kind is bool else {{"type": kind}}))
    return made
offers = verb("search offers", type=str, order=str, limit=int, storage=float)
offers.add_argument("query")
verb("show instances")
create = verb("create instance", image=str, disk=float, label=str, env=str, bid_price=float, entrypoint=str)
create.add_argument("--cancel-unavail", action="store_true")
create.add_argument("--args", nargs=argparse.REMAINDER)
create.add_argument("id", type=int)
verb("destroy instance").add_argument("id", type=int)
verb("logs", tail=str).add_argument("id", type=int)
given = sys.argv[1:]
asked = words.parse_args(given if given[0] == "logs" else [" ".join(given[:2]), *given[2:]])
if (folder / "fails").exists() and (folder / "verb").read_text() in ("", given[0]):
    fail(*json.loads((folder / "fails").read_text()))
match asked.verb:
    case "search offers":
        (folder / "searched").write_text(json.dumps([asked.query, asked.type]))
        print(json.dumps([{{"id": 5, "gpu_name": "RTX 4090", "num_gpus": 1, "gpu_ram": 24564, "dph_total": 0.41, "min_bid": 0.2,
            "machine_id": 9}}]))
    case "show instances":
        print(json.dumps(instances))
    case "create instance":
        if sum(each["intended_status"] == "running" for each in instances) >= {PLACES} or asked.id != 5:
            fail(400, f"error 404/3603: no_such_ask  Instance type by id {{asked.id}} is not available.")
        instances.append({{"id": 70 + len(instances), "label": asked.label, "actual_status": "running", "intended_status": "running",
            "cur_state": "running", "start_date": 1795763313.5, "status_msg": "success, running", "machine_id": 9, "extra_env": {{}}}})
        state.write_text(json.dumps(instances))
        (folder / "created").write_text(json.dumps([asked.env, asked.entrypoint, asked.args, asked.bid_price]))
        print(json.dumps({{"success": True, "new_contract": instances[-1]["id"]}}))
    case "destroy instance":
        if input(f"Are you sure you want to destroy instance {{asked.id}}? [y/N] ") != "y":
            print("Aborted.")
        elif all(each["id"] != asked.id for each in instances):
            fail(404, "Instance not found")
        else:
            for each in instances:
                each.update({{"label": None, "intended_status": "gone"}} if each["id"] == asked.id else {{}})
            state.write_text(json.dumps(instances))
    case "logs":
        print("no CUDA here")
"""
POOL = "pool-1"
VERBS = ("offers", "start", "stop", "list", "logs")


class ACli:
    """A template in a pool, with a stand-in of the CLI that it runs, whose provider is a file."""

    def __init__(
        self, folder: Path, template: str, cli: str, text: str, state: str, edits: tuple[tuple[str, str], ...]
    ) -> None:
        self.folder, self.state = folder, folder / state
        self.state.write_text("[]")
        (folder / cli).write_text(text)
        (folder / cli).chmod(0o700)
        self.template = folder / template
        self.template.write_text((ROOT / "examples" / "pools" / template).read_text())
        self.edit(*edits)
        self.driver = self.made_for(POOL)

    def made_for(self, pool: str) -> CommandPool:
        settings = CommandSettings(**{verb: (sys.executable, "-IS", str(self.template), verb) for verb in VERBS})
        return CommandPool(settings=settings, mark=pool, surroundings={"PATH": str(self.folder)})

    def edit(self, *edits: tuple[str, str]) -> None:
        """Change settings as an operator does in a copy."""
        text = self.template.read_text()
        for before, after in edits:
            assert before in text
            text = text.replace(before, after)
        self.template.write_text(text)

    def run(self, name: str) -> None:
        assert alive(self, name), "it runs at once"

    def change(self, name: str, **changed: object) -> None:
        key = "name" if "pods" in self.state.name else "label"
        nodes: list[dict[str, Any]] = json.loads(self.state.read_text())
        assert any(node[key] == f"gangline-{POOL}-{name}" for node in nodes)
        changes = [node | changed if node[key] == f"gangline-{POOL}-{name}" else node for node in nodes]
        self.state.write_text(json.dumps(changes))

    def kill(self, name: str) -> None:
        if "pods" in self.state.name:
            self.change(name, desiredStatus="EXITED")
        else:
            self.change(name, actual_status="exited", intended_status="stopped", status_msg="outbid\n")

    def double(self, name: str) -> None:
        nodes = json.loads(self.state.read_text())
        self.state.write_text(json.dumps([*nodes, nodes[0] | {"id": "pod9" if "pods" in self.state.name else 99}]))

    def created(self) -> list[Any]:
        return json.loads((self.folder / "created").read_text())

    def fail(self, said: str, verb: str = "") -> None:
        """Let every request fail, or those of one verb of the CLI."""
        (self.folder / "fails").write_text(said)
        (self.folder / "verb").write_text(verb)


@pytest.fixture
def runpod(tmp_path: Path) -> ACli:
    edits = (('"NVIDIA GeForce RTX 4090": None', '"NVIDIA GeForce RTX 4090": 0.69'),)
    return ACli(tmp_path, "runpod.py", "runpodctl", RUNPODCTL, "pods.json", edits)


@pytest.fixture
def vast(tmp_path: Path) -> ACli:
    return ACli(tmp_path, "vast.py", "vastai", VASTAI, "instances.json", ())


class TestRunpod(PoolSuite, DoubleSuite):
    @pytest.fixture
    def provider(self, runpod: ACli) -> ACli:
        return runpod


class TestVast(PoolSuite, DoubleSuite):
    @pytest.fixture
    def provider(self, vast: ACli) -> ACli:
        return vast


def test_runpod_offers_the_gpus_of_the_settings_that_there_are(runpod: ACli) -> None:
    (offer,) = runpod.driver.offers()
    assert (offer.id, offer.gpu, offer.gpu_memory_gb) == ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090", 24)
    assert (offer.price_known, offer.price_micro_usd_per_hour) == (True, 690_000)
    runpod.edit(('"NVIDIA GeForce RTX 4090": 0.69', '"NVIDIA RTX A4000": None'))
    (offer,) = runpod.driver.offers()
    assert (offer.id, offer.price_known) == ("NVIDIA RTX A4000", False)


def test_a_pod_of_runpod_fetches_the_worker_and_has_the_rentals_environment(runpod: ACli) -> None:
    instance = start(runpod, "node-a")
    environment, arguments = runpod.created()
    assert json.loads(environment) == rental("node-a").environment()
    assert arguments.startswith("bash -c ") and "$GANGLINE_SERVER/worker.sh" in arguments
    assert instance.billed_from_ms == 1_790_918_918_000
    assert runpod.driver.logs(instance.id) == "no CUDA here\n"


def test_a_pod_that_runpod_has_stopped_is_deleted_as_its_disk_would_cost_on(runpod: ACli) -> None:
    start(runpod, "node-a")
    runpod.kill("node-a")
    assert found(runpod, "node-a").ended == "RunPod shows it as EXITED"
    assert [pod["desiredStatus"] for pod in json.loads(runpod.state.read_text())] == ["TERMINATED"]
    assert found(runpod, "node-a").billed_to_ms is not None


def test_a_machine_of_vast_is_an_offer_at_its_price_or_at_a_bid(vast: ACli) -> None:
    (offer,) = vast.driver.offers()
    assert (offer.id, offer.gpu, round(offer.gpu_memory_gb), offer.price_micro_usd_per_hour) == (
        "5",
        "NVIDIA GeForce RTX 4090",
        24,
        410_000,
    )
    assert json.loads((vast.folder / "searched").read_text())[1] == "on-demand"
    vast.edit(("BID: float | None = None", "BID: float | None = 1.25"))
    (offer,) = vast.driver.offers()
    assert (offer.id, offer.price_micro_usd_per_hour) == ("5@0.25", 250_000)
    start(vast, "node-a")
    assert vast.created()[3] == 0.25


def test_an_instance_of_vast_fetches_the_worker_and_has_the_rentals_environment(vast: ACli) -> None:
    instance = start(vast, "node-a")
    environment, entrypoint, arguments, bid = vast.created()
    variables = dict(each.split("=", 1) for each in environment.removeprefix("-e ").split(" -e "))
    assert variables == rental("node-a").environment()
    assert (entrypoint, arguments[0], bid) == ("bash", "-c", None) and "$GANGLINE_SERVER/worker.sh" in arguments[1]
    assert instance.billed_from_ms == 1_795_763_313_500
    assert vast.driver.logs(instance.id).startswith("no CUDA here\n")


def test_an_instance_of_vast_that_is_outbid_is_destroyed_as_its_disk_would_cost_on(vast: ACli) -> None:
    start(vast, "node-a")
    vast.kill("node-a")
    assert found(vast, "node-a").ended == "Vast stopped it: outbid"
    assert [each["label"] for each in json.loads(vast.state.read_text())] == [None]


def test_an_instance_of_vast_says_how_far_it_is(vast: ACli) -> None:
    start(vast, "node-a")
    vast.change("node-a", actual_status="loading", status_msg="Pulling\n\x1b[1mlayer 3")
    assert found(vast, "node-a").progress == "loading Pulling [1mlayer 3"


@pytest.mark.parametrize(
    ("template", "verb", "said"),
    [
        ("runpod", "delete", "api error: 429 Too Many Requests"),
        ("vast", "destroy", '[429, "API requests too frequent"]'),
    ],
)
def test_a_deletion_that_fails_is_tried_again_by_the_next_list(
    request: pytest.FixtureRequest, template: str, verb: str, said: str
) -> None:
    provider: ACli = request.getfixturevalue(template)
    running = start(provider, "node-b")
    start(provider, "node-a")
    provider.kill("node-a")
    before = provider.state.read_text()
    provider.fail(said, verb)
    shown = alive(provider, "node-a")
    assert shown.progress.endswith(f", and it cannot be {verb}{'d' if verb == 'delete' else 'ed'}")
    assert alive(provider, "node-b") == running
    with pytest.raises(Unreachable):
        provider.driver.stop(shown.id)
    assert provider.state.read_text() == before
    (provider.folder / "fails").unlink()
    assert alive(provider, "node-b") == running
    assert provider.state.read_text() != before


@pytest.mark.parametrize("template", ["runpod", "vast"])
def test_pools_of_one_account_neither_list_nor_delete_each_others_nodes(
    request: pytest.FixtureRequest, template: str
) -> None:
    provider: ACli = request.getfixturevalue(template)
    start(provider, "node-a")
    other = provider.made_for("pool-2")
    assert other.list() == []
    other.start(other.offers()[0].id, rental("node-a"))
    assert names(provider.driver) == ["node-a"] == names(other)
    provider.kill("node-a")
    before = provider.state.read_text()
    assert names(other) == ["node-a"]
    assert provider.state.read_text() == before


@pytest.mark.parametrize("status", ["CREATED", "RESTARTING", "PAUSED"])
def test_a_pod_that_runpod_has_neither_ended_nor_runs_says_how_far_it_is(runpod: ACli, status: str) -> None:
    start(runpod, "node-a")
    runpod.change("node-a", desiredStatus=status)
    assert alive(runpod, "node-a").progress == f"RunPod shows it as {status}"
    assert [pod["desiredStatus"] for pod in json.loads(runpod.state.read_text())] == [status]


def test_what_others_rented_in_the_same_account_is_left_alone(runpod: ACli) -> None:
    runpod.state.write_text(json.dumps([{"id": "x", "name": "my-own-work", "desiredStatus": "EXITED"}]))
    start(runpod, "node-a")
    assert names(runpod.driver) == ["node-a"]
    runpod.driver.stop("x")
    assert json.loads(runpod.state.read_text())[0]["desiredStatus"] == "EXITED"


def test_instances_of_vast_without_a_label_are_left_alone(vast: ACli) -> None:
    vast.state.write_text(
        json.dumps([{"id": 1, "label": None, "actual_status": "exited", "intended_status": "stopped"}])
    )
    assert vast.driver.list() == []


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("failed to create pod: This machine does not have the resources to deploy your pod.", NoCapacity),
        ("Your account balance is too low", NoCapacity),
        ("api error: 401 Unauthorized", Denied),
        ("connection refused", Unreachable),
    ],
)
def test_what_runpodctl_says_is_the_reason(runpod: ACli, said: str, kind: type[Exception]) -> None:
    runpod.fail(said)
    with pytest.raises(kind) as error:
        runpod.driver.start("NVIDIA GeForce RTX 4090", rental("node-a"))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("code", "said", "kind"),
    [
        (400, "Your account lacks credit", NoCapacity),
        (401, "Please log in or sign up", Denied),
        (429, "API requests too frequent", Unreachable),
        (500, "(no detail message supplied)", Unreachable),
    ],
)
def test_what_vastai_says_is_the_reason_although_it_exits_with_0(
    vast: ACli, code: int, said: str, kind: type[Exception]
) -> None:
    instance = start(vast, "node-a")
    vast.fail(json.dumps([code, said]))
    for call in (
        vast.driver.list,
        vast.driver.offers,
        lambda: vast.driver.stop(instance.id),
        lambda: ask(vast, "node-b"),
    ):
        with pytest.raises(kind) as error:
            call()
        assert said in str(error.value)


@pytest.mark.parametrize(("template", "cli"), [("runpod", "runpodctl"), ("vast", "vastai")])
def test_a_cli_that_is_not_installed_is_named(request: pytest.FixtureRequest, template: str, cli: str) -> None:
    provider: ACli = request.getfixturevalue(template)
    (provider.folder / cli).unlink()
    with pytest.raises(BadInput, match=f"{cli} is not installed in PATH"):
        provider.driver.list()


@pytest.mark.parametrize("template", ["runpod", "vast"])
def test_a_word_that_is_not_known_is_refused(request: pytest.FixtureRequest, template: str) -> None:
    provider: ACli = request.getfixturevalue(template)
    settings = CommandSettings(**{verb: (sys.executable, "-IS", str(provider.template), "lists") for verb in VERBS})
    with pytest.raises(BadInput, match="run this with one word: offers, start, stop, list or logs"):
        CommandPool(settings=settings, mark=POOL, surroundings={}).list()
