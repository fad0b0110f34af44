"""The drivers of pools: which there are, and how a pool's row becomes one. Only here is a secret's name resolved."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, get_origin, get_type_hints
from urllib.parse import urlsplit

from gangline.adapters.pools.command import CommandSettings
from gangline.adapters.pools.kubernetes.settings import KubernetesCluster, KubernetesSettings
from gangline.adapters.pools.salad.settings import SaladPoolSettings, SaladProvider
from gangline.adapters.pools.skypilot.settings import SkyPilotProvider, SkyPilotSettings
from gangline.adapters.pools.slurm.settings import SlurmCluster, SlurmSettings
from gangline.compose.settings import needing, take_secret_files
from gangline.core.access import as_secret
from gangline.core.errors import BadInput, UserError
from gangline.core.fleet.pools import DriverSetting, DriverView
from gangline.core.parsing import WHOLE, InvalidSpec, parse_as
from gangline.core.policy import STRICT
from gangline.core.server.merging import described_fields
from gangline.ports.pool import Pool, PoolOrder

SECRET = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
VARIABLE = "GANGLINE_POOL_"
SALAD_MARK_MAX = 12
"""How much of a pool's id is in the names of Salad's groups: with all of it they would be too long. Its end is what is random in it."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104 - refused


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedPool:
    """What a driver is made of: the row's name, id and settings, what this server's settings say of the provider, the secret, and the
    address of this server."""

    name: str
    id: str
    settings: Any
    provider: Any
    secret: str
    server: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEntry:
    """A driver in the registry. `settings` is the dataclass of its pools' settings, `provider` that of a section [providers.NAME].

    The nodes of one that is not `near` are elsewhere, and need an address of the server that others reach.
    """

    rents: str
    settings: type
    provider: type
    make: Callable[[OpenedPool], Pool]
    needs_secret: bool = False
    near: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToSet:
    """Nothing can be set."""

    __pydantic_config__: ClassVar[Any] = STRICT


def make_entries(near: Callable[[OpenedPool], Pool]) -> dict[str, DriverEntry]:
    """Return the registry of drivers: a line each. `near` makes a pool of workers on this machine."""
    return {
        "local": DriverEntry(
            rents="workers on the server's own machine",
            settings=NothingToSet,
            provider=NothingToSet,
            make=near,
            near=True,
        ),
        "salad": DriverEntry(
            rents="GPUs of SaladCloud: a group of one replica is a node",
            settings=SaladPoolSettings,
            provider=SaladProvider,
            make=_make_salad,
            needs_secret=True,
        ),
        "skypilot": DriverEntry(
            rents="machines of the clouds of a SkyPilot API server: a cluster of one is a node",
            settings=SkyPilotSettings,
            provider=SkyPilotProvider,
            make=_make_skypilot,
        ),
        "slurm": DriverEntry(
            rents="machines of a Slurm cluster: a batch job is a node",
            settings=SlurmSettings,
            provider=SlurmCluster,
            make=_make_slurm,
        ),
        "kubernetes": DriverEntry(
            rents="Pods of a Kubernetes cluster: a Pod is a node",
            settings=KubernetesSettings,
            provider=KubernetesCluster,
            make=_make_kubernetes,
        ),
        "command": DriverEntry(
            rents="what programs of the server's owner rent",
            settings=NothingToSet,
            provider=CommandSettings,
            make=_make_command,
        ),
    }


