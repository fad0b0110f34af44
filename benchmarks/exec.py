"""What `gangline exec` costs a script: `python benchmarks/exec.py [upload] [memory] [intervals] [scan] [foreign]`.

upload      the rate of a training that saves 66 MB again and again: by itself, under `gangline exec`, and beside a watcher that zips each
            checkpoint and uploads the archive, as a published tool did; a real S3 server on this machine, in turns
memory      what the kernel counts that the script and `gangline exec` write to disk, without and with --in-memory
intervals   what saving costs by interval beside what an interruption costs, from what `upload` measures here and published figures
scan        how much of a core looking for results costs, by the number of files beside the checkpoints
foreign     how much of a core `gangline exec` takes beside 10,000 files that are not checkpoints, beside none, and while they are written
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import time
import tomllib
from tempfile import TemporaryDirectory
from uuid import uuid4

import httpx
from tests.servers import s3_server

from gangline.adapters.host.script.results import LocalResults
from gangline.adapters.objects.s3_wire import S3Bucket, Wire
from gangline.core.command.layout import Rules
from gangline.core.command.results import UploadPace
from gangline.core.runs.daly import best_interval_s, run_factor

CHECKPOINT_BYTES = 66_000_000
SALAD = tomllib.loads((Path(__file__).parents[1] / "src/gangline/sim/published/salad.toml").read_text())
SINGLE = SALAD["single_run"]
"""Published of one LoRA of 500 steps on an interruptible GPU, its checkpoints zipped and uploaded by a watcher."""
SCRIPT = """
import json, struct, sys, time, zipfile
from pathlib import Path
import torch
torch.set_num_threads(1)
out, seconds, every_s, size = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
weights = torch.randn(256, 256)
content = torch.randn(size // 4).numpy().tobytes()
header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
out.mkdir(exist_ok=True)
begin = time.perf_counter()
steps, saved, saving, due = 0, 0, 0.0, 0.5
while (now := time.perf_counter() - begin) < seconds:
    x = torch.randn(256, 256)
    for _ in range(20):
        x = torch.tanh(x @ weights)
    steps += 1
    if now >= due and now < seconds - every_s / 2:
        before = time.perf_counter()
        place = out / f"checkpoint-{steps}"
        place.mkdir()
        (place / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + content)
        for name in ("optimizer.pt", "rng_state.pth"):
            with zipfile.ZipFile(place / name, "w") as file:
                file.writestr("state", "x")
        (place / "trainer_state.json").write_text(json.dumps({"global_step": steps}))
        saving += time.perf_counter() - before
        saved, due = saved + 1, due + every_s
print(json.dumps({"rate": steps / (seconds - saving), "saved": saved, "save_s": saving / max(1, saved)}), flush=True)
"""
WATCHER = "watcher"
EXEC = {"gangline exec": [], "gangline exec --in-memory": ["--in-memory"]}


def watch(folder: Path, bucket: S3Bucket, stop: Path) -> None:
    """As the published tool: a folder that is there and grows no more is zipped, and the archive goes up in one piece."""
    wire, done, sizes = Wire(bucket), set[str](), dict[str, int]()
    client = httpx.Client(timeout=120)
    while not stop.exists():
        for place in sorted(folder.glob("checkpoint-*")):
            size = sum(path.stat().st_size for path in place.iterdir())
            if place.name not in done and sizes.get(place.name) == size:
                archive = Path(shutil.make_archive(str(stop.parent / place.name), "zip", place))
                url = wire.sign("PUT", f"{place.name}.zip", now_ms=wire.now_ms(), seconds=600)
                with archive.open("rb") as content:
                    client.put(
                        url, content=content, headers={"Content-Length": str(archive.stat().st_size)}
                    ).raise_for_status()
                print(f"{place.name} is safe {archive.stat().st_size}", flush=True)
                archive.unlink()
                done.add(place.name)
            sizes[place.name] = size
        time.sleep(1)  # noqa: TID251 - it is what it did


def turn(how: str, bucket: S3Bucket, seconds: float, every_s: float) -> dict[str, float]:
    """What the script says of its rate; `sent` is how many checkpoints arrived while it ran or right after, `written` the megabytes that
    went to disk."""
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": bucket.credentials.access_key or "",
        "AWS_SECRET_ACCESS_KEY": bucket.credentials.secret_key or "",
        "AWS_ENDPOINT_URL": bucket.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "OMP_NUM_THREADS": "1",
    }
    with TemporaryDirectory() as home:
        script = [sys.executable, "-c", SCRIPT, "out", str(seconds), str(every_s), str(CHECKPOINT_BYTES)]
        watcher = None
        if how in EXEC:
            to = f"s3://{bucket.name}/{uuid4().hex}"
            script = [
                sys.executable,
                "-m",
                "gangline.cli.main",
                "exec",
                *EXEC[how],
                "--checkpoints",
                "out",
                "--to",
                to,
                "--",
                *script,
            ]
        elif how == "zip and upload":
            (Path(home) / "out").mkdir()
            command = [sys.executable, __file__, WATCHER, f"{home}/out", f"{home}/stop", bucket.endpoint, uuid4().hex]
            watcher = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock
        ran = subprocess.run(script, cwd=home, env=environment, check=True, capture_output=True, text=True)
        written = 512 * (resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock - before)
        said = ran.stderr
        if watcher:
            (Path(home) / "stop").touch()
            said = watcher.communicate()[0]
        found = next(json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{"))
        return found | {"sent": float(len(re.findall("is safe", said))), "written": written / 1e6}


def upload(rounds: int, seconds: float, every_s: float) -> float:
    """How long a save holds the training up."""
    ways = ("alone", "gangline exec", "zip and upload")
    rates = {way: list[float]() for way in ways}
    lost = {way: list[float]() for way in ways}
    sent = dict.fromkeys(ways, 0.0)
    save_s = list[float]()
    with TemporaryDirectory() as folder, s3_server(Path(folder)) as bucket:
        for number in range(rounds):
            found = {way: turn(way, bucket, seconds, every_s) for way in (ways if number % 2 else ways[::-1])}
            for way, told in found.items():
                rates[way].append(told["rate"])
                lost[way].append((1 - told["rate"] / found["alone"]["rate"]) * seconds / told["saved"])
                sent[way] += told["sent"]
                save_s.append(told["save_s"])
    print(f"\n{rounds} rounds of {seconds:.0f} s, {CHECKPOINT_BYTES / 1e6:.0f} MB every {every_s:.0f} s")
    print(f"{'':16} {'steps/s':>9} {'slowest':>9} {'s lost a checkpoint':>20} {'of one each 73 s':>18} {'sent':>6}")
    for way in ways:
        mean_s = statistics.mean(lost[way])
        band = f"{mean_s:.3f} ({min(lost[way]):.2f} to {max(lost[way]):.2f})"
        print(
            f"{way:16} {statistics.mean(rates[way]):9.2f} {min(rates[way]):9.2f} {band:>20} "
            f"{mean_s / SINGLE['seconds_lost_max']:17.2%} {sent[way]:6.0f}"
        )
    print(f"a save itself takes {statistics.median(save_s):.3f} s of the training")
    return statistics.median(save_s)


def memory(seconds: float, every_s: float) -> None:
    with TemporaryDirectory() as folder, s3_server(Path(folder)) as bucket:
        print(f"\n{'':26} {'saved':>6} {'safe':>6} {'a save':>9} {'written to disk':>16}")
        for way in EXEC:
            told = turn(way, bucket, seconds, every_s)
            print(
                f"{way:26} {told['saved']:6.0f} {told['sent']:6.0f} {told['save_s']:7.3f} s {told['written']:13,.1f} MB"
            )


def intervals(save_s: float) -> None:
    """Of a GPU at the published price, interrupted as the published fleet is, on a home line and on a data centre's."""
    price = SINGLE["node_usd_per_hour"]
    per_hour = SALAD["fleet"]["reallocations_per_hour_per_100_nodes"] / 100
    between_s = 3600 / per_hour
    print(
        f"\na save of {save_s:.2f} s, {CHECKPOINT_BYTES / 1e6:.0f} MB; ${price}/h; an interruption each {between_s / 3600:.0f} h of a node"
    )
    print(
        f"{'every':>8} {'saving':>8} {'lost by one, 1 Gbit/s':>22} {'20 Mbit/s':>16} {'sent an hour':>13} {'all of it':>10}"
    )
    best_s = best_interval_s(between_s, save_s)
    for every_s in (15, 30, 73, 150, 300, 600, round(best_s)):
        fast, slow = (lost_s(every_s, CHECKPOINT_BYTES * 8 / rate) for rate in (1e9, 20e6))
        whole = run_factor(every_s, between_s=between_s, checkpoint_s=save_s, restart_s=60.0) - 1
        sent = CHECKPOINT_BYTES * 3600 / every_s / 1e9
        print(
            f"{every_s:6.0f} s {save_s / every_s:8.2%} {fast:8.0f} s ${fast * price / 3600:.5f} "
            f"{slow:8.0f} s ${slow * price / 3600:.5f} {sent:10.1f} GB {whole:10.2%}"
        )
    print(
        f"the best interval (Daly 2006) is {best_s:.0f} s, where each hour brings one {best_interval_s(3600.0, save_s):.0f} s; "
        f"published: {SINGLE['steps_lost_max']} steps, {SINGLE['seconds_lost_max']} s lost"
    )
    all_mb = SINGLE["steps"] // SINGLE["checkpoint_every_steps"] * CHECKPOINT_BYTES / 1e6
    two_mb = 2 * CHECKPOINT_BYTES / 1e6
    published_mb = SINGLE["storage_mb_total"]
    print(
        f"stored for {SINGLE['steps']} steps: published {published_mb} MB; all of them {all_mb:.0f}, two {two_mb:.0f}"
    )


def lost_s(every_s: float, upload_s: float) -> float:
    """On average, of an interruption: half an interval, and what was still on its way; not more often than the line carries."""
    return max(every_s, upload_s) / 2 + upload_s


def scan(rounds: int) -> None:
    """The processor time of a scan that finds nothing new, and its share of a core at the pace that it sets itself."""
    print(f"\n{'files':>8} {'a scan':>10} {'every':>8} {'of a core':>10}")
    for count in (100, 1_000, 10_000):
        with TemporaryDirectory() as below:
            folder, state = Path(below) / "samples", Path(below, ".state")
            folder.mkdir()
            state.mkdir()
            for number in range(count):
                (folder / f"{number:06d}.png").write_bytes(b"x")
            files = LocalResults(Path(below), state, Rules(), (), lambda path: False)
            took = list[float]()
            for _ in range(rounds):
                before = time.process_time()
                assert len(files.scan()) == count
                took.append(time.process_time() - before)
        took_s = statistics.median(took)
        every_s = UploadPace().pause_s(took_s)
        print(f"{count:8,} {took_s * 1000:7.1f} ms {every_s:6.1f} s {took_s / (took_s + every_s):10.2%}")


WRITER = """
import sys, time
from pathlib import Path
below, rate, stop = Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
begin, count = time.monotonic(), 0
while not stop.exists():
    while count < (time.monotonic() - begin) * rate:
        (below / f"new-{count:07d}.png").write_bytes(b"x")
        count += 1
    time.sleep(0.05)
"""


def foreign(seconds: float) -> None:
    """The processor time of the process, once it has sent what lay there; its command is another process, and does not count."""
    print(f"\n{'files':>8} {'where':>14} {'written a second':>18} {'of a core':>10} {'a file':>10}")
    for count, where, rate in (
        (0, ".", 0.0),
        (10_000, ".", 0.0),
        (10_000, "samples", 0.0),
        (10_000, "epoch_1", 0.0),
        (10_000, "checkpoint-1", 0.0),
        (10_000, ".", 20.0),
        (10_000, ".", 100.0),
    ):
        used_s = _foreign(count, where, rate, seconds)
        each = f"{used_s / seconds / rate * 1000:7.2f} ms" if rate else ""
        print(f"{count:8,} {where:>14} {rate:18.0f} {used_s / seconds:10.2%} {each:>10}", flush=True)


def _foreign(count: int, where: str, rate: float, seconds: float) -> float:
    with TemporaryDirectory() as home:
        below, stop = Path(home, "out", where), Path(home, "stop")
        below.mkdir(parents=True)
        for number in range(count):
            (below / f"{number:06d}.png").write_bytes(b"x")
        words = [sys.executable, "-m", "gangline.cli.main", "exec", "--checkpoints", "out", "--to", "store", "--"]
        process = subprocess.Popen(
            [*words, sys.executable, "-c", WRITER, str(below), str(rate), str(stop)],
            cwd=home,
            stderr=subprocess.DEVNULL,
        )
        sent, waited_s, wanted = (
            Path(home, "store", "runs", "000001", "output"),
            0,
            0 if where == "checkpoint-1" else count,
        )
        while waited_s < 15 or (waited_s < 900 and sum(1 for _ in sent.rglob("*.png")) < wanted):
            time.sleep(5)  # noqa: TID251 - of what happens meanwhile only its end counts
            waited_s += 5
        before = _used_s(process.pid)
        time.sleep(seconds)  # noqa: TID251 - what is measured is what that long costs
        used_s = _used_s(process.pid) - before
        stop.touch()
        process.wait()
    return used_s


def _used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["upload", "intervals"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=33.0)
    parser.add_argument("--every-s", type=float, default=5.0)
    parser.add_argument(
        "--save-s", type=float, default=0.3, help="what a save holds up, where `upload` did not measure it"
    )
    if sys.argv[1:2] == [WATCHER]:
        from dataclasses import replace

        from botocore.credentials import Credentials
        from tests.servers import ACCESS_KEY, BUCKET, SECRET_KEY

        folder, stop, endpoint, prefix = sys.argv[2:]
        bucket = S3Bucket(name=BUCKET, endpoint=endpoint, credentials=Credentials(ACCESS_KEY, SECRET_KEY))
        watch(Path(folder), replace(bucket, prefix=prefix), Path(stop))
        return
    asked = parser.parse_args()
    save_s = asked.save_s
    if "upload" in asked.parts:
        save_s = upload(asked.rounds, asked.seconds, asked.every_s)
    if "memory" in asked.parts:
        memory(asked.seconds, asked.every_s)
    if "intervals" in asked.parts:
        intervals(save_s)
    if "foreign" in asked.parts:
        foreign(asked.seconds)
    if "scan" in asked.parts:
        scan(asked.rounds)


if __name__ == "__main__":
    main()
