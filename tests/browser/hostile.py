"""A cluster in which each text that somebody can choose is hostile: it would become code on a screen that forgot to escape it.

A new field for text, of a request or a spec, is shown by a screen of tests/browser/screens.py, or stands in one of the two tables here:
tests/browser/test_hostile.py sees to it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gangline.core.files import File
from gangline.core.parsing import to_json
from gangline.core.runs.metrics import Point
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.spec import parse_task, spec_hash
from gangline.core.specs.templates import Preset
from gangline.ports.server import (
    Assignment,
    Commit,
    Committed,
    Done,
    Failed,
    Join,
    Log,
    Notice,
    Points,
    Reject,
    Stale,
    Uploads,
)
from gangline.service.access.access import DEFAULT_POOL
from gangline.service.datasets.check import check_datasets
from gangline.service.experiments.tend import tend_experiment
from gangline.service.fleet.fleet import tend
from gangline.service.fleet.nodes import heed_notice, join_pool
from gangline.service.jobs import checkpoint, metrics, renew
from gangline.service.jobs.claim import claim
from gangline.service.jobs.finish import finish
from tests.browser.cluster import Cluster
from tests.conftest import as_upload
from tests.service.conftest import Service
from tests.service.datasets.conftest import picture
from tests.service.jobs.test_one_at_a_time import result
from tests.service.jobs.test_samples import hand_over
from tests.service.pictures.many import write_pictures
from tests.service.test_rules import beat
from tests.shop import LARGE, SMALL
from tests.unit.test_door import FIELDS, takes, texts

CHARACTERS = "<\"'"
"""Without one of these, no text leaves the place that a template gave it."""


def hostile(place: str) -> str:
    """Return a text that names its place."""
    return f"'\"><img src=hostile onerror=hostile=1><b hx-get=hostile>{{{{7*7}}}}({place})"


def short(place: str) -> str:
    """Return one for where a text is short, such as the value of a label."""
    return f"<img src=hostile onerror=hostile=1>({place})"


def path(place: str) -> str:
    """Return one for the name of a file, which has no brackets and no double quotes."""
    return f"'onerror=hostile=1 &lt;img src=hostile&gt;{{{{7+7}}}}({place})"


TINY = {"LoraSpec.caption_separator": "<u onclick=hostile>"}
SHORT = frozenset({"Submission.labels", "NewExperiment.labels", "NewExperiment.spec", "LabelChanges.labels"})
PATHS = frozenset(
    {
        *("File.path", "SubjectEntry.folder", "BroughtFolder.name", "CommandSpec.checkpoints", "CommandSpec.results"),
        *("Beginning.path", "Upload.path", "WantedVersion.remove", "Commit.manifest", "Photo.path", "Output.path"),
    }
)


def text_of(place: str) -> str:
    if place in TINY:
        return TINY[place]
    return short(place) if place in SHORT else path(place) if place in PATHS else hostile(place)


def places() -> Iterator[str]:
    """Return the fields of requests and specs that take a text which could become code, by `Class.field`."""
    of_specs = [found for kind in KINDS.values() for found in texts(kind.spec, "", set())]
    found = dict.fromkeys(
        place for place, hint in [*FIELDS, *of_specs] if any(takes(hint, f"a{each}b") for each in CHARACTERS)
    )
    return iter(found)


OTHERS = (
    "Preset.name",
    "Preset.about",
    "Caption.text",
    "Photo.path",
    "Recipe.prompt",
    "Recipe.name",
    "Offer.id",
    "Offer.gpu",
    "Output.path",
    "Setting.value",
    "Scenario.title",
    "Scenario.gpu",
)
"""Texts that are in no request: of settings, of files, of providers."""

NOWHERE: Mapping[str, str] = {
    **dict.fromkeys(
        ("Join.node", "Hold.attempt", "Reject.checkpoint", "Downloads.keys"), "compared with what the server has given"
    ),
    "Join.identity": "proven by the provider, or refused",
    "Join.bases": "compared with the bases of jobs",
    "Join.kinds": "compared with the kinds of jobs",
    "Upload.path": "a file is shown once it is stored: Commit.manifest, Output.path",
    "Beginning.path": "the same",
    "Keep.manifest": "what nodes keep for each other is on no screen",
    "WantedBase.because": "bases are listed by `gangline bases ls` alone",
    "WantedVersion.remove": "names a file of the version before, else it is refused",
    "WantedPool.settings": "`gangline pools show` alone shows the settings of a driver",
    "PoolChange.settings": "the same",
    "Question.spec": "a plan is shown beside the form that asked for it, which has its texts",
}
"""What is taken, and why no screen shows it."""

REFUSED: Mapping[str, tuple[str, str, Any]] = {
    "WantedProject.project": ("POST", "/v1/projects", {"project": hostile("p")}),
    "WantedBase.name": ("POST", "/v1/bases", {"name": hostile("b"), "base": {"source": "hub", "repo": "a/b"}}),
    "WantedEndpoint.address": ("POST", "/v1/notices/endpoints", {"address": f"https://a.example/{hostile('a')}"}),
    "WantedEndpoint.quiet": ("POST", "/v1/notices/endpoints", {"address": "https://a.example", "quiet": hostile("q")}),
    "EndpointChange.quiet": ("PATCH", "/v1/notices/endpoints/{endpoint}", {"quiet": hostile("q")}),
    "WantedReplay.message": ("POST", "/v1/notices/endpoints/{endpoint}/replay", {"message": hostile("m")}),
    "WantedPool.name": ("POST", "/v1/pools", {"name": hostile("n"), "driver": "shop"}),
    "WantedPool.driver": ("POST", "/v1/pools", {"name": "pool", "driver": hostile("d")}),
    "WantedPool.provider": ("POST", "/v1/pools", {"name": "pool", "driver": "shop", "provider": hostile("p")}),
    "WantedPool.secret": ("POST", "/v1/pools", {"name": "pool", "driver": "shop", "secret": hostile("s")}),
    "PoolChange.secret": ("PATCH", "/v1/pools/hostile", {"secret": hostile("s")}),
    "Continued.job": (
        *("POST", "/v1/jobs"),
        {"spec": {"continues": {"job": hostile("j"), "step": 1, "spec_hash": "0" * 64}}},
    ),
    **{
        f"WantedThreshold.{field}": (
            "PUT",
            "/v1/costs/thresholds",
            {"usd": 1, "per": "day", "notify": "default", field: hostile("t")},
        )
        for field in ("project", "pool", "zone", "notify")
    },
    "SampleSpec.job": ("POST", "/v1/jobs", {"spec": {"kind": "sample", "job": hostile("j")}}),
    "SampleSpec.checkpoint": ("POST", "/v1/jobs", {"spec": {"kind": "sample", "checkpoint": hostile("c")}}),
}
"""What a rule of the server refuses, and the request that has it do so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileIds:
    """What there is of it, by what the addresses of screens name it."""

    job: str
    other: str
    subjects: str
    album: str
    scratch: str
    command: str
    captions: str
    waiting: str
    clone: str
    experiment: str
    run: str
    node: str
    rented: str
    endpoint: str

    def of_addresses(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in self.__slots__}


