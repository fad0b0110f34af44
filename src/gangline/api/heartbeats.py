"""The route of heartbeats. Nearly all requests of a large fleet are heartbeats, so they are parsed and answered by hand, for a third of the
CPU.

FastAPI documents the route from the signature of `beat`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError

from gangline.api.answers.problems import accepted
from gangline.api.lanes import HEARTBEATS, json_response
from gangline.api.who import HeldLease, Holder, Now, ThisDeployment, deployment_of, holder
from gangline.ports.server import Beat, Beaten, Hold
from gangline.service.jobs.renew import renew

BEAT = TypeAdapter(Beat)
HOLD = TypeAdapter(Hold)


def beat(deployment: ThisDeployment, now: Now, node: Holder, hold: HeldLease, request: Beat) -> Beaten:
    """Renew the lease and report the attempt's progress. The answer says whether the node must save and release the job."""
    return accepted(renew(deployment, node, hold, request, now))


async def answer(request: Request) -> Response:
    deployment, node, body = deployment_of(request), holder(request), await request.body()
    fence = dict(parse_qsl(request.scope["query_string"].decode("latin-1"))) | request.path_params
    hold = _read(HOLD.validate_strings, fence, "query")
    read = _read(partial(BEAT.validate_json, strict=True), body, "body")
    return await HEARTBEATS.run(
        lambda: json_response(beat(deployment, deployment.store.now_ms(), node.get(), hold, read))
    )


def _read(validate: Callable[[Any], Any], given: Any, where: str) -> Any:
    try:
        return validate(given)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise RequestValidationError([one | {"loc": (where, *one["loc"])} for one in found]) from None


class ByHand(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Any]:
        return answer


route = ByHand("/v1/attempts/{attempt}/heartbeats", beat, methods=["POST"], tags=["workers"])
