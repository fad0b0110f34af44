"""Salad's offers: each GPU class at each priority, with the price that it has there."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gangline.adapters.pools.salad.answers import GpuClass
from gangline.adapters.pools.salad.settings import SaladSettings
from gangline.core.errors import BadInput
from gangline.core.gpus import kind_of_device
from gangline.ports.pool import Offer

MB, GB = 1024, 1024**3
"""MB of a GB, and bytes of a GB, as Salad counts them."""
MEMORY = re.compile(r"\(\s*(\d+)\s*GB\s*\)", re.IGNORECASE)
OTHER_VENDORS = re.compile(r"\b(amd|radeon|instinct|intel|arc)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaladOffer:
    """A class at a priority, as the pool offers it, and what a group of it asks for."""

    offer: Offer
    gpu_class: GpuClass
    priority: str


def offers_of(classes: Sequence[GpuClass], settings: SaladSettings) -> list[SaladOffer]:
    """Return the offers that the pool may rent. Raises `BadInput` for a class of the settings that Salad does not have."""
    slugs = [_slug(each.name) for each in classes]
    found = list[SaladOffer]()
    for gpu_class, slug in zip(classes, slugs, strict=True):
        if not (_is_wanted(gpu_class, settings) and _fits(gpu_class, settings)):
            continue
        # Two classes may have one name, such as a community class and a secure one.
        name = slug if slugs.count(slug) == 1 else f"{slug}-{gpu_class.id[:8]}"
        for priority in settings.priorities:
            offer = _offer(f"{name}:{priority}", gpu_class, priority)
            found.append(SaladOffer(offer=offer, gpu_class=gpu_class, priority=priority))
    _check_names(classes, settings)
    return found


def _check_names(classes: Sequence[GpuClass], settings: SaladSettings) -> None:
    known = {name for each in classes for name in _names(each)}
    missing = [name for name in settings.classes if name.lower() not in known]
    if missing:
        there = ", ".join(sorted(each.name for each in classes)) or "none"
        raise BadInput(f"Salad has no GPU class {', '.join(missing)}", hint=f"it has {there}")
    small = [
        each.name for each in classes if settings.classes and _is_wanted(each, settings) and not _fits(each, settings)
    ]
    if small and len(small) == len(settings.classes):
        raise BadInput(
            f"{', '.join(small)} cannot have as much CPU, memory or storage as the pool's settings ask for",
            hint="lower cpu, memory_gb or storage_gb",
        )


def _is_wanted(gpu_class: GpuClass, settings: SaladSettings) -> bool:
    if settings.classes:
        return bool({name.lower() for name in settings.classes} & _names(gpu_class))
    return not OTHER_VENDORS.search(gpu_class.name)


def _names(gpu_class: GpuClass) -> set[str]:
    return {gpu_class.id.lower(), gpu_class.name.lower()}


def _fits(gpu_class: GpuClass, settings: SaladSettings) -> bool:
    asked = (
        (settings.cpu, gpu_class.max_vcpu),
        (settings.memory_gb * MB, gpu_class.max_ram),
        (settings.storage_gb * GB, gpu_class.max_storage),
    )
    return all(limit is None or value <= limit for value, limit in asked)


def _offer(offer: str, gpu_class: GpuClass, priority: str) -> Offer:
    price = next((_micro_usd(each.price) for each in gpu_class.prices if each.priority == priority), None)
    gpu = device_name(gpu_class.name)
    return Offer(
        id=offer,
        gpu=gpu,
        gpu_memory_gb=_memory_gb(gpu_class.name, gpu),
        slots=max(1, gpu_class.gpu_count or 1),
        price_micro_usd_per_hour=price or 0,
        price_known=price is not None,
    )


def _micro_usd(price: str) -> int | None:
    """Return a price such as "0.18" in micro-dollars; None if it is none. Salad rents nothing for nothing: a price of zero is none."""
    try:
        micro_usd = round(float(price) * 1e6)
    except (ValueError, OverflowError):
        return None
    return micro_usd if micro_usd > 0 else None


def _memory_gb(name: str, gpu: str) -> float:
    said, kind = MEMORY.search(name), kind_of_device(gpu)
    return float(said[1]) if said else kind.memory_gb if kind else 0.0


def device_name(name: str) -> str:
    """Return the name by which the driver of a card of this class calls itself: what the node will report.

    >>> device_name("RTX 4090 (24 GB)"), device_name("RTX 3070 Laptop (8 GB)"), device_name("RTX A5000 (24 GB)")
    ('NVIDIA GeForce RTX 4090', 'NVIDIA GeForce RTX 3070 Laptop GPU', 'NVIDIA RTX A5000')
    """
    bare = " ".join(MEMORY.sub("", name).split())
    model = re.sub(r"^(nvidia )?(geforce )?", "", bare, flags=re.IGNORECASE)
    if OTHER_VENDORS.search(bare):
        return bare
    geforce = re.match(r"(RTX|GTX) \d{4}\b(?! Ada)", model)
    return f"NVIDIA {'GeForce ' * bool(geforce)}{model}{' GPU' * model.endswith(' Laptop')}"


def _slug(name: str) -> str:
    """Return a class's name as one word: `rtx-4090-24gb` for `RTX 4090 (24 GB)`."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"(\d+)\s*gb", r"\1gb", name.lower())).strip("-")