class Drivers:
    """The `PoolDrivers` port: drivers by name, the providers of this server's settings, and the folder of secrets."""

    def __init__(
        self,
        entries: Mapping[str, DriverEntry],
        providers: Mapping[str, Mapping[str, Any]],
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
                provider=tuple(_described_settings(entry.provider)),
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
        provider = _parsed(entry.provider, self._provider(order), f"[providers.{order.provider or order.driver}]")
        settings = _parsed(entry.settings, order.settings, f"settings of a pool of {order.driver}")
        secret = self._secret(order.secret) if order.secret else ""
        if entry.needs_secret and not secret:
            raise BadInput(
                f"a pool of {order.driver} needs a secret",
                hint=f"--secret NAME; the server finds it in {VARIABLE}NAME, or in the file NAME of its folder of secrets",
            )
        known = {"settings": settings, "provider": provider, "secret": secret, "server": self.url}
        return entry.make(OpenedPool(name=order.name, id=order.id, **known))

    def _provider(self, order: PoolOrder) -> dict[str, Any]:
        named = order.provider or order.driver
        found = self._providers.get(named)
        if found is None and order.provider:
            known = ", ".join(self._providers) or "none"
            raise BadInput(
                f"this server has no provider {order.provider}",
                hint=f"its settings have [providers.NAME] for: {known}",
            )
        section = dict(found or {})
        driver = section.pop("driver", named)
        if driver != order.driver:
            raise BadInput(
                f"the provider {named} is for the driver {driver}, and this pool has {order.driver}",
                hint="name another provider, or another driver",
            )
        return section

    def _secret(self, name: str) -> str:
        """Return a secret that the server's owner has given pools. No other variable and no other file can be named."""
        if not SECRET.fullmatch(name):
            raise BadInput(
                "a secret has a name such as SALAD: capital letters, digits and underscores",
                hint=f"the secret itself is in {VARIABLE}SALAD of the server's environment",
            )
        variable = VARIABLE + name
        take_secret_files((variable,))
        if os.environ.get(variable):
            return as_secret(os.environ[variable], variable)
        if self._secrets and (file := self._secrets / name).is_file():
            return as_secret(file.read_text(), str(file))
        folder = f", and no file {name} in {self._secrets}" if self._secrets else ""
        raise UserError(f"the secret {name} is not known to this server: there is no {variable}{folder}", hint="set it")


def _parsed(kind: type, given: Mapping[str, Any], called: str) -> Any:
    try:
        return parse_as(kind, _listed(kind, given), options=True)
    except InvalidSpec as error:
        wrong = [each.message if each.field == WHOLE else f"{each.field}: {each.message}" for each in error.problems]
        raise BadInput(f"{called}: {'; '.join(wrong)}", hint="`gangline pools drivers` lists what can be set") from None


def _make_salad(opened: OpenedPool) -> Pool:
    with needing("server"):
        from gangline.adapters.pools.salad.driver import SaladPool
    of: SaladPoolSettings = opened.settings
    where = {"organization": of.organization, "project": of.project, "endpoint": opened.provider.endpoint}
    where |= {"mark": (opened.id or opened.name)[-SALAD_MARK_MAX:], "server": opened.server}
    return SaladPool(**where, keys=opened.provider.keys, key=opened.secret, settings=of)


def _make_skypilot(opened: OpenedPool) -> Pool:
    with needing("server"):
        from gangline.adapters.pools.skypilot.driver import SkyPilotPool
    mark = opened.id or opened.name
    return SkyPilotPool(settings=opened.settings, mark=mark, endpoint=opened.provider.endpoint, secret=opened.secret)


def _make_slurm(opened: OpenedPool) -> Pool:
    from gangline.adapters.pools.slurm.driver import SlurmPool

    mark = f"gangline {opened.id or opened.name}"
    return SlurmPool(settings=opened.settings, cluster=opened.provider, mark=mark, surroundings=os.environ)


def _make_kubernetes(opened: OpenedPool) -> Pool:
    with needing("kubernetes"):
        from gangline.adapters.pools.kubernetes.driver import KubernetesPool
    mark = opened.id or opened.name
    return KubernetesPool(settings=opened.settings, cluster=opened.provider, mark=mark, surroundings=os.environ)


def _make_command(opened: OpenedPool) -> Pool:
    from gangline.adapters.pools.command import CommandPool

    return CommandPool(settings=opened.provider, mark=opened.id or opened.name, surroundings=os.environ)


def _listed(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with a list of one where a list is meant and a single text was given."""
    lists = {name for name, hint in get_type_hints(kind).items() if get_origin(hint) is tuple}
    return {name: [value] if name in lists and isinstance(value, str) else value for name, value in given.items()}


def _described_settings(kind: type) -> list[DriverSetting]:
    meanings = described_fields(kind)
    return [
        DriverSetting(
            name=each.name,
            meaning=meanings[each.name][0],
            required=each.default is MISSING and each.default_factory is MISSING,
        )
        for each in fields(kind)
    ]
