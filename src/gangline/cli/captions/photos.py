"""Photos with captions, of a folder or of a data set, and how other captions are put there."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.cli.captions.folder import PhotoFolder
from gangline.cli.captions.version import DatasetPhotos
from gangline.cli.jobs.places.addresses import dataset_of
from gangline.cli.output import Output, as_typed, print_json, say
from gangline.core.datasets.roles import words_of_folder
from gangline.core.words import counted
from gangline.data.images.captions import TellUser

if TYPE_CHECKING:
    from gangline.compose.client import Client

CaptionedPhotos = PhotoFolder | DatasetPhotos


def captioned_photos(client: "Client", given: str) -> CaptionedPhotos:
    """Return the photos of a folder, or of a data set. Raise `BadInput` or `NotFound`."""
    version = dataset_of(client, given)
    return DatasetPhotos(client, version) if version else PhotoFolder(client, Path(given))


def shown_captions(found: CaptionedPhotos, tell: TellUser = say) -> dict[str, str]:
    """Return the caption of each photo, which may be the words of its folder; empty for one that has none."""
    stated = found.stated(tell)
    return {photo: stated.get(photo) or words_of_folder(photo) for photo in found.paths}


def take_over(found: CaptionedPhotos, captions: Mapping[str, str], output: Output, project: str | None) -> None:
    """Put captions to their photos, and say what that changed."""
    before = shown_captions(found)
    wanted = {photo: caption for photo, caption in captions.items() if before[photo] != caption}
    into = found.put(wanted) if wanted else found
    after = shown_captions(into, lambda sentence: None) if wanted else before
    changed = {photo: after[photo] for photo in wanted if after[photo] != before[photo]}
    kept = [photo for photo, caption in wanted.items() if not caption and after[photo]]
    if output is Output.json:
        print_json([{"photo": photo, "caption": caption} for photo, caption in changed.items()])
    if kept:
        elsewhere = "its folder's name, metadata.jsonl or another file gives it"
        say(f"note: {kept[0]} keeps the caption that {elsewhere} ({len(kept)} in all)")
    words = ("captions", "export", into.place, *(["--project", project] if project else []))
    say(f"{counted(len(changed), 'caption')} changed; `{as_typed('gangline', *words)}` prints all")
