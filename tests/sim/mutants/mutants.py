"""What is taken out in turn: every guard of the SQL, of the schema and of the service, found by reading them.

A mutant is one change and its undoing. The rules that checkers hold are in `tests.sim.mutants.rules`.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType

from gangline import service
from gangline.adapters.store import sqlite
from gangline.adapters.store.statements import migrations, statements
from gangline.ports.store import write

WORD = re.compile(r"'(?:[^']|'')*'|[\w.:]+|\S")
WRITE = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM)\b")
CLAUSE_ENDS = {"ORDER", "GROUP", "LIMIT", "RETURNING", "ON", "UNION"}
EQUALITY = re.compile(r"(?:(\w+)\.)?(\w+) = ")
TABLE = re.compile(r"CREATE TABLE (\w+) \((.*?)\n\);", re.DOTALL)
PRIMARY_COLUMN = re.compile(r"^    (\w+) .*\bPRIMARY KEY\b", re.MULTILINE)
PRIMARY_KEY = re.compile(r"^    PRIMARY KEY \((.*?)\)", re.MULTILINE)
UNIQUE_INDEX = re.compile(r"CREATE UNIQUE INDEX (\w+) .*?;\n", re.DOTALL)
UNIQUE = re.compile(r",\n    (UNIQUE \(.*?\))")


@dataclass(frozen=True, slots=True)
class Mutant:
    """`change` takes it out, for as long as its context lasts."""

    id: str
    change: Callable[[], AbstractContextManager[None]]


# The SQL


@dataclass(frozen=True, slots=True)
class Condition:
    """A part of a WHERE, between its ANDs; `start` and `end` also cover the word that joins it to the others."""

    text: str
    start: int
    end: int


def conditions(sql: str) -> list[Condition]:
    """Of every WHERE, those of subqueries too."""
    return [condition for match in re.finditer(r"\bWHERE\b", sql) for condition in _parts(sql, match.start())]


def _parts(sql: str, where: int) -> Iterator[Condition]:
    joins, end = [where], len(sql)
    depth = 0
    for word in WORD.finditer(sql, where):
        depth += (word[0] == "(") - (word[0] == ")")
        if depth < 0 or (depth == 0 and word[0] in CLAUSE_ENDS):
            end = word.start()
            break
        if depth == 0 and word[0] == "AND":
            joins.append(word.start())
    bounds = [*joins, end]
    for number, start in enumerate(joins):
        text = " ".join(sql[start : bounds[number + 1]].split()[1:])
        if number == 0 and len(joins) > 1:  # WHERE stays, and the AND after it goes
            yield Condition(text, start + len("WHERE"), joins[1] + len("AND"))
        else:
            yield Condition(text, start, bounds[number + 1])


def primary_keys() -> dict[str, set[str]]:
    """The columns of each table's primary key."""
    found: dict[str, set[str]] = {}
    for _, schema in migrations():
        for table, body in TABLE.findall(schema):
            keys = PRIMARY_COLUMN.findall(body) or re.split(r",\s*", PRIMARY_KEY.findall(body)[0])
            found[table] = set(keys)
    return found


def is_identity(condition: str, sql: str, keys: dict[str, set[str]]) -> bool:
    """Whether it only says which row is meant: a column of its table's primary key equals something."""
    equality = EQUALITY.match(condition)
    if not equality:
        return False
    own = re.search(r"(?:UPDATE|DELETE FROM|INSERT INTO) (\w+)", sql)
    table = equality[1] or (own[1] if own else "")
    return equality[2] in keys.get(table, set())


def of_writes() -> Iterator[Mutant]:
    """Every condition of a write but those that say which row."""
    return _of_conditions(lambda name, sql: WRITE.search(sql) is not None)


def of_choices() -> Iterator[Mutant]:
    """Every condition of what a claim chooses from: what it leaves out, no write looks at again."""
    return _of_conditions(lambda name, sql: name.endswith("_candidates"))


