"""CLIP's tokenizer (Radford et al. 2021), for bases in a single file, which contain none."""

import gzip
from functools import cache
from importlib import resources
from typing import Any

from transformers import CLIPTokenizer

VOCABULARY = "bpe_simple_vocab_16e6.txt.gz"
TOKENS = 49408
START, END = "<|startoftext|>", "<|endoftext|>"
MERGES = TOKENS - 2 * 256 - 2


def clip_tokenizer(pad_id: int = TOKENS - 1) -> Any:
    """Return a tokenizer that pads with `pad_id`: OpenAI's CLIP pads with the end token, OpenCLIP with id 0, which is `!` inside a word.

    The id is set afterwards: a padding token that is given by name would also be found in prompts, and `!` be taken for padding.
    """
    vocabulary, merges = _vocabulary()
    tokenizer: Any = CLIPTokenizer(
        vocab=vocabulary,
        merges=merges,
        bos_token=START,
        eos_token=END,
        unk_token=END,
        pad_token=END,
        model_max_length=77,
    )
    tokenizer.pad_token_id = pad_id
    return tokenizer


@cache
def _vocabulary() -> tuple[dict[str, int], list[Any]]:
    """Return ids by token, and the merges. An id is a position: 256 bytes, the same at the end of a word, the merges, start and end."""
    content = (resources.files("gangline.train.model.clip") / VOCABULARY).read_bytes()
    lines = gzip.decompress(content).decode().split("\n")[1 : 1 + MERGES]
    merges = [(left, right) for left, right in (line.split() for line in lines)]
    characters = _characters_of_bytes()
    tokens = [*characters, *(f"{character}</w>" for character in characters), *(left + right for left, right in merges)]
    return {token: number for number, token in enumerate([*tokens, START, END])}, merges


def _characters_of_bytes() -> list[str]:
    """Return a printable character for each byte (GPT-2's table): printable bytes stand for themselves and come first."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = 256 - len(printable)
    return [chr(code) for code in printable] + [chr(256 + number) for number in range(others)]
