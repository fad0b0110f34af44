"""A script of somebody's: each step's state is a hash of the one before, so that a step that is missed or doubled shows in the result.

    chain.py FOLDER STEPS [--every N] [--step-s S] [--bytes B] [--keep K] [--save-on-term] [--code C]

It goes on from the newest `checkpoint-N` in FOLDER, and ends with 3 where that is not whole.
"""

import argparse
import hashlib
import json
import shutil
import signal
import struct
import sys
import zipfile
from pathlib import Path
from threading import Event

WEIGHTS, MOMENTS, STATE, CHANCE = "model.safetensors", "optimizer.pt", "trainer_state.json", "rng_state.pth"
PIECES = 8


def state_after(steps: int) -> str:
    state = "begin"
    for step in range(steps):
        state = hashlib.sha256(f"{state} {step}".encode()).hexdigest()
    return state


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--bytes", type=int, default=200_000)
    parser.add_argument("--keep", type=int, default=0)
    parser.add_argument("--save-on-term", action="store_true")
    parser.add_argument("--code", type=int, default=0)
    return parser.parse_args()


def load(place: Path) -> tuple[int, str]:
    told = json.loads((place / STATE).read_text())
    for name in (MOMENTS, CHANCE):
        with zipfile.ZipFile(place / name) as file:
            assert file.read("state").decode() == told["state"]
    content = (place / WEIGHTS).read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    assert hashlib.sha256(content[8 + length :]).hexdigest() == header["__metadata__"]["sha256"]
    assert header["__metadata__"]["state"] == told["state"]
    return told["global_step"], told["state"]


def save(place: Path, step: int, state: str, size: int, pause: Event) -> None:
    place.mkdir(exist_ok=True)
    body = (hashlib.sha256(state.encode()).digest() * (size // 32 + 1))[:size]
    about = {"sha256": hashlib.sha256(body).hexdigest(), "state": state}
    header = json.dumps(
        {"__metadata__": about, "w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    ).encode()
    with (place / WEIGHTS).open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for piece in range(PIECES):
            file.write(body[size * piece // PIECES : size * (piece + 1) // PIECES])
            file.flush()
            pause.wait(0.002)
    for name in (MOMENTS, CHANCE):
        with zipfile.ZipFile(place / name, "w") as zipped:
            zipped.writestr("state", state)
    (place / STATE).write_text(json.dumps({"global_step": step, "state": state}))


def main() -> None:
    asked, told = parse(), Event()
    if asked.save_on_term:
        signal.signal(signal.SIGTERM, lambda *_: told.set())
    asked.folder.mkdir(exist_ok=True)
    found = sorted(asked.folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    try:
        step, state = load(found[-1]) if found else (0, "begin")
    except Exception as error:
        print(f"cannot resume: {error!r}", flush=True)
        sys.exit(3)
    print(f"from {step}", flush=True)
    while step < asked.steps and not told.is_set():
        state = hashlib.sha256(f"{state} {step}".encode()).hexdigest()
        step += 1
        told.wait(asked.step_s)
        if step % asked.every == 0 or told.is_set():
            save(asked.folder / f"checkpoint-{step}", step, state, asked.bytes, told)
            print(f"step {step}", flush=True)
            found.append(asked.folder / f"checkpoint-{step}")
            while asked.keep and len(found) > asked.keep:
                shutil.rmtree(found.pop(0), ignore_errors=True)
    if step == asked.steps:
        (asked.folder / "result.txt").write_text(state)
    sys.exit(asked.code)


if __name__ == "__main__":
    main()
