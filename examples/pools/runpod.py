#!/usr/bin/env python3
"""Rent nodes from RunPod with its own CLI, runpodctl 2: programs for a pool of the driver `command`.

Copy this file, change the settings below, and name it in the server's settings, with RUNPOD_API_KEY in the pool's `environment`.
docs/pools/command.md shows how. Each program is this file with a word: offers, start, stop, list or logs.

runpodctl takes a pod's environment as an argument. While it runs, users of the server's machine can see the node's join token with `ps`.
"""

import json
import re
import shlex
import subprocess
import sys
import time
from datetime import datetime
from typing import Any, NoReturn

# Settings

GPUS: dict[str, float | None] = {
    "NVIDIA GeForce RTX 4090": None,
    "NVIDIA L40S": None,
}
"""The GPU types to rent, by their ids in `runpodctl gpu list`, and what one costs an hour in US dollars. runpodctl prints no prices; with
None the price is unknown."""
GPU_COUNT = 1
CLOUD = "SECURE"
"""Or COMMUNITY: machines of private people. Give these a lower trust tier."""
TRUST = 0
IMAGE = "runpod/pytorch:1.0.3-cu1281-torch291-ubuntu2404"
DISK_GB = 60

# End of the settings

NO_CAPACITY, DENIED, MISCONFIGURED = 75, 77, 78
TIMEOUT_S = 50
PREFIX = "gangline-"
"""Pods whose names begin with this and the id of the pool belong to the pool."""
DELETING_S = 5  # a list begins no deletion later than this, as one may take most of `timeout_s`
WORKER = """
if command -v curl >/dev/null; then curl -fsSL "$GANGLINE_SERVER/worker.sh"
else python3 -c 'import os, urllib.request as web; print(web.urlopen(os.environ["GANGLINE_SERVER"] + "/worker.sh").read().decode())'
fi | sh
"""


def offers() -> list[dict[str, Any]]:
    return [
        {
            "id": gpu["gpuId"],
            "gpu": gpu["gpuId"],
            "gpu_memory_gb": gpu["memoryInGb"],
            "slots": GPU_COUNT,
            "trust": TRUST,
            "price_usd_per_hour": None if (price := GPUS[gpu["gpuId"]]) is None else price * GPU_COUNT,
        }
        for gpu in runpodctl("gpu", "list")
        if gpu["gpuId"] in GPUS and gpu.get("available", True) and gpu[f"{CLOUD.lower()}Cloud"]
    ]


def start(pool: str, offer: str, name: str, environment: dict[str, str]) -> None:
    if offer not in GPUS:
        fail(NO_CAPACITY, f"{offer} is not among the GPUs of this program")
    called = prefix(pool) + name
    if any(pod["name"] == called for pod in pods(pool)):
        return
    runpodctl(
        *("pod", "create", "--name", called, "--image", IMAGE, "--gpu-id", offer, "--gpu-count", str(GPU_COUNT)),
        *("--cloud-type", CLOUD, "--container-disk-in-gb", str(DISK_GB), "--env", json.dumps(environment)),
        *("--docker-args", shlex.join(["bash", "-c", WORKER.strip()])),
    )


def stop(pod: str) -> None:
    runpodctl("pod", "delete", pod, gone_is_fine=True)


def listing(pool: str) -> list[dict[str, Any]]:
    """List the pods. One that RunPod has stopped is deleted, since its disk would cost on. If that fails, it is listed as one that runs:
    the server then stops it, and shows why that fails."""
    began_s, shown = time.monotonic(), list[dict[str, Any]]()
    for pod in pods(pool):
        each = listed(pod, prefix(pool))
        if pod["desiredStatus"] == "EXITED" and time.monotonic() - began_s < DELETING_S:
            try:
                stop(pod["id"])
            except SystemExit:
                each["progress"] = f"{each.pop('ended')}, and it cannot be deleted"
        shown.append(each)
    return shown


def listed(pod: dict[str, Any], before: str) -> dict[str, Any]:
    """Return a pod for the list. `before` stands before the node's name in the pod's."""
    shown: dict[str, Any] = {
        "id": pod["id"],
        "name": pod["name"].removeprefix(before),
        "billed_from_ms": unix_ms(pod.get("createdAt")),
    }
    status = pod["desiredStatus"]
    if status == "RUNNING":
        return shown
    return shown | {"ended" if status in ("EXITED", "TERMINATED") else "progress": f"RunPod shows it as {status}"}


def logs(pod: str) -> None:
    for line in run("pod", "logs", pod, "--tail", "200").stdout.splitlines():
        try:
            print(json.loads(line)["line"])
        except (ValueError, TypeError, KeyError):
            print(line)


def pods(pool: str) -> list[dict[str, Any]]:
    return [pod for pod in runpodctl("pod", "list", "--all") or [] if pod["name"].startswith(prefix(pool))]


def prefix(pool: str) -> str:
    """Return how the names of a pool's pods begin: the id of a pool is no other pool's, on any server."""
    return f"{PREFIX}{pool}-"


def unix_ms(created: str | None) -> int | None:
    """Parse a time as one version of runpodctl prints it or another: RFC 3339, or Go's `2026-10-02 05:28:38.366 +0000 UTC`."""
    found = re.match(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)", created or "")
    return round(datetime.fromisoformat(f"{found[1]}T{found[2]}+00:00").timestamp() * 1000) if found else None


def runpodctl(*words: str, gone_is_fine: bool = False) -> Any:
    """Run runpodctl, and return what it printed. Exit with what its failure means."""
    ran = run(*words, "--output", "json")
    if ran.returncode == 0:
        return json.loads(ran.stdout) if ran.stdout.strip() else None
    because = reason(ran)
    if gone_is_fine and re.search(r"not found|\b404\b|does not exist", because, re.IGNORECASE):
        return None
    if re.search(
        r"no longer any instances|no instances|not have the resources|balance|spend limit", because, re.IGNORECASE
    ):
        fail(NO_CAPACITY, because)
    if re.search(r"unauthorized|forbidden|api key|\b40[13]\b", because, re.IGNORECASE):
        fail(DENIED, because)
    fail(1, because)


def reason(ran: "subprocess.CompletedProcess[str]") -> str:
    """Return why runpodctl failed: it prints an object, and some versions a line."""
    lines = (ran.stderr.strip() or ran.stdout.strip()).splitlines()
    for line in lines:
        try:
            return str(json.loads(line)["error"])
        except (ValueError, TypeError, KeyError):
            continue
    return lines[-1] if lines else f"runpodctl ended with exit code {ran.returncode}"


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            ["runpodctl", *words],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
        )
    except FileNotFoundError:
        fail(MISCONFIGURED, "runpodctl is not installed in PATH")
    except subprocess.TimeoutExpired:
        fail(1, f"runpodctl did not answer within {TIMEOUT_S} s")


def fail(code: int, because: str) -> NoReturn:
    print(because, file=sys.stderr)
    sys.exit(code)


def main() -> None:
    request = json.load(sys.stdin)
    match sys.argv[1:]:
        case ["offers"]:
            print(json.dumps(offers()))
        case ["start"]:
            start(request["pool"], request["offer"], request["name"], request["environment"])
        case ["stop"]:
            stop(request["id"])
        case ["list"]:
            print(json.dumps(listing(request["pool"])))
        case ["logs"]:
            logs(request["id"])
        case _:
            fail(MISCONFIGURED, "run this with one word: offers, start, stop, list or logs")


if __name__ == "__main__":
    main()
