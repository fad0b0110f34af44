"""What is installed is what the checkout has."""

import tomllib
from pathlib import Path

ROOT = Path("src/gangline")


def test_every_file_that_is_no_program_is_named_as_data_of_the_package() -> None:
    """A checkout reads its own files, so what a wheel lacks is missed by those alone who installed one."""
    patterns = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["gangline"]
    packed = {path for pattern in patterns for path in ROOT.glob(pattern)}
    beside = {path for path in ROOT.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert beside and beside <= packed


def test_every_pattern_of_data_finds_a_file() -> None:
    patterns = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["gangline"]
    assert [pattern for pattern in patterns if not any(ROOT.glob(pattern))] == []
