"""Embed prompts for the U-Net. Shape letters: N texts, K pieces of a long text, L tokens of a piece, D width, P pooled width."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gangline.core.errors import BadInput
from gangline.train.model.base import LoadedBase

PENULTIMATE = -2


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts with their token ids for each encoder, (N, K, L). All have as many pieces K as the longest text needs."""

    texts: tuple[str, ...]
    ids: tuple[torch.Tensor, ...]

    @property
    def pieces(self) -> int:
        return self.ids[0].shape[1]

    def index(self, text: str) -> int:
        return self.texts.index(text)


@dataclass(frozen=True, slots=True)
class Embedded:
    """The encoders' output for N texts: tokens (N, K·L, D), and pooled (N, P) if the family has pooled embeddings."""

    tokens: torch.Tensor
    pooled: torch.Tensor | None

    def __getitem__(self, chosen: Any) -> "Embedded":
        return Embedded(self.tokens[chosen], None if self.pooled is None else self.pooled[chosen])

    def to(self, device: torch.device) -> "Embedded":
        return Embedded(self.tokens.to(device), None if self.pooled is None else self.pooled.to(device))


def tokenize(base: LoadedBase, texts: Iterable[str]) -> Texts:
    """Tokenize each distinct text once, in order of first occurrence."""
    unique = tuple(dict.fromkeys(texts))
    found = [_ids(tokenizer, unique) for tokenizer in base.tokenizers]
    pieces = max(
        _pieces(tokenizer, len(ids)) for tokenizer, row in zip(base.tokenizers, found, strict=True) for ids in row
    )
    return Texts(
        unique,
        tuple(_framed(tokenizer, row, pieces) for tokenizer, row in zip(base.tokenizers, found, strict=True)),
    )


def embed(base: LoadedBase, ids: tuple[torch.Tensor, ...]) -> Embedded:
    """Embed `ids` (N, K, L), one tensor per encoder. The pieces of a text are concatenated; its first piece gives the pooled embedding.

    If a family has several encoders, their states are concatenated along D (Podell et al. 2023, §2.1).
    """
    hidden, pooled = [], None
    for encoder, kind, ids_NKL in zip(base.text_encoders, base.family.text_encoders, ids, strict=True):
        texts, pieces, length = ids_NKL.shape
        output = encoder(ids_NKL.reshape(texts * pieces, length).to(base.device), output_hidden_states=True)
        states = output.hidden_states[PENULTIMATE] if kind.reads == "penultimate" else _read(base, encoder, output)
        hidden.append(states.reshape(texts, pieces * length, -1))
        if "text_embeds" in output:
            pooled = output.text_embeds.reshape(texts, pieces, -1)[:, 0]
    return Embedded(torch.cat(hidden, dim=-1), pooled)


def _read(base: LoadedBase, encoder: Any, output: Any) -> torch.Tensor:
    """Return the last layer's states or, with `clip_skip`, those of an earlier layer, scaled alike by the encoder's final norm."""
    if base.clip_skip == 1:
        return output.last_hidden_state
    layers = len(output.hidden_states) - 1
    if base.clip_skip > layers:
        raise BadInput(f"clip_skip {base.clip_skip} is more than the {layers} layers of this base's text encoder")
    return _final_norm(encoder)(output.hidden_states[-base.clip_skip])


def _final_norm(encoder: Any) -> Any:
    return (encoder.text_model if hasattr(encoder, "text_model") else encoder).final_layer_norm


@torch.no_grad()
def embed_all(base: LoadedBase, texts: Texts, *, at_once: int = 1) -> Embedded:
    """Embed `at_once` texts at a time; one at a time, no text's bits depend on the others. The result is on the CPU."""
    starts = range(0, len(texts.texts), at_once)
    each = [embed(base, tuple(ids[start : start + at_once] for ids in texts.ids)) for start in starts]
    pooled = [one.pooled for one in each if one.pooled is not None]
    embedded = Embedded(torch.cat([one.tokens for one in each]).cpu(), torch.cat(pooled).cpu() if pooled else None)
    said = torch.tensor([text != "" for text in texts.texts])
    return with_silence(base, embedded, said)


def with_silence(base: LoadedBase, embedded: Embedded, said_N: torch.Tensor) -> Embedded:
    """Zero the embeddings of empty texts if the base was trained that way. `said_N` is False for empty texts."""
    if not base.zero_empty:
        return embedded
    pooled = None if embedded.pooled is None else embedded.pooled * said_N[:, None]
    return Embedded(embedded.tokens * said_N[:, None, None], pooled)


def condition(base: LoadedBase, embedded: Embedded, sizes: torch.Tensor) -> dict[str, Any]:
    """Return the U-Net's arguments besides the noisy latents. SDXL uses `sizes` (N, 6) (Podell et al. 2023, §2.2)."""
    told: dict[str, Any] = {"encoder_hidden_states": embedded.tokens.to(base.dtype)}
    if embedded.pooled is not None:
        told["added_cond_kwargs"] = {"text_embeds": embedded.pooled.to(base.dtype), "time_ids": sizes.to(base.dtype)}
    return told


def _ids(tokenizer: Any, texts: tuple[str, ...]) -> list[list[int]]:
    """Tokenize all texts in one call: a call costs as much as several texts."""
    return tokenizer(list(texts), add_special_tokens=False, truncation=False, verbose=False).input_ids


def _pieces(tokenizer: Any, tokens: int) -> int:
    return max(1, -(-tokens // (tokenizer.model_max_length - 2)))


def _framed(tokenizer: Any, texts: list[list[int]], pieces: int) -> torch.Tensor:
    """Cut texts into pieces, each with start and end tokens, and pad as the encoder was trained: (N, K, L), int64."""
    length, begin, end = tokenizer.model_max_length, tokenizer.bos_token_id, tokenizer.eos_token_id
    framed = np.full((len(texts), pieces, length), tokenizer.pad_token_id, np.int64)
    for row, ids in zip(framed, texts, strict=True):
        for number, piece in enumerate(row):
            own = ids[number * (length - 2) : (number + 1) * (length - 2)]
            piece[: len(own) + 2] = [begin, *own, end]
    return torch.from_numpy(framed)
