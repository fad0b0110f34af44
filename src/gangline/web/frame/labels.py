"""Labels as one types them, in one line: `client=acme 'about=round two'`."""

import shlex
from collections.abc import Iterable, Mapping

from gangline.core.errors import BadInput
from gangline.core.jobs.lists.labels import parse_labels


def line_of_labels(labels: Mapping[str, str]) -> str:
    """Return labels as `labels_of_line` reads them."""
    return line_of_texts(f"{key}={value}" for key, value in labels.items())


def labels_of_line(line: str) -> dict[str, str]:
    """Return the labels of a line. Raise `BadInput`."""
    texts = texts_of_line(line)
    try:
        return parse_labels(texts)
    except BadInput as refused:
        raise BadInput(f"labels: {refused}", hint=refused.hint) from None


def line_of_texts(texts: Iterable[str]) -> str:
    """Return several texts, each of a label, as `texts_of_line` reads them."""
    return shlex.join(texts)


def texts_of_line(line: str) -> list[str]:
    """Return what stands in a line. A text with spaces stands in quotes, as in a shell. Raise `BadInput`."""
    try:
        return shlex.split(line)
    except ValueError:
        raise BadInput("labels: a quote is not closed", hint="write client=acme 'about=round two'") from None
