"""Describe photos with an image-text-to-text model of transformers. Code that comes with a model is never run."""

import re
from pathlib import Path
from typing import Any, cast

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from gangline.core.specs.caption import CaptionSpec
from gangline.train.caption.refusal import refused
from gangline.train.run import numerics

INSTRUCTION = "Describe this image in one sentence."
SENTENCE = re.compile(r".*[.!?](?=\s|$)", re.DOTALL)


class Captioner:
    """Raises `BadInput` if the folder holds no such model."""

    def __init__(self, folder: Path, spec: CaptionSpec) -> None:
        self._spec = spec
        self._device = numerics.device()
        self._dtype = numerics.dtype_of("auto", self._device)
        local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        try:
            self._processor = AutoProcessor.from_pretrained(folder, **local)
            models = cast(Any, AutoModelForImageTextToText)
            model = models.from_pretrained(folder, use_safetensors=True, dtype=self._dtype, **local)
            self._model = model.to(self._device).eval()
        except Exception as error:  # whatever the library raises for files that it does not know
            raise refused("captioner", error) from None

    def write(self, photo: Image.Image) -> str:
        """Return a description, chosen greedily: the same photo has the same one each time."""
        try:
            with torch.inference_mode():
                return self._described(photo.convert("RGB"))
        except (ValueError, TypeError, IndexError, KeyError) as error:
            raise refused("captioner", error) from None

    def _described(self, photo: Image.Image) -> str:
        inputs = self._inputs(photo).to(self._device, self._dtype)
        tokens = self._model.generate(**inputs, max_new_tokens=self._spec.tokens_max, do_sample=False, num_beams=1)[0]
        if "input_ids" in inputs and not self._model.config.is_encoder_decoder:
            tokens = after_prompt(tokens, inputs["input_ids"][0])
        text = " ".join(self._processor.decode(tokens, skip_special_tokens=True).split())
        return whole_sentences(text) if len(tokens) >= self._spec.tokens_max else text

    def _inputs(self, photo: Image.Image) -> Any:
        if getattr(self._processor, "chat_template", None):
            asked = {"type": "text", "text": self._spec.instruction or INSTRUCTION}
            message = {"role": "user", "content": [{"type": "image", "image": photo}, asked]}
            return self._processor.apply_chat_template(
                [message], add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
            )
        text = {"text": self._spec.instruction} if self._spec.instruction else {}
        return self._processor(images=photo, return_tensors="pt", **text)


def after_prompt(tokens: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
    """Return the tokens after those that repeat the prompt: all of it, all but its end (BLIP, which leaves out its last token), or none."""
    shared = min(len(tokens), len(prompt))
    differs = (tokens[:shared] != prompt[:shared]).nonzero()
    return tokens[int(differs[0]) if len(differs) else shared :]


def whole_sentences(text: str) -> str:
    """Return the text up to the end of its last whole sentence; all of it if none ends."""
    found = SENTENCE.match(text)
    return found[0] if found else text
