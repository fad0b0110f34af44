"""What words of `gangline estimate` stand for: numbers, lists of them, prices by name, a phase. Each refuses what it cannot be."""

from typing import Any

from gangline.core.errors import BadInput


def refuse(given: object, because: str, *, hint: str) -> None:
    """Raise `BadInput` where something was given that must not be."""
    if given:
        raise BadInput(because, hint=hint)


def given_options(values: dict[str, Any]) -> dict[str, Any]:
    """Return those that were given."""
    return {name: value for name, value in values.items() if value is not None}


def times_given(given: list[str]) -> str:
    return {1: "once", 2: "twice"}.get(len(given), f"{len(given)} times")


def parse_number(text: str | None) -> Any:
    """Parse a number, such as 2.8672e9. Return other text as it is: the outline's check says what it should be."""
    if text is None:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def numbers(option: str, text: str | None) -> list[Any] | None:
    if not text:
        return None if text is None else []
    parts = text.split(",")
    refuse(
        not all(part.strip() for part in parts),
        f"{option} {text} is not a list of numbers",
        hint=f"write e.g. {option} 8,16",
    )
    return [parse_number(part) for part in parts]


def pairs(option: str, texts: list[str]) -> dict[str, Any] | None:
    """Read NAME=USD, each name once."""
    parts = [text.rpartition("=") for text in texts]
    for name, equals, value in parts:
        if not (name and equals and value):
            raise BadInput(
                f"{option} {value or name} does not name a price",
                hint="write NAME=USD: a name or a number, =, and US dollars an hour",
            )
    names = [parse_number(name.strip().lower()) for name, _, _ in parts]
    for (name, _, _), known in zip(parts, names, strict=True):
        refuse(names.count(known) > 1, f"{option} gives {name.strip()} two prices", hint="pass each of them once")
    return {name.strip(): parse_number(value) for name, _, value in parts} or None


def prices(text: str | None) -> dict[str, Any]:
    """Read a price, and those of some numbers of GPUs after it: 2,8=1.5."""
    if text is None:
        return {}
    usual, *at = text.split(",")
    return {"usd_per_gpu_hour": parse_number(usual), "usd_per_gpu_hour_at": pairs("--usd-per-gpu-hour", at)}


def phase_of(text: str) -> dict[str, Any]:
    """Read NAME:SAMPLES:GPUS=X,…[:MICROBATCH]."""
    name, *rest = text.split(":")
    if len(rest) not in (2, 3):
        raise BadInput(
            f"--phase {text} does not describe a phase", hint="write e.g. --phase 256px:1126400000:8=1100,16=2180"
        )
    measured = [pair.partition("=") for pair in rest[1].split(",")]
    return given_options(
        {
            "name": name,
            "samples": parse_number(rest[0]),
            "gpus": [parse_number(gpus) for gpus, _, _ in measured],
            "images_per_second": [parse_number(rate) for _, _, rate in measured],
            "microbatch": parse_number(rest[2]) if len(rest) == 3 else None,
        }
    )
