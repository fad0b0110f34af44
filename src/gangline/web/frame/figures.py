"""Write numbers as the page shows them, in few characters of equal width."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from gangline.core.display import printable
from gangline.core.money.cost import CostPart
from gangline.core.words import duration_words, usd_words


def money(usd: float | None) -> str:
    return "–" if usd is None else usd_words(usd * 1e6)


def exact(usd: float, digits: int = 4) -> str:
    """Return dollars with as many digits as all sums of a table have, so that they stand below each other; a dash for nothing.

    >>> exact(1234.5), exact(-0.00086, 6), exact(0)
    ('$1,234.5000', '-$0.000860', '–')
    """
    return f"{'-' if usd < 0 else ''}${abs(usd):,.{digits}f}" if usd else "–"


def cost_shown(usd: float, lacks: Sequence[CostPart]) -> str:
    """Return the known part of a cost, and that there is more of it."""
    if "node time" not in lacks:
        return money(usd)
    return f"over {money(usd)}" if usd else "no price"


def span(seconds: float | None) -> str:
    """Return a duration in its two largest units, without a second one that is nothing.

    >>> span(601), span(600), span(7200), span(None)
    ('10 min 01 s', '10 min', '2 h', '–')
    """
    return (
        "–"
        if seconds is None
        else duration_words(max(0.0, seconds)).removesuffix(" 00 s").removesuffix(" 00 min").removesuffix(" 0 h")
    )


def pace(seconds: float | None) -> str:
    """Return seconds per step, with three digits.

    >>> pace(1.2345), pace(0.0456), pace(12.34), pace(None)
    ('1.23 s', '0.046 s', '12.3 s', '–')
    """
    if seconds is None:
        return "–"
    return f"{seconds:.{1 if seconds >= 10 else 2 if seconds >= 1 else 3}f} s"


def number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def percent_shown(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def share_shown(share: float) -> str:
    """Return a share of a sum. What is not nothing is not shown as nothing.

    >>> share_shown(0.25), share_shown(0.004), share_shown(0.00085), share_shown(0)
    ('25.0%', '0.4%', 'under 0.1%', '0.0%')
    """
    return "under 0.1%" if 0 < share < 0.001 else f"{share:.1%}"


def moment_shown(at_ms: int | None) -> Markup:
    """Return a point in time as an element that the browser shows in its reader's zone; in UTC without scripts."""
    if at_ms is None:
        return Markup("–")
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z", f"{at:%Y-%m-%d %H:%M} UTC"
    )


def coded(text: str) -> Markup:
    """Return a sentence whose commands and names, between backticks, are marked as code.

    >>> coded("raise `nodes_max` of <it>")
    Markup('raise <code>nodes_max</code> of &lt;it&gt;')
    """
    pieces = printable(text).split("`")
    if len(pieces) % 2 == 0:  # a backtick that nothing closes
        return escape(printable(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if at % 2 else piece for at, piece in enumerate(pieces)
    )


def as_sentences(*texts: str) -> str:
    """Return what is wrong, and what to do about it, as sentences. A name, a setting or a command at the beginning stays as it is written.

    >>> as_sentences("there is no such job", "`gangline jobs ls` lists them"), as_sentences("rank: too large", "")
    ('There is no such job. `gangline jobs ls` lists them.', 'rank: too large.')
    """
    return " ".join(_sentence(text.strip()) for text in texts if text.strip())


def _sentence(text: str) -> str:
    first = text.split(maxsplit=1)[0].rstrip(",;")
    begun = text[0].upper() + text[1:] if first.isalpha() and first.islower() else text
    return begun if begun[-1] in ".!?…:" else f"{begun}."


def value_written(value: Any) -> str:
    """Return a value of a setting as people write it. A list of phrases has one on each line, one of words or numbers has commas.

    >>> value_written(True), value_written([1, 2]), value_written(["a cat", "a dog"]), value_written([])
    ('yes', '1, 2', 'a cat\\na dog', 'none')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value in (None, "", [], ()):
        return "none"
    if isinstance(value, list | tuple):
        texts = [_as_text(each) for each in value]
        return (", " if not any(sign in text for text in texts for sign in " ,") else "\n").join(texts)
    return _as_text(value)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def ago(at_ms: int | None, now_ms: int) -> Markup:
    """Return how long ago something was, which the browser counts on."""
    if at_ms is None:
        return Markup("–")
    return Markup('<span data-since="{}">{}</span>').format(at_ms, span((now_ms - at_ms) / 1000))