def fill(cluster: Cluster) -> HostileIds:
    """Bring hostile texts into the cluster by every way that there is."""
    made = _Making(cluster)
    rented = made.add_pools()
    node = made.join()
    spec = made.lora()
    job = made.submit(name=hostile("Submission.name"), labels={"hostile": short("Submission.labels")}, spec=spec)
    made.work(node, job)
    made.label(job)
    other = made.submit(name="the other", spec=spec | {"seed": 7, "prompt": hostile("Submission.spec")})
    subjects = made.submit(spec=made.subjects())
    album = made.show_pictures(node)
    scratch, command, captions = made.submit(spec=made.scratch()), made.submit(spec=made.command()), made.captions()
    waiting = made.submit(spec=spec | {"needs": {each: hostile(f"Needs.{each}") for each in ("gpu", "pool")}})
    clone = made.clone(job)
    experiment, runs = made.experiment(node)
    endpoint = made.endpoint()
    made.join_tokens_and_keys()
    made.add_dataset_and_base()
    made.heed(node)
    cluster.app.state.presets = {
        hostile("Preset.name"): Preset(
            name=hostile("Preset.name"), about=hostile("Preset.about"), settings={"prompt": hostile("Preset.about")}
        )
    }
    return HostileIds(
        job=job,
        other=other,
        subjects=subjects,
        album=album,
        scratch=scratch,
        command=command,
        captions=captions,
        waiting=waiting,
        clone=clone,
        experiment=experiment,
        run=runs[0],
        node=node,
        rented=rented,
        endpoint=endpoint,
    )


