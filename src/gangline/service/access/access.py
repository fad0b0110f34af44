"""Authenticate and authorize: users' keys, join tokens and nodes' tokens.

The store has only their hashes. The secrets are random, so a plain SHA-256 is enough: a slow hash protects passwords that can be guessed.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gangline.core.access import CALLED, KeyRole, Role, Standing, permits, standing
from gangline.core.errors import BadInput, Denied, Forbidden, NotFound
from gangline.core.jobs.lists.ids import as_list
from gangline.core.money.cost import HOUR_MS
from gangline.core.views import JoinTokenView, KeyView, NewJoinToken, NewKey
from gangline.ports.store import Row, Write, guard, write
from gangline.service.access.requests import KeyedRequest, apply_once, made_before
from gangline.service.deployment import Deployment

DEFAULT_PROJECT = "default"
DEFAULT_POOL = "default"
SESSION_BEGINS = "gl_session_"
"""How the secret of a session begins, as `Deployment.new_secret` makes it."""
FIRST_NAMES: dict[Role, str] = {"operator": "first operator", "join": "made at the first start"}
"""The names of the key and the join token that a server makes by itself. Jobs show the key's as their owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The holder of a credential. `project` is None for an operator; a join token has a `pool`, and a rented node's its `rental` too; a
    node's token has a `node`. `session` is the hash of the session that stands for the credential, and `chosen` the project that an
    operator has chosen for it.
    """

    id: str
    role: Role
    project: str | None
    pool: str | None
    node: str | None
    used_ms: int | None
    rental: str | None
    session: str | None = None
    chosen: str | None = None

    @property
    def proof(self) -> str:
        """What an open stream ends with: the session, else the credential."""
        return self.session or self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms for nodes that join with a token.

    The price is in US dollars per hour; without one, or without a trust, the pool's is used. `nodes_max` may be here at once, and
    `nodes_per_hour` join within an hour (None: any number).
    """

    price_usd_per_hour: float | None = None
    trust: int | None = None
    nodes_max: int | None = None
    nodes_per_hour: int | None = None

    def columns(self) -> dict[str, int | None]:
        """Return them as columns of the store."""
        price = None if self.price_usd_per_hour is None else round(self.price_usd_per_hour * 1e6)
        limits = {"nodes_max": self.nodes_max, "nodes_per_hour": self.nodes_per_hour}
        return {"price_micro_usd_per_hour": price, "trust": self.trust, **limits}


NO_TERMS = Terms()


def identify(deployment: Deployment, secret: str, needed: Role, now_ms: int) -> Identity:
    """Return the holder of this secret.

    Raise `Denied` if it is unknown, revoked or expired, `Forbidden` if its role does not permit this.
    """
    return permitted(recognize(deployment, secret, needed, now_ms), needed)


def permitted(identity: Identity, needed: Role) -> Identity:
    """Return the identity. Raise `Forbidden` if its role permits less than `needed`."""
    if not permits(identity.role, needed):
        raise _too_little(needed, identity.role)
    return identity


def recognize(deployment: Deployment, secret: str, needed: Role, now_ms: int) -> Identity:
    """Return the holder of this secret, which is that of a credential or of a session.

    Raise `Denied` if it is unknown, revoked or expired, with a hint where to get one for the role `needed`.
    """
    if secret.startswith(SESSION_BEGINS):
        return _of_session(deployment, secret, now_ms)
    rows = deployment.store.load("credential", hash=hash_of(secret)) if secret else []
    if not rows:
        raise _unknown(needed, given=bool(secret))
    found = rows[0]
    lost = standing(found["expires_ms"], found["revoked_ms"], now_ms)
    if lost != "valid":
        raise Denied(_lost(found["role"], lost), hint="ask whoever gave it to you for another")
    if found["node_state"] == "gone":
        raise Denied("this node was given up", hint="start the worker again; it then joins as a new node")
    if found["rental_ended"]:
        raise Denied("this server no longer rents this node", hint="its provider was asked to stop it")
    return _identity(found)


def _of_session(deployment: Deployment, secret: str, now_ms: int) -> Identity:
    hashed = hash_of(secret)
    rows = deployment.store.load("session", hash=hashed)
    if not rows or rows[0]["ends_ms"] <= now_ms:
        raise Denied("this session has ended", hint="sign in again")
    found = rows[0]
    lost = standing(found["expires_ms"], found["revoked_ms"], now_ms)
    if lost != "valid":
        raise Denied(_lost(found["role"], lost), hint="ask whoever gave it to you for another, and sign in with that")
    return replace(_identity(found), session=hashed, chosen=found["chosen"])


