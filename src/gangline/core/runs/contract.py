"""Define the trainer contract: a directory and a few signals, which any training program can implement.

    spec.json  inputs/  resume/            in
    progress.jsonl                         out: a line for each phase, and for steps with their metrics; each saved step has one
    checkpoints/000100/…, manifest.json    out: the manifest is written last; it lists names, bytes and SHA-256
    checkpoints/000100/parts-*.jsonl       out, if at all: a line for each part of a large file that is complete: it is uploaded at once
    prepared/KEY/…, manifest.json          out: results that other runs can reuse, the manifest last; in: inputs/prepared/KEY/
    samples/step-000100/…, samples.json    out: samples of a step; samples.json, written last, describes all files there
    samples/  output/                      out
    left_out.json                          in: the parts of the base that were not downloaded, as their results are prepared
    show_now                               in: an empty file: SIGUSR2 asks for this step, not for one that was kept; the trainer removes it
    finish                                 in: an empty file: take no more steps, save, write the result of this one, exit 0; where it is
                                           there at the start: of the checkpoint's step, or of the first
    SIGTERM  save, exit 75   ·   SIGUSR1  save, continue   ·   SIGUSR2  render samples of this step, continue
    GANGLINE_IN_MEMORY                     in: a folder on a tmpfs; resume/, checkpoints/, samples/ and output/ may lie there, too. A
                                           trainer that uses it looks how much memory is free before each save (runs.in_memory)
    GANGLINE_MEMORY_LIMITS                 in: the folders of the cgroups that limit its memory

Exit codes are those of sysexits.h if it has one: 0 done, 65 the input is bad, 69 a part that was left out is needed after all (it is
downloaded, and the trainer is started again), 75 stopped and resumable; any other code is a crash.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from gangline.core.canonical import digest
from gangline.core.errors import Damaged
from gangline.core.files import File, both_file_and_folder, is_safe_path, is_sha256
from gangline.core.runs.metrics import sound

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 65
EXIT_LEFT_OUT = 69
EXIT_STOPPED = 75
EXIT_OUT_OF_MEMORY, EXIT_PEER_GONE = 79, 80
"""Exit codes of one rank of several, which only its launcher sees: 79 asks to restart all ranks with a smaller microbatch, 80 says that
another rank ended first."""

SPEC = "spec.json"
INPUTS = "inputs"
RESUME = "resume"
PROGRESS = "progress.jsonl"
CHECKPOINTS = "checkpoints"
NOT_DRAWN = ("optimizer", "best")
"""How the names of a checkpoint's files begin that pictures of it do not need."""
PREPARED = "prepared"
LEFT_OUT = "left_out.json"
MANIFEST = "manifest.json"
PARTS = "parts-*.jsonl"
SAMPLES = "samples"
PICTURES = "samples.json"
OUTPUT = "output"
SHOW_NOW, FINISH = "show_now", "finish"
REPORT = "report.json"

Phase = Literal["starting", "downloading", "preparing", "training", "rendering", "saving", "uploading"]


BASE, LORA, GRID = "base", "lora", "grid.png"
"""The two sides of a comparison in file names, and the image that shows both."""
PHOTOS = "photos.png"
"""An image with some of the training photos side by side, to compare samples with."""
LIBRARIES = ("torch", "diffusers", "transformers", "peft", "numpy", "pillow")
"""The libraries whose versions decide the bits of a result."""
TRAINER = "3"
"""The version of Gangline's trainer: it is raised by each change that changes the bits of a step."""


def checkpoint_name(step: int) -> str:
    return f"{step:06d}"


def pictures_name(step: int) -> str:
    return f"step-{step:06d}"


def pictures_folder(step: int) -> str:
    """Return the folder of a job's artifacts that has the pictures of a step."""
    return f"{SAMPLES}/{pictures_name(step)}"


def picture_name(prompt: int, seed: int, side: str = "") -> str:
    """Return the file name of a sample. `prompt` is the prompt's number; `side` is `BASE` or `LORA` in a comparison with the base."""
    return f"prompt-{prompt:02d}-{f'{side}-' * bool(side)}seed-{seed}.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture(File):
    """A sample: the prompts that it shows, and how it was made. `width` and `height` are in pixels."""

    step: int
    prompt: str
    seed: int
    sampler: str
    sampler_steps: int
    guidance_scale: float
    width: int
    height: int
    negative_prompt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of a checkpoint: its step, the hash of its job's spec, the numerics that it was made with, and its files.

    `fingerprint` names everything that decides the bits besides spec and inputs: GPU, library versions, kernels, microbatch, ranks.
    `exact` says whether it was the same from the first step to this one. `best`: of all steps that were measured so far, held-out samples
    were the best after this one.
    """

    step: int
    spec_hash: str
    fingerprint: dict[str, str]
    exact: bool
    files: tuple[File, ...]
    best: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as JSON with a digest over its content, so that damage to the manifest is detected, too."""
        body = _body(self)
        return body | {"digest": digest(body)}


def _body(manifest: Manifest) -> dict[str, Any]:
    return {
        "step": manifest.step,
        "spec_hash": manifest.spec_hash,
        "fingerprint": manifest.fingerprint,
        "exact": manifest.exact,
        "files": _files_to_json(manifest.files),
        **({"best": True} if manifest.best else {}),
    }


