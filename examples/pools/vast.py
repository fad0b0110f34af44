#!/usr/bin/env python3
"""Rent nodes from Vast with its own CLI, vastai: programs for a pool of the driver `command`.

Copy this file, change the settings below, and name it in the server's settings, with VAST_API_KEY in the pool's `environment`.
docs/pools/command.md shows how. Each program is this file with a word: offers, start, stop, list or logs.

vastai takes an instance's environment as an argument. While it runs, users of the server's machine can see the node's join token with `ps`.
"""

import json
import re
import subprocess
import sys
import time
from typing import Any, NoReturn

# Settings

QUERY = "gpu_name in [RTX_4090,RTX_3090] num_gpus=1 reliability>0.98 disk_space>=60 inet_down>=200 cuda_vers>=12.8"
"""What to rent, as `vastai search offers` takes it."""
BID: float | None = None
"""None rents on demand. A number bids that many times the lowest bid: cheaper, and stopped as soon as somebody bids more."""
OFFERS_MAX = 20
"""The cheapest offers are shown, up to this number."""
TRUST = 0
IMAGE = "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"
DISK_GB = 60

# End of the settings

NO_CAPACITY, DENIED, MISCONFIGURED = 75, 77, 78
TIMEOUT_S = 50
PREFIX = "gangline-"
"""Instances whose labels begin with this and the id of the pool belong to the pool."""
DELETING_S = 5  # a list begins no deletion later than this, as one may take most of `timeout_s`
WORKER = """
if command -v curl >/dev/null; then curl -fsSL "$GANGLINE_SERVER/worker.sh"
else python3 -c 'import os, urllib.request as web; print(web.urlopen(os.environ["GANGLINE_SERVER"] + "/worker.sh").read().decode())'
fi | sh
"""


def offers() -> list[dict[str, Any]]:
    kind = "on-demand" if BID is None else "bid"
    words = (
        "search",
        "offers",
        QUERY,
        "--type",
        kind,
        "--order",
        "dph",
        "--limit",
        str(OFFERS_MAX),
        "--storage",
        str(DISK_GB),
    )
    return [offered(row) for row in vastai(*words)]


def offered(row: dict[str, Any]) -> dict[str, Any]:
    """Return a machine as an offer. The bid is part of its id, since `start` gets no more than that."""
    price = row["dph_total"] if BID is None else round(row["min_bid"] * BID, 4)
    return {
        "id": str(row["id"]) if BID is None else f"{row['id']}@{price}",
        "gpu": gpu_name(row["gpu_name"]),
        "gpu_memory_gb": row["gpu_ram"] / 1024,
        "slots": row["num_gpus"],
        "trust": TRUST,
        "price_usd_per_hour": price,
    }


def gpu_name(name: str) -> str:
    """Return the name that the driver reports on such a machine, as far as it follows from Vast's."""
    return (
        f"NVIDIA GeForce {name}" if name.startswith(("RTX 2", "RTX 3", "RTX 4", "RTX 5", "GTX")) else f"NVIDIA {name}"
    )


def start(pool: str, offer: str, name: str, environment: dict[str, str]) -> None:
    label = prefix(pool) + name
    if any(instance["label"] == label for instance in instances(pool)):
        return
    machine, _, bid = offer.partition("@")
    if not machine.isdecimal():
        fail(NO_CAPACITY, f"Vast has no offer {offer}")
    variables = " ".join(f"-e {key}={value}" for key, value in environment.items())
    answer = vastai(
        *("create", "instance", machine, "--image", IMAGE, "--disk", str(DISK_GB), "--label", label),
        *("--env", variables, "--cancel-unavail", *(["--bid_price", bid] if bid else [])),
        *("--raw", "--entrypoint", "bash", "--args", "-c", WORKER.strip()),  # all after --args is the container's
    )
    if not answer.get("success"):
        fail(1, f"Vast answered {one_line(json.dumps(answer))}")


def stop(instance: str) -> None:
    vastai("destroy", "instance", instance, answers=False)


def listing(pool: str) -> list[dict[str, Any]]:
    """List the instances. One that was stopped, as when it is outbid, is destroyed, since its disk would cost on. If that fails, it is listed
    as one that runs: the server then stops it, and shows why that fails."""
    began_s, shown = time.monotonic(), list[dict[str, Any]]()
    for instance in instances(pool):
        each = listed(instance, prefix(pool))
        if was_stopped(instance) and time.monotonic() - began_s < DELETING_S:
            try:
                stop(str(instance["id"]))
            except SystemExit:
                each["progress"] = f"{each.pop('ended')}, and it cannot be destroyed"[:500]
        shown.append(each)
    return shown


def was_stopped(instance: dict[str, Any]) -> bool:
    return instance.get("actual_status") == "exited" or instance.get("intended_status") == "stopped"


def listed(instance: dict[str, Any], before: str) -> dict[str, Any]:
    """Return an instance for the list. `before` stands before the node's name in its label."""
    status, said = instance.get("actual_status") or "created", (instance.get("status_msg") or "").strip()
    shown: dict[str, Any] = {
        "id": str(instance["id"]),
        "name": instance["label"].removeprefix(before),
        "billed_from_ms": round(instance["start_date"] * 1000) if instance.get("start_date") else None,
    }
    if was_stopped(instance):
        return shown | {"ended": f"Vast stopped it{': ' * bool(said)}{one_line(said)}"}
    return shown if status == "running" else shown | {"progress": one_line(f"{status} {said}")}


def one_line(text: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())[:500]


def instances(pool: str) -> list[dict[str, Any]]:
    return [each for each in vastai("show", "instances") if (each.get("label") or "").startswith(prefix(pool))]


def prefix(pool: str) -> str:
    """Return how the labels of a pool's instances begin: the id of a pool is no other pool's, on any server."""
    return f"{PREFIX}{pool}-"


def logs(instance: str) -> None:
    print(run("logs", instance, "--tail", "200").stdout)


def vastai(*words: str, answers: bool = True) -> Any:
    """Run vastai, and return what it printed. Exit with what its failure means: it prints errors to stderr, and exits with 0 all the same."""
    ran = run(*words, *(() if "--raw" in words else ("--raw",)))
    because = reason(ran.stderr)
    if not because:
        try:
            return json.loads(ran.stdout) if answers else None
        except ValueError:
            because = f"vastai ended with exit code {ran.returncode} and printed no JSON"
    if not answers and re.search(r"\b404\b|no_such_instance|not found", because, re.IGNORECASE):
        return None  # it is gone
    if re.search(r"no_such_ask|not available|unavailable|lacks credit|insufficient", because, re.IGNORECASE):
        fail(NO_CAPACITY, because)
    if re.search(r"\b40[13]\b|log in|api key", because, re.IGNORECASE):
        fail(DENIED, because)
    fail(1, because)


def reason(errors: str) -> str:
    """Return the error that vastai printed: an object, and with some versions a line. Other lines are hints, as of an upgrade."""
    lines = errors.strip().splitlines()
    for line in lines:
        try:
            said = json.loads(line)
            return f"error {said['status_code']}: {said['msg']}"
        except (ValueError, TypeError, KeyError):
            continue
    return lines[-1] if re.search("error|traceback", errors, re.IGNORECASE) else ""


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            ["vastai", *words],
            check=False,
            capture_output=True,
            text=True,
            input="y\n",  # some versions ask before they destroy
            timeout=TIMEOUT_S,
        )
    except FileNotFoundError:
        fail(MISCONFIGURED, "vastai is not installed in PATH")
    except subprocess.TimeoutExpired:
        fail(1, f"vastai did not answer within {TIMEOUT_S} s")


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
