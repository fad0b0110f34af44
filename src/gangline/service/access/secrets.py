"""A project's secrets: values that its commands get in their environment. They are encrypted in the database, and shown to nobody."""

from collections.abc import Iterable

from gangline.core.access import why_no_variable, why_not_secret
from gangline.core.errors import BadInput
from gangline.core.views import SecretView
from gangline.core.words import listed
from gangline.ports.access.sealer import Sealer
from gangline.ports.store import Row, write
from gangline.service.deployment import Deployment


def keep_secret(deployment: Deployment, project: str, name: str, value: str, now_ms: int) -> SecretView:
    """Keep a value under a name; it replaces an earlier one. Raise `BadInput` without quoting the value."""
    why = why_no_variable(name) or why_not_secret(value)
    if why:
        raise BadInput(why)
    sealed = _sealer(deployment).seal(project, name, value)
    deployment.store.apply(
        write("add_project", id=project),
        write("put_secret", project=project, name=name, sealed=sealed, now=now_ms),
    )
    return SecretView(name=name, set_ms=now_ms, readable=True)


def secrets_of(deployment: Deployment, project: str) -> list[SecretView]:
    """List the secrets of a project, without their values."""
    return [
        SecretView(name=row["name"], set_ms=row["set_ms"], readable=_value(deployment, row) is not None)
        for row in deployment.store.load("secrets", project=project)
    ]


def forget_secret(deployment: Deployment, project: str, name: str) -> None:
    """Delete a secret. Jobs that need it and are claimed later are paused."""
    deployment.store.apply(write("remove_secret", project=project, name=name))


def check_secrets(deployment: Deployment, project: str, names: Iterable[str]) -> None:
    """Raise `BadInput` if the project has no secret of one of these names."""
    _lacking(set(names) - {row["name"] for row in _rows(deployment, project, names)})


def open_secrets(deployment: Deployment, project: str, names: Iterable[str]) -> dict[str, str]:
    """Return the values of these secrets. Raise `BadInput` if one does not exist, or this server cannot decrypt it."""
    found = {row["name"]: _value(deployment, row) for row in _rows(deployment, project, names)}
    _lacking(set(names) - set(found))
    for name in sorted(found):
        if found[name] is None:
            raise BadInput(
                f"this server cannot decrypt the secret {name}: it was encrypted under another key",
                hint=f"give all servers of one database the same GANGLINE_SECRETS_KEY; if the key is lost, `gangline secrets set {name}`",
            )
    return {name: value for name, value in found.items() if value is not None}


def reseal(deployment: Deployment) -> None:
    """Encrypt again, under the newest key, what can be decrypted with an older one."""
    sealer = _sealer(deployment)
    for row in deployment.store.load("secrets", project=None):
        value = None if sealer.is_current(row["sealed"]) else _value(deployment, row)
        if value is not None:
            sealed = sealer.seal(row["project"], row["name"], value)
            names = {"project": row["project"], "name": row["name"]}
            deployment.store.apply(write("reseal_secret", sealed=sealed, before=row["sealed"], **names))


def _rows(deployment: Deployment, project: str, names: Iterable[str]) -> list[Row]:
    wanted = set(names)
    rows = deployment.store.load("secrets", project=project) if wanted else []
    return [row for row in rows if row["name"] in wanted]


def _lacking(names: set[str]) -> None:
    if names:
        which = listed(sorted(names))
        what = "secret" if len(names) == 1 else "secrets"
        raise BadInput(f"this project has no {what} {which}", hint=f"`gangline secrets set {min(names)}` makes it")


def _value(deployment: Deployment, row: Row) -> str | None:
    return _sealer(deployment).open(row["project"], row["name"], row["sealed"])


def _sealer(deployment: Deployment) -> Sealer:
    if deployment.sealer is None:
        raise BadInput("this server keeps no secrets", hint="it was started without a key for them")
    return deployment.sealer