class _Making:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.service: Service = cluster.service
        self.key = self.service.key("member", name=hostile("WantedKey.name"))

    def ask(self, method: str, path: str, body: Any, key: str = "") -> Any:
        answer = self.service.ask(method, path, key or self.key, json=body)
        assert answer.is_success, (path, answer.text)
        return answer.json()

    def as_operator(self, method: str, path: str, body: Any) -> Any:
        answer = self.service.ask(method, path, json=body)
        assert answer.is_success, (path, answer.text)
        return answer.json()

    def submit(self, **body: Any) -> str:
        return self.ask("POST", "/v1/jobs", body)["summary"]["id"]

    def claim(self, node: str, job: str) -> Assignment:
        """Let the node have this job, whichever are before it."""
        others = f"state = 'queued' AND fetching = 0 AND id <> '{job}'"
        self.service.execute(f"UPDATE job SET fetching = 7 WHERE {others}")
        found = claim(self.service.deployment, node, self.service.now_ms)
        self.service.execute("UPDATE job SET fetching = 0 WHERE fetching = 7")
        assert isinstance(found, Assignment), found
        assert found.job == job
        self.service.wait(7)  # what takes no time costs nothing
        return found

    # Specs

    def lora(self) -> dict[str, Any]:
        known = ("base_licence", "prompt", "class_prompt", "output_name")
        return to_json(self.service.spec()) | {
            "base": {"source": "files", "files": [self.file("File.path")]},
            **{name: hostile(f"LoraSpec.{name}") for name in known},
            "caption_separator": TINY["LoraSpec.caption_separator"],
            "caption_shuffles": 2,
            "target_modules": [hostile("LoraSpec.target_modules")],
            "sample_prompts": [
                hostile("LoraSpec.sample_prompts"),
                {name: hostile(f"SamplePrompt.{name}") for name in ("prompt", "negative_prompt")},
            ],
        }

    def subjects(self) -> dict[str, Any]:
        subject = {name: hostile(f"SubjectEntry.{name}") for name in ("prompt", "class_prompt")}
        folder = path("SubjectEntry.folder")
        photo = to_json(replace(self.service.photo, path=f"{folder}/a.png"))
        plain = {name: value for name, value in to_json(self.service.spec()).items() if name != "prompt"}
        return plain | {"photos": [photo], "subjects": [subject | {"folder": folder}]}

    def file(self, place: str) -> dict[str, Any]:
        return to_json(replace(self.service.photo, path=path(place)))

    def scratch(self) -> dict[str, Any]:
        phase = {"steps": 10, "resolution": 64, "batch_size": 8, "where": hostile("TrainingPhase.where")}
        data: dict[str, Any] = {"place": f"s3://sets/{hostile('DataRef.place')}", "version": 1}
        data |= {name: hostile(f"DataRef.{name}") for name in ("id", "where")}
        return {
            "kind": "scratch",
            "base": {"source": "files", "files": [self.file("File.path")]},
            "data": [data],
            "phases": [phase],
            "sample_prompts": [hostile("ScratchSpec.sample_prompts")],
            **{name: hostile(f"ScratchSpec.{name}") for name in ("base_licence", "held_out")},
        }

    def command(self) -> dict[str, Any]:
        folder = {"name": path("BroughtFolder.name"), "files": [self.file("File.path")]}
        return {
            "kind": "command",
            "command": [hostile("CommandSpec.command")],
            "data": [folder],
            "results": [path("CommandSpec.results")],
            "checkpoints": path("CommandSpec.checkpoints"),
            "layout": "folder",
            "step": hostile("CommandSpec.step") + "{step}",
            **{name: hostile(f"CommandSpec.{name}") for name in ("python", "complete_when")},
        }

    def captions(self) -> str:
        of = {name: hostile(f"CaptionSpec.{name}") for name in ("prefix", "instruction")}
        model = [to_json(replace(self.service.photo, path=name)) for name in ("model.onnx", "tags.csv")]
        files = {"photos": [self.file("File.path")], "model": {"source": "files", "files": model}}
        return self.submit(spec={"kind": "caption", "exclude": [hostile("CaptionSpec.exclude")], **files, **of})

    # What is done with jobs

    def label(self, job: str) -> None:
        self.ask("PATCH", f"/v1/jobs/{job}/labels", {"labels": {"changed": short("LabelChanges.labels")}})

    def clone(self, job: str) -> str:
        body = {"name": hostile("WantedClone.name"), "changes": {"prompt": hostile("WantedClone.changes")}}
        return self.ask("POST", f"/v1/jobs/{job}/clone", body)["summary"]["id"]

    def experiment(self, node: str) -> tuple[str, list[str]]:
        prompts = [hostile("LoraSpec.sample_prompts"), short("NewExperiment.spec")]
        body = {
            "name": hostile("NewExperiment.name"),
            "labels": {"of": short("NewExperiment.labels")},
            "spec": to_json(self.service.spec()) | {"sample_prompts": prompts},
            "vary": {"prompt": [hostile("Setting.value"), "a plain one"]},
        }
        made = self.ask("POST", "/v1/experiments", body)["id"]
        runs = [run["job"] for run in self.ask("GET", f"/v1/experiments/{made}/runs", None)]
        for job in runs:
            held = self.claim(node, job)
            beat(self.service, node, held.hold, 50)
            self.measure(node, held, 50)
            write_pictures(self.service, held.job, prompts=2, steps=[0, 50])
            self.end(node, held)
            tend_experiment(self.service.deployment, made, self.service.now_ms)
        return made, runs

    # Nodes and what they say

    def join(self) -> str:
        request = Join(
            machine=hostile("Join.machine"),
            name=hostile("Join.name"),
            gpu=hostile("Join.gpu"),
            gpu_memory_gb=24,
            capabilities={hostile("Join.capabilities"): hostile("Join.capabilities")},
            bases=(hostile("Join.bases"),),
            kinds=("lora", "sample", "scratch", "command", "caption", hostile("Join.kinds")),
            problems={hostile("Join.problems"): hostile("Join.problems")},
            measured={hostile("Join.measured"): hostile("Join.measured")},
        )
        return join_pool(self.service.deployment, request, DEFAULT_POOL, self.service.now_ms).node

    def heed(self, node: str) -> None:
        heed_notice(self.service.deployment, node, Notice(because=hostile("Notice.because")), self.service.now_ms)

    def work(self, node: str, job: str) -> None:
        """Fail at the second try, with a checkpoint that was damaged and one that is stored."""
        held, deployment = self.claim(node, job), self.service.deployment
        renew.append_log(
            deployment, node, held.hold, Log(first_byte=0, text=f"{hostile('Log.text')}\n"), self.service.now_ms
        )
        beat(self.service, node, held.hold, 10)
        self.measure(node, held, 10)
        for step in (10, 20):
            self.save(node, held, step)
        damaged = Reject(checkpoint=self.newest(job), because=hostile("Reject.because"))
        assert checkpoint.reject_damaged(deployment, node, held.hold, damaged, self.service.now_ms) == Done()
        ended = Failed(kind="bad data", because=hostile("Failed.because"))
        assert finish(deployment, node, held.hold, ended, self.service.now_ms) == Done()

    def newest(self, job: str) -> str:
        return max(self.service.store.load("checkpoints", job=job), key=lambda row: row["step"])["id"]

    def measure(self, node: str, held: Assignment, step: int) -> None:
        told = Points(points=(Point(step=step - 1, values={"loss": 0.5}), Point(step=step, values={"loss": 0.4})))
        metrics.take(self.service.deployment, node, held.hold, told, self.service.now_ms)

    def save(self, node: str, held: Assignment, step: int) -> None:
        name = path("Commit.manifest")
        file = hand_over_checkpoint(self.service, node, held, step, name)
        told = self.service.manifest(
            step,
            spec_hash=spec_hash(parse_task(held.spec)),  # type: ignore[arg-type]
            fingerprint={"gpu": hostile("Commit.manifest")},
            files=(file,),
        )
        answer = checkpoint.commit_checkpoint(
            self.service.deployment, node, held.hold, Commit(manifest=told.to_json()), self.service.now_ms
        )
        assert isinstance(answer, Committed), answer

    def end(self, node: str, held: Assignment) -> None:
        """Succeed with one more file than others have."""
        file = hand_over(self.service, node, held.hold, "output", path("Output.path"), b"another file")
        usual = result(self.service, node, held.hold)
        ended = replace(usual, output=(*usual.output, file))
        assert finish(self.service.deployment, node, held.hold, ended, self.service.now_ms) == Done()

    def show_pictures(self, node: str) -> str:
        prompts = (hostile("LoraSpec.sample_prompts"), "a plain one")
        job = self.submit(name=hostile("Submission.name"), spec=to_json(self.service.spec(sample_prompts=prompts)))
        held = self.claim(node, job)
        for step in (50, 100):
            beat(self.service, node, held.hold, step)
            self.save(node, held, step)
        write_pictures(self.service, job, prompts=2, steps=[0, 50, 100])
        self.end(node, held)
        return job

    # Pools, and those who provide them

    def add_pools(self) -> str:
        """Two, of which one has rented a machine; then their provider has none left. Return the node."""
        till = self.service.till
        till.offers = [SMALL, replace(LARGE, id=hostile("Offer.id"), gpu=hostile("Offer.gpu"))]
        settings = {"town": hostile("WantedPool.settings"), "shelves": [hostile("WantedPool.settings")]}
        offers = [hostile("Offer.id"), hostile("WantedPool.offers")]
        body = {"name": "hostile", "driver": "shop", "nodes_min": 1, "nodes_max": 2, "offers": offers}
        self.as_operator("POST", "/v1/pools", body | {"settings": settings})
        self.as_operator("POST", "/v1/pools", body | {"name": "changed", "nodes_min": 0})
        changed = {"town": hostile("PoolChange.settings")}
        offers[1] = hostile("PoolChange.offers")
        self.as_operator("PATCH", "/v1/pools/changed", {"settings": changed, "offers": offers})
        tend(self.service.deployment, self.service.now_ms)
        till.sold_out.add(hostile("Offer.id"))
        self.as_operator("PATCH", "/v1/pools/hostile", {"nodes_min": 2})
        tend(self.service.deployment, self.service.now_ms)
        (rented,) = self.service.look(
            "SELECT id FROM node WHERE pool = 'hostile' AND state <> 'gone' ORDER BY id LIMIT 1"
        )
        request = Join(machine="rented", name="rented", node=rented["id"], place=hostile("Join.place"))
        return join_pool(self.service.deployment, request, "hostile", self.service.now_ms, rental=rented["id"]).node

    # Access, endpoints and files

    def endpoint(self) -> str:
        body = {"channel": "webhook", "address": "https://hooks.example/x'onerror=hostile=1"}
        made = self.ask("POST", "/v1/notices/endpoints", body | {"name": hostile("WantedEndpoint.name")})
        other = self.ask("POST", "/v1/notices/endpoints", body)["endpoint"]["id"]
        self.ask("PATCH", f"/v1/notices/endpoints/{other}", {"name": hostile("EndpointChange.name")})
        return made["endpoint"]["id"]

    def join_tokens_and_keys(self) -> None:
        token = {name: hostile(f"WantedJoinToken.{name}") for name in ("name", "pool")}
        self.as_operator("POST", "/v1/join-tokens", token)

    def add_dataset_and_base(self) -> None:
        words = {name: hostile(f"WantedBase.{name}") for name in ("licence", "because")}
        files = {"source": "files", "files": [self.file("File.path")]}
        self.ask("POST", "/v1/bases", {"name": "hostile", "base": files, "family": "sdxl"} | words)
        name = path("Photo.path")
        photo = self.upload(picture(1), f"{name}.png")
        caption = self.upload(hostile("Caption.text").encode(), f"{name}.txt")
        self.ask("POST", "/v1/datasets/hostile/versions", {"files": [to_json(photo), to_json(caption)]})
        for _ in check_datasets(self.service.deployment):
            pass

    def upload(self, content: bytes, name: str) -> File:
        """Into the project of the key, as `Service.upload` does."""
        return self.service.upload(content, name)


def hand_over_checkpoint(service: Service, node: str, held: Assignment, step: int, name: str) -> File:
    content = b"weights"
    file = service.manifest(step, content).files[0]
    file = replace(file, path=name)
    request = Uploads(folder="checkpoints", step=step, files=(as_upload(file, content),))
    grants = checkpoint.sign_uploads(service.deployment, node, held.hold, request, service.now_ms)
    assert not isinstance(grants, Stale)
    service.put(grants.files[0], content)
    return file
