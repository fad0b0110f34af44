"""Labels of a job: pairs of a key and a value by which its owner finds it again."""

import re
from collections.abc import Mapping
from typing import Annotated

from gangline.core.display import is_printable
from gangline.core.errors import BadInput
from gangline.core.parsing import Checked

LABELS_MAX = 32
"""The most labels that a job may have."""
KEY_MAX = VALUE_MAX = 63
BEST = "best"
"""The key of the label that the best job of an experiment gets; its value is the experiment's name."""
WINNER = "winner"
"""The key of the label that a job gets when a step of its is chosen; its value is the step."""
KEY = re.compile(rf"[a-z0-9._/-]{{1,{KEY_MAX}}}")
HINT = "write KEY=VALUE, such as team=vision"


def why_no_key(key: str) -> str:
    """Return why this cannot be the key of a label; empty if it can."""
    if KEY.fullmatch(key):
        return ""
    return f"must be a key of up to {KEY_MAX} lower-case letters, digits and the characters . _ / -"


def why_no_value(value: str) -> str:
    """Return why this cannot be the value of a label; empty if it can."""
    if len(value) > VALUE_MAX:
        return f"has more than {VALUE_MAX} characters, the most that the value of a label may have"
    return "" if is_printable(value) else "has control characters, which no label may have"


def why_too_many(labels: Mapping[str, object]) -> str:
    """Return why these are more labels than a job may have; empty if they are not."""
    return f"has {len(labels)} labels, and a job may have {LABELS_MAX}" if len(labels) > LABELS_MAX else ""


LabelKey = Annotated[str, Checked(why_no_key)]
LabelValue = Annotated[str, Checked(why_no_value)]
JobLabels = Annotated[dict[LabelKey, LabelValue], Checked(why_too_many)]


def parse_label(text: str) -> tuple[str, str]:
    """Return the key and the value of `KEY=VALUE`. Raise `BadInput`."""
    key, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"{text!r} is not a label: it has no =", hint=HINT)
    for called, why in ((f"the key {key!r} of a label", why_no_key(key)), (f"the label {key}", why_no_value(value))):
        if why:
            raise BadInput(f"{called} {why}", hint=HINT)
    return key, value


def parse_labels(texts: list[str]) -> dict[str, str]:
    """Return the labels of several `KEY=VALUE`; of one key, the last counts. Raise `BadInput`."""
    labels = dict(parse_label(text) for text in texts)
    if why := why_too_many(labels):
        raise BadInput(f"--label {why}")
    return labels


def parse_changes(texts: list[str]) -> dict[str, str | None]:
    """Return what `KEY=VALUE` sets and `KEY-` removes, which is None then. Raise `BadInput`."""
    changes = dict[str, str | None]()
    for text in texts:
        if "=" not in text and text.endswith("-") and not why_no_key(text[:-1]):
            changes[text[:-1]] = None
            continue
        key, value = parse_label(text)
        changes[key] = value
    return changes


def with_changes(labels: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return the labels after these changes. Raise `BadInput` if they are too many."""
    after = {key: value for key, value in {**labels, **changes}.items() if value is not None}
    if why := why_too_many(after):
        raise BadInput(f"the job {why}", hint="remove others first, or in the same request")
    return after
