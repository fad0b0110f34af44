"""Routes for probes and for Prometheus."""

import hmac
from dataclasses import asdict
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from gangline.api.lanes import Lane, LaneRoute, Later, OperationsRoute
from gangline.api.operating.exposition import CONTENT_TYPE, ProcessMetrics, expose
from gangline.api.who import ThisDeployment, bearer, deployment_of
from gangline.core.errors import Unreachable
from gangline.core.operating.families import MeasuredFamily, family_of_readiness
from gangline.core.operating.readiness import Health, ReadinessView
from gangline.service.access.access import identify
from gangline.service.deployment import Deployment
from gangline.service.operating.measure import ServiceMetrics
from gangline.service.operating.ready import Readiness
from gangline.version import VERSION
from gangline.wire import protocol
from gangline.wire.problem import MEDIA_TYPE, details

PROBES = Lane("probes", threads=1, waiting_max=100, wait_s=5)
NOT_READY = 503
SCRAPES = Lane("scrapes", threads=1, waiting_max=20, wait_s=30)


class ProbeRoute(LaneRoute):
    lane = PROBES


class ScrapeRoute(LaneRoute):
    """A route in a lane of its own: counting delays no probe."""

    lane = SCRAPES


health = APIRouter(tags=["operations"], route_class=OperationsRoute)
probes = APIRouter(tags=["operations"], route_class=ProbeRoute)
scrapes = APIRouter(tags=["monitoring"], route_class=ScrapeRoute)


@health.get("/healthz")
def healthz(deployment: ThisDeployment) -> Health:
    """Check that the server and its database answer. Needs no key."""
    deployment.store.load("queue_length", limit=1)
    return Health(version=VERSION, protocol=protocol.VERSION)


async def _readiness(request: Request) -> Readiness:
    return cast(Readiness, request.app.state.readiness)


@probes.get("/readyz", response_model=ReadinessView)
def readyz(readiness: Annotated[Readiness, Depends(_readiness)]) -> Response | ReadinessView:
    """Check that the server can take requests: its database and its object store answer within two seconds, the database has the schema
    of this program, and the server is not stopping. Needs no key.

    503 if one of the checks fails: `detail` says why, and `checks` lists them all.
    """
    found = readiness.check()
    if found.ready:
        return found
    body = asdict(details(Unreachable.code, found.because)) | {"checks": [asdict(check) for check in found.checks]}
    return JSONResponse(body, NOT_READY, {"Retry-After": "1"}, MEDIA_TYPE)


async def _scraper(request: Request) -> Later[None]:
    """Let in the scraper's own token, and operators."""
    deployment, secret = deployment_of(request), bearer(request)
    token: str = request.app.state.metrics_token

    def find() -> None:
        if not (token and hmac.compare_digest(secret.encode(), token.encode())):
            identify(deployment, secret, "operator", deployment.store.now_ms())

    return Later(find)


async def _process(request: Request) -> ProcessMetrics:
    return cast(ProcessMetrics, request.app.state.process_metrics)


async def _service(request: Request) -> ServiceMetrics:
    return cast(ServiceMetrics, request.app.state.service_metrics)


@scrapes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(
    _: Annotated[None, Depends(_scraper)],
    deployment: ThisDeployment,
    process: Annotated[ProcessMetrics, Depends(_process)],
    service: Annotated[ServiceMetrics, Depends(_service)],
    readiness: Annotated[Readiness, Depends(_readiness)],
) -> Response:
    """Return the metrics of the service and of this process in Prometheus's text format. Needs `metrics_token` of the server's settings, or
    an operator's key.

    While the database does not answer, only the metrics of the process are there.
    """
    ready = readiness.check()
    families = [*_counted(deployment, service, ready), *service.of_process(), family_of_readiness(ready)]
    return Response(expose(process, families), media_type=CONTENT_TYPE)


def _counted(deployment: Deployment, service: ServiceMetrics, ready: ReadinessView) -> list[MeasuredFamily]:
    if not all(check.ok for check in ready.checks if check.name == "database"):
        return []
    try:
        return service.of_database(deployment.store.now_ms())
    except Unreachable:
        return []
