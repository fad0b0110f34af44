"""Sign in and out of the page: a session stands for a key, and ends with it."""

from gangline.core.access import SignInCode, permits
from gangline.core.errors import Denied, Forbidden
from gangline.ports.store import write
from gangline.service.access.access import Identity, hash_of, recognize
from gangline.service.access.projects import project
from gangline.service.deployment import Deployment

SESSION_S = 30 * 86_400
"""Seconds that a session lasts, if its key does."""
CODE_S = 300
"""Seconds in which a code of the sign-in can be used."""


def sign_in(deployment: Deployment, key: str, now_ms: int) -> str:
    """Return the secret of a new session of this key. Raise `Denied` if it is none, `Forbidden` for the token of a machine."""
    found = recognize(deployment, key, "viewer", now_ms)
    if not permits(found.role, "viewer"):
        raise Forbidden(
            "this is a token of machines, and people sign in with a key", hint="an admin of your project makes one"
        )
    return _begin(deployment, found.id, None, now_ms)


def make_code(deployment: Deployment, identity: Identity, project: str | None, now_ms: int) -> SignInCode:
    """Return a code that signs in to the page, once, with the key that asks for it; an operator's looks at `project`."""
    secret, ends_ms = deployment.new_secret("code"), now_ms + CODE_S * 1000
    chosen = project if identity.project is None else None
    adding = write(
        "add_session", hash=hash_of(secret), credential=identity.id, project=chosen, now=now_ms, expires_ms=ends_ms
    )
    deployment.store.apply(write("forget_sessions", now=now_ms), adding)
    return SignInCode(path=f"/sign-in?code={secret}", expires_ms=ends_ms)


def sign_in_with_code(deployment: Deployment, code: str, now_ms: int) -> str:
    """Return the secret of a new session for this code. Raise `Denied` if it was used, or is too old."""
    rows = deployment.store.change("take_code", hash=hash_of(code), now=now_ms)
    if not rows:
        raise Denied("this link was used already, or is too old", hint="`gangline open` makes another")
    return _begin(deployment, rows[0]["credential"], rows[0]["project"], now_ms)


def _begin(deployment: Deployment, credential: str, project: str | None, now_ms: int) -> str:
    secret = deployment.new_secret("session")
    row = {"hash": hash_of(secret), "credential": credential, "project": project}
    adding = write("add_session", **row, now=now_ms, expires_ms=now_ms + SESSION_S * 1000)
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
    deployment.store.apply(write("choose_project", hash=hash_of(session), project=chosen))
