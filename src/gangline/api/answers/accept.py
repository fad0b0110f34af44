"""The header `Accept` (RFC 9110): how much a client likes a media type."""

import re

WEIGHT = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


def quality(accept: str, media_type: str) -> float:
    """Return how much a client likes this type, from 0 (not at all) to 1: what the most specific of its ranges says that has the type."""
    ranges = dict(map(_range, accept.lower().split(",")))
    kind = media_type.partition("/")[0]
    return next((ranges[each] for each in (media_type, f"{kind}/*", "*/*") if each in ranges), 0.0)


def _range(text: str) -> tuple[str, float]:
    """Return a range and its weight, which is 1 if it has none that can be read. Other parameters change nothing here."""
    name, *parameters = (part.strip() for part in text.split(";"))
    weights = [value.strip() for name, _, value in (each.partition("=") for each in parameters) if name.strip() == "q"]
    return name, float(weights[0]) if weights and WEIGHT.fullmatch(weights[0]) else 1.0
