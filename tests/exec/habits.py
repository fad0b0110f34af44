"""Scripts of somebody's with habits of their own; each ends with 3 where what it finds is torn.

    habits.py HABIT FOLDER STEPS [--every N] [--step-s S] [--between-s S]

| habit     | a save writes                                                    | it goes on from                       |
|-----------|------------------------------------------------------------------|---------------------------------------|
| `inplace` | `last-state/`, over the one before: weights, moments, chance      | that                                  |
| `late`    | `checkpoint-N/`, and `ema.pt` after a pause                       | the newest, which must have its `ema` |
| `plain`   | `ckpt_N.pt`                                                       | the newest by number                  |
| `latest`  | `latest.pt`, over the one before                                  | that                                  |
| `pairs`   | `model_N.pt`, then `optim_N.pt`                                   | the newest pair by number             |
| `toolkit` | `dog_00000000N.safetensors`, then `optimizer.pt` over the one before | the newest weights by ctime        |
| `shards`  | `step-N/__0_0.distcp`, then `.metadata`                           | the newest by number                  |
| `trainer` | `run-backup-N-1-1/`: weights, moments, then its settings          | the newest by number                  |
| `odd`     | `net/weights.dat` and `net/state.pkl`, over those before          | those                                 |

Each save has a picture beside it, `pictures/N.png`. `--between-s` is the pause between the files of a save. A step's state is a hash of
the one before (tests.exec.chain).
"""

import argparse
import hashlib
import io
import json
import re
import struct
import sys
import zipfile
from pathlib import Path
from threading import Event

STEPS = re.compile(r"\d+")


def tensors(path: Path, state: str) -> None:
    body = state.encode()
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(body)], "data_offsets": [0, len(body)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + body)


def zipped(path: Path, state: str) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("state", state)


def pickled(path: Path, state: str) -> None:
    """With the first and the last byte of a pickle; nothing more is looked at."""
    path.write_bytes(b"\x80" + state.encode() + b".")


WRITE = {".safetensors": tensors, ".bin": zipped, ".pt": zipped, ".pkl": pickled}


