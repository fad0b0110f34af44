"""Projects: each has jobs, keys and money apart from the others', and a share and a budget."""

from gangline.core.access import is_project_name
from gangline.core.errors import BadInput, NotFound
from gangline.core.money.budget import Purse
from gangline.core.money.cost import unknown_parts
from gangline.core.views import ProjectView
from gangline.ports.store import guard, write
from gangline.service.access.access import Identity
from gangline.service.access.requests import KeyedRequest, apply_once, made_before
from gangline.service.deployment import Deployment
from gangline.service.money.bill import as_purse


def reachable_project(deployment: Deployment, identity: Identity, wanted: str | None) -> str | None:
    """Return the project that a request is about; None means all, which only an operator may ask for. Raise `NotFound`."""
    if wanted is None:
        return identity.project
    if identity.project is None:
        project(deployment, wanted)
    elif wanted != identity.project:
        raise no_project(wanted)
    return wanted


def create_project(deployment: Deployment, project: str, now_ms: int = 0, request: KeyedRequest | None = None) -> None:
    """Create a project; an existing one stays as it is. Raise `BadInput` if the name is invalid, or the request was another one before."""
    if made_before(deployment, request):
        return
    if not is_project_name(project):
        raise BadInput(
            f"{project!r} is not a valid name for a project",
            hint="use up to 40 lower-case letters, digits and hyphens; begin and end with a letter or digit",
        )
    apply_once(deployment, request, project, now_ms, write("add_project", id=project))


def set_allowance(deployment: Deployment, project: str, *, share: float, budget_usd: float | None) -> None:
    """Set a project's share and budget. A budget that is already overspent stops its jobs at their next heartbeats. Raise `NotFound`."""
    budget = None if budget_usd is None else round(budget_usd * 1e6)
    if not deployment.store.apply(guard("set_project", id=project, share=share, budget=budget)):
        raise no_project(project)


def project(deployment: Deployment, project: str) -> ProjectView:
    """Return a project. Raise `NotFound` if there is none."""
    found = deployment.store.load("project", id=project)
    if not found:
        raise no_project(project)
    return _project(deployment, as_purse(found[0]))


def projects(deployment: Deployment) -> list[ProjectView]:
    return [_project(deployment, as_purse(row)) for row in deployment.store.load("projects")]


def no_project(project: str) -> NotFound:
    return NotFound(f"there is no project {project}", hint="`gangline projects ls` lists them to an operator")


def _project(deployment: Deployment, purse: Purse) -> ProjectView:
    unpriced = bool(deployment.store.load("unpriced", project=purse.project)[0]["unpriced"])
    return ProjectView(
        project=purse.project,
        share=purse.share,
        budget_usd=None if purse.budget is None else purse.budget / 1e6,
        spent_usd=purse.spent / 1e6,
        reserved_usd=purse.reserved / 1e6,
        cost_lacks=unknown_parts(deployment.policy, node_time=unpriced),
    )