def _identity(found: Row) -> Identity:
    return Identity(**{name: found[name] for name in Identity.__slots__ if name not in ("session", "chosen")})


def lost_credentials(deployment: Deployment, proofs: Sequence[str], now_ms: int) -> set[str]:
    """Return those of these (see `Identity.proof`) that were revoked or have expired, or are not known any more: somebody signed out."""
    if not proofs:
        return set()
    rows = deployment.store.load("standings", **as_list(proofs))
    return set(proofs) - {row["id"] for row in rows if _standing(row, now_ms) == "valid"}


def note_use(deployment: Deployment, identity: Identity, now_ms: int) -> None:
    """Record when a credential was used last, to the hour. Nodes' tokens are left out: nodes ask too often."""
    if identity.role != "node" and now_ms - (identity.used_ms or 0) >= HOUR_MS:
        deployment.store.apply(write("use_credential", id=identity.id, now=now_ms))


def ensure_secret(deployment: Deployment, secret: str, role: Role, *, now_ms: int) -> None:
    """Add an operator's key, or the default pool's join token, if it is unknown."""
    pool = DEFAULT_POOL if role == "join" else None
    deployment.store.apply(
        write("add_project", id=DEFAULT_PROJECT),
        _adding(secret, role, name=FIRST_NAMES[role], pool=pool, now_ms=now_ms),
    )


def adding_node(secret: str, node: str, now_ms: int) -> Write:
    return _adding(secret, "node", name=node, node=node, now_ms=now_ms)


def adding_rental(secret: str, rental: str, pool: str, now_ms: int) -> Write:
    """Return the write of a rented node's join token, which is valid as long as the rental has a node that is not gone."""
    return _adding(secret, "join", name=rental, pool=pool, rental=rental, now_ms=now_ms)


def create_key(
    deployment: Deployment,
    maker: Role,
    project: str,
    role: KeyRole,
    *,
    name: str,
    lasts_s: float | None,
    now_ms: int,
    request: KeyedRequest | None = None,
) -> NewKey:
    """Create a key and return it with its secret, which is never shown again.

    Raise `Forbidden` if it would permit more than its `maker`'s role.
    """
    if not permits(maker, role):
        raise _too_little(role, maker)
    secret, ends_ms = deployment.new_secret(role), _ends_ms(lasts_s, now_ms)
    owner = None if role == "operator" else project
    _refuse_again(deployment, request, "key", "gangline keys revoke")
    adding = _adding(secret, role, name=name, project=owner, expires_ms=ends_ms, now_ms=now_ms)
    apply_once(deployment, request, _id(role, secret), now_ms, adding)
    made = _made(role, secret, name, ends_ms, now_ms)
    return NewKey(key=KeyView(role=role, project=owner, **made), secret=secret)


def _refuse_again(deployment: Deployment, request: KeyedRequest | None, called: str, revoke: str) -> None:
    """Raise `BadInput` if the request was answered before: that answer had a secret, which is nowhere else."""
    made = made_before(deployment, request)
    if made:
        raise BadInput(
            f"this request has made the {called} {made} already, and its secret was in that answer alone",
            hint=f"if the answer was lost, revoke it (`{revoke} {made}`) and ask with another Idempotency-Key",
        )


def keys(deployment: Deployment, project: str | None, now_ms: int) -> list[KeyView]:
    """List the keys of a project; without one, all keys, the operators' included."""
    return [KeyView(**row, standing=_standing(row, now_ms)) for row in deployment.store.load("keys", project=project)]


def revoke_user_key(deployment: Deployment, project: str | None, key: str, now_ms: int) -> None:
    """Revoke a key at once and for good. Raise `NotFound` if there is none, or if it is another project's."""
    if not deployment.store.apply(guard("revoke_key", id=key, project=project, now=now_ms)):
        raise NotFound(f"there is no key {key}", hint="`gangline keys ls` lists them")


