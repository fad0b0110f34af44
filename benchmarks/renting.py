"""How soon a provider is asked for a node: `python benchmarks/renting.py [--rounds 20]`.

The server is one `gangline server` with its store in a file and one pool of the driver `command`, whose programs note when they start. Each
round submits a job at a random moment between two of the server's glances, and takes from the server's answer until the program `start`
runs. No node comes, so the next round's job needs another one. The exit status is 1 if a round took two seconds or more.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # not this folder: `queue` is a module of Python's too
# isort: split

import argparse
import json
import os
import random
import tempfile
import time
from statistics import median

from benchmarks.http import Server, wait

from gangline.compose.client import Client
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec

WITHIN_S = 2.0
GIVES_UP_S = 30.0
OFFERS = [{"id": "small", "gpu": "RTX 4090", "gpu_memory_gb": 24, "price_usd_per_hour": 0.3}]
PROGRAM = """
import json, pathlib, sys, time
asked, folder = time.time(), pathlib.Path(sys.argv[2])
said = json.load(sys.stdin)
if sys.argv[1] == "start":
    (folder / said["name"]).write_text(repr(asked))
if sys.argv[1] == "offers":
    print(json.dumps(OFFERS))
if sys.argv[1] == "list":
    print(json.dumps([{"id": path.name, "name": path.name} for path in folder.glob("node*")]))
"""


def write_provider(folder: Path) -> str:
    """Write the provider's program, and return the server's settings that name it."""
    program = folder / "provider.py"
    program.write_text(f"OFFERS = {OFFERS!r}\n{PROGRAM}")
    (folder / "asked").mkdir()
    words = {
        what: [sys.executable, "-S", str(program), what, str(folder / "asked")]
        for what in ("offers", "start", "stop", "list")
    }
    return "[providers.bench]\ndriver = 'command'\n" + "".join(
        f"{what} = {json.dumps(said)}\n" for what, said in words.items()
    )


def measure(client: Client, spec: LoraSpec, asked: Path) -> float:
    """Return the seconds from the server's answer to a submission until its provider's program runs."""
    before = set(asked.iterdir())
    wait(random.random())
    client.jobs.submit(spec)
    answered, gives_up_s = time.time(), time.monotonic() + GIVES_UP_S
    while not (new := set(asked.iterdir()) - before) or not (said := new.pop().read_text()):
        assert time.monotonic() < gives_up_s, "no node was asked for"
        wait(0.005)
    return float(said) - answered


def main(rounds: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="gangline-benchmark-") as made:
        folder = Path(made)
        os.environ["GANGLINE_URL"] = "https://gangline.example"  # where its nodes would find it
        os.environ["GANGLINE_SETTINGS"] = str(folder / "gangline.toml")
        (folder / "gangline.toml").write_text(write_provider(folder))
        server = Server(folder / "home", "")
        try:
            client = Client(server.url, server.user)
            client.pools.add("bench", "command", {"provider": "bench", "nodes_max": rounds + 1})
            (folder / "photo.png").write_bytes(b"a photo")
            files = client.files.upload([folder / "photo.png"], folder)
            spec = LoraSpec(
                base=FilesBase(files=files), photos=files, prompt="sks dog", steps=1000, sample_result=False
            )
            taken_s = [measure(client, spec, folder / "asked") for _ in range(rounds)]
        finally:
            server.stop()
    print(
        f"{rounds} jobs: {median(taken_s):.2f} s from a queued job to the provider's call, at most {max(taken_s):.2f} s"
    )
    return max(taken_s) < WITHIN_S


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=20)
    sys.exit(not main(arguments.parse_args().rounds))
