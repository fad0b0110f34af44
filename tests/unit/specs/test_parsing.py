"""JSON as dataclasses: only a number is a number, and what is parsed later is not walked through."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from gangline.core.parsing import InvalidSpec, parse_as


@dataclass(frozen=True, slots=True)
class Inner:
    number: float = 0


@dataclass(frozen=True, slots=True)
class Request:
    spec: dict[str, Any]
    steps: int = 0
    inner: tuple[Inner, ...] = ()


class Large(list[Any]):
    """A list of a request that nobody may walk through in the event loop."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("walked through")

    def __getitem__(self, place: Any) -> Any:
        raise AssertionError("walked through")


@pytest.mark.parametrize("wrong", [{"steps": "5"}, {"steps": True}, {"inner": [{"number": "1.5"}]}])
def test_only_a_number_is_a_number(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match=r"^(steps|inner\.0\.number): must be a number, not "):
        parse_as(Request, {"spec": {}} | wrong)
    assert parse_as(Request, {"spec": {}} | wrong, options=True)


@pytest.mark.parametrize("wrong", [{"spec": 5}, {"spec": {}, "inner": [5]}])
def test_named_values_are_an_object_in_json_and_a_table_in_a_recipe(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match=r"^(spec|inner\.0): must be an object, not 5$"):
        parse_as(Request, wrong)
    with pytest.raises(InvalidSpec, match=r"^(spec|inner\.0): must be a table, not 5$"):
        parse_as(Request, wrong, options=True)


def test_what_is_taken_as_it_is_is_not_walked_through() -> None:
    content = Large()
    assert parse_as(Request, {"spec": {"a": content, "b": {"c": content}}}).spec["a"] is content
