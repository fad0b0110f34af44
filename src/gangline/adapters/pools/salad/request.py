"""What a node asks Salad for: a container group of one replica that fetches the worker from the server and runs it."""

import re
from typing import Any

from gangline.adapters.pools.fetching import FETCH_WORKER
from gangline.adapters.pools.salad.answers import ContainerGroup
from gangline.adapters.pools.salad.metadata import METADATA
from gangline.adapters.pools.salad.offers import GB, MB, SaladOffer
from gangline.adapters.pools.salad.settings import SaladSettings
from gangline.core.errors import BadInput
from gangline.ports.pool import Rental

NAME = re.compile(r"[a-z][a-z0-9-]{0,61}[a-z0-9]")
"""Salad's rule for the names of organizations, projects and container groups."""
VALUE_MAX = 1000
"""The most characters that Salad takes as the value of a variable."""

# A container that exits with another code than 0 keeps its machine from this group for good, so it waits for a server that is unreachable.
START = 'export GANGLINE_PLACE="${SALAD_INSTANCE_ID:-}"\n' + FETCH_WORKER


def group_name(prefix: str, mark: str, rental: str) -> str:
    """Return the name of a rental's group in the pool of this mark. Raises `BadInput` where Salad's rules do not allow it."""
    name = f"{prefix}-{rental}-{mark}"
    if not NAME.fullmatch(rental) or not NAME.fullmatch(name):
        raise BadInput(
            f"Salad allows no container group {name}",
            hint="a name has lower-case letters, digits and hyphens, 63 at most",
        )
    return name


def rental_name(prefix: str, mark: str, group: str) -> str:
    """Return the name of the rental whose group this is; empty if it is none of the pool of this mark."""
    rental = group.removeprefix(f"{prefix}-").removesuffix(f"-{mark}")
    return rental if group == f"{prefix}-{rental}-{mark}" and NAME.fullmatch(rental) else ""


def rental_without_mark(prefix: str, server: str, group: ContainerGroup) -> str:
    """Return the name of the rental whose group this is, as release 0.2 named it; empty if its node does not join this server."""
    given = group.container.environment_variables or {}
    rental = group.name.removeprefix(f"{prefix}-")
    called = group.name == f"{prefix}-{rental}" and given.get("GANGLINE_NODE") == rental
    return rental if called and given.get("GANGLINE_SERVER") == server else ""


def creation(group: str, rental: Rental, offer: SaladOffer, settings: SaladSettings) -> dict[str, Any]:
    """Return the body of the request that creates the group of a rental."""
    environment = rental.environment()
    if settings.prove_machines:
        environment |= {"GANGLINE_IDENTITY_URL": METADATA}
    for variable, value in environment.items():
        if len(value) > VALUE_MAX:
            raise BadInput(f"{variable} has more than {VALUE_MAX} characters, which Salad does not take")
    asked: dict[str, Any] = {
        "name": group,
        "display_name": group,
        "replicas": 1,
        "autostart_policy": True,
        "restart_policy": "always",
        "container": {
            "image": settings.image,
            "command": ["sh", "-c", START],
            "environment_variables": environment,
            "priority": offer.priority,
            "resources": resources(offer, settings),
        },
    }
    return asked | ({"country_codes": list(settings.countries)} if settings.countries else {})


def resources(offer: SaladOffer, settings: SaladSettings) -> dict[str, Any]:
    """Return what the container is to have: what the settings say, and at least what the class allows."""
    return {
        "cpu": max(settings.cpu, offer.gpu_class.min_vcpu or 0),
        "memory": max(settings.memory_gb * MB, offer.gpu_class.min_ram or 0),
        "shm_size": settings.shared_memory_gb * MB,
        "storage_amount": max(settings.storage_gb * GB, offer.gpu_class.min_storage or 0),
        "gpu_classes": [offer.gpu_class.id],
    }


def availability(offer: SaladOffer, settings: SaladSettings) -> dict[str, Any]:
    """Return the question how many machines are free that could run the container."""
    asked = resources(offer, settings)
    asked.pop("shm_size")
    return asked | ({"country_codes": list(settings.countries)} if settings.countries else {})
