"""What routes of streams have in common: the hub, and what the browser has: its last message, or what its page was loaded with."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Request, Response

from gangline.web.frame.visitor import Visit
from gangline.web.live.hub import LiveHub
from gangline.web.live.screens import LiveScreen


@dataclass(frozen=True, slots=True)
class FollowedHub:
    """The hub of this server, for one request."""

    hub: LiveHub
    last: str
    shown: str

    async def follow(self, seen: Visit, name: Hashable, make: Callable[[], LiveScreen]) -> Response:
        """Return the stream of a screen, which ends with this session or its key. All who give the same `name` look at one."""
        key, owner = seen.identity.proof, seen.identity.id
        return await self.hub.follow(name, make, key=key, owner=owner, last=self.last, shown=self.shown)


async def _followed(
    request: Request,
    last_event_id: Annotated[str, Header(max_length=100)] = "",
    gangline_shown: Annotated[str, Header(max_length=100)] = "",
) -> FollowedHub:
    return FollowedHub(request.app.state.hub, last_event_id, gangline_shown)


Following = Annotated[FollowedHub, Depends(_followed)]
