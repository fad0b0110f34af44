"""Patterns of layers' names, and the values that settings give to the layers that match one.

A name is that of the part and of the layer in it: `unet.up_blocks.1.attentions.0.proj_in`. A pattern matches a name from its beginning or
from any of its dots on, always to its end: `to_k` every `….to_k`, `attn2.*` whatever is in an `attn2`, `up_blocks.1.*` a whole block. `*`
stands for any characters, dots too, `?` for one, `[ab]` for one of these.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import cache

RANK_MAX, ALPHA_MAX, FACTOR_MAX = 1024, 4096.0, 1000.0
WILD = "*?["


@dataclass(frozen=True, slots=True)
class RankRule:
    """The rank and alpha of the layers that match a pattern; 0 leaves them out. Without an alpha they are scaled as others are."""

    pattern: str
    rank: int
    alpha: float | None


@dataclass(frozen=True, slots=True)
class RateRule:
    """The factor by which the learning rate of the layers that match a pattern is multiplied."""

    pattern: str
    factor: float


def is_pattern(text: str) -> bool:
    """Return whether a text has characters that stand for others."""
    return any(each in text for each in WILD)


def matches(pattern: str, name: str) -> bool:
    """Return whether a pattern matches a layer's name.

    >>> matches("attn2.to_*", "unet.mid_block.attn2.to_k"), matches("up_blocks.1.*", "unet.up_blocks.11.conv")
    (True, False)
    """
    return _compiled(pattern).fullmatch(name) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?s:.*\.)?{translate(pattern)}")


def unmatched(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the patterns that match none of the names."""
    known = list(names)
    return [pattern for pattern in patterns if not any(matches(pattern, name) for name in known)]


@cache
def rank_rule(text: str) -> RankRule:
    """Read PATTERN=RANK or PATTERN=RANK:ALPHA. Raise `ValueError` if it is neither."""
    pattern, equals, value = text.rpartition("=")
    rank, colon, alpha = value.partition(":")
    found = RankRule(pattern.strip(), int(rank), float(alpha) if colon else None)
    if not equals or not found.pattern or not 0 <= found.rank <= RANK_MAX:
        raise ValueError(text)
    if found.alpha is not None and not (found.rank and 0 < found.alpha <= ALPHA_MAX):
        raise ValueError(text)
    return found


@cache
def rate_rule(text: str) -> RateRule:
    """Read PATTERN=FACTOR. Raise `ValueError` if it is none."""
    pattern, equals, factor = text.rpartition("=")
    found = RateRule(pattern.strip(), float(factor))
    if not equals or not found.pattern or not 0 < found.factor <= FACTOR_MAX:
        raise ValueError(text)
    return found


def why_no_rank_rule(text: str) -> str:
    try:
        rank_rule(text)
    except ValueError:
        return f"{text!r} gives no rank: write PATTERN=RANK or PATTERN=RANK:ALPHA, with a rank from 0 to {RANK_MAX}"
    return ""


def why_no_rate_rule(text: str) -> str:
    try:
        rate_rule(text)
    except ValueError:
        return f"{text!r} gives no factor: write PATTERN=FACTOR, with a factor above 0"
    return ""
