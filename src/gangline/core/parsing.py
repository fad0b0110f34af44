"""JSON and TOML values as dataclasses, with all that is wrong with them told at once."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any

from gangline.core.errors import BadInput

PROBLEMS_MAX = 50
"""An answer reports this many problems at most: a spec with 100,000 unknown fields would make one of megabytes."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Marks a type whose values are checked when they are read: `why_not` returns a sentence where one is refused."""

    why_not: Callable[[Any], str]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: Any) -> Any:
        because = self.why_not(value)
        if because:
            raise ValueError(because)
        return value


@dataclass(frozen=True, slots=True)
class ExactNumbers:
    """Marks a type that is read from JSON, in which only a number is a number: pydantic takes `false` for 0, and "5" for 5."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_wrap_validator_function(self._check, handler(source))

    def _check(self, given: Any, read: Callable[[Any], Any]) -> Any:
        from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

        value = read(given)
        wrong = PydanticCustomError("number_type", "Input should be a number")
        found = [InitErrorDetails(type=wrong, loc=loc, input=each) for loc, each in _made_numbers(given, value, ())]
        if found:
            raise ValidationError.from_exception_data("numbers", found)
        return value


def _made_numbers(given: Any, value: Any, loc: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield where `value` has a number and `given`, of which it was made, a truth value or a text. What was taken as it is, such as a
    spec that is parsed later, is not walked through: a megabyte of it took half a second of the event loop."""
    if type(value) in (int, float):
        if isinstance(given, bool | str):
            yield loc, given
        return
    if is_dataclass(value) and isinstance(given, dict):
        parts = [(name, getattr(value, name, None)) for name in given]
    elif isinstance(value, dict) and isinstance(given, dict):
        parts = list(value.items())
    elif isinstance(value, tuple | list) and isinstance(given, tuple | list):
        parts = list(enumerate(value))
    else:
        return
    for name, part in parts:
        if (not isinstance(given, dict) or name in given) and part is not given[name]:
            yield from _made_numbers(given[name], part, (*loc, name))


EXACT_NUMBERS = ExactNumbers()
UNACCEPTABLE = "is not acceptable here (control characters, empty, or a path that leaves its folder)"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a spec: which field, and why."""

    field: str
    message: str


class InvalidSpec(BadInput):
    """Every problem of a spec, at once."""

    code = "invalid-spec"

    def __init__(self, problems: tuple[Problem, ...], *, hint: str = "") -> None:
        super().__init__("; ".join(f"{problem.field}: {problem.message}" for problem in problems), hint=hint)
        self.problems = problems


def parse_as(kind: Any, value: object, *, options: bool = False) -> Any:
    """Return JSON values as a value of this type; `options`: numbers may be texts, as a command line has them. Raises `InvalidSpec`
    with every field that is none."""
    from pydantic import ValidationError

    known, left_out = _without_a_flood(kind, value)
    try:
        return adapter(kind if options else Annotated[kind, EXACT_NUMBERS]).validate_python(known)
    except ValidationError as error:
        raise InvalidSpec(problems(error.errors(), _problem, more=left_out)) from None


def _without_a_flood(kind: Any, value: object) -> tuple[object, int]:
    """Return a value with `PROBLEMS_MAX` of its unknown fields at most, and how many were left out: pydantic would make an error of
    each, and hold the interpreter for as long as that takes."""
    if not is_dataclass(kind) or not isinstance(value, dict):
        return value, 0
    fields = kind.__dataclass_fields__
    unknown = [name for name in value if name not in fields]
    flood = set(unknown[PROBLEMS_MAX:])
    return ({name: part for name, part in value.items() if name not in flood} if flood else value), len(flood)


def problems(
    found: list[Any], as_problem: Callable[[dict[str, Any]], Problem], *, more: int = 0
) -> tuple[Problem, ...]:
    """Return pydantic's errors as problems: the first `PROBLEMS_MAX`, and one that counts the rest and `more`."""
    causes = _causes(found)
    named = [as_problem(dict(cause)) for cause in causes[:PROBLEMS_MAX]]
    more += len(causes) - len(named)
    return (*named, *([Problem("…", f"and {more} more problems")] if more else ()))


def to_json(value: Any) -> dict[str, Any]:
    """Of such a dataclass."""
    return adapter(type(value)).dump_python(value)


@cache
def adapter(of: Any) -> Any:
    from pydantic import TypeAdapter  # 0.2 s that `--help` need not pay

    return TypeAdapter(of)


def in_words(found: list[Any], whole: str, options: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return pydantic's problems with a `whole` as one sentence for people. `options`: fields that were given as options of the
    command line."""
    causes = _causes(found)
    named = dict.fromkeys(_sentence(cause, whole, options) for cause in causes[:PROBLEMS_MAX])
    more = len(causes) - PROBLEMS_MAX
    return "; ".join([*named, *([f"and {more} more problems"] if more > 0 else ())])


def _causes(found: list[Any]) -> list[Any]:
    """Leave out problems that only follow from another one: a list lacks what is wrong inside it."""
    above = {place[:length] for place in (problem["loc"] for problem in found) for length in range(len(place))}
    return [problem for problem in found if problem["loc"] not in above]


def _sentence(found: Any, whole: str, options: Mapping[str, str]) -> str:
    named = next((options[part] for part in found["loc"] if part in options), "")
    place, given = named or _place(found["loc"]) or whole, found["input"]
    match found["type"]:
        case "unexpected_keyword_argument":
            *above, last = found["loc"]
            return f"{_place(above) or whole} has no field {last}"
        case "missing":
            return f"{place} is missing"
        case _ if given == "" or found["type"] == "too_short":
            return f"{place} is empty"
        case "dataclass_type":
            return f"{place} is a table"
        case "tuple_type":
            return f"{place} is a list" + f": each of its tables is headed [[{place}]]" * isinstance(given, dict)
        case "predicate_failed":
            return f"{place} cannot be a file's name"
        case "assertion_error":
            return f"{place} contradicts this rule: {found['ctx']['error']}"
    said = str(found["msg"]).removeprefix("Input ")
    return f"{place} {said[:1].lower()}{said[1:]}" + f", not {given}" * isinstance(given, int | float | str)


def _place(loc: Iterable[str | int]) -> str:
    """`phases[0].gpus[1]`: the first of its kind has the number 0."""
    words = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return words.removeprefix(".").removesuffix(".[key]")


def _problem(found: dict[str, Any]) -> Problem:
    field_name = ".".join(str(part) for part in found["loc"]) or "spec"
    message = str(found["msg"]).removeprefix("Value error, ")
    if found["type"] == "predicate_failed":
        message = UNACCEPTABLE
    return Problem(field_name, message[0].lower() + message[1:])
