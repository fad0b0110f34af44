"""Keys, join tokens and secrets: who may ask this server for what. A new secret is shown once, in the answer that made it."""

from typing import Any

from fastapi import Request, Response

from gangline.api.access_routes import WantedJoinToken, WantedKey
from gangline.api.who import Admin, AdminOf, AdminReach, MemberOf, Now, Operator, ThisDeployment
from gangline.core.access import KEY_ROLES, permits
from gangline.core.parsing import parse_as
from gangline.service.access import access, secrets
from gangline.service.deployment import Deployment
from gangline.web.frame.forms import SentFields, SentForm
from gangline.web.frame.routes import like, moved_to, page_router, part, screen
from gangline.web.frame.visitor import Looking, Visit

router = page_router()
DAY_S = 86_400


@router.get("/keys", **like("GET /v1/keys"))
def show_keys(request: Request, deployment: ThisDeployment, reach: AdminReach, look: Looking) -> Response:
    """Show the keys of the project (all of them, if an operator has chosen none), its secrets, and an operator the join tokens."""
    return screen(look, "keys/screen.html", **_found(deployment, look, reach), server=_address(request, deployment))


@router.post("/keys", **like("POST /v1/keys"))
def add_key_on_page(
    request: Request,
    deployment: ThisDeployment,
    now: Now,
    admin: Admin,
    project: AdminOf,
    reach: AdminReach,
    look: Looking,
    sent: SentFields,
) -> Response:
    """Make a key, and show it once."""
    wanted = parse_as(WantedKey, _fields(sent, "name", "role"), options=True)
    made = access.create_key(
        deployment, admin.role, project, wanted.role, name=wanted.name, lasts_s=wanted.lasts_s, now_ms=now
    )
    found = _found(deployment, look, reach)
    return part("keys/keys.html", look=look, **found, made=made, server=_address(request, deployment))


@router.post("/keys/{key}/revoke", **like("DELETE /v1/keys/{key}"))
def revoke_key_on_page(deployment: ThisDeployment, now: Now, reach: AdminReach, look: Looking, key: str) -> Response:
    access.revoke_user_key(deployment, None if look.sees("operator") else reach, key, now)
    if key == look.identity.id:
        return moved_to("/sign-in", "Your key is revoked, and you are signed out.")
    return part("keys/keys.html", look=look, **_found(deployment, look, reach), made=None, server="")


@router.post("/join-tokens", **like("POST /v1/join-tokens"))
def add_join_token_on_page(
    request: Request, deployment: ThisDeployment, now: Now, _: Operator, look: Looking, sent: SentFields
) -> Response:
    """Make a join token, and show it once."""
    names = ("name", "pool", "price_usd_per_hour", "nodes_max", "nodes_per_hour")
    wanted = parse_as(WantedJoinToken, _fields(sent, *names), options=True)
    terms = access.Terms(
        price_usd_per_hour=wanted.price_usd_per_hour,
        nodes_max=wanted.nodes_max,
        nodes_per_hour=wanted.nodes_per_hour,
    )
    made = access.create_join_token(
        deployment, wanted.pool, name=wanted.name, lasts_s=wanted.lasts_s, now_ms=now, terms=terms
    )
    tokens = access.join_tokens(deployment, look.now_ms)
    return part("keys/join_tokens.html", look=look, tokens=tokens, made=made, server=_address(request, deployment))


@router.post("/join-tokens/{join_token}/revoke", **like("DELETE /v1/join-tokens/{join_token}"))
def revoke_join_token_on_page(
    deployment: ThisDeployment, now: Now, _: Operator, look: Looking, join_token: str
) -> Response:
    access.revoke_pool_join_token(deployment, join_token, now)
    return part("keys/join_tokens.html", look=look, tokens=access.join_tokens(deployment, now), made=None, server="")


@router.post("/secrets", **like("PUT /v1/secrets/{secret}"))
def set_secret_on_page(
    deployment: ThisDeployment, now: Now, project: MemberOf, look: Looking, sent: SentFields
) -> Response:
    """Keep a secret. Its value is in no answer."""
    secrets.keep_secret(deployment, project, sent.text("secret"), sent.text("value"), now)
    return part("keys/secrets.html", look=look, secrets=secrets.secrets_of(deployment, project))


@router.post("/secrets/{secret}/remove", **like("DELETE /v1/secrets/{secret}"))
def remove_secret_on_page(deployment: ThisDeployment, project: MemberOf, look: Looking, secret: str) -> Response:
    secrets.forget_secret(deployment, project, secret)
    return part("keys/secrets.html", look=look, secrets=secrets.secrets_of(deployment, project))


def _found(deployment: Deployment, look: Visit, reach: str | None) -> dict[str, Any]:
    found = access.keys(deployment, reach, look.now_ms)
    every = access.keys(deployment, None, look.now_ms) if look.sees("operator") else []
    operators = [key for key in every if key.role == "operator"]
    if reach is not None:
        found = [*found, *operators]
    return {
        "keys": sorted(found, key=lambda key: key.standing != "valid"),
        "alone": sum(key.standing == "valid" for key in operators) == 1,
        "roles": [role for role in KEY_ROLES if permits(look.role, role)],
        "secrets": secrets.secrets_of(deployment, look.project),
        "tokens": access.join_tokens(deployment, look.now_ms) if look.sees("operator") else (),
    }


def _fields(sent: SentForm, *names: str) -> dict[str, Any]:
    """Return the fields of a form that are filled in, with the days that a credential lasts as seconds."""
    given, days = sent.given(), sent.number("days")
    lasts = {} if days is None else {"lasts_s": days * DAY_S}
    return {name: given[name] for name in names if name in given} | lasts


def _address(request: Request, deployment: Deployment) -> str:
    """Return the address under which others reach this server: the operator's, else the one in this browser."""
    return deployment.url or str(request.base_url).rstrip("/")
