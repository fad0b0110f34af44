"""What the list of a data set's files says of the photos to train on. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gangline.cli.jobs.plan.base import KnownBase
from gangline.cli.jobs.plan.lora import CaptionCounts
from gangline.cli.jobs.plan.make import captions_row, photos_row, seen_words, times_seen
from gangline.core.advice import Advice, PhotoFacts, advise
from gangline.core.datasets.roles import METADATA
from gangline.core.specs.lora import LoraSpec
from gangline.core.words import counted
from gangline.data.images.captions import repeats_of_folder, words_of_folder
from gangline.data.images.sidecars import sidecar_files

if TYPE_CHECKING:
    from gangline.core.datasets.views import DatasetFileView

ON_TAGS = ("caption_shuffles", "caption_tag_dropout_rate", "enable_wildcard")
"""What is advised of these settings depends on the words of captions, which the list does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPhotos:
    """The photos of a version that are trained on. If it is `described`, its metadata.jsonl may state captions and repeats."""

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

    def rows(self, spec: LoraSpec, reference: str) -> list[tuple[str, str]]:
        """Return what a user should know of the photos and the steps."""
        others = len(self.pictures) - self.own
        seen = self.seen(spec)
        often = f" ({seen_words(*seen)})" if seen else ""
        captions = captions_row(self.own, others)
        if self.described and others:
            captions = " and ".join(
                [captions_row(self.own, 0)] * bool(self.own)
                + [f"{METADATA} or the prompt for {counted(others, 'photo')}"]
            )
        return [
            ("photos", f"{reference}: {photos_row(self.pictures, len(spec.held_out))}"),
            ("captions", captions),
            ("steps", f"{counted(spec.steps, 'step')}, batch size {spec.batch_size}{often}"),
        ]

    def advice(self, spec: LoraSpec, base: KnownBase) -> tuple[Advice, ...]:
        """Return what is advised of photos whose captions were not read."""
        return tuple(each for each in advise(spec, self.pictures, base.model) if each.setting not in ON_TAGS)


def stored_photos(
    photos: "Sequence[DatasetFileView]", captions: "Sequence[DatasetFileView]", spec: LoraSpec
) -> StoredPhotos:
    """Return what is known of the photos to train on by their list and that of the captions."""
    beside = sidecar_files([photo.path for photo in photos], [file.path for file in captions if _has_words(file)])
    described = any(PurePosixPath(file.path).name == METADATA for file in captions)
    pictures = (
        PhotoFacts(
            name=photo.path,
            width=photo.width or spec.resolution,  # of an unknown size nothing is advised
            height=photo.height or spec.resolution,
            caption="",
            own=photo.path in beside or words_of_folder(photo.path) not in ("", spec.prompt),
            repeats=repeats_of_folder(photo.path),
        )
        for photo in photos
    )
    return StoredPhotos(pictures=tuple(pictures), described=described)


def _has_words(file: "DatasetFileView") -> bool:
    return file.bytes > 0 and PurePosixPath(file.path).name != METADATA