def create_join_token(
    deployment: Deployment,
    pool: str,
    *,
    name: str,
    lasts_s: float | None,
    now_ms: int,
    terms: Terms = NO_TERMS,
    request: KeyedRequest | None = None,
) -> NewJoinToken:
    """Create a join token and return it with its secret, which is never shown again."""
    secret, ends_ms = deployment.new_secret("join"), _ends_ms(lasts_s, now_ms)
    _refuse_again(deployment, request, "join token", "gangline join-tokens revoke")
    adding = _adding(secret, "join", name=name, pool=pool, expires_ms=ends_ms, now_ms=now_ms, terms=terms)
    apply_once(deployment, request, _id("join", secret), now_ms, adding)
    made = _made("join", secret, name, ends_ms, now_ms)
    return NewJoinToken(join_token=JoinTokenView(pool=pool, **made, **asdict(terms)), secret=secret)


def join_tokens(deployment: Deployment, now_ms: int) -> list[JoinTokenView]:
    return [_join_token(row, now_ms) for row in deployment.store.load("join_tokens")]


def _join_token(row: Row, now_ms: int) -> JoinTokenView:
    known = {name: value for name, value in dict(row).items() if name != "price_micro_usd_per_hour"}
    price = row["price_micro_usd_per_hour"]
    return JoinTokenView(
        **known, price_usd_per_hour=None if price is None else price / 1e6, standing=_standing(row, now_ms)
    )


def revoke_pool_join_token(deployment: Deployment, join_token: str, now_ms: int) -> None:
    """Revoke a join token: no more nodes join with it, and those that did stay. Raise `NotFound` if there is none."""
    if not deployment.store.apply(guard("revoke_join_token", id=join_token, now=now_ms)):
        raise NotFound(f"there is no join token {join_token}", hint="`gangline join-tokens ls` lists them")


def _made(role: Role, secret: str, name: str, ends_ms: int | None, now_ms: int) -> dict[str, Any]:
    """Return the fields that new keys and new join tokens have in common."""
    unused = {"revoked_ms": None, "used_ms": None, "standing": "valid"}
    return {"id": _id(role, secret), "name": name, "made_ms": now_ms, "expires_ms": ends_ms} | unused


def _adding(
    secret: str,
    role: Role,
    *,
    name: str,
    now_ms: int,
    project: str | None = None,
    pool: str | None = None,
    node: str | None = None,
    rental: str | None = None,
    expires_ms: int | None = None,
    terms: Terms = NO_TERMS,
) -> Write:
    owner = {"project": project, "pool": pool, "node": node, "rental": rental}
    identity = {"id": _id(role, secret), "hash": hash_of(secret), "role": role, "name": name}
    return write("add_credential", **identity, **owner, **terms.columns(), expires_ms=expires_ms, now=now_ms)


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _id(role: Role, secret: str) -> str:
    kind = role if role in ("join", "node") else "key"
    return f"{kind}-{hash_of(secret)[:16]}"


def _ends_ms(lasts_s: float | None, now_ms: int) -> int | None:
    return None if lasts_s is None else now_ms + round(lasts_s * 1000)


def _standing(row: Row, now_ms: int) -> Standing:
    return standing(row["expires_ms"], row["revoked_ms"], now_ms)


def _lost(role: Role, lost: Standing) -> str:
    what = "token" if role in ("join", "node") else "key"
    return f"this {what} was revoked" if lost == "revoked" else f"this {what} has expired"


_HINT_ON_ANOTHER = "check that it is whole and of this server; an admin of your project can make another"


def _unknown(needed: Role, *, given: bool) -> Denied:
    what = "join token" if needed == "join" else "key"
    hint = {
        "join": "`gangline server` prints one, `gangline join-tokens add NAME` makes more; set GANGLINE_TOKEN to it",
        "node": "start the worker again; it then joins as a new node",
    }.get(
        needed,
        _HINT_ON_ANOTHER if given else "pass --token or set GANGLINE_TOKEN; an admin of your project has one for you",
    )
    return Denied(
        f"this server does not know the {what}" if given else f"a {what} is needed, and none was given", hint=hint
    )


def _too_little(needed: Role, given: Role) -> Forbidden:
    return Forbidden(f"this needs {CALLED[needed]}, and {CALLED[given]} was given", hint=_hint(needed))


def _hint(needed: Role) -> str:
    match needed:
        case "join" | "node":
            return "workers' requests need a worker's token; users' keys are not valid for them"
        case "operator":
            return "ask whoever runs this server: its key is in access.json of the server's home"
        case _:
            return f"an admin of your project makes one: gangline keys add NAME --role {needed}"
