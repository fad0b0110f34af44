"""What a bare machine asks for to become a worker. It needs no key: the program is no secret, and a worker joins by its token."""

import shlex
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse

from gangline.api.lanes import OperationsRoute
from gangline.core.errors import NotFound
from gangline.ports.install.package import Package

SCRIPT = files("gangline.api.install").joinpath("worker.sh")


def install_routes(package: Package, url: str) -> APIRouter:
    """Return the routes. `url` is the server's address as other machines reach it; if it is empty, it is the one that was asked."""
    router = APIRouter(tags=["operations"], route_class=OperationsRoute)

    @router.get("/worker.sh")
    def worker_script(request: Request) -> Response:
        """Download a shell script that installs a worker from this server and starts it. Needs no key."""
        wheel = package.wheel()
        filled = {"SERVER": url or str(request.base_url).rstrip("/"), "WHEEL": wheel.file.name, "SHA256": wheel.sha256}
        script = SCRIPT.read_text()
        for name, value in filled.items():
            script = script.replace(f"'@{name}@'", shlex.quote(value))
        return Response(script, media_type="text/x-shellscript")

    @router.get("/wheels/{name}", response_class=FileResponse)
    def wheel(name: str) -> Response:
        """Download the wheel of the version that this server runs. Needs no key."""
        made = package.wheel()
        if name != made.file.name:
            raise NotFound(f"this server has no wheel {name}", hint=f"it has {made.file.name}")
        return FileResponse(made.file, media_type="application/octet-stream")

    @router.get("/worker/constraints.txt")
    def constraints() -> Response:
        """Download the versions of libraries that this version was tested with. Needs no key."""
        return Response(package.constraints(), media_type="text/plain")

    return router
