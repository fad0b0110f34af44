"""Tag photos with an ONNX model of the WD family: probabilities of the tags in a table beside it.

Such a model takes (N, H, W, 3) pixels of 0 to 255 in the order blue, green, red, on a white square, and returns (N, tags)
probabilities; the table's columns `name` and `category` name them in the same order (0 general, 4 character, 9 rating).
"""

import csv
from pathlib import Path

import numpy as np
import onnxruntime as ort
from PIL import Image

from gangline.core.errors import BadInput
from gangline.core.specs.caption import ONNX, TAGS, CaptionSpec
from gangline.train.caption.refusal import refused

GENERAL, CHARACTER = "0", "4"
FACE_CHARACTERS = 3
"""Names this short, such as o_o, are faces, whose underscores are no spaces."""
NAMES_MAX = 1_000_000


class Tagger:
    """Raises `BadInput` if the folder holds no tagger."""

    def __init__(self, folder: Path, spec: CaptionSpec) -> None:
        paths = {
            suffix: folder / next(f.path for f in spec.model.files if f.path.endswith(suffix))
            for suffix in (ONNX, TAGS)
        }
        self._tags = read_tags(paths[TAGS])
        self._spec = spec
        self._excluded = {as_caption_words(tag) for tag in spec.exclude} | set(spec.exclude)
        try:
            self._session = ort.InferenceSession(str(paths[ONNX]), providers=ort.get_available_providers())
        except Exception as error:  # whatever the library raises for a damaged file
            raise refused("tagger", error) from None
        (self._input, *more), (self._output, *_) = self._session.get_inputs(), self._session.get_outputs()
        if (
            more
            or len(self._input.shape) != 4
            or self._input.shape[3] != 3
            or not isinstance(self._input.shape[1], int)
        ):
            raise BadInput(
                f"the tagger takes inputs of another shape ({self._input.shape})",
                hint="taggers of the WD family take one image as (N, height, width, 3)",
            )

    def write(self, photo: Image.Image) -> str:
        """Return the tags above the threshold, the most probable first, as `tag one, tag two`."""
        side = self._input.shape[1]
        pixels_NHWC = np.asarray(on_white_square(photo, side), dtype=np.float32)[None, :, :, ::-1]
        try:
            (found,) = self._session.run([self._output.name], {self._input.name: np.ascontiguousarray(pixels_NHWC)})
        except Exception as error:
            raise refused("tagger", error) from None
        probabilities = np.asarray(found, dtype=np.float64).reshape(-1)
        if len(probabilities) != len(self._tags):
            raise BadInput(
                f"the tagger gives {len(probabilities)} probabilities, but its table has {len(self._tags)} tags"
            )
        return ", ".join(self._chosen(probabilities))

    def _chosen(self, probabilities: np.ndarray) -> list[str]:
        least = {GENERAL: self._spec.threshold, CHARACTER: self._spec.character_threshold}
        order = np.argsort(-probabilities, kind="stable")
        named = ((*self._tags[place], probabilities[place]) for place in order)
        chosen = (
            as_caption_words(name) for name, category, found in named if category in least and found >= least[category]
        )
        return [tag for tag in chosen if tag not in self._excluded]


def read_tags(path: Path) -> list[tuple[str, str]]:
    """Return name and category of each tag. Raise `BadInput` if the table has no such columns."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            found = [(str(row["name"]), str(row["category"])) for _, row in zip(range(NAMES_MAX), rows, strict=False)]
    except (KeyError, ValueError, csv.Error) as error:
        raise BadInput(
            f"the table of tags {path.name} cannot be read: {type(error).__name__} {error}",
            hint="its first line must name the columns `name` and `category`",
        ) from None
    if not found:
        raise BadInput(f"the table of tags {path.name} is empty")
    return found


def as_caption_words(tag: str) -> str:
    return tag if len(tag) <= FACE_CHARACTERS else tag.replace("_", " ")


def on_white_square(photo: Image.Image, side: int) -> Image.Image:
    """Return the photo on a white square, scaled to `side` pixels: nothing is cut off or stretched."""
    longest = max(photo.size)
    square = Image.new("RGB", (longest, longest), "white")
    square.paste(photo.convert("RGB"), ((longest - photo.width) // 2, (longest - photo.height) // 2))
    return square.resize((side, side), Image.Resampling.BICUBIC)
