"""Ask a server where a job could run. Where none answers the plan has everything else."""

from dataclasses import replace
from typing import TYPE_CHECKING

from gangline.cli.jobs.plan.files import LocalFiles, ModelChoice
from gangline.cli.output import say
from gangline.core.errors import GanglineError, NotFound
from gangline.core.plans.base import KnownBase, of_named
from gangline.core.plans.document import Answer
from gangline.core.specs.fields import Base, FilesBase, HubBase
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.scratch import ScratchSpec

if TYPE_CHECKING:
    from gangline.compose.client import Client

LONG_BYTES = 2**30


def ask(client: "Client", spec: LoraSpec | ScratchSpec, base: ModelChoice, known: KnownBase) -> Answer:
    """Ask the server where the job could run, without sending files: `spec` has stand-ins for them. The files of a base
    are hashed, so that the server recognises one that it has."""
    try:
        client.projects.current()  # who answers nothing need not know which base it is
        return Answer(placed=client.jobs.place(replace(spec, base=exactly(base, known))))
    except NotFound:
        return Answer(placed=None, why_not=f"the server at {client.server} is too old to say where a job could run")
    except GanglineError as error:
        return Answer(placed=None, why_not=error.message)


def as_named(client: "Client", base: ModelChoice, known: KnownBase) -> KnownBase:
    """Return the base with what the project's list says about it if it was uploaded before. A server that does not answer adds nothing."""
    if not isinstance(base, FilesBase):
        return known
    try:
        view = next((each for each in client.bases.list() if each.id == base.id), None)
    except GanglineError:
        return known
    return of_named(base, view) if view else known


def exactly(base: ModelChoice, known: KnownBase) -> Base:
    """Return the base under the name that it has once submitted: its content, or its commit."""
    if isinstance(base, HubBase):
        return replace(base, revision=known.revision or base.revision)
    if not isinstance(base, LocalFiles):
        return base
    if (known.bytes or 0) > LONG_BYTES:
        say(f"reading the base ({(known.bytes or 0) / 1e9:.1f} GB) to look up how long such jobs took before")
    return FilesBase(files=base.described())
