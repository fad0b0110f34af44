"""Whose jobs and costs a screen shows: those of one project, or for an operator of all projects together."""

from typing import Annotated, Literal

from fastapi import Depends, Query

from gangline.api.lanes import Later
from gangline.web.frame.visitor import LookingLater

ScopeText = Annotated[Literal["project", "all", ""], Query(alias="of")]


async def _scope(look: LookingLater, of: ScopeText = "") -> Later[str | None]:
    """Find the project; None for all. Without `of`, an operator who has chosen no project sees all of them, as in the API."""

    def find() -> str | None:
        seen = look.get()
        if seen.identity.project is not None or of == "project":
            return seen.project
        return None if of == "all" else seen.identity.chosen

    return Later(find)


Scope = Annotated[str | None, Depends(_scope)]
ScopeLater = Annotated[Later[str | None], Depends(_scope)]
