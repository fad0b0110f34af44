"""A full disk of the folder store is a 503 that says so; what was half written goes at once, and all goes on when there is room."""

import os
import sys
from pathlib import Path

from tests.disks import run_on_a_disk_of

SCRIPT = """
import hashlib, sys
from pathlib import Path
from gangline.adapters.objects.local import LocalObjects
from tests.service.conftest import JOIN, a_service
disk, folder = Path(sys.argv[1]), Path(sys.argv[2])
objects = LocalObjects(disk, "secret")
with a_service(folder, str(folder / "db.sqlite"), objects) as service:
    service.submit()
    token = service.ask("POST", "/v1/nodes", JOIN, json={"machine": "m", "name": "m"}).json()["token"]
    hold = service.ask("POST", "/v1/claims", token).json()["hold"]
    content = b"x" * 300_000
    signed = objects.sign_put(
        "a", bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), now_ms=service.now_ms, seconds=60
    )
    path = f"/v1/attempts/{hold['attempt']}/logs?fencing={hold['fencing']}"
    def send():
        yield service.send("PUT", signed, content)
        yield service.ask("POST", path, token, json={"first_byte": 0, "text": "y" * 250_000})
    for answer in send():
        print(answer.status_code, answer.text)
    print("left", len(list((disk / "incoming").iterdir())))
    filler = disk / "filler"
    filler.unlink()
    for answer in send():
        print(answer.status_code)
    print("read", len(objects.read("a")))
"""


def test_a_full_disk_is_a_503_with_a_hint_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    disk, folder = tmp_path / "disk", tmp_path / "folder"
    disk.mkdir()
    folder.mkdir()
    script = f"import pathlib; pathlib.Path({str(disk / 'filler')!r}).write_bytes(bytes(1_350_000))\n{SCRIPT}"
    path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    ran = run_on_a_disk_of("1500k", disk, sys.executable, "-c", script, disk, folder, PYTHONPATH=path)
    put, log, left, *later = ran.stdout.splitlines()
    for answer in (put, log):
        assert answer.startswith("503 ") and "No space left on device" in answer and "hint" in answer, ran.stderr
    assert left == "left 0"
    assert later == ["201", "200", "read 300000"]
