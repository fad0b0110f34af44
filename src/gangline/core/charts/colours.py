"""The colours of charts, and text for SVG."""

import hashlib
from html import escape

HUES = (
    *("#0072b2", "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#cc79a7", "#f0e442", "#8c8c8c"),
    *("#332288", "#882255", "#999933", "#6f4c1e"),
)
"""Okabe and Ito's colours, and four of Paul Tol's muted ones, which colour-blind people can distinguish, too."""

SHADES = ((0, 0.0), (255, 0.45), (0, 0.35))
"""Each colour is used as it is, mixed with white, and mixed with black: the grey level and its share."""


def colour(machine: str) -> str:
    """Return the colour of a machine, which is always the same."""
    number = int.from_bytes(hashlib.sha256(machine.encode()).digest()[:4])
    hue, (towards, share) = HUES[number % len(HUES)], SHADES[number // len(HUES) % len(SHADES)]
    parts = (int(hue[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (towards - part) * share):02x}" for part in parts)


def xml_text(text: str) -> str:
    """Return the text for XML, which allows no control characters."""
    return escape("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text))
