"""Routes for a project's bases: viewers read, members add and delete."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import MaxLen, Predicate
from fastapi import APIRouter, Request

from gangline.api.answers.paging import PartAfter, PartLimit, as_part, part_in_order
from gangline.api.answers.repeats import Repeat
from gangline.api.lanes import UserRoute
from gangline.api.who import MemberOf, Now, ThisDeployment, ViewerOf
from gangline.core.display import Label, is_printable
from gangline.core.models.families import FamilyName
from gangline.core.specs.fields import Base, Prediction
from gangline.core.views import BaseView
from gangline.service.content import bases

router = APIRouter(prefix="/v1", tags=["bases"], route_class=UserRoute)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedBase:
    """A base to add.

    On the hub, empty fields are detected, the revision becomes a commit, and a gated model is mirrored in the object store. For uploaded
    files, the caller states what they are.
    """

    name: Annotated[str, MaxLen(100)]
    base: Base
    vae: Base | None = None
    family: Literal["", FamilyName] = ""
    prediction_type: Literal["", Prediction] = ""
    licence: Label = ""
    because: Annotated[str, MaxLen(1000), Predicate(is_printable)] = ""


@router.post("/bases", status_code=201)
def add_base(deployment: ThisDeployment, now: Now, project: MemberOf, wanted: WantedBase, repeat: Repeat) -> BaseView:
    """Add a base under a name. Adding the same one again changes nothing. 422 if the name stands for another base."""
    said = bases.BaseStatement(
        family=wanted.family,
        prediction_type=wanted.prediction_type,
        licence=wanted.licence,
        because=wanted.because,
    )
    request = repeat.within(project)
    with repeat.alone(project):
        return bases.add(deployment, project, wanted.name, wanted.base, wanted.vae, said, now, request)


@router.get("/bases")
def list_bases(
    request: Request,
    deployment: ThisDeployment,
    project: ViewerOf,
    after: PartAfter = None,
    limit: PartLimit = None,
) -> list[BaseView]:
    """List the project's bases."""
    found = part_in_order(bases.bases_of(deployment, project), after, lambda base: base.name)
    return as_part(request, found, limit, lambda base: base.name)  # type: ignore[return-value]


@router.get("/bases/{base}")
def show_base(deployment: ThisDeployment, project: ViewerOf, base: str) -> BaseView:
    """Show a base: its content, its family and licence, and whether it can be used yet."""
    return bases.get_base(deployment, project, base)


@router.delete("/bases/{base}", status_code=204)
def forget_base(deployment: ThisDeployment, project: MemberOf, base: str) -> None:
    """Delete a base's name. Jobs refer to bases by content, so those that use it continue. Repeating this changes nothing."""
    bases.forget(deployment, project, base)
