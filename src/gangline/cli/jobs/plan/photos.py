"""The photos of one subject, with their captions and masks, and those of its class: found and checked before a byte is sent."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.cli.jobs.plan.files import LocalFiles
from gangline.core.advice import PhotoFacts
from gangline.core.datasets.sidecars import sidecar_files, sidecar_folders
from gangline.core.errors import BadInput
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sections.subjects import Subject
from gangline.data.images.buckets import Size
from gangline.data.images.captions import Caption, TellUser, find_captions, read_captions
from gangline.data.images.masks import check_fits
from gangline.data.images.photos import READERS, find_photos, read_each
from gangline.data.images.pixels import read_alpha, read_photo
from gangline.data.links import refuse_link_out


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectInputs:
    """What of a subject lies in files of this machine. Its spec has them in the folder `into`, which is empty if it is the only subject."""

    photos: Path
    into: str = ""
    class_photos: Path | None = None
    masks: Path | None = None
    hold_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSubject:
    """A subject's files by the fields of the spec, the photos to train on, and sentences about what may be unintended."""

    files: dict[str, LocalFiles]
    pictures: tuple[PhotoFacts, ...]
    notes: tuple[str, ...]


def find_subject(given: SubjectInputs, spec: LoraSpec, subject: Subject) -> FoundSubject:
    """Find all files of a subject. Of the spec and the subject only settings are read. Raises `BadInput`."""
    found = find_photos(given.photos, threads=READERS)
    notes = found.warnings
    photos = LocalFiles(given.photos, found.photos, given.into)
    sizes = dict(zip(photos.names, found.sizes, strict=True))
    files = _split(photos, given.hold_out)
    files["captions"] = photos.beside(find_captions(photos.below, photos.names))
    if given.class_photos:
        files |= find_class_photos(given.class_photos, subject.class_prompt or "", notes.append, given.into)
    if given.masks:
        files["masks"] = find_masks(given.masks, sizes, notes.append, given.into)
    if spec.mask == "alpha":
        opaque = read_each(lambda path: read_alpha(path) is None, found.photos, READERS)
        notes += [
            f"{path.name} is opaque, so the loss counts all of it"
            for path, all_is in zip(found.photos, opaque, strict=True)
            if all_is
        ]
    captions = read_captions(photos.below, photos.names, subject.prompt, notes.append)
    pictures = (_picture(photos, name, sizes[name], captions[name], subject) for name in files["photos"].names)
    where = f"{given.into}: " if given.into else ""
    return FoundSubject(files=files, pictures=tuple(pictures), notes=tuple(f"{where}{note}" for note in notes))


def _split(photos: LocalFiles, hold_out: tuple[str, ...]) -> dict[str, LocalFiles]:
    held_out = [_held_out(photos, name) for name in hold_out]
    trained_on = [path for path in photos.paths if path not in held_out]
    if not trained_on:
        raise BadInput("all photos are held out", hint="leave at least one photo to train on")
    return {name: replace(photos, paths=paths) for name, paths in (("photos", trained_on), ("held_out", held_out))}


def _held_out(photos: LocalFiles, wanted: str) -> Path:
    for path, name in zip(photos.paths, photos.names, strict=True):
        if wanted in (path.name, name, str(path)):
            return path
    raise BadInput(f"the photo to hold out, {wanted}, is not in {photos.below}")


def _picture(photos: LocalFiles, name: str, size: Size, caption: Caption, subject: Subject) -> PhotoFacts:
    return PhotoFacts(
        name=f"{photos.into}/{name}" if photos.into else name,
        width=size.width,
        height=size.height,
        caption=caption.text,
        own=caption.text != subject.prompt,
        repeats=caption.repeats * subject.repeats,
        subject=subject.number,
    )


def find_class_photos(folder: Path, prompt: str, tell: TellUser, into: str = "") -> dict[str, LocalFiles]:
    """Return photos of the class and their captions, by the fields of the spec, where they lie in the folder `into`."""
    found = find_photos(folder, threads=READERS)
    for sentence in found.warnings:
        tell(sentence)
    photos = LocalFiles(folder, found.photos, into)
    read_captions(folder, photos.names, prompt, tell)
    return {"class_photos": photos, "class_captions": photos.beside(find_captions(folder, photos.names))}


def find_masks(folder: Path, photos: dict[str, Size], tell: TellUser, into: str = "") -> LocalFiles:
    """Return the pictures that are named like the photos, `dog.png` for `dog.jpg`; each must have its photo's aspect
    ratio."""
    if not folder.is_dir():
        raise BadInput(
            f"the folder of masks {folder} does not exist",
            hint="give a folder that has a picture with the name of each photo",
        )
    names = [
        path.relative_to(folder).as_posix()
        for parent in sidecar_folders(photos)
        for path in (folder / parent).glob("[!.]*.*")
    ]
    found = sidecar_files(photos, names)
    if not found:
        raise BadInput(f"no mask in {folder} has the name of a photo", hint="name the mask of dog.jpg dog.png")

    def check(photo: str) -> None:
        mask = found[photo]
        refuse_link_out(folder, mask)
        width, height = read_photo(folder / mask).size
        check_fits(mask, Size(width=width, height=height), photos[photo])

    read_each(check, found, READERS)
    for photo in sorted(photos.keys() - found.keys()):
        tell(f"{photo} has no mask, so the loss counts all of it")
    for mask in sorted({*names} - {*found.values()}):
        tell(f"{mask} does not belong to any photo")
    return LocalFiles(folder, sorted(folder / mask for mask in {*found.values()}), into)


def held_out_of(names: tuple[str, ...], subjects: Sequence[SubjectInputs]) -> tuple[SubjectInputs, ...]:
    """Return the subjects, each with those of the photos that are its own to hold out besides. Raises `BadInput` for a name that none or
    several have."""
    found = list(subjects)
    for name in names:
        having = [number for number, each in enumerate(found) if _has(each, name)]
        if len(having) != 1:
            folders = ", ".join(each.into for each in subjects)
            where = f"in more than one folder of {folders}" if having else f"in none of the folders {folders}"
            raise BadInput(
                f"the photo to hold out, {name}, is {where}", hint=f"write FOLDER/NAME, such as {found[0].into}/1.jpg"
            )
        own = found[having[0]]
        found[having[0]] = replace(own, hold_out=(*own.hold_out, name.removeprefix(f"{own.into}/")))
    return tuple(found)


def _has(subject: SubjectInputs, name: str) -> bool:
    if Path(name).is_absolute():
        return Path(name).is_relative_to(subject.photos.absolute())
    return (subject.photos / name.removeprefix(f"{subject.into}/")).is_file()
