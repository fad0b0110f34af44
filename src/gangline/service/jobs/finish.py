"""Finish: an attempt ends exactly once. Its state, artifacts, bill and event are one transaction."""

import json
from dataclasses import replace

from gangline.core.display import as_words
from gangline.core.jobs.failure import after_interruption, succeeded
from gangline.core.jobs.keys import attempt_prefix, folder_prefix
from gangline.core.specs.kinds import KINDS
from gangline.ports.server import Done, Failed, Hold, Outcome, Refused, Stale, Succeeded
from gangline.ports.store import Row, Write, write
from gangline.service.attempts import LOST, Decide, conclude, failure, load_ending, load_wishes, stopped
from gangline.service.content.upload import stored_as
from gangline.service.deployment import Deployment
from gangline.service.fleet.health import judge_machine
from gangline.service.jobs import samples
from gangline.service.jobs.checkpoint import prune


def finish(deployment: Deployment, node: str, hold: Hold, outcome: Outcome, now_ms: int) -> Done | Stale | Refused:
    live = load_ending(deployment, hold.attempt)
    if live is None or (live["node"], live["fencing"], live["rank"]) != (node, hold.fencing, hold.rank):
        return _told_before(deployment, node, hold, outcome)
    artifacts: list[Write] = []
    if isinstance(outcome, Succeeded):
        if _is_short(outcome, live) and not _why_short(deployment, live):
            because = f"it took {outcome.steps} of its {live['job_steps']} steps, and nothing allows it to end early"
            return Refused(because=because)
        found = _artifacts(deployment, live, hold, outcome, now_ms)
        if isinstance(found, Refused):
            return found
        artifacts = found
    if not conclude(
        deployment, hold.attempt, _meaning(deployment, live, outcome), now_ms, seen=live, heard=True, more=artifacts
    ):
        return _told_before(deployment, node, hold, outcome)
    if isinstance(outcome, Failed):
        judge_machine(deployment, live["machine"], live["pool"], now_ms)
    if KINDS[live["job_kind"]].renders:
        prune(deployment, samples.sample_folder_of(deployment, live["job"]).job, now_ms)
    return Done()


def _meaning(deployment: Deployment, attempt: Row, outcome: Outcome) -> Decide:
    match outcome:
        case Succeeded():
            early = ""
            if _is_short(outcome, attempt):
                early = f" at step {outcome.steps} of {attempt['job_steps']}, {_why_short(deployment, attempt)}"
            return lambda job, _attempt, _past: succeeded(job, attempt["node_name"], early)
        case Failed():
            return failure(deployment, outcome.kind, as_words(outcome.because))
        case _ if attempt["stop"]:
            return stopped(deployment, attempt["stop_kind"], attempt["stop"])
        case _:
            return lambda job, now, past: after_interruption(
                job, now, past, attempt["node_name"], deployment.policy, released=True
            )


def _artifacts(deployment: Deployment, live: Row, hold: Hold, outcome: Succeeded, now_ms: int) -> list[Write] | Refused:
    kind = KINDS[live["job_kind"]]
    renders = kind.renders
    own = samples.SampleFolder(live["job"], "")
    targets = {
        "output": samples.sample_folder_of(deployment, live["job"]) if renders else own,
        "samples": replace(own, folder="samples"),
    }
    prefix = attempt_prefix(live["job_project"], live["job"], hold.attempt)
    writes: list[Write] = []
    for folder, files in (("output", outcome.output), ("samples", outcome.samples)):
        stored = [(f"{folder_prefix(prefix, folder, 0)}/{file.path}", file) for file in files]
        # Checked before the transaction: keys are write-once, so the bytes cannot change afterwards.
        attested = stored_as(deployment, stored)
        if isinstance(attested, Refused):
            return attested
        writes += [samples.adding_artifact(targets[folder], hold.attempt, key, file, now_ms) for key, file in stored]
    if renders:
        return [*writes, *samples.rendered(targets["output"], live, now_ms)]
    short = _is_short(outcome, live)
    last = outcome.steps if short else live["job_steps"]
    early = [write("end_early", id=live["job"], step=last)] if short else []
    taken = [write("take_last_step", attempt=hold.attempt, step=last)] if last and kind.ours else []
    return [*writes, *taken, *early, *samples.of_result(deployment, live["job"], last, now_ms)]


def _is_short(outcome: Succeeded, live: Row) -> bool:
    """Return whether the result is that of fewer steps than the job has."""
    return 0 < outcome.steps < live["job_steps"]


def _why_short(deployment: Deployment, live: Row) -> str:
    """Return why the result may be that of fewer steps; an empty text if it may not."""
    if any(wish.kind == "finish" for wish in load_wishes(deployment, live["job"])):
        return "as its owner had asked"
    spec = json.loads(deployment.store.load("job", id=live["job"])[0]["spec"])
    return "as held-out samples became no better" if spec.get("stop_when_worse") else ""


def _told_before(deployment: Deployment, node: str, hold: Hold, outcome: Outcome) -> Done | Stale:
    """Accept the same outcome a second time: the node repeats it if the first answer was lost."""
    rows = deployment.store.load("attempt", id=hold.attempt)
    same = rows and rows[0]["node"] == node and rows[0]["fencing"] == hold.fencing
    return Done() if same and rows[0]["state"] == outcome.outcome else LOST
