"""List the kinds of events that are recorded for a job, each with a sentence. The list is closed.

docs/reference/events.md and the OpenAPI document have the same list. A new kind is added here first: no other can be recorded.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from gangline.core.job import AttemptEnd

Moved = Literal["paused", "queued", "canceled"]
"""How an owner changed the state of a job while no node was working on it."""
EventKind = Literal[
    "submitted",
    "fetched",
    "claimed",
    "prepared",
    "committed",
    "rejected",
    "rendered",
    "delivered",
    "not delivered",
    "slowed",
    "asked to stop",
    "asked to save",
    "asked to sample",
    "asked to finish",
    "not done",
    "over budget",
    "bans lifted",
    "admitted",
    "advanced",
    "cleaned up",
    AttemptEnd,
    Moved,
]

EVENTS: dict[EventKind, str] = {
    "submitted": "The job was added and waits for a node, or for its experiment, as `because` says.",
    "fetched": "The server fetched the photos that the job named by their address: it waits for a node, and `because` says what was used.",
    "claimed": "A node took the job: an attempt begins, and `because` says why this node was chosen.",
    "prepared": "The node uploaded latents, embeddings or class images: jobs of the same data and base need not compute them again.",
    "committed": "A checkpoint is stored and complete: no later attempt starts before its step, unless it is rejected.",
    "rejected": "A checkpoint was found damaged: no attempt resumes from it, the next one uses the checkpoint before it.",
    "rendered": "Sample images were added to the artifacts of the job; `because` names their folder.",
    "delivered": "All results were copied to where the job asked for them; `because` names the place.",
    "not delivered": "The results could not be copied to where the job asked for them: `because` says why; they stay among the artifacts.",
    "slowed": "The card is slower than it could be, and the attempt continues there: `because` says why, and what would help.",
    "asked to stop": "The server asked the node to save and hand the job back: the attempt ends soon, and `because` says why.",
    "asked to save": "The owner wants a checkpoint: the node hears it with its next heartbeat, and `committed` says which step was saved.",
    "asked to sample": "The owner wants pictures of what the job has now: its next checkpoint is rendered, and `rendered` names them.",
    "asked to finish": "The owner wants the job to end with what it has: its node takes no more steps, and that is the result.",
    "not done": "The job ended before something that its owner had asked for: `because` says what.",
    "over budget": "The attempt is stopped because its project's budget is used up, as `because` says: jobs wait until it is raised.",
    "bans lifted": "For a long time only banned machines could have taken the job, so they may try it again.",
    "admitted": "The experiment of the job lets it wait for a node: before that, no node could take it.",
    "advanced": "The experiment of the job lets it train on after a pause: `because` says why, for example its rank in successive halving.",
    "cleaned up": "The job ended long ago, and its checkpoints, log or previews were deleted by age: `because` says which.",
    "succeeded": "The attempt finished the job: its results are among the artifacts.",
    "failed": "The attempt failed, or no node came that the job needs: `because` says why, and whether the job is tried again.",
    "interrupted": "The node fell silent: the job waits for a node. That counts as a failure only if the job seems to kill its hosts.",
    "released": "The node handed the job back before it was finished: the job resumes elsewhere or waits. This never counts as a failure.",
    "canceled": "The job was canceled, by its owner, by its experiment or because its images were no longer wanted: nothing more happens.",
    "paused": "The owner or the experiment of the job paused it while no node was working on it: it waits until it is resumed.",
    "queued": "The owner resumed the job: it waits for a node again.",
}


class Described:
    """An annotation that puts a description, and the closed list of a field's values, into the OpenAPI document.

    A reader accepts any other string, too: a client may be older than its server, and a stored event older than both.
    """

    def __init__(self, text: str, values: Mapping[Any, str] | None = None) -> None:
        self.schema: dict[str, Any] = {"description": text}
        if values is not None:
            self.schema["enum"] = [*values]

    def __get_pydantic_json_schema__(self, schema: Any, of: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return of(schema) | self.schema


def markdown_list(sentences: Mapping[Any, str]) -> str:
    """Return a closed list and its sentences as Markdown."""
    return "\n".join(f"- `{kind}`: {says}" for kind, says in sentences.items())


RecordedKind = Annotated[str, Described(f"What happened:\n\n{markdown_list(EVENTS)}", EVENTS)]
"""The kind of an event in answers. It is a plain string, as it may be one that this version does not know."""
