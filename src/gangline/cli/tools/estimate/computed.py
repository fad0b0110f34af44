"""What `gangline estimate` says of a recipe that nobody measured: by counting what it computes. It asks no server and no hub."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from gangline.core.errors import BadInput
from gangline.core.models.bases import family_published_as
from gangline.core.models.families import FAMILIES, Family, FamilyName, sized

if TYPE_CHECKING:
    from gangline.core.specs.lora import LoraSpec

NAMES = get_args(FamilyName)
HINT = f"pass --family with one of {', '.join(NAMES)}"
PHOTOS = 20
"""Of a LoRA whose photos are not known yet."""


def family_of_base(base: object, given: str | None) -> Family:
    """Return the family that `given` names, else that of the base's folder or file, else that of a published base with
    this name. Raises `BadInput`."""
    if given is not None:
        named = next((family for name, family in FAMILIES.items() if name == given), None)
        if named is None:
            raise BadInput(f"there is no family {given}", hint=HINT)
        return named
    if not isinstance(base, str) or not base:
        raise BadInput("the family of the base is not known, because there is no base", hint=f"{HINT}, or --base")
    if Path(base).exists():
        return _at(Path(base))
    if found := family_published_as(base.partition("@")[0]):
        return found
    raise BadInput(f"the family of {base} is not known without looking it up on the hub", hint=HINT)


def _at(path: Path) -> Family:
    from gangline.data.bases import describe_base

    family = describe_base(path).family
    files = {part: path / part / "config.json" for part in ("unet", *family.text_parts)}
    return sized(family, {part: json.loads(file.read_text()) for part, file in files.items() if file.is_file()})


def lora_of(recipe: dict[str, Any], photos: int) -> "LoraSpec":
    """Parse a recipe's settings, with stand-ins for photos and base; subjects share the photos. Raises `BadInput`."""
    from gangline.cli.jobs.subjects import SUBJECTS, entries_without_files
    from gangline.core.files import STAND_IN, File
    from gangline.core.specs.fields import FilesBase
    from gangline.core.specs.lora import parse_lora

    entries = entries_without_files(recipe.get(SUBJECTS))
    folders = [f"{entry['folder']}/" for entry in entries] or [""]
    names = (f"{folders[number % len(folders)]}{number}.png" for number in range(max(photos, len(folders))))
    pictures = tuple(File(path=name, bytes=0, sha256=f"{number:064x}") for number, name in enumerate(names))
    stand_in: dict[str, Any] = {"base": FilesBase(files=(STAND_IN,)), "photos": pictures}
    stand_in |= {SUBJECTS: entries} if entries else {"prompt": recipe.get("prompt", "a photo")}
    return parse_lora(recipe | stand_in, options=True)
