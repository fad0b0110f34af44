"""The labels of a new job as one types them, in one line: `client=acme 'about=round two'`."""

import shlex
from collections.abc import Mapping

from gangline.core.errors import BadInput
from gangline.core.jobs.lists.labels import parse_labels


def line_of_labels(labels: Mapping[str, str]) -> str:
    """Return labels as `labels_of_line` reads them."""
    return shlex.join(f"{key}={value}" for key, value in labels.items())


def labels_of_line(line: str) -> dict[str, str]:
    """Return the labels of a line. One with spaces stands in quotes, as in a shell. Raise `BadInput`."""
    try:
        return parse_labels(shlex.split(line))
    except ValueError:
        raise BadInput("labels: a quote is not closed", hint="write client=acme 'about=round two'") from None
    except BadInput as refused:
        raise BadInput(f"labels: {refused}", hint=refused.hint) from None
