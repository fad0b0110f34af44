"""Checkpoints lie in memory while two of them fit into a quarter of what is free."""

import os
import tempfile
from pathlib import Path

import pytest

from gangline.core.runs.in_memory import largest_in_memory, lies_in_memory, place_sentence
from gangline.posix import RunMemory, file_system_of, memory_cgroups, memory_free

GB = 10**9


@pytest.mark.parametrize(
    ("size", "held", "free", "fits"),
    [
        (1 * GB, 0, 8 * GB, True),
        (1 * GB, 0, 8 * GB - 4, False),
        (1 * GB, 1 * GB, 7 * GB, True),  # the one that is being uploaded, and this one
        (1 * GB, 2 * GB, 6 * GB, False),  # two wait for their upload: a third goes to disk
        (1 * GB, 2 * GB, 10 * GB, True),
        (0, 0, 0, True),
    ],
)
def test_two_checkpoints_fit_into_a_quarter_of_what_would_be_free_without_their_run(
    size: int, held: int, free: int, fits: bool
) -> None:
    assert lies_in_memory(size, held=held, free=free) is fits


def test_the_largest_checkpoint_that_is_promised_fits() -> None:
    assert lies_in_memory(largest_in_memory(10**10), held=0, free=10**10)
    assert not lies_in_memory(largest_in_memory(10**10) + 1, held=0, free=10**10)


def test_the_log_says_why_checkpoints_are_written_to_disk() -> None:
    said = place_sentence(2 * GB, held=2 * GB, free=6 * GB, fits=False)
    assert said == (
        "checkpoints are written to disk: 2 of 2.0 GB beside 2.0 GB that are kept there do not fit into a quarter of the 6.0 GB of "
        "memory that are free"
    )


@pytest.mark.parametrize(
    ("own", "files", "free"),
    [
        ("0::/", {"memory.max": "1000", "memory.current": "700", "memory.stat": "anon 1\ninactive_file 50"}, 350),
        ("0::/", {"memory.max": "max", "memory.current": "700", "memory.stat": ""}, None),
        ("0::/pod/mine", {"pod/memory.max": "1000", "pod/memory.current": "900", "pod/memory.stat": "x 1"}, 100),
        ("0::/", {"memory.max": "1000", "memory.current": "1200", "memory.stat": ""}, 0),
        (
            "4:memory:/mine",
            {
                "memory/mine/memory.limit_in_bytes": "1000",
                "memory/mine/memory.usage_in_bytes": "900",
                "memory/mine/memory.stat": "inactive_file 7\ntotal_inactive_file 30",
            },
            130,
        ),
        (
            "4:memory:/",
            {
                "memory/memory.limit_in_bytes": str(2**63 - 4096),
                "memory/memory.usage_in_bytes": "900",
                "memory/memory.stat": "",
            },
            None,
        ),
    ],
)
def test_a_cgroup_leaves_what_its_limit_and_its_page_cache_leave(
    tmp_path: Path, own: str, files: dict[str, str], free: int | None
) -> None:
    (tmp_path / "own").write_text(f"{own}\n")
    for name, content in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(content)
    found = memory_cgroups(tmp_path / "own", tmp_path / "root")
    assert len(found) == (free is not None)
    if free is not None:
        assert memory_free(Path("/dev/shm"), found) == free


def test_a_folder_that_was_deleted_is_gone_also_where_a_mount_still_shows_it() -> None:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    shown = os.open(folder, os.O_RDONLY)  # as a mount does, it keeps the folder, which has no name any more
    memory, seen = RunMemory(folder), RunMemory(Path(f"/proc/self/fd/{shown}"))
    assert memory.is_there and seen.is_there
    folder.rmdir()
    assert not memory.is_there and not seen.is_there
    assert memory.free() == memory.held() == 0
    os.close(shown)


def test_a_tmpfs_is_told_from_a_disk() -> None:
    assert file_system_of(Path("/dev/shm/any")) == "tmpfs"
    assert file_system_of(Path("/proc/self")) == "proc"
