"""Add the page to the application of a server."""

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from gangline.api.answers.problems import of_http
from gangline.core.errors import BadInput
from gangline.core.server.limits import Limits
from gangline.core.specs.templates import Preset
from gangline.service.deployment import Deployment
from gangline.web.cost import routes as cost
from gangline.web.experiments import routes as experiments
from gangline.web.fleet import acts as fleet_acts
from gangline.web.fleet import routes as fleet
from gangline.web.frame import assets
from gangline.web.frame.routes import error_where_no_route_is
from gangline.web.job import actions as job_actions
from gangline.web.job import routes as job
from gangline.web.jobs import routes as job_list
from gangline.web.keys import routes as keys
from gangline.web.live.hub import LiveHub
from gangline.web.new import routes as new_job
from gangline.web.new.tiny import TinyBase
from gangline.web.notices import routes as notices
from gangline.web.pictures import routes as pictures
from gangline.web.queue import routes as queue
from gangline.web.session import routes as session

ROUTERS = (
    assets.router,
    session.router,
    job_list.router,
    job_actions.router,
    job.router,
    *(fleet.router, fleet.of_providers, fleet_acts.router, fleet_acts.of_providers),
    queue.router,
    *(cost.router, cost.of_many_lines),
    keys.router,
    notices.router,
    new_job.router,
    pictures.router,
    experiments.router,
)
OF_THE_API = frozenset({"v1", "docs", "openapi.json", "healthz", "readyz", "metrics", "worker", "worker.sh", "wheels"})
NO_PRESETS: Mapping[str, Preset] = MappingProxyType({})


def add_page(
    app: FastAPI,
    deployment: Deployment,
    limits: Limits,
    *,
    over_http: bool = False,
    replay: str = "",
    presets: Mapping[str, Preset] = NO_PRESETS,
    tiny: TinyBase | None = None,
) -> None:
    """Add the routes of the page. `over_http` allows signing in over plain http from other machines; `replay` names the simulated scenario
    that this server shows; `presets` are those that the form of a new job offers, and `tiny` is the base that it offers to add."""
    if not replay:  # which stands still
        app.state.hub = LiveHub(deployment, limits)
        app.state.streams.append(app.state.hub)
    app.state.page_over_http = over_http
    app.state.replay = replay
    app.state.presets = presets
    app.state.tiny = tiny
    app.state.buckets = _buckets(deployment)
    for router in ROUTERS:
        app.include_router(router)
    _answer_browsers(app)


def refuse_path_of_a_screen(path: str) -> None:
    """Raise `BadInput` for a path of the server's address that begins as an address of Gangline does: nobody could tell which of
    them `/jobs/x` is, where a proxy may have removed the path."""
    screens = {getattr(route, "path", "/").split("/")[1] for router in ROUTERS for route in router.routes}
    first = path.split("/")[1] if path else ""
    if first in (screens | OF_THE_API) - {""}:
        raise BadInput(
            f"the server's url cannot have the path {path}: addresses of Gangline itself begin with /{first}",
            hint="choose another path, such as /gangline, in GANGLINE_URL and in the reverse proxy",
        )


def _answer_browsers(app: FastAPI) -> None:
    """Answer a browser with a page where no route is found; programs still get a problem."""

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return error_where_no_route_is(request) or of_http(request, error)


def _buckets(deployment: Deployment) -> tuple[str, ...]:
    """Return the origin from which browsers load pictures and results by signed addresses, if that is not this server."""
    parts = urlsplit(deployment.objects.sign_get("page", now_ms=0, seconds=1).url)
    return (f"{parts.scheme}://{parts.netloc}",) if parts.netloc else ()
