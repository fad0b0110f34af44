"""The trainer contract: a directory and a few signals, so that any training program plugs in.

    spec.json  inputs/  resume/            in
    progress.jsonl                         out: a line for each phase, and for steps with their metrics; the step that is saved has one
    checkpoints/000100/…, manifest.json    out: the manifest is written last; it lists names, bytes and SHA-256
    prepared/KEY/…, manifest.json          out: what others need not make again, the manifest last; in: inputs/prepared/KEY/
    samples/step-000100/…, samples.json    out: pictures of a step; samples.json is written last; it tells what each shows
    samples/  output/                      out
    left_out.json                          in: the parts of the base that did not come, as what they make is prepared
    SIGTERM  save, exit 75   ·   SIGUSR1  save, go on   ·   SIGUSR2  render pictures of this step, go on

Exit codes are those of sysexits.h where it has one: 0 done, 65 the input is bad, 69 a part that was left out is needed after
all (it comes, and the trainer is started again), 75 stopped and resumable; anything else is a crash.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from gangline.core.canonical import digest
from gangline.core.errors import Damaged
from gangline.core.files import File, both_file_and_folder, is_safe_path, is_sha256

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 65
EXIT_LEFT_OUT = 69
EXIT_STOPPED = 75
EXIT_OUT_OF_MEMORY, EXIT_PEER_GONE = 79, 80
"""Of one rank of several, to its launcher alone: all are to be started again with fewer samples at a time; another one has ended first."""

SPEC = "spec.json"
INPUTS = "inputs"
RESUME = "resume"
PROGRESS = "progress.jsonl"
CHECKPOINTS = "checkpoints"
PREPARED = "prepared"
LEFT_OUT = "left_out.json"
MANIFEST = "manifest.json"
SAMPLES = "samples"
PICTURES = "samples.json"
OUTPUT = "output"
REPORT = "report.json"

Phase = Literal["starting", "downloading", "preparing", "training", "rendering", "saving", "uploading"]


BASE, LORA, GRID = "base", "lora", "grid.png"
"""The sides of a comparison, and the picture that shows both."""
PHOTOS = "photos.png"
"""Some of the photos that were trained on, as a strip: what pictures are compared with."""
LIBRARIES = ("torch", "diffusers", "transformers", "peft", "numpy", "pillow")
"""Those whose versions decide the bits of a result."""
TRAINER = "2"
"""Counts the changes of our own trainer that change the bits of a step."""


def checkpoint_name(step: int) -> str:
    return f"{step:06d}"


def pictures_name(step: int) -> str:
    return f"step-{step:06d}"


def picture_name(prompt: int, seed: int, side: str = "") -> str:
    """Of the prompt with this number; in a comparison with the base, of its `BASE` or its `LORA` side."""
    return f"prompt-{prompt:02d}-{f'{side}-' * bool(side)}seed-{seed}.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture(File):
    """What one shows, and how it was made. `width` and `height` in pixels."""

    step: int
    prompt: str
    seed: int
    sampler: str
    sampler_steps: int
    guidance_scale: float
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint is: its step, whose it is, under which numerics it was made, and its files.

    `fingerprint` names all that decides the bits besides spec and inputs: GPU, library versions, kernels,
    microbatch, ranks. `exact` tells whether it stayed the same from the first step to this one.
    """

    step: int
    spec_hash: str
    fingerprint: dict[str, str]
    exact: bool
    files: tuple[File, ...]

    def to_json(self) -> dict[str, Any]:
        """With the digest of everything else, so that a manifest proves itself too."""
        body = _body(self)
        return body | {"digest": digest(body)}


def _body(manifest: Manifest) -> dict[str, Any]:
    return {
        "step": manifest.step,
        "spec_hash": manifest.spec_hash,
        "fingerprint": manifest.fingerprint,
        "exact": manifest.exact,
        "files": _files_to_json(manifest.files),
    }


def _files_to_json(files: tuple[File, ...]) -> list[dict[str, Any]]:
    return [{"path": file.path, "bytes": file.bytes, "sha256": file.sha256} for file in files]


def parse_manifest(value: object) -> Manifest:
    """Raises `Damaged` for anything that `Manifest.to_json` did not write."""
    try:
        assert isinstance(value, dict)
        body = {name: part for name, part in value.items() if name != "digest"}
        files = _files(body["files"])
        manifest = Manifest(
            step=_whole(body["step"]),
            spec_hash=str(body["spec_hash"]),
            fingerprint={str(name): str(part) for name, part in body["fingerprint"].items()},
            exact=body["exact"] is True,
            files=files,
        )
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"the manifest is not one: {type(error).__name__} {error}".rstrip()) from None
    if value.get("digest") != digest(_body(manifest)):
        raise Damaged("the manifest does not match its own digest")
    return manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The manifest of what was prepared under a key (gangline.core.runs.prepared)."""

    key: str
    files: tuple[File, ...]

    def to_json(self) -> dict[str, Any]:
        body = _body_of_prepared(self)
        return body | {"digest": digest(body)}


def _body_of_prepared(prepared: Prepared) -> dict[str, Any]:
    return {"key": prepared.key, "files": _files_to_json(prepared.files)}


def parse_prepared(value: object) -> Prepared:
    """Raises `Damaged` for anything that `Prepared.to_json` did not write."""
    try:
        assert isinstance(value, dict)
        prepared = Prepared(key=str(value["key"]), files=_files(value["files"]))
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"the manifest is not one: {type(error).__name__} {error}".rstrip()) from None
    if value.get("digest") != digest(_body_of_prepared(prepared)):
        raise Damaged("the manifest does not match its own digest")
    return prepared


def _files(values: Iterable[dict[str, Any]]) -> tuple[File, ...]:
    files = tuple(_file(value) for value in values)
    because = both_file_and_folder(file.path for file in files)
    if because:
        raise ValueError(because)
    return files


def _whole(value: object) -> int:
    """Only a number is a number: neither true nor "5"."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _file(value: dict[str, Any]) -> File:
    file = File(path=value["path"], bytes=_whole(value["bytes"]), sha256=value["sha256"])
    if not is_safe_path(file.path) or not is_sha256(file.sha256) or file.bytes < 0:
        raise ValueError(file.path)
    return file


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The last known point of a run. `seconds_per_step` is a recent mean; `loss` too. So long did the last save hold training up.
    `metrics` are those of a line about steps (gangline.core.runs.metrics): means over the steps since the line before."""

    phase: Phase = "starting"
    step: int = 0
    steps: int = 0
    loss: float | None = None
    seconds_per_step: float | None = None
    save_s: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)


ReportedFailureKind = Literal[
    "bad data",
    "download failed",
    "diverged",
    "no gradient",
    "out of memory",
    "disk full",
    "other numerics",
    "too old",
    "crashed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a trainer says of its own end."""

    kind: ReportedFailureKind
    because: str
