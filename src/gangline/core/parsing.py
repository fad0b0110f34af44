"""JSON values as dataclasses, with all that is wrong with them told at once."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from gangline.core.errors import BadInput


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a spec: which field, and why."""

    field: str
    message: str


class InvalidSpec(BadInput):
    """Every problem of a spec, at once."""

    code = "invalid-spec"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(f"{problem.field}: {problem.message}" for problem in problems))
        self.problems = problems


def parse_as(kind: Any, value: object) -> Any:
    """JSON values as a value of this type. Raises `InvalidSpec` with every field that is none."""
    from pydantic import ValidationError

    try:
        return adapter(kind).validate_python(value)
    except ValidationError as error:
        raise InvalidSpec(tuple(_problem(dict(found)) for found in error.errors())) from None


def to_json(value: Any) -> dict[str, Any]:
    """Of such a dataclass."""
    return adapter(type(value)).dump_python(value)


@cache
def adapter(of: Any) -> Any:
    from pydantic import TypeAdapter  # 0.2 s that `--help` need not pay

    return TypeAdapter(of)


def _problem(found: dict[str, Any]) -> Problem:
    field_name = ".".join(str(part) for part in found["loc"]) or "spec"
    message = str(found["msg"])
    if found["type"] == "predicate_failed":
        message = "is not acceptable here (control characters, empty, or a path that leaves its folder)"
    return Problem(field_name, message[0].lower() + message[1:])
