"""The parts of one job's timeline, and what a chart needs to know of each phase and each mark."""

from dataclasses import dataclass
from typing import Annotated, Literal

from gangline.core.events import Described, markdown_list

TimelinePhase = Literal[
    "queued",
    "held",
    "fetching",
    "paused",
    "starting",
    "downloading",
    "preparing",
    "training",
    "rendering",
    "saving",
    "uploading",
    "silent",
]
PHASES: dict[TimelinePhase, str] = {
    "queued": "The job waits for a node.",
    "held": "The job waits for its experiment.",
    "fetching": "The server fetches the photos that the job named by their address.",
    "paused": "The owner or the experiment of the job paused it.",
    "starting": "A node has the job, and did not begin to download yet.",
    "downloading": "The node downloads the inputs, the base and the checkpoint.",
    "preparing": "The trainer starts: it loads the model, and computes latents and embeddings.",
    "training": "The trainer takes steps.",
    "rendering": "The trainer draws pictures.",
    "saving": "The trainer writes its result or its last checkpoint.",
    "uploading": "The node uploads the result.",
    "silent": "The node was not heard any more, until the server ended the attempt or until now.",
}
WAITING: frozenset[str] = frozenset({"queued", "held", "fetching", "paused"})
"""The phases in which no node has the job."""

MarkKind = Literal[
    "interrupted",
    "released",
    "failed",
    "banned",
    "strike",
    "bans lifted",
    "resumed",
    "committed",
    "rejected",
    "rendered",
]
MARKS: dict[MarkKind, str] = {
    "interrupted": "The node fell silent, and the attempt ended.",
    "released": "The node handed the job back.",
    "failed": "The attempt failed.",
    "banned": "The machine does not get the job again.",
    "strike": "The failure counts against the machine.",
    "bans lifted": "Banned machines may try the job again.",
    "resumed": "An attempt began from a checkpoint, of which `step` is the step.",
    "committed": "The checkpoint of `step` is stored and complete.",
    "rejected": "A checkpoint was found damaged.",
    "rendered": "Sample images were added to the artifacts.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSegment:
    """A span of a job's time in one phase. Where a node had the job, it has the attempt, the node and its machine. The last segment of an
    attempt has `ended`, the state in which it ended, and `because`."""

    from_ms: int
    to_ms: int
    phase: Annotated[str, Described(f"What the job was doing:\n\n{markdown_list(PHASES)}", PHASES)]
    attempt: str | None = None
    node_name: str = ""
    machine: str = ""
    gpu: str = ""
    ended: str = ""
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineMark:
    """A moment of a job. It has the attempt, the node and the machine that it is about, if there is one."""

    at_ms: int
    kind: Annotated[str, Described(f"What happened:\n\n{markdown_list(MARKS)}", MARKS)]
    attempt: str | None = None
    node_name: str = ""
    machine: str = ""
    step: int | None = None
    because: str = ""
