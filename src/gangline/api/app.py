"""Assemble the HTTP application."""

from dataclasses import dataclass

from fastapi import FastAPI

from gangline.api import (
    access_routes,
    base_routes,
    follow_routes,
    metric_routes,
    node_routes,
    pool_routes,
    user_routes,
    worker_routes,
)
from gangline.api.answers import problems
from gangline.api.answers.openapi import serve_document
from gangline.api.answers.repeats import InFlight
from gangline.api.answers.streams import Followers
from gangline.api.by_hand import StraightWay
from gangline.api.datasets import dataset_routes
from gangline.api.experiments import experiment_routes
from gangline.api.install.routes import install_routes
from gangline.api.jobs import list_routes, report_routes, submit_routes, timeline_routes
from gangline.api.lanes import OperationsRoute
from gangline.api.limits.door import Door
from gangline.api.notices import notice_routes
from gangline.api.notices.notice_tests import NoticeTests
from gangline.api.object_routes import object_routes
from gangline.api.retention import routes as retention_routes
from gangline.api.who import RememberedNodes
from gangline.core.server.limits import Limits
from gangline.ports.install.package import Package
from gangline.ports.object_server import ObjectServer
from gangline.service.access.access import recognize
from gangline.service.deployment import Deployment
from gangline.version import VERSION
from gangline.wire import protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    status: str = "ok"
    version: str
    protocol: int


def make_app(
    deployment: Deployment,
    objects: ObjectServer | None,
    limits: Limits | None = None,
    *,
    package: Package | None = None,
    url: str = "",
) -> FastAPI:
    """Return the application. `objects` is the object store if this server serves it, `package` the program that it hands to workers.
    `url` is the server's address as other machines reach it.
    """
    limits = limits or Limits()
    app = FastAPI(title="Gangline", version=VERSION, docs_url="/docs", redoc_url=None)
    app.router.route_class = OperationsRoute
    app.state.deployment = deployment
    app.state.remembered_nodes = nodes = RememberedNodes(deployment)
    app.state.limits = limits
    app.state.in_flight = InFlight()
    app.state.notice_tests = NoticeTests()
    app.state.followers = Followers(deployment, limits)
    app.state.streams = [app.state.followers]  # what ends before the server does
    problems.install(app)
    about_attempts = [*worker_routes.heartbeats, *worker_routes.of_attempts, *metric_routes.of_workers]
    app.add_middleware(StraightWay, routes=about_attempts)  # behind the door, which is added next
    app.add_middleware(
        Door,
        limits=limits,
        recognize_user=lambda secret, needed: recognize(deployment, secret, needed, deployment.store.now_ms()),
        recognize_node=lambda secret, _: nodes.find(secret),
        remembers_node=lambda secret: nodes.known(secret) is not None,
    )
    app.router.routes += about_attempts
    if objects:  # first, as routers are tried in order
        app.include_router(object_routes(objects, deployment.store))
    app.include_router(worker_routes.router)
    app.include_router(list_routes.router)
    app.include_router(report_routes.router)
    app.include_router(timeline_routes.router)
    app.include_router(submit_routes.router)
    app.include_router(user_routes.router)
    app.include_router(experiment_routes.router)
    app.include_router(retention_routes.router)
    app.include_router(base_routes.router)
    app.include_router(dataset_routes.router)
    app.include_router(access_routes.router)
    app.include_router(pool_routes.router)
    app.include_router(pool_routes.of_providers)
    app.include_router(node_routes.router)
    app.include_router(node_routes.of_providers)
    app.include_router(follow_routes.of_facts)
    app.include_router(follow_routes.router)
    app.include_router(notice_routes.router)
    app.include_router(metric_routes.of_users)
    if package:
        app.include_router(install_routes(package, url))

    @app.get("/healthz", tags=["operations"])
    def healthz() -> Health:
        """Check that the server and its database answer. Needs no key."""
        deployment.store.load("queue_length", limit=1)
        return Health(version=VERSION, protocol=protocol.VERSION)

    serve_document(app)
    return app
