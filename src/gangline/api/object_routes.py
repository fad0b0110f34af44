"""Routes of an object store that this server itself serves, by signed URLs. The signature is the only authorization here."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse

from gangline.api.answers.problems import problem
from gangline.api.lanes import OBJECTS, ObjectRoute
from gangline.core.errors import BadInput, Denied
from gangline.ports.object_server import ObjectServer
from gangline.ports.store import Store
from gangline.wire.problem import of_error

FORBIDDEN, TAKEN = 403, 412
SAVED = {"Content-Disposition": "attachment", "Content-Security-Policy": "sandbox"}
"""Headers of downloads: a trainer's HTML or SVG, opened in a browser, runs no script with this server's origin."""
Expires = Annotated[int, Query(ge=0, le=2**62)]


def object_routes(objects: ObjectServer, store: Store) -> APIRouter:
    router = APIRouter(prefix="/v1/objects", tags=["objects"], route_class=ObjectRoute)

    @router.get("/{key:path}", response_class=FileResponse)
    def get(key: str, expires: Expires, signature: str) -> Response:
        """Download an object by its signed URL."""
        try:
            objects.check("GET", key, "", expires, signature, store.now_ms())
        except Denied as error:
            return problem(of_error(error), status=FORBIDDEN)
        return FileResponse(objects.locate(key), headers=SAVED, media_type="application/octet-stream")

    @router.put("/{key:path}", status_code=201)
    async def put(key: str, expires: Expires, signature: str, what: str, request: Request) -> Response:
        """Upload an object, or a part of one, by its signed URL. 412 if the key has other bytes already."""
        try:
            await OBJECTS.run(lambda: objects.check("PUT", key, what, expires, signature, store.now_ms()))
        except Denied as error:
            return problem(of_error(error), status=FORBIDDEN)
        try:
            await objects.receive(key, what, request.stream())
        except BadInput as error:
            return problem(of_error(error), status=TAKEN)
        return Response(status_code=201)

    return router
