"""Format counts, nouns and lists for people."""

from collections.abc import Sequence

UNITS = ("B", "kB", "MB", "GB", "TB")


def counted(count: int, noun: str) -> str:
    """Return the count with its noun, such as `1 photo` or `2 photos`, for nouns whose plural ends in s."""
    return f"{count} {noun}{'s' * (count != 1)}"


def times_in_words(count: int) -> str:
    """Return how often something happens.

    >>> times_in_words(1), times_in_words(2), times_in_words(3)
    ('once', 'twice', '3 times')
    """
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def listed(words: Sequence[str], conjunction: str = "and") -> str:
    """Return the words as one list.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"], "or")
    ('a', 'a and b', 'a, b or c')
    """
    return f" {conjunction} ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def size_words(count: int) -> str:
    """Return a number of bytes in the largest unit, of a thousand each, that it fills, with one digit.

    >>> size_words(13_760_000_000), size_words(7_740_000), size_words(999_960), size_words(512)
    ('13.8 GB', '7.7 MB', '1.0 MB', '512 B')
    """
    value, power = float(count), 0
    while round(value, 1) >= 1000 and power < len(UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.1f} {UNITS[power]}" if power else f"{count} B"


def duration_words(seconds: float) -> str:
    """Return a duration in its two largest units.

    >>> duration_words(7.4), duration_words(860), duration_words(8040), duration_words(90_000)
    ('7 s', '14 min 20 s', '2 h 14 min', '1 d 1 h')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def usd_words(micro_usd: float) -> str:
    """Return an amount of micro-dollars in cents; if it is less than a cent, with its first two digits that are not 0.

    >>> usd_words(1_234_500_000), usd_words(310_000), usd_words(2_140), usd_words(12), usd_words(0), usd_words(-2_140)
    ('$1,234.50', '$0.31', '$0.0021', '$0.000012', '$0.00', '-$0.0021')
    """
    size, digits = abs(micro_usd), 2
    if 0 < size < 10_000:
        while size < 10 ** (7 - digits):
            digits += 1
    return f"{'-' if micro_usd < 0 else ''}${size / 1e6:,.{digits}f}"


def one(noun: str) -> str:
    """Return the noun with its indefinite article, chosen by pronunciation: an abbreviation is read letter by letter.

    >>> one("RTX 4090"), one("H100 SXM"), one("NVIDIA A10"), one("T4"), one("CPU"), one("A100"), one("Tesla T4")
    ('an RTX 4090', 'an H100 SXM', 'an NVIDIA A10', 'a T4', 'a CPU', 'an A100', 'a Tesla T4')
    """
    is_spelled = len(noun) > 1 and not noun[1].islower()
    return f"{'an' if noun[:1] in ('AEFHILMNORSX' if is_spelled else 'AEIOUaeiou') else 'a'} {noun}"
