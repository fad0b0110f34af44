"""A script with kohya's habit: at each epoch a model and a picture beside the state, which it needs to go on.

epochs.py FOLDER EPOCHS [--pause-at N] [--resume STATE]

At the epoch `--pause-at` it says so and waits for whatever ends it. All the while it writes a log that stays open.
"""

import argparse
import json
import struct
import time
import zipfile
from pathlib import Path
from threading import Event


def model_of(epoch: int) -> bytes:
    body = bytes([epoch]) * 50_000
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(body)], "data_offsets": [0, len(body)]}}).encode()
    return struct.pack("<Q", len(header)) + header + body


def picture_of(epoch: int) -> bytes:
    return b"\x89PNG" + bytes([epoch]) * 9_000


def save_state(place: Path, epoch: int) -> None:
    place.mkdir(parents=True)
    (place / "model.safetensors").write_bytes(model_of(epoch))
    for name in ("optimizer.bin", "random_states_0.pkl"):
        with zipfile.ZipFile(place / name, "w") as file:
            file.writestr("state", str(epoch))
    (place / "train_state.json").write_text(json.dumps({"current_epoch": epoch, "current_step": epoch * 10}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("epochs", type=int)
    parser.add_argument("--pause-at", type=int)
    parser.add_argument("--resume", type=Path)
    asked = parser.parse_args()
    (asked.folder / "sample").mkdir(parents=True, exist_ok=True)
    done = json.loads((asked.resume / "train_state.json").read_text())["current_epoch"] if asked.resume else 0
    print(f"from epoch {done}", flush=True)
    with (asked.folder / f"events.{time.time_ns()}").open("w") as events:
        for epoch in range(done + 1, asked.epochs + 1):
            print(f"epoch {epoch}", file=events, flush=True)
            (asked.folder / f"timber-{epoch:06d}.safetensors").write_bytes(model_of(epoch))
            (asked.folder / "sample" / f"{epoch:06d}.png").write_bytes(picture_of(epoch))
            save_state(asked.folder / f"timber-{epoch:06d}-state", epoch)
            if epoch == asked.pause_at:
                print("paused", flush=True)
                Event().wait()


if __name__ == "__main__":
    main()
