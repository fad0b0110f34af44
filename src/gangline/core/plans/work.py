"""What a LoRA's training will do, in words for its plan."""

from collections.abc import Sequence

from gangline.core.advice import PhotoFacts
from gangline.core.plans.rows import PlanRow
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sections.subjects import Subject
from gangline.core.words import counted


def times_seen(
    spec: LoraSpec, pictures: Sequence[PhotoFacts], of: Sequence[PhotoFacts] | None = None
) -> tuple[int, int]:
    """Return how often the least and the most frequent of the photos are seen, or of some `of` them."""
    everything = sum(picture.repeats for picture in pictures)
    repeats = [picture.repeats for picture in (pictures if of is None else of)]
    least, most = (round(spec.steps * spec.batch_size * each / everything) for each in (min(repeats), max(repeats)))
    return least, most


def times_seen_of(spec: LoraSpec, pictures: Sequence[PhotoFacts], subject: int) -> tuple[int, int]:
    """Return how often the least and the most frequent photo of a subject are seen, by its number."""
    return times_seen(spec, pictures, [picture for picture in pictures if picture.subject == subject])


def subject_rows(spec: LoraSpec, pictures: Sequence[PhotoFacts]) -> list[PlanRow]:
    """Return a row for each of several subjects; none if there is only one."""
    subjects = spec.all_subjects if spec.subjects else ()
    return [
        (f"subjects.{each.number}", _subject(each, times_seen_of(spec, pictures, each.number))) for each in subjects
    ]


def photos_row(pictures: Sequence[PhotoFacts], held_out: int) -> str:
    """Describe how many photos are trained on."""
    return f"{len(pictures)} to train on" + (f", {held_out} held out" if held_out else "")


def captions_row(own: int, prompted: int) -> str:
    """Describe which captions photos have."""
    return " and ".join(
        [f"their own for {counted(own, 'photo')}"] * bool(own)
        + [f"the prompt for {counted(prompted, 'photo')}"] * bool(prompted)
    )


def lora_row(spec: LoraSpec) -> str:
    convolutions = f", {spec.conv_rank} in convolutions" if spec.conv_rank else ""
    others = ", other ranks where block_ranks match" * bool(spec.block_ranks)
    kind = "LoKr, " if spec.algorithm == "lokr" else ""
    return (
        f"{kind}rank {spec.rank} in the U-Net{' and the text encoders' * spec.train_text_encoder}{convolutions}{others}"
    )


def class_row(subject: Subject) -> str:
    """Describe the user's photos of a subject's class, and the pictures that the base draws of it."""
    own = [counted(len(subject.class_photos), "photo") + " of your own"] if subject.class_photos else []
    drawn = [f"{counted(subject.class_images_drawn, 'picture')} that the base makes of '{subject.class_prompt}'"]
    return " and ".join(own + (drawn if subject.class_images_drawn else []))


def _subject(subject: Subject, seen: tuple[int, int]) -> str:
    """Describe one of several subjects."""
    weight = f", weight {subject.weight:g}" if subject.weight != 1 else ""
    of_class = f"; class: {class_row(subject)}" if subject.class_prompt else ""
    photos = f"{counted(len(subject.photos), 'photo')} in {subject.folder}"
    return f"'{subject.prompt}': {photos}, {seen_words(*seen)}{weight}{of_class}"


def seen_words(least: int, most: int) -> str:
    """Return how often photos are seen, in words."""
    return (
        f"each photo is seen {counted(least, 'time')}" if least == most else f"photos are seen {least} to {most} times"
    )
