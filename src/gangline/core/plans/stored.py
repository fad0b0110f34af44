"""What the lists of a spec's files say of the photos to train on, where nobody reads their captions: they are in the object store."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from gangline.core.advice import Advice, PhotoFacts, advise
from gangline.core.datasets.roles import METADATA, repeats_of_folder, words_of_folder
from gangline.core.datasets.sidecars import sidecar_files
from gangline.core.files import File
from gangline.core.plans.base import KnownBase
from gangline.core.plans.rows import PlanRow
from gangline.core.plans.work import captions_row, photos_row, seen_words, subject_rows, times_seen
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sections.subjects import Subject
from gangline.core.words import counted

ON_TAGS = ("caption_shuffles", "caption_tag_dropout_rate", "enable_wildcard")
"""What is advised of these settings depends on the words of captions, which the list does not have."""
SizesInPixels = Mapping[str, tuple[int, int]]
"""Width and height of pictures by their SHA-256, of those that were looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionCounts:
    """Photos with a caption of their own, and those for which the prompt stands."""

    own: int
    prompt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPhotos:
    """The photos that are trained on. If they are `described`, a metadata.jsonl beside them may state captions and repeats."""

    pictures: tuple[PhotoFacts, ...]
    described: bool

    @property
    def own(self) -> int:
        """How many photos have a caption that is not the prompt, as far as that is known."""
        return sum(picture.own for picture in self.pictures)

    @property
    def counts(self) -> CaptionCounts | None:
        """Return how many photos have which caption; None if that is not known."""
        return None if self.described else CaptionCounts(own=self.own, prompt=len(self.pictures) - self.own)

    def seen(self, spec: LoraSpec) -> tuple[int, int] | None:
        """Return how often the least and the most frequent photo are seen; None if that is not known."""
        return None if self.described else times_seen(spec, self.pictures)

    def rows(self, spec: LoraSpec, reference: str) -> list[PlanRow]:
        """Return what a user should know of the photos and the steps. `reference` names their data set, if they have one."""
        others = len(self.pictures) - self.own
        seen = self.seen(spec)
        often = f" ({seen_words(*seen)})" if seen else ""
        captions = captions_row(self.own, others)
        if self.described and others:
            captions = " and ".join(
                [captions_row(self.own, 0)] * bool(self.own)
                + [f"{METADATA} or the prompt for {counted(others, 'photo')}"]
            )
        photos = photos_row(self.pictures, len(spec.held_out))
        return [
            *subject_rows(spec, self.pictures),
            ("photos", f"{reference}: {photos}" if reference else photos),
            ("captions", captions),
            ("steps", f"{counted(spec.steps, 'step')}, batch size {spec.batch_size}{often}"),
        ]

    def advice(self, spec: LoraSpec, base: KnownBase) -> tuple[Advice, ...]:
        """Return what is advised of photos whose captions were not read."""
        return tuple(each for each in advise(spec, self.pictures, base.model) if each.setting not in ON_TAGS)


def stored_photos(spec: LoraSpec, sizes: SizesInPixels) -> StoredPhotos:
    """Return what is known of the photos of a spec by the lists of its files."""
    pictures = (picture for subject in spec.all_subjects for picture in _pictures(spec, subject, sizes))
    described = any(PurePosixPath(file.path).name == METADATA for file in spec.captions)
    return StoredPhotos(pictures=tuple(pictures), described=described)


def _pictures(spec: LoraSpec, subject: Subject, sizes: SizesInPixels) -> Iterator[PhotoFacts]:
    names = [photo.path for photo in subject.photos]
    beside = sidecar_files(names, [file.path for file in subject.captions if _has_words(file)])
    unknown = (spec.resolution, spec.resolution)  # of an unknown size nothing is advised
    for photo in subject.photos:
        width, height = sizes.get(photo.sha256, unknown)
        yield PhotoFacts(
            name=photo.path,
            width=width,
            height=height,
            caption="",
            own=photo.path in beside or words_of_folder(subject.name_of(photo)) not in ("", subject.prompt),
            repeats=repeats_of_folder(subject.name_of(photo)) * subject.repeats,
            subject=subject.number,
        )


def _has_words(file: File) -> bool:
    return file.bytes > 0 and PurePosixPath(file.path).name != METADATA
