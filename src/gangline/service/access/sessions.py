"""Sign in and out of the page: a session stands for a key, and ends with it."""

from gangline.core.access import permits
from gangline.core.errors import Forbidden
from gangline.ports.store import guard, write
from gangline.service.access.access import Identity, hash_of, recognize
from gangline.service.access.projects import project
from gangline.service.deployment import Deployment

SESSION_S = 30 * 86_400
"""Seconds that a session lasts, if its key does."""


def sign_in(deployment: Deployment, key: str, now_ms: int) -> str:
    """Return the secret of a new session of this key. Raise `Denied` if it is none, `Forbidden` for the token of a machine."""
    found = recognize(deployment, key, "viewer", now_ms)
    if not permits(found.role, "viewer"):
        raise Forbidden(
            "this is a token of machines, and people sign in with a key", hint="`gangline keys add` makes one"
        )
    secret = deployment.new_secret("session")
    adding = write(
        "add_session",
        hash=hash_of(secret),
        credential=found.id,
        project=None,
        now=now_ms,
        expires_ms=now_ms + SESSION_S * 1000,
    )
    deployment.store.apply(write("forget_sessions", now=now_ms), adding)
    return secret


def sign_out(deployment: Deployment, session: str) -> None:
    """End a session; one that has ended stays so."""
    deployment.store.apply(write("end_session", hash=hash_of(session)))


def choose_project(deployment: Deployment, session: str, identity: Identity, chosen: str) -> None:
    """Look at another project in this session, as an operator may. Raise `Forbidden`, or `NotFound` if there is none."""
    if identity.project is not None:
        raise Forbidden("a project's key opens this project alone")
    project(deployment, chosen)
    deployment.store.apply(guard("choose_project", hash=hash_of(session), project=chosen))
