"""SkyPilot's offers: each accelerator in each region of each cloud, on the cheapest machine type there that is large enough."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gangline.adapters.pools.skypilot.answers import CatalogRow
from gangline.adapters.pools.skypilot.settings import SkyPilotSettings
from gangline.core.errors import BadInput
from gangline.core.gpus import kind_of_device
from gangline.ports.pool import Offer

CATALOG_AGE_MS = 7 * 3_600_000
"""SkyPilot's server reads the catalog of a cloud again when its copy is this old."""
DEVICES = {
    "A100": ("NVIDIA A100-SXM4-40GB", 40.0),
    "A100-80GB": ("NVIDIA A100-SXM4-80GB", 80.0),
    "A100-80GB-SXM": ("NVIDIA A100-SXM4-80GB", 80.0),
    "H100": ("NVIDIA H100 80GB HBM3", 80.0),
    "H100-SXM": ("NVIDIA H100 80GB HBM3", 80.0),
    "H200-SXM": ("NVIDIA H200", 141.0),
    "V100": ("Tesla V100-SXM2-16GB", 16.0),
    "V100-32GB": ("Tesla V100-SXM2-32GB", 32.0),
    "T4": ("Tesla T4", 16.0),
}
"""The driver's names of cards whose names in the catalog do not say them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyPilotOffer:
    """A machine type in a region, as the pool offers it. `infra` is SkyPilot's word for the place."""

    offer: Offer
    infra: str
    row: CatalogRow


def offers_of_catalog(
    catalog: Mapping[str, Sequence[CatalogRow]], settings: SkyPilotSettings, read_ms: int
) -> list[SkyPilotOffer]:
    """Return the offers that the pool may rent, of a catalog that was read at `read_ms`. Raises `BadInput` where there can be none."""
    rows = [row for rows in catalog.values() for row in rows]
    _check_names(rows, settings)
    found = dict[str, SkyPilotOffer]()
    for row in rows:
        if not _fits(row, settings):
            continue
        offer = _offer(row, settings, read_ms)
        known = found.get(offer.offer.id)
        if known is None or _price(offer) < _price(known):
            found[offer.offer.id] = offer
    if not found:
        raise _why_none(rows, settings)
    return list(found.values())


def name_filter(accelerators: Collection[str]) -> str:
    """Return the regular expression by which SkyPilot is to look for these accelerators."""
    return f"^({'|'.join(re.escape(name) for name in accelerators)})$"


def _check_names(rows: Sequence[CatalogRow], settings: SkyPilotSettings) -> None:
    there = {row.accelerator_name.lower() for row in rows}
    missing = [name for name in settings.accelerators if name.lower() not in there]
    if missing:
        raise BadInput(
            f"SkyPilot's catalog has no node with {settings.gpus} × {', '.join(missing)} on the clouds of this pool",
            hint="`sky gpus list --all` lists its names and how many of each a machine has",
        )


def _fits(row: CatalogRow, settings: SkyPilotSettings) -> bool:
    return (
        row.accelerator_count == settings.gpus
        and bool(row.region)
        and (not settings.regions or row.region in settings.regions)
        and (row.cpu_count is None or row.cpu_count >= settings.cpus)
        and (row.memory is None or row.memory >= settings.memory_gb)
        and (not settings.use_spot or row.spot_price is not None)
    )


def _why_none(rows: Sequence[CatalogRow], settings: SkyPilotSettings) -> BadInput:
    if settings.use_spot and not any(row.spot_price is not None for row in rows):
        return BadInput(
            "none of the pool's clouds sells these GPUs as spot machines",
            hint="set use_spot to false, or allow more clouds",
        )
    return BadInput(
        "no machine in SkyPilot's catalog has what the pool's settings ask for",
        hint="lower cpus or memory_gb, or allow more regions",
    )


def _offer(row: CatalogRow, settings: SkyPilotSettings, read_ms: int) -> SkyPilotOffer:
    cloud, region = row.cloud.lower(), row.region or ""
    price = row.spot_price if settings.use_spot else row.price
    gpu, memory_gb = device_of_accelerator(row.accelerator_name, row.device_memory)
    count = f"{settings.gpus}x" if settings.gpus > 1 else ""
    offer = Offer(
        id=f"{cloud}/{region}/{count}{row.accelerator_name.lower()}{'' if settings.use_spot else ':on-demand'}",
        gpu=gpu,
        gpu_memory_gb=memory_gb,
        slots=settings.gpus,
        price_micro_usd_per_hour=round((price or 0) * 1e6),
        price_known=bool(price),  # clusters of one's own have a price of zero in the catalog, whatever they cost
        priced_ms=read_ms - CATALOG_AGE_MS,
    )
    return SkyPilotOffer(offer=offer, infra=f"{cloud}/{region}", row=row)


def _price(offer: SkyPilotOffer) -> tuple[bool, int]:
    return not offer.offer.price_known, offer.offer.price_micro_usd_per_hour


def device_of_accelerator(name: str, memory_gb: float | None) -> tuple[str, float]:
    """Return the name by which the driver of a card calls itself, as the node will report it, and its memory in GB; 0 if not known.

    >>> device_of_accelerator("RTX4090", 24.0), device_of_accelerator("A100-80GB", None), device_of_accelerator("L4", None)
    (('NVIDIA GeForce RTX 4090', 24.0), ('NVIDIA A100-SXM4-80GB', 80.0), ('NVIDIA L4', 24))
    """
    if name in DEVICES:
        called, usual_gb = DEVICES[name]
        return called, memory_gb or usual_gb
    words = re.sub(r"^(RTX|GTX)[ -]?(?=[A0-9])", r"\1 ", name).replace("-", " ")
    geforce = re.match(r"(RTX|GTX) \d{4}\b(?! Ada)", words)
    called = words if name.startswith(("MI", "Gaudi")) else f"NVIDIA {'GeForce ' * bool(geforce)}{words}"
    kind = kind_of_device(called)
    return called, memory_gb or (kind.memory_gb if kind else 0.0)
