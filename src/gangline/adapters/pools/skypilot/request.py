"""What a node asks SkyPilot for: a cluster of one machine whose only job fetches the worker from the server and runs it."""

import json
import re
from typing import Any

from gangline.adapters.pools.fetching import FETCH_WORKER
from gangline.adapters.pools.skypilot.offers import SkyPilotOffer
from gangline.adapters.pools.skypilot.settings import SkyPilotSettings
from gangline.core.errors import BadInput
from gangline.ports.pool import Rental

NAME = re.compile(r"[a-z][a-z0-9-]{0,61}[a-z0-9]")
"""Names that SkyPilot takes, and of which it makes names that every cloud takes: where they are too long, of how they begin."""
USER = {"SKYPILOT_USER_ID": "6a6e6c6e", "SKYPILOT_USER": "gangline"}
"""Who asks, for a SkyPilot server that lets in anybody; another one goes by the token. The id is a part of names on the clouds."""
SECRETS = frozenset({"GANGLINE_TOKEN"})
NOTICE_CLOUDS = frozenset({"aws", "gcp", "azure"})
"""Those whose notice a worker can ask for, by their names there and here."""


def cluster_name(mark: str, rental: str) -> str:
    """Return the name of a rental's cluster in the pool of this mark. Raises `BadInput` where it would be no name."""
    name = f"gl-{rental}-{mark}"
    if not NAME.fullmatch(rental) or not NAME.fullmatch(name):
        raise BadInput(
            f"SkyPilot's clusters are not named {name}",
            hint="a name has lower-case letters, digits and hyphens, 63 at most",
        )
    return name


def rental_of_cluster(mark: str, cluster: str) -> str:
    """Return the name of the rental whose cluster this is; empty if it is none of the pool of this mark."""
    rental = cluster.removeprefix("gl-").removesuffix(f"-{mark}")
    return rental if cluster == f"gl-{rental}-{mark}" and NAME.fullmatch(rental) else ""


def launch(cluster: str, rental: Rental, offer: SkyPilotOffer, settings: SkyPilotSettings) -> dict[str, Any]:
    """Return the body of the request that launches the cluster of a rental, once, and leaves it to Gangline to remove it."""
    return asked(
        cluster_name=cluster,
        task=task(cluster, rental, offer, settings),
        retry_until_up=False,
        quiet_optimizer=True,
    )


def task(cluster: str, rental: Rental, offer: SkyPilotOffer, settings: SkyPilotSettings) -> str:
    """Return SkyPilot's task in JSON, which is YAML. SkyPilot shows neither secrets nor anything that is in them."""
    environment = rental.environment() | _notice(offer)
    return json.dumps(
        {
            "name": cluster,
            "envs": {name: value for name, value in environment.items() if name not in SECRETS},
            "secrets": {name: value for name, value in environment.items() if name in SECRETS},
            "resources": machine_wanted(offer, settings),
            "run": FETCH_WORKER,
        }
    )


def _notice(offer: SkyPilotOffer) -> dict[str, str]:
    """Return from whom the worker hears that its machine will be taken away, where the cloud says so."""
    cloud = offer.row.cloud.lower()
    return {"GANGLINE_NOTICE": cloud} if cloud in NOTICE_CLOUDS else {}


def machine_wanted(offer: SkyPilotOffer, settings: SkyPilotSettings) -> dict[str, Any]:
    """Return the one machine type in the one region whose price the offer has: SkyPilot looks nowhere else."""
    wanted: dict[str, Any] = {
        "infra": offer.infra,
        "accelerators": {offer.row.accelerator_name: settings.gpus},
        "use_spot": settings.use_spot,
        "disk_size": settings.disk_gb,
    }
    if offer.row.instance_type:
        wanted["instance_type"] = offer.row.instance_type
    if settings.image:
        wanted["image_id"] = f"docker:{settings.image}"
    if settings.labels:
        wanted["labels"] = dict(label.split("=", 1) for label in settings.labels)
    return wanted


def asked(**fields: Any) -> dict[str, Any]:
    """Return the body of a request, with who asks."""
    return {"env_vars": dict(USER), "entrypoint_command": "gangline", **fields}
