"""A trainer of somebody else's: gradient descent with momentum on one tensor. It keeps the contract and knows nothing of Gangline's.

spec.json: `steps`, `step_s`; and what it does wrong: `forgets` ("optimizer", "everything", or nothing), `saves_torn`, `ignores_sigterm`.
"""

import hashlib
import json
import signal
import sys
import threading
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

RUN = Path(sys.argv[1])
SPEC = {"steps": 60, "step_s": 0.01, "forgets": "", "saves_torn": False, "ignores_sigterm": False}
SPEC |= json.loads((RUN / "spec.json").read_text())
STATE = "state.safetensors"
stop, save_now = threading.Event(), threading.Event()


def report(step: int) -> None:
    line = {"phase": "training", "step": step, "steps": SPEC["steps"], "loss": 0.5, "seconds_per_step": SPEC["step_s"]}
    with (RUN / "progress.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def save(step: int, weights: np.ndarray, momentum: np.ndarray) -> None:
    folder = RUN / "checkpoints" / f"{step:06d}"
    folder.mkdir(parents=True)
    save_file({"weights": weights, "momentum": momentum}, folder / STATE)
    content = (folder / STATE).read_bytes()
    file = {"path": STATE, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest = {"step": step, "spec_hash": "0" * 64, "fingerprint": {}, "exact": True, "files": [file]}
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    manifest["digest"] = hashlib.sha256(text.encode()).hexdigest()
    if SPEC["saves_torn"]:
        (folder / STATE).write_bytes(content[:-1])
    (folder / ".manifest").write_text(json.dumps(manifest))
    (folder / ".manifest").rename(folder / "manifest.json")


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: None if SPEC["ignores_sigterm"] else stop.set())
    signal.signal(signal.SIGUSR1, lambda *_: save_now.set())
    first, weights, momentum = 0, np.ones(8), np.zeros(8)
    for checkpoint in sorted((RUN / "resume").glob("*/manifest.json")):
        if SPEC["forgets"] != "everything":
            state = load_file(checkpoint.parent / STATE)
            first, weights = json.loads(checkpoint.read_text())["step"], state["weights"]
            momentum = np.zeros(8) if SPEC["forgets"] == "optimizer" else state["momentum"]
    report(first)
    for step in range(first + 1, SPEC["steps"] + 1):
        threading.Event().wait(SPEC["step_s"])
        momentum = 0.9 * momentum + np.sin(weights + step)
        weights = weights - 0.01 * momentum
        report(step)
        if stop.is_set() or save_now.is_set():
            save_now.clear()
            save(step, weights, momentum)
        if stop.is_set():
            return 75
    (RUN / "output").mkdir()
    save_file({"weights": weights}, RUN / "output" / "weights.safetensors")
    (RUN / "output" / "made-in.txt").write_text(str(RUN))
    return 0


sys.exit(main())
