"""Find jobs by a text in their name, id, prompts, base or labels.

The store reads the texts and this compares them: neither engine ignores the case of letters beyond ASCII, and what is special to LIKE or to
a regular expression is plain text here.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

SEARCHED_MAX = 200
"""A page of a search compares at most this many jobs."""
SEARCHED_BYTES_MAX = 2**21
"""A page of a search compares no further jobs once their specs have as many characters: a spec names each of its photos."""
SEARCHED_AT_ONCE = 40
"""As many jobs are read with one statement, so that a page whose first jobs match reads few."""
OF_SUBJECT = ("prompt", "class_prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedJob:
    """What of a job is searched. `spec` is its JSON; `base` is the base's id, and `bases` are its names in the project."""

    id: str
    name: str
    base: str
    spec: str
    labels: Mapping[str, str]
    bases: Sequence[str] = ()


def folded(text: str) -> str:
    """Return a text so that two are equal if they differ in the case of letters alone, or in how Unicode composes them."""
    return text if text.isascii() and text.islower() else normalize("NFC", normalize("NFC", text).casefold())


def is_found(search: str, job: SearchedJob) -> bool:
    """Return whether the name, the id, a prompt, the base or a label (`KEY=VALUE`) of a job contains the text, in any case of letters."""
    wanted = folded(search)
    beside = (job.name, job.id, job.base, *job.bases, *(f"{key}={value}" for key, value in job.labels.items()))
    if any(wanted in folded(text) for text in beside):
        return True
    return _may_be_in(wanted, job.spec) and any(wanted in folded(text) for text in _words_of(json.loads(job.spec)))


def _may_be_in(wanted: str, spec: str) -> bool:
    """Return whether a spec may have the text, before its JSON is read. Of ASCII, JSON escapes each character by itself."""
    if not (wanted.isascii() and spec.isascii()):
        return True
    return json.dumps(wanted)[1:-1].casefold() in spec.casefold()


def _words_of(spec: dict[str, Any]) -> Iterator[str]:
    """Yield the prompts of a spec, of whichever kind, and the name of its base on the hub."""
    for value in (spec, *spec.get("subjects", ())):
        yield from (value[name] for name in OF_SUBJECT if value.get(name))
    for prompt in spec.get("sample_prompts", ()):
        yield prompt if isinstance(prompt, str) else prompt["prompt"]
    base = spec.get("base")
    if isinstance(base, dict) and "repo" in base:
        yield f"{base['repo']}@{base.get('revision', '')}"
