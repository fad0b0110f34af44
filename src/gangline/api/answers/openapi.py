"""Generate the OpenAPI document: what FastAPI finds, plus the credentials that each operation needs and the problems (RFC 9457) that it may
answer.

The problems follow from the operation's shape: whether it needs a key, has a body, names something in its path, or is guarded by a lease.
"""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from gangline.wire.problem import MEDIA_TYPE, ProblemDetails

Operation = dict[str, Any]
SCHEMAS = "#/components/schemas/{model}"
PROBLEM = {"$ref": SCHEMAS.format(model="ProblemDetails")}
MEANING = {
    400: "The request cannot be served: it speaks a newer version of the protocol than this server, or it is not valid HTTP.",
    401: "The key or token is missing, unknown or expired.",
    403: "The key or token does not allow this operation.",
    404: "What the path or the body names does not exist, or an operator named a project that does not exist.",
    408: "The body did not arrive in time; the connection is closed.",
    409: "The lease is lost, so the server accepts nothing more from its holder; or a request with this Idempotency-Key is being answered.",
    412: "The object already exists with other content; or the job is not as `If-Match` says.",
    413: "The body is larger than this server accepts; the connection is closed.",
    422: "The values of the request cannot be used; if fields are invalid, `problems` lists each.",
    429: "There are too many requests, or too many nodes for the join token: retry after `Retry-After`.",
    503: "The server lacks something that it needs, such as its database, or is overloaded: retry after `Retry-After`.",
}
RETRY_AFTER = {
    "Retry-After": {"description": "Wait this many seconds before the next try.", "schema": {"type": "integer"}}
}
HEADERS = {
    401: {"WWW-Authenticate": {"schema": {"type": "string", "const": "Bearer"}}},
    429: RETRY_AFTER,
    503: RETRY_AFTER,
}
KEY, NODE, JOIN = "key", "node token", "join token"
SCHEMES = {
    KEY: "A key of a project, or an operator's: `gangline keys add` creates one.",
    NODE: "The token that the server gave to the node when it joined.",
    JOIN: "A token with which nodes join a pool: `gangline join-tokens add` creates one.",
}
OPEN = ("operations", "objects")
"""The tags of operations that need no key. A signed URL carries its own authorization."""


def serve_document(app: FastAPI) -> None:
    """Make the application serve this document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    # In the order of app.routes, a request of nodes would decide the schema of a file, whose fields are not closed there.
    routes = sorted(app.routes, key=lambda route: isinstance(route, APIRoute) and "workers" in route.tags)
    found = get_openapi(title=app.title, version=app.version, routes=routes, servers=app.servers or None)
    components = found["components"]
    for unused in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, which no answer uses
        components["schemas"].pop(unused, None)
    components["schemas"]["ProblemDetails"] = TypeAdapter(ProblemDetails).json_schema(ref_template=SCHEMAS)
    components["securitySchemes"] = {
        name: {"type": "http", "scheme": "bearer", "description": says} for name, says in SCHEMES.items()
    }
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            operation["security"] = [{scheme: []} for scheme in _schemes(path, method, operation)]
            _tell_variants(operation, components["schemas"])
            _tell_absent(operation)
            operation["responses"].pop("422", None)
            for status in sorted(_problems(operation)):
                operation["responses"][str(status)] = _answer(status)
            if method == "get" and operation["security"]:
                operation["responses"]["304"] = {"description": "The answer is the one that `If-None-Match` names."}
    return found


def _tell_variants(operation: Operation, schemas: dict[str, Any]) -> None:
    """Correct the schema of a body that is one of several types: FastAPI makes the field that tells them apart optional."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "discriminator" not in body:
        return
    field = body["discriminator"]["propertyName"]
    variants = [one["$ref"] for one in body["oneOf"]]
    for ref in variants:
        schema = schemas[ref.rpartition("/")[2]]
        schema["required"] = sorted({field, *schema.get("required", ())})
        schema["properties"][field].pop("default", None)


def _tell_absent(operation: Operation) -> None:
    """Correct the schemas of optional parameters: FastAPI allows null, but a parameter of a URL or a header can only be absent."""
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        choices = [each for each in schema.pop("anyOf", ()) if each != {"type": "null"}]
        schema |= choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {}


def _schemes(path: str, method: str, operation: Operation) -> list[str]:
    tag = operation["tags"][0]
    if tag in OPEN:
        return []
    if tag != "workers":
        return [KEY]
    return [JOIN if (path, method) == ("/v1/nodes", "post") else NODE]


def _answer(status: int) -> dict[str, Any]:
    answer = {"description": MEANING[status], "content": {MEDIA_TYPE: {"schema": PROBLEM}}}
    return answer | ({"headers": HEADERS[status]} if status in HEADERS else {})


def _problems(operation: Operation) -> Iterator[int]:
    """Yield the statuses of all problems that an operation may answer."""
    tag = operation["tags"][0]
    given = {parameter["in"] for parameter in operation.get("parameters", ())}
    names = {parameter["name"].lower() for parameter in operation.get("parameters", ())}
    yield 503
    if tag == "operations":
        return
    yield from (400, 429)
    if tag == "objects":
        yield from (403, 404, 422)
        yield from (408, 412, 413) if "what" in names else ()
        return
    yield from (401, 403)
    if "requestBody" in operation:
        yield from (408, 413)
    if given or "requestBody" in operation:
        yield 422
    if "path" in given or "gangline-project" in names or "404" in operation["responses"]:
        yield 404
    if names & {"fencing", "idempotency-key"}:
        yield 409
    if "if-match" in names:
        yield 412