def read(name: str, content: bytes) -> str:
    if name.endswith(".safetensors"):
        return content[8 + struct.unpack("<Q", content[:8])[0] :].decode()
    if name.endswith(".json"):
        return json.loads(content)
    if content[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            return file.read("state").decode()
    return content.removeprefix(b"\x80").removesuffix(b".").decode()


def picture_of(step: int) -> str:
    return f"a picture of step {step}"


def state_of(step: int, digest: str) -> str:
    return f"{step} {digest}"


class Habit:
    """`files`: those of a save in the order in which they are written, and how."""

    def __init__(self, folder: Path, between_s: float) -> None:
        self.folder = folder
        self.between_s = between_s
        self.never = Event()

    def files(self, step: int) -> dict[str, object]:
        raise NotImplementedError

    def found(self) -> list[Path]:
        """The files to go on from."""
        raise NotImplementedError

    def save(self, step: int, digest: str) -> None:
        for number, (path, write) in enumerate(self.files(step).items()):
            if number:
                self.never.wait(self.between_s)
            place = self.folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            write(place, state_of(step, digest))  # type: ignore[operator]

    def load(self) -> tuple[int, str]:
        states = {path.name: read(path.name, path.read_bytes()) for path in self.found()}
        if len(set(states.values())) > 1:
            print("TORN", states, flush=True)
            sys.exit(3)
        step, digest = next(iter(states.values()), "0 begin").split()
        return int(step), digest

    def newest(self, pattern: str) -> Path | None:
        found = sorted(self.folder.glob(pattern), key=lambda path: int(STEPS.findall(path.name)[0]))
        return found[-1] if found else None

    def inside(self, pattern: str) -> list[Path]:
        newest = self.newest(pattern)
        return [path for path in newest.iterdir() if path.is_file()] if newest else []


class InPlace(Habit):
    def files(self, step: int) -> dict[str, object]:
        names = {"model.safetensors": tensors, "optimizer.bin": zipped, "random_states_0.pkl": pickled}
        return {f"last-state/{name}": write for name, write in names.items()}

    def found(self) -> list[Path]:
        return sorted((self.folder / "last-state").glob("*"))


class Late(Habit):
    def files(self, step: int) -> dict[str, object]:
        return {f"checkpoint-{step}/ema.pt": zipped}

    def save(self, step: int, digest: str) -> None:
        for name, write in {
            "model.safetensors": tensors,
            "optimizer.bin": zipped,
            "random_states_0.pkl": pickled,
        }.items():
            place = self.folder / f"checkpoint-{step}" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            write(place, state_of(step, digest))
        self.never.wait(self.between_s)
        super().save(step, digest)

    def found(self) -> list[Path]:
        files = self.inside("checkpoint-*")
        if files and not any(path.name == "ema.pt" for path in files):
            print("no ema.pt", flush=True)
            sys.exit(3)
        return files


class Plain(Habit):
    def files(self, step: int) -> dict[str, object]:
        return {f"ckpt_{step}.pt": zipped}

    def found(self) -> list[Path]:
        return [path for path in [self.newest("ckpt_*.pt")] if path]


class Latest(Habit):
    def files(self, step: int) -> dict[str, object]:
        return {"latest.pt": zipped}

    def found(self) -> list[Path]:
        return list(self.folder.glob("latest.pt"))


class Pairs(Habit):
    def files(self, step: int) -> dict[str, object]:
        return {f"model_{step}.pt": zipped, f"optim_{step}.pt": zipped}

    def found(self) -> list[Path]:
        model = self.newest("model_*.pt")
        return [] if model is None else [model, model.with_name(model.name.replace("model", "optim"))]


class Toolkit(Habit):
    def files(self, step: int) -> dict[str, object]:
        return {f"dog_{step:09d}.safetensors": tensors, "optimizer.pt": zipped}

    def found(self) -> list[Path]:
        weights = max(self.folder.glob("dog_*.safetensors"), key=lambda path: path.stat().st_ctime_ns, default=None)
        return [] if weights is None else [weights, self.folder / "optimizer.pt"]


class Shards(Habit):
    def files(self, step: int) -> dict[str, object]:
        return {f"step-{step}/{name}": pickled for name in ("__0_0.distcp", "__1_0.distcp", ".metadata")}

    def found(self) -> list[Path]:
        return self.inside("step-*")


class Trainer(Habit):
    def files(self, step: int) -> dict[str, object]:
        names = {"unet.safetensors": tensors, "optimizer/optimizer.pt": zipped}
        settings = ("args", "concepts", "samples")
        return {f"run-backup-{step}-1-1/{name}": write for name, write in names.items()} | {
            f"run-backup-{step}-1-1/onetrainer_config/{name}.json": lambda path, state: path.write_text(
                json.dumps(state)
            )
            for name in settings
        }

    def found(self) -> list[Path]:
        newest = self.newest("run-backup-*")
        return [] if newest is None else [newest / "unet.safetensors", newest / "optimizer/optimizer.pt"]


class Odd(Habit):
    def files(self, step: int) -> dict[str, object]:
        return {"net/weights.dat": lambda path, state: path.write_text(state), "net/state.pkl": pickled}

    def found(self) -> list[Path]:
        return sorted((self.folder / "net").glob("*"))


HABITS: dict[str, type[Habit]] = {
    "inplace": InPlace,
    "late": Late,
    "plain": Plain,
    "latest": Latest,
    "pairs": Pairs,
    "toolkit": Toolkit,
    "shards": Shards,
    "trainer": Trainer,
    "odd": Odd,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("habit", choices=HABITS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--between-s", type=float, default=0.0)
    asked = parser.parse_args()
    habit = HABITS[asked.habit](asked.folder, asked.between_s)
    asked.folder.mkdir(exist_ok=True)
    try:
        step, digest = habit.load()
    except Exception as error:
        print(f"cannot resume: {error!r}", flush=True)
        sys.exit(3)
    print(f"from {step}", flush=True)
    while step < asked.steps:
        digest = hashlib.sha256(f"{digest} {step}".encode()).hexdigest()
        step += 1
        habit.never.wait(asked.step_s)
        if step % asked.every == 0:
            print(f"saves {step}", flush=True)
            habit.save(step, digest)
            picture = asked.folder / "pictures" / f"{step}.png"
            picture.parent.mkdir(exist_ok=True)
            picture.write_text(picture_of(step))
            print(f"step {step}", flush=True)
    (asked.folder / "result.txt").write_text(digest)


if __name__ == "__main__":
    main()
