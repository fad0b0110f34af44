"""List the sample pictures of a job, in the order of the grid: by prompt and seed, then by step."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gangline.core.errors import BadInput
from gangline.core.pictures.names import PicturePlace, picture_place, step_of_weights
from gangline.core.pictures.views import PictureView, StoredWeights, ThumbnailState
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.sample import TrainingSpec, previews_of
from gangline.core.specs.sections.previews import Preview
from gangline.core.specs.spec import parse_task
from gangline.ports.store import Row
from gangline.service.deployment import Deployment


@dataclass
class StepWeights:
    """What is stored of a job's steps: its checkpoints, newest first, the LoRAs of its steps, and its result."""

    checkpoints: Sequence[Row]
    files: frozenset[int]
    result: int | None

    @cached_property
    def _newest(self) -> dict[int, Row]:
        return {row["step"]: row for row in reversed(self.checkpoints)}

    def checkpoint(self, step: int) -> Row | None:
        """Return the checkpoint of a step, the one that pinning it keeps."""
        return self._newest.get(step)

    def of(self, step: int) -> StoredWeights:
        """Return where the weights of a step are stored; in several places, where they stay longest or most can be done with them."""
        if step == self.result:
            return "result"
        return "checkpoint" if step in self._newest else "file" if step in self.files else "none"

    @property
    def steps(self) -> list[int]:
        """Return the steps whose weights are stored."""
        return sorted({*self._newest, *self.files, *(() if self.result is None else (self.result,))})


def step_weights(deployment: Deployment, job: Row, paths: Sequence[str]) -> StepWeights:
    """Return what is stored of a job's steps; `paths` are its artifacts, at least those of its steps."""
    has_result = job["state"] == "succeeded" and not KINDS[job["kind"]].renders
    return StepWeights(
        checkpoints=deployment.store.load("checkpoints_of_job", job=job["id"]),
        files=frozenset(step for path in paths if (step := step_of_weights(path)) is not None),
        result=last_step(job) if has_result else None,
    )


def last_step(job: Row) -> int:
    """Return the step of a job's result, which it has once it has succeeded."""
    return job["ended_step"] or job["steps"]


def pictures_of_job(deployment: Deployment, job: Row, after: str | None, limit: int, now_ms: int) -> list[PictureView]:
    """Return up to `limit` sample pictures of a job after the one at the path `after`. Raise `BadInput` if no picture has such a path."""
    rows = deployment.store.load("pictures_of_job", job=job["id"])
    last = last_step(job)
    placed = sorted(
        ((place, row) for row in rows if (place := picture_place(row["path"], last)) is not None),
        key=lambda each: (each[0].rank, each[1]["path"]),
    )
    if after is not None:
        begin = picture_place(after, last)
        if begin is None:
            raise BadInput(f"after: {after!r} is the path of no picture", hint="begin without `after`")
        placed = [each for each in placed if (each[0].rank, each[1]["path"]) > (begin.rank, after)]
    weights = step_weights(deployment, job, [row["path"] for row in rows])
    winner = next((row["step"] for row in deployment.store.load("winner", job=job["id"])), None)
    shown = _Shown(deployment, _previews(job) if placed else {}, weights, winner, now_ms)
    return [shown.view(place, row) for place, row in placed[:limit]]


def _previews(job: Row) -> dict[int, Preview]:
    """Return the prompts of a job by their numbers; none of a spec that an older server took and this one would not."""
    try:
        task = parse_task(json.loads(job["spec"]))
    except BadInput:
        return {}
    return {each.number: each for each in previews_of(task)} if isinstance(task, TrainingSpec) else {}


@dataclass(frozen=True, slots=True)
class _Shown:
    """What all pictures of a job have in common."""

    deployment: Deployment
    previews: dict[int, Preview]
    weights: StepWeights
    winner: int | None
    now_ms: int

    def view(self, place: PicturePlace, row: Row) -> PictureView:
        preview, is_base = self.previews.get(place.prompt), place.of == "base"
        checkpoint = None if is_base else self.weights.checkpoint(place.step)
        signed = self.deployment.objects.sign_get(row["key"], now_ms=self.now_ms, seconds=self.deployment.policy.url_s)
        return PictureView(
            path=row["path"],
            of=place.of,
            step=place.step,
            prompt=place.prompt,
            text=preview.prompt if preview else "",
            seed=place.seed,
            width=row["width"] or (preview.width if preview else 0),
            height=row["height"] or (preview.height if preview else 0),
            bytes=row["bytes"],
            sha256=row["sha256"],
            url=signed.url,
            thumbnail=thumbnail_state(row),
            because=row["unusable"],
            weights="none" if is_base else self.weights.of(place.step),
            pinned=checkpoint is not None and checkpoint["pinned"] == 1,
            winner=not is_base and place.step == self.winner,
        )


def thumbnail_state(row: Row) -> ThumbnailState:
    if row["thumbnail_bytes"]:
        return "ready"
    return "none" if row["unusable"] else "waiting"
