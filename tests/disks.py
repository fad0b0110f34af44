"""A disk that is really full: a file system of some size, which a namespace of its own may mount."""

import os
import subprocess
from pathlib import Path

import pytest

MOUNTED = 'mount -t tmpfs -o "size=$1" none "$2"; shift 2; exec "$@"'


def run_on_a_disk_of(
    size: str, folder: Path, *command: str | Path, told: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """`command` where `folder` is that disk; `told` is its input. Skips the test where nothing may be mounted."""
    inside = ("/usr/bin/unshare", "--map-root-user", "--mount", "sh", "-ec", MOUNTED, "sh", size, folder, *command)
    ran = subprocess.run(inside, check=False, capture_output=True, text=True, input=told, env=os.environ | environment)
    if "Operation not permitted" in ran.stderr:
        pytest.skip("nothing may be mounted here, not even in a namespace of its own")
    return ran
