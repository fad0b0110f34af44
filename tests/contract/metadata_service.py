"""Start a run at a level of isolation beside a provider's metadata service, and print whether it could reach that.

`unshare --net python -m tests.contract.metadata_service LEVEL RUNS`: the service is in a network of this program's own.
"""

import fcntl
import socket
import struct
import sys
from pathlib import Path
from threading import Event

from gangline.adapters.host.trainer import isolation
from gangline.adapters.host.trainer.start import start_program
from gangline.core.parsing import parse_as
from gangline.core.server.isolation import IsolationLevel

ADDRESS = "169.254.169.254"
SET_ADDRESS, SET_FLAGS, UP = 0x8916, 0x8914, 0x1
"""SIOCSIFADDR, SIOCSIFFLAGS and IFF_UP of netdevice(7)."""
REACHES = f"""
import socket
try:
    socket.create_connection(({ADDRESS!r}, 80), 2).close()
    print("reached")
except OSError:
    print("cut off")
"""


def give_address() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        address = struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
        fcntl.ioctl(any_socket, SET_ADDRESS, address)
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sH14x", b"lo", UP))


def main(level: str, runs: Path) -> None:
    give_address()
    sys.executable = "/usr/bin/python3"
    isolation.LOADS = "os"
    found = isolation.find_isolation(runs, parse_as(IsolationLevel, level))
    directory = runs / "run"
    directory.mkdir(0o700)
    with socket.create_server((ADDRESS, 80)):
        command = [sys.executable, "-c", REACHES]
        run = start_program(command, directory, enclosure=found.make())
        while run.exit_code() is None:
            Event().wait(0.01)
    print(run.printed(0, 1_000).decode().strip())
    run.kill()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
