"""`gangline train` for Python: the same words, without a terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.cli.bundled.recipes import read_presets
from gangline.cli.jobs.places.addresses import addresses_of, dataset_of, unpacked
from gangline.cli.jobs.places.fetched import FetchedPlan, dataset_plan, fetched_plan
from gangline.cli.jobs.train import plan_lora, with_base
from gangline.core.places.places import parse_places, places_to_json

if TYPE_CHECKING:
    from gangline.cli.jobs.plan.make import LoraPlan
    from gangline.compose.client import Client
    from gangline.core.views import JobView


def train_lora(
    client: "Client",
    photos: str | Path | Sequence[str | dict[str, str]],
    *,
    base: str,
    prompt: str = "",
    name: str = "",
    labels: Mapping[str, str] | None = None,
    preset: str | Sequence[str] = (),
    **settings: Any,
) -> "JobView":
    """Submit a subject-driven (DreamBooth) LoRA, and return its job.

    `photos` is what `gangline train` takes: a folder, a zip, a data set (`timber@3`), an `s3://` prefix, a URL, or a list of URLs
    (`{"url": …, "caption": …}`).
    What lies here is checked and uploaded, the rest is fetched by the server. `base` is a folder, a `.safetensors` file, a hub id or a
    name. `settings` are those of a spec, and `vae`, `init_lora`, `class_photos`, `masks` and `hold_out` as paths. `subjects`, in place of
    `prompt`, is a list of dicts as the tables of a recipe; their folders are below `photos`.

    Raises `BadInput` for what is wrong with photos or base, `InvalidSpec` for settings, `Unreachable` where no server answers.
    """
    given = read_presets([preset] if isinstance(preset, str) else list(preset)) | settings
    wanted = with_base(given | {"base": str(base)} | ({"prompt": prompt} if prompt else {}), client.bases.get)
    elsewhere = (
        addresses_of(str(photos)) if isinstance(photos, str | Path) else places_to_json(parse_places(list(photos)))
    )
    if elsewhere is not None:
        return _submit(client, fetched_plan(wanted, elsewhere), name, labels)
    version = dataset_of(client, str(photos)) if isinstance(photos, str) else None
    if version is not None:
        files = list(client.datasets.files(version.name, version.number))
        return _submit(client, dataset_plan(wanted, version, files), name, labels)
    with unpacked(Path(str(photos))) as folder:
        return _submit(client, plan_lora(folder, wanted), name, labels)


def _submit(client: "Client", plan: "LoraPlan | FetchedPlan", name: str, labels: Mapping[str, str] | None) -> "JobView":
    return client.jobs.submit(plan.upload(client), name=name, labels=labels)
