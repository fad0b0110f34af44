"""The HTTP application."""

from fastapi import FastAPI

from gangline import __version__
from gangline.api import access_routes, problems, user_routes, worker_routes
from gangline.api.object_routes import object_routes
from gangline.ports.object_server import ObjectServer
from gangline.service.deployment import Deployment


def make_app(deployment: Deployment, objects: ObjectServer | None) -> FastAPI:
    """`objects` is the object store where this server itself serves it."""
    app = FastAPI(title="Gangline", version=__version__, docs_url="/docs", redoc_url=None)
    app.state.deployment = deployment
    problems.install(app)
    app.include_router(user_routes.router)
    app.include_router(access_routes.router)
    app.include_router(worker_routes.router)
    if objects:
        app.include_router(object_routes(objects, deployment.store))

    @app.get("/healthz", tags=["operations"])
    def healthz() -> dict[str, str]:
        """Whether the server and its database answer."""
        deployment.store.load("queue_length", limit=1)
        return {"status": "ok", "version": __version__}

    return app
