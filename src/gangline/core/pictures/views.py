"""Define the views of a job's sample pictures."""

from dataclasses import dataclass
from typing import Literal

from gangline.core.pictures.names import PictureKind

StoredWeights = Literal["none", "checkpoint", "file", "result"]
"""Where the weights of a step are stored: in a checkpoint, in a LoRA beside its pictures, or as the result of the job."""
ThumbnailState = Literal["waiting", "ready", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureView:
    """A sample picture. `prompt` is the number of its prompt in the job's spec, `text` the prompt; the text is empty if the spec has none
    of this number. `of`: the base's picture is at step 0, that of the result at the job's last step.

    `width` and `height` are in pixels: those of the file once it was looked at, before that those that were asked for; 0 if unknown.
    `thumbnail` says whether there is a small copy, `because` why there will be none. `weights`: whether those of the step are stored;
    `pinned`: in a checkpoint that stays. `winner`: its step was chosen. `url` needs no key, and expires.
    """

    path: str
    of: PictureKind
    step: int
    prompt: int
    text: str
    seed: int
    width: int
    height: int
    bytes: int
    sha256: str
    url: str
    thumbnail: ThumbnailState
    because: str
    weights: StoredWeights
    pinned: bool
    winner: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnerView:
    """The step of a job that was chosen, and where its weights are kept until that is undone; None and "none" if none is chosen."""

    job: str
    step: int | None
    weights: StoredWeights
