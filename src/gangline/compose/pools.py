"""The drivers of pools: which there are, and how a pool's row becomes one. Only here is a secret's name resolved."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, get_origin, get_type_hints
from urllib.parse import urlsplit

from gangline.core.access import as_secret
from gangline.core.errors import BadInput, UserError
from gangline.core.fleet.pools import DriverSetting, DriverView
from gangline.core.parsing import parse_as
from gangline.core.policy import STRICT
from gangline.core.server.providers import ProviderSettings
from gangline.ports.pool import Pool, PoolOrder

SECRET = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
VARIABLE = "GANGLINE_POOL_"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104 - refused


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedPool:
    """What a driver is made of: the row's name and settings, what this server's settings say of the provider, and the secret."""

    name: str
    settings: Any
    provider: ProviderSettings
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEntry:
    """A driver in the registry. `settings` is the dataclass of its pools' settings. The nodes of one that is not `near` are elsewhere, and
    need an address of the server that others reach."""

    rents: str
    settings: type
    make: Callable[[OpenedPool], Pool]
    needs_secret: bool = False
    near: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NearSettings:
    """A pool of workers on the server's own machine has no settings."""

    __pydantic_config__: ClassVar[Any] = STRICT


def make_entries(near: Callable[[OpenedPool], Pool]) -> dict[str, DriverEntry]:
    """Return the registry of drivers: a line each. `near` makes a pool of workers on this machine."""
    return {
        "local": DriverEntry(rents="workers on the server's own machine", settings=NearSettings, make=near, near=True),
    }


class Drivers:
    """The `PoolDrivers` port: drivers by name, the providers of this server's settings, and the folder of secrets."""

    def __init__(
        self,
        entries: Mapping[str, DriverEntry],
        providers: Mapping[str, ProviderSettings],
        *,
        url: str,
        secrets: Path | None,
    ) -> None:
        self.url = url
        self._entries = entries
        self._providers = providers
        self._secrets = secrets

    def list(self) -> list[DriverView]:
        return [
            DriverView(
                name=name,
                rents=entry.rents,
                needs_secret=entry.needs_secret,
                settings=tuple(_described_settings(entry.settings)),
            )
            for name, entry in self._entries.items()
        ]

    def open(self, order: PoolOrder) -> Pool:
        entry = self._entries.get(order.driver)
        if entry is None:
            raise BadInput(f"there is no driver {order.driver}", hint=f"the drivers are {', '.join(self._entries)}")
        if not entry.near and urlsplit(self.url).hostname in LOOPBACK:
            raise UserError(
                f"nodes of {order.driver} cannot reach this server, whose address is {self.url}",
                hint="set url in [server] of the settings, or GANGLINE_URL, to its address as other machines reach it",
            )
        provider = self._provider(order)
        settings = _parsed(entry.settings, order)
        secret = self._secret(order.secret) if order.secret else ""
        if entry.needs_secret and not secret:
            raise BadInput(
                f"a pool of {order.driver} needs a secret",
                hint=f"--secret NAME; the server finds it in {VARIABLE}NAME, or in the file NAME of its folder of secrets",
            )
        return entry.make(OpenedPool(name=order.name, settings=settings, provider=provider, secret=secret))

    def _provider(self, order: PoolOrder) -> ProviderSettings:
        named = order.provider or order.driver
        found = self._providers.get(named)
        if found is None and order.provider:
            known = ", ".join(self._providers) or "none"
            raise BadInput(
                f"this server has no provider {order.provider}",
                hint=f"its settings have [providers.NAME] for: {known}",
            )
        found = found or ProviderSettings()
        if (found.driver or named) != order.driver:
            raise BadInput(
                f"the provider {named} is for the driver {found.driver or named}, and this pool has {order.driver}",
                hint="name another provider, or another driver",
            )
        return found

    def _secret(self, name: str) -> str:
        """Return a secret that the server's owner has given pools. No other variable and no other file can be named."""
        if not SECRET.fullmatch(name):
            raise BadInput(
                "a secret has a name such as SALAD: capital letters, digits and underscores",
                hint=f"the secret itself is in {VARIABLE}SALAD of the server's environment",
            )
        variable = VARIABLE + name
        if os.environ.get(variable):
            return as_secret(os.environ[variable], variable)
        if self._secrets and (file := self._secrets / name).is_file():
            return as_secret(file.read_text(), str(file))
        folder = f", and no file {name} in {self._secrets}" if self._secrets else ""
        raise UserError(f"the secret {name} is not known to this server: there is no {variable}{folder}", hint="set it")


def _parsed(kind: type, order: PoolOrder) -> Any:
    try:
        return parse_as(kind, _listed(kind, order.settings), options=True)
    except BadInput as error:
        raise BadInput(
            f"settings of a pool of {order.driver}: {error.message}", hint="`gangline pools drivers` lists them"
        ) from None


def _listed(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with a list of one where a list is meant and a single text was given."""
    lists = {name for name, hint in get_type_hints(kind).items() if get_origin(hint) is tuple}
    return {name: [value] if name in lists and isinstance(value, str) else value for name, value in given.items()}


def _described_settings(kind: type) -> list[DriverSetting]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        DriverSetting(
            name=each.name,
            meaning=next(note for note in reversed(hints[each.name].__metadata__) if isinstance(note, str)),
            required=each.default is MISSING and each.default_factory is MISSING,
        )
        for each in fields(kind)
    ]