def _of_conditions(which: Callable[[str, str], bool]) -> Iterator[Mutant]:
    keys = primary_keys()
    for name, sql in statements().items():
        if not which(name, sql):
            continue
        for condition in conditions(sql):
            if not is_identity(condition.text, sql, keys):
                without = f"{sql[: condition.start]} {sql[condition.end :]}"
                yield Mutant(f"{name} without {condition.text}", partial(replaced_statement, name, without))


def of_conflicts() -> Iterator[Mutant]:
    """Every clause that lets the same be written twice."""
    for name, sql in statements().items():
        clause = re.search(r"\s*ON CONFLICT\b.*", sql, re.DOTALL)
        if clause:
            change = partial(replaced_statement, name, sql[: clause.start()])
            yield Mutant(f"{name} without {' '.join(clause[0].split())}"[:90], change)


def of_indexes() -> Iterator[Mutant]:
    """The unique ones of the schema."""
    for number, schema in migrations():
        for found in UNIQUE_INDEX.finditer(schema):
            yield _without_text(f"schema without {found[1]}", number, found[0])
        for found in UNIQUE.finditer(schema):
            table = re.findall(r"CREATE TABLE (\w+)", schema[: found.start()])[-1]
            yield _without_text(f"schema without {found[1]} of {table}", number, found[0], at=found.start())


def _without_text(name: str, number: int, text: str, at: int | None = None) -> Mutant:
    schemas = dict(migrations())
    start = schemas[number].index(text) if at is None else at
    changed = sorted((schemas | {number: schemas[number][:start] + schemas[number][start + len(text) :]}).items())
    return Mutant(name, partial(replaced, sqlite, "migrations", lambda: changed))


@contextmanager
def replaced_statement(name: str, text: str) -> Iterator[None]:
    """`statements()` is made once: what it made is changed, and changed back."""
    known = statements()
    before = known[name]
    known[name] = text
    try:
        yield
    finally:
        known[name] = before


@contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


# The service


def of_guards() -> Iterator[Mutant]:
    """Every write that must change a row, as one that need not."""
    below = Path(service.__path__[0])
    for path in sorted(below.rglob("*.py")):
        module = ".".join([service.__name__, *path.relative_to(below).with_suffix("").parts])
        source = path.read_text()
        for function in ast.parse(source).body:
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "guard":
                    start = _offset(source, call.func)
                    changed = f"{source[:start]}write{source[start + len('guard') :]}"
                    statement = ast.literal_eval(call.args[0])
                    change = partial(rewritten, module, function.name, changed)
                    yield Mutant(f"{path.stem}.{function.name} without a guard on {statement}", change)


def _offset(source: str, node: ast.expr) -> int:
    lines = source.splitlines(keepends=True)
    return sum(len(line) for line in lines[: node.lineno - 1]) + node.col_offset


@contextmanager
def rewritten(module: str, function: str, source: str) -> Iterator[None]:
    """`function` as it reads in `source`, wherever it was imported to: its code is exchanged, not its name."""
    owner = importlib.import_module(module)
    vars(owner).setdefault("write", write)
    found = _function(owner, function)
    before, found.__code__ = found.__code__, _code(compile(source, str(owner.__file__), "exec"), function)
    try:
        yield
    finally:
        found.__code__ = before


def edited(module: str, function: str, old: str, new: str) -> AbstractContextManager[None]:
    """`function` with the one place where it says `old` saying `new`."""
    owner = importlib.import_module(module)
    source, body = inspect.getsource(owner), inspect.getsource(_function(owner, function))
    assert body.count(old) == 1, f"{module}.{function} says {old!r} {body.count(old)} times"
    return rewritten(module, function, source.replace(body, body.replace(old, new)))


def _function(owner: object, name: str) -> FunctionType:
    for part in name.split("."):
        owner = inspect.getattr_static(owner, part)
    found = owner.fget if isinstance(owner, property) else inspect.unwrap(owner)  # type: ignore[arg-type]
    assert isinstance(found, FunctionType)
    return found


def _code(code: CodeType, name: str) -> CodeType:
    for part in name.split("."):
        code = next(found for found in code.co_consts if isinstance(found, CodeType) and found.co_name == part)
    return code
