"""Compute the content of a simulated checkpoint: a hash that only the same history gives."""

import hashlib
import json
from functools import cache
from typing import Any

from gangline.core.canonical import canonical_json
from gangline.core.specs.spec import parse_spec, spec_hash


@cache
def content_sha256(lineage: str, step: int) -> str:
    """Return the hash of the state after `step` steps of a run with this lineage: equal histories, and only those, have equal hashes."""
    return hashlib.sha256(f"{lineage}:{step}".encode()).hexdigest()


def lineage_of(spec: dict[str, Any]) -> str:
    """Return the lineage of an uninterrupted run."""
    return _lineage_of(canonical_json(spec))


@cache
def _lineage_of(spec: str) -> str:
    return spec_hash(parse_spec(json.loads(spec)))
