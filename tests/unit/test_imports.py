"""The command line starts quickly, and a trainer's machine needs no server."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "diffusers", "transformers", "numpy", "fastapi", "uvicorn", "huggingface_hub", "httpx", "pydantic"}


@pytest.mark.parametrize("module", ["gangline.cli.main", "gangline.core.specs.spec", "gangline"])
def test_importing_the_command_line_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not HEAVY & set(loaded)


LACKING = {
    "pyarrow",
    "lance",
    "obstore",
    "botocore",
    "psycopg",
    "standardwebhooks",
    "tensorboard",
    "wandb",
    "matplotlib",
    "ray",
    "onnxruntime",
}
"""What a node that was installed for LoRAs alone, as for `gangline demo`, has not got."""
WITHOUT = '''
import importlib, pkgutil, sys

class Lacking:
    """For us: libraries look around which others there are."""

    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe(1)
        while "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if name.partition(".")[0] in {lacking!r} and frame.f_globals["__name__"].startswith("gangline"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Lacking())
if sys.argv[1:]:
    from gangline.cli.main import main

    sys.argv[0] = "gangline"
    main()
for package in ("api", "cli", "compose", "core", "ports", "service", "sim", "wire", "worker"):
    for found in pkgutil.walk_packages(importlib.import_module(f"gangline.{{package}}").__path__, f"gangline.{{package}}."):
        importlib.import_module(found.name)
for name in ("train.lora.trainer", "train.sample_job", "train.run.standby", "train.scratch.launch", "train.caption.job"):
    importlib.import_module(f"gangline.{{name}}")
'''


def test_a_node_for_loras_needs_nothing_of_data_sets_buckets_or_taggers() -> None:
    program = WITHOUT.format(lacking=LACKING)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("options", "code"), [((), 0), (("--webhook", "http://127.0.0.1/x"), 2), (("--data", "s3://a/b:c"), 2)]
)
def test_exec_with_a_folder_needs_no_extra_and_says_which_one_the_rest_does(
    tmp_path: Path, options: tuple[str, ...], code: int
) -> None:
    words = ("exec", "--checkpoints", "out", "--to", "store", *options, "--", "touch", "touched")
    program = (sys.executable, "-c", WITHOUT.format(lacking=LACKING), *words)
    ran = subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == code and (tmp_path / "touched").exists() is (code == 0), ran.stderr
    assert ("hint: pip install 'gangline[exec]'" in ran.stderr) is (code == 2), ran.stderr


def test_the_client_is_imported_from_the_package() -> None:
    from gangline import Client, LoraSpec

    assert Client.__name__ == "Client" and LoraSpec.__name__ == "LoraSpec"
