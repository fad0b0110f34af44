"""The command line starts quickly, and a trainer's machine needs no server."""

import subprocess
import sys

import pytest

HEAVY = {"torch", "diffusers", "transformers", "numpy", "fastapi", "uvicorn", "huggingface_hub", "httpx", "pydantic"}


@pytest.mark.parametrize("module", ["gangline.cli.main", "gangline.core.spec", "gangline"])
def test_importing_the_command_line_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not HEAVY & set(loaded)


def test_the_client_is_imported_from_the_package() -> None:
    from gangline import Client, LoraSpec

    assert Client.__name__ == "Client" and LoraSpec.__name__ == "LoraSpec"
