"""Show the plan of a training, upload what it names, submit it and watch it."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from gangline.cli.jobs.follow import follow_job, tell_end, watching
from gangline.cli.jobs.submitting.experiment import show_experiment_plan, submit_experiment_and_watch
from gangline.cli.output import Output, as_typed, out, print_json, say
from gangline.core.errors import BadInput
from gangline.core.parsing import to_json
from gangline.core.specs.fields import Base
from gangline.core.specs.lora import LoraSpec
from gangline.core.words import counted, size_words

if TYPE_CHECKING:
    from gangline.cli.jobs.places.fetched import FetchedPlan
    from gangline.cli.jobs.plan.make import LoraPlan
    from gangline.compose.client import Client
    from gangline.core.plans.document import PlanDocument
    from gangline.core.specs.spec import Spec
    from gangline.wire.transfers import TransferProgress

    Planned = LoraPlan | FetchedPlan

EXIT_JOB_FAILED = 1
LARGE_BYTES = 2**28


def planned_and_sent(client: "Client", made: "Planned", plan: bool, output: Output) -> LoraSpec | dict[str, Any] | None:
    """Show the plan, then upload what the spec names and lies here; None where the plan alone is asked for."""
    planned = ask_and_show_plan(client, made)
    if plan:
        print_json(planned) if output is Output.json else None
        return None
    check_open(planned)
    return made.upload(client, UploadProgress(made.files_count))


def submit_experiment_of(
    client: "Client",
    made: "Planned",
    asked: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    plan: bool,
    detach: bool,
    output: Output,
) -> None:
    """Show the plan of the first job and of the experiment, then upload the inputs once, submit the experiment and watch it.

    `asked` returns what is submitted, given the spec that the jobs have in common. The server is asked for the plan before anything is
    shown, so that what is wrong with an experiment is said alone. With `plan`, stop before anything is uploaded.
    """
    from gangline.cli.jobs.plan.ask import exactly
    from gangline.cli.jobs.submitting.first_job import first_job

    expected = client.experiments.plan(asked(to_json(made.spec)))
    spec = replace(made.spec, base=exactly(made.models["base"], made.known))
    if spec != made.spec:  # what such work took before is known by the content of the base, which may take long to read
        expected = client.experiments.plan(asked(to_json(spec)))
    first = first_job(asked(to_json(spec)), spec, expected.jobs)
    planned = ask_and_show_plan(client, replace(made, spec=first.spec), spec.base, of=first.words)
    show_experiment_plan(expected)
    if plan:
        print_json(expected) if output is Output.json else None
        return
    check_open(planned)
    sent = made.upload(client, UploadProgress(made.files_count))
    submit_experiment_and_watch(
        client, asked(sent if isinstance(sent, dict) else to_json(sent)), detach=detach, output=output
    )


def ask_and_show_plan(client: "Client", plan: "Planned", base: Base | None = None, *, of: str = "") -> "PlanDocument":
    """Ask the server where it could run, and show all that is known before anything is sent.

    `base` is the base by its content, if that is known already. `of` says which of several jobs the plan is of.
    """
    from gangline.cli.jobs.places.fetched import FetchedPlan, fetched_document
    from gangline.cli.jobs.plan.ask import as_named, ask
    from gangline.cli.jobs.plan.lora import lora_document
    from gangline.cli.jobs.plan.show import show_plan

    known = as_named(client, plan.models["base"], plan.known)
    answer, plan = ask(client, plan.spec, base or plan.models["base"], known), replace(plan, known=known)
    planned = fetched_document(plan, answer) if isinstance(plan, FetchedPlan) else lora_document(plan, answer)
    show_plan(planned, plan.rows(), of=of)
    return planned


def check_open(plan: "PlanDocument") -> None:
    """Raise `BadInput` before anything is sent if no node could read what the job starts from."""
    from gangline.core.plans.document import why_closed

    for model in (plan.base, plan.vae):
        if model and (closed := why_closed(model, asked=plan.asked is None)):
            raise BadInput(closed)


class UploadProgress:
    """Says how far the upload of many files is: of a large one each tenth, and when all are there how many of them were sent."""

    def __init__(self, files: int) -> None:
        self.files = files
        self.done = self.sent = self.sent_bytes = 0
        self.tenths = 0
        self._moving = set[str]()

    def __call__(self, moved: "TransferProgress") -> None:
        if moved.file_bytes_done == moved.file_bytes:
            self._count(moved)
            if self.done == self.files:
                say(self._in_words())
            return
        self._moving.add(moved.path)  # a file that is stored already is there at once
        tenths = moved.file_bytes_done * 10 // moved.file_bytes
        if moved.file_bytes > LARGE_BYTES and tenths > self.tenths:
            self.tenths = tenths
            say(f"uploading {moved.path}: {moved.file_bytes_done / 1e9:.2f} of {moved.file_bytes / 1e9:.2f} GB")

    def _count(self, moved: "TransferProgress") -> None:
        self.done, self.tenths = self.done + 1, 0
        if moved.path in self._moving:
            self._moving.remove(moved.path)
            self.sent, self.sent_bytes = self.sent + 1, self.sent_bytes + moved.file_bytes

    def _in_words(self) -> str:
        sent = f"{counted(self.sent, 'file')} uploaded" + (f" ({size_words(self.sent_bytes)})" if self.sent else "")
        stored = self.files - self.sent
        return f"{sent}, {stored} {'was' if stored == 1 else 'were'} stored already"


def submit_and_watch(
    client: "Client", spec: "Spec | dict[str, Any]", name: str, labels: dict[str, str], detach: bool, output: Output
) -> None:
    """Submit a job and, unless it is to be left alone, watch it to its end."""
    job = client.jobs.submit(spec, name=name, labels=labels).summary
    with watching(job.id):
        say(f"{job.id} is queued: {job.because}")
        if detach:
            print_json(job) if output is Output.json else out.print(job.id)
        else:
            watch_job(client, job.id, output)


def watch_job(client: "Client", job: str, output: Output) -> None:
    ended = follow_job(client, job)
    if output is Output.json:
        print_json(ended)
    tell_end(ended.summary)
    if ended.summary.state != "succeeded":
        raise typer.Exit(EXIT_JOB_FAILED)
    say(f"download the results:   {as_typed('gangline', 'artifacts', job, '--to', 'results')}")
    if ended.samples.waiting:
        say(f"download the pictures:  {as_typed('gangline', 'samples', job, '--wait', '--to', 'pictures')}")
