"""How many cores a process may use: those that it is bound to, as far as its container's share goes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.posix import cgroup_limits, cores


def test_a_process_that_is_bound_to_one_core_has_one() -> None:
    core = min(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, {{{core}}}); from gangline.posix import cores; print(cores())"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "1\n"
    assert 1 <= cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("own", "files", "limits"),
    [
        ("0::/", {"cpu.max": "250000 100000"}, [3]),
        ("0::/", {"cpu.max": "max 100000"}, []),
        ("0::/", {}, []),
        ("0::/pods/mine", {"pods/mine/cpu.max": "max 100000", "pods/cpu.max": "400000 100000"}, [4]),
        ("0::/pods/mine", {"pods/mine/cpu.max": "100000 100000", "pods/cpu.max": "400000 100000"}, [1, 4]),
        ("0::/as-the-host-sees-it", {"cpu.max": "50000 100000"}, [1]),
        ("1:name=systemd:/x\n0::/", {"cpu.max": "200000 100000"}, [2]),
        ("3:cpu,cpuacct:/x", {"cpu/x/cpu.cfs_quota_us": "150000", "cpu/x/cpu.cfs_period_us": "100000"}, [2]),
        ("3:cpu,cpuacct:/x", {"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"}, []),
        ("4:cpuset:/x", {"cpu/x/cpu.cfs_quota_us": "150000", "cpu/x/cpu.cfs_period_us": "100000"}, []),
    ],
)
def test_each_cgroup_around_a_process_may_limit_it(
    tmp_path: Path, own: str, files: dict[str, str], limits: list[int]
) -> None:
    (tmp_path / "own").write_text(f"{own}\n")
    for name, content in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(f"{content}\n")
    assert list(cgroup_limits(tmp_path / "own", tmp_path / "root")) == limits
