"""Assemble the HTTP application."""

from copy import copy

from fastapi import FastAPI
from starlette.datastructures import State

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
from gangline.api.answers.below_path import BelowPath, path_of_address
from gangline.api.answers.openapi import serve_document
from gangline.api.answers.repeats import InFlight
from gangline.api.answers.streams import Followers
from gangline.api.by_hand import StraightWay
from gangline.api.costs import cost_routes
from gangline.api.datasets import dataset_routes
from gangline.api.experiments import experiment_routes
from gangline.api.install.routes import install_routes
from gangline.api.jobs import list_routes, queue_routes, report_routes, submit_routes, timeline_routes
from gangline.api.lanes import OperationsRoute
from gangline.api.limits.door import Door
from gangline.api.notices import notice_routes
from gangline.api.notices.notice_tests import NoticeTests
from gangline.api.object_routes import object_routes
from gangline.api.operating import routes as operating_routes
from gangline.api.operating.exposition import ProcessMetrics
from gangline.api.operating.requests import MeasuredRequests
from gangline.api.pictures import picture_routes
from gangline.api.retention import routes as retention_routes
from gangline.api.who import RememberedNodes
from gangline.core.server.limits import Limits
from gangline.ports.install.package import Package
from gangline.ports.object_server import ObjectServer
from gangline.service.access.access import recognize
from gangline.service.deployment import Deployment
from gangline.service.operating.measure import ServiceMetrics
from gangline.service.operating.ready import Readiness
from gangline.version import VERSION

ABOUT_ATTEMPTS = (*worker_routes.heartbeats, *worker_routes.of_attempts, *metric_routes.of_workers)


def make_app(
    deployment: Deployment,
    objects: ObjectServer | None,
    limits: Limits | None = None,
    *,
    package: Package | None = None,
    url: str = "",
    metrics_token: str = "",
) -> FastAPI:
    """Return the application. `objects` is the object store if this server serves it, `package` the program that it hands to workers.
    `url` is the server's address as other machines reach it; `metrics_token` lets a scraper read the metrics, as operators may.
    """
    limits = limits or Limits()
    app = FastAPI(title="Gangline", version=VERSION, docs_url="/docs", redoc_url=None)
    app.router.route_class = OperationsRoute
    app.state.limits = limits
    app.state.in_flight = InFlight()
    app.state.notice_tests = NoticeTests()
    app.state.process_metrics = ProcessMetrics()
    app.state.metrics_token = metrics_token
    problems.install(app)
    _set_deployment(app, deployment)
    app.router.routes += ABOUT_ATTEMPTS
    if objects:  # first, as routers are tried in order
        app.include_router(object_routes(objects, deployment.store))
    app.include_router(worker_routes.router)
    app.include_router(list_routes.router)
    app.include_router(report_routes.router)
    app.include_router(queue_routes.router)
    app.include_router(cost_routes.router)
    app.include_router(cost_routes.of_many_lines)
    app.include_router(timeline_routes.router)
    app.include_router(submit_routes.router)
    app.include_router(user_routes.router)
    app.include_router(experiment_routes.router)
    app.include_router(retention_routes.router)
    app.include_router(picture_routes.router)
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

    for router in (operating_routes.health, operating_routes.probes, operating_routes.scrapes):
        app.include_router(router)
    serve_document(app)
    return app


def over_another(app: FastAPI, deployment: Deployment) -> FastAPI:
    """Return an application with the same routes over another deployment. The object store that is served, and the package, stay the same.

    FastAPI prepares a route at its first request, which takes up to 0.5 s; routes that applications share are prepared once.
    """
    other = copy(app)
    other.state = State(dict(app.state._state))  # Starlette has no public way to copy it
    other.user_middleware, other.middleware_stack = [], None
    _set_deployment(other, deployment)
    return other


def _set_deployment(app: FastAPI, deployment: Deployment) -> None:
    """Set all of an application that holds a deployment; routes get it from here."""
    limits: Limits = app.state.limits
    app.state.deployment = deployment
    app.state.remembered_nodes = nodes = RememberedNodes(deployment)
    app.state.followers = Followers(deployment, limits)
    app.state.streams = [app.state.followers]  # what ends before the server does
    app.state.readiness = Readiness(deployment)
    app.state.service_metrics = ServiceMetrics(deployment)
    app.add_middleware(StraightWay, routes=ABOUT_ATTEMPTS)  # behind the door, which is added next
    app.add_middleware(
        Door,
        limits=limits,
        recognize_user=lambda secret, needed: recognize(deployment, secret, needed, deployment.store.now_ms()),
        recognize_node=lambda secret, _: nodes.find(secret),
        remembers_node=lambda secret: nodes.known(secret) is not None,
    )
    app.add_middleware(
        MeasuredRequests, metrics=app.state.process_metrics
    )  # in front of the door: it sees what that refuses
    if path := path_of_address(deployment.url):
        app.add_middleware(BelowPath, path=path)  # last, so that it comes first