def _files_to_json(files: tuple[File, ...]) -> list[dict[str, Any]]:
    return [{"path": file.path, "bytes": file.bytes, "sha256": file.sha256} for file in files]


def parse_manifest(value: object) -> Manifest:
    """Parse a manifest. Raises `Damaged` for anything that `Manifest.to_json` did not write."""
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
            best=body.get("best") is True,
        )
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"the manifest is malformed: {type(error).__name__} {error}".rstrip()) from None
    if value.get("digest") != digest(_body(manifest)):
        raise Damaged("the manifest does not match its own digest")
    return manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The next part (`PART_BYTES`, or what is left) of a file that is being written: what the whole file will have, and its SHA-256."""

    path: str
    bytes: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "bytes": self.bytes, "sha256": self.sha256}


def parse_part(value: object) -> Part:
    """Parse a line of a list of parts. Raises `Damaged`."""
    try:
        assert isinstance(value, dict)
        file = _file(value)
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"a part is malformed: {type(error).__name__} {error}".rstrip()) from None
    return Part(path=file.path, bytes=file.bytes, sha256=file.sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The manifest of the files that were prepared under a key (gangline.core.runs.prepared)."""

    key: str
    files: tuple[File, ...]

    def to_json(self) -> dict[str, Any]:
        body = _body_of_prepared(self)
        return body | {"digest": digest(body)}


def _body_of_prepared(prepared: Prepared) -> dict[str, Any]:
    return {"key": prepared.key, "files": _files_to_json(prepared.files)}


def parse_prepared(value: object) -> Prepared:
    """Parse a manifest of prepared files. Raises `Damaged` for anything that `Prepared.to_json` did not write."""
    try:
        assert isinstance(value, dict)
        prepared = Prepared(key=str(value["key"]), files=_files(value["files"]))
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"the manifest is malformed: {type(error).__name__} {error}".rstrip()) from None
    if value.get("digest") != digest(_body_of_prepared(prepared)):
        raise Damaged("the manifest does not match its own digest")
    return prepared


def parse_pictures(value: object) -> tuple[int, tuple[File, ...]]:
    """Parse the description of a step's pictures: the step, and the files, with those that lie beside them. Raises `Damaged`."""
    try:
        assert isinstance(value, dict)
        return _count(value["step"]), _files([*value["pictures"], *value.get("files", ())])
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"the description is malformed: {type(error).__name__} {error}".rstrip()) from None


def _files(values: Iterable[dict[str, Any]]) -> tuple[File, ...]:
    files = tuple(_file(value) for value in values)
    because = both_file_and_folder(file.path for file in files)
    if because:
        raise ValueError(because)
    return files


def _whole(value: object) -> int:
    """Return `value` if it is an int. Raises `TypeError` for others, such as True and "5"."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _file(value: dict[str, Any]) -> File:
    file = File(path=value["path"], bytes=_whole(value["bytes"]), sha256=value["sha256"])
    if not is_safe_path(file.path) or not is_sha256(file.sha256) or file.bytes < 0:
        raise ValueError(file.path)
    return file


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The last known point of a run. `seconds_per_step` and `loss` are recent means; `save_s` is how long the last save stopped training.
    `metrics` are means over the steps since the line before (gangline.core.runs.metrics)."""

    phase: Phase = "starting"
    step: int = 0
    steps: int = 0
    loss: float | None = None
    seconds_per_step: float | None = None
    save_s: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)


TrainerFailureKind = Literal[
    "bad data",
    "download failed",
    "diverged",
    "no gradient",
    "out of memory",
    "disk full",
    "other numerics",
    "other format",
    "too old",
    "crashed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The reason for its end that a trainer reports."""

    kind: TrainerFailureKind
    because: str


COUNT_MAX, DAY_S = 10**12, 86_400.0
"""The largest step, and the longest time of one, that a report may have: a server takes no more either."""


def parse_report(value: object) -> Progress | Failure:
    """Parse a line of progress.jsonl. Raises `Damaged` for what is none; of `metrics` only sound entries are kept."""
    try:
        assert isinstance(value, dict)
        if "failure" in value:
            said = value["failure"]
            assert said["kind"] in get_args(TrainerFailureKind), said["kind"]
            return Failure(kind=said["kind"], because=str(said["because"]))
        assert value["phase"] in get_args(Phase), value["phase"]
        return Progress(
            phase=value["phase"],
            step=_count(value["step"]),
            steps=_count(value["steps"]),
            loss=_number(value["loss"]),
            seconds_per_step=_positive(value["seconds_per_step"]),
            save_s=_positive(value.get("save_s")),
            metrics=sound(value.get("metrics")),
        )
    except (AssertionError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise Damaged(f"a line is malformed: {type(error).__name__} {error}".rstrip()) from None


def _count(value: object) -> int:
    count = _whole(value)
    if not 0 <= count <= COUNT_MAX:
        raise ValueError(f"{count} is no count")
    return count


def _number(value: object) -> float | None:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return None if value is None else float(value)
    raise TypeError(f"{value!r} is not a number")


def _positive(value: object) -> float | None:
    """Return a time in seconds, or None for what is none or lasts a day or longer."""
    number = _number(value)
    return number if number and 0 < number <= DAY_S else None
