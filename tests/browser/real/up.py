"""A real `gangline up` behind the page, with nodes that train on this machine's cores: tests kill one by its process group."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from gangline.adapters.pools.local import RECORD
from gangline.cli.admin.box import Box
from gangline.cli.main import app
from gangline.compose.access import read_access
from tests.conftest import BASE

LEASE_S = 6.0
NODES = 2
PRICE_USD_PER_HOUR = 2.0


@dataclass(frozen=True)
class Up:
    """The command as it runs in `box`, and the key that it made for its operator."""

    box: Box
    key: str

    @property
    def url(self) -> str:
        return self.box.url

    @property
    def link(self) -> str:
        """What it printed: it signs in once."""
        return self.box.page

    def kill_node(self, node: str) -> None:
        """Kill a node's processes as a power failure would."""
        records = (json.loads(path.read_text()) for path in (self.box.home / "server" / "nodes").glob(f"*/{RECORD}"))
        (process,) = (int(each["id"].rsplit("-", 1)[1]) for each in records if each["name"] == node)
        os.killpg(process, signal.SIGKILL)


@contextmanager
def an_up(home: Path) -> Iterator[Up]:
    """Start it, with the base `tiny-sdxl` added as a user adds one."""
    with Box(
        home, lease_s=LEASE_S, heartbeat_interval_s=0.3, price_usd_per_hour=PRICE_USD_PER_HOUR, up_nodes=str(NODES)
    ) as box:
        access = read_access(home / "server")
        assert access is not None
        of_server = ["--server", box.url, "--token", access.operator_key]
        added = CliRunner().invoke(app, ["bases", "add", str(BASE), "--licence", "none", *of_server])
        assert added.exit_code == 0, added.output
        yield Up(box, access.operator_key)
