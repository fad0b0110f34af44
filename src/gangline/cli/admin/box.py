"""A whole platform in a folder, as child processes: for the demo, and for tests that kill parts of it."""

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from gangline.adapters.pools.local import LocalNode, start_node, stop_all
from gangline.compose.settings import SETTINGS_FILE
from gangline.core.errors import GanglineError


def quick_settings(lease_s: float, heartbeat_interval_s: float) -> str:
    """Return a settings file for a platform that is watched: every wait is about as short as a heartbeat."""
    policy = {
        "lease_s": lease_s,
        "heartbeat_interval_s": heartbeat_interval_s,
        "claim_interval_s": min(5.0, heartbeat_interval_s),
        "tick_interval_s": min(5.0, heartbeat_interval_s / 2),
        "node_silent_s": 3 * lease_s,
        "ban_yields_s": 2 * lease_s,
        "retry_first_s": min(10.0, heartbeat_interval_s),
        "rest_first_s": min(15.0, heartbeat_interval_s),
        "scale_interval_s": min(15.0, heartbeat_interval_s),
        "idle_s": min(60.0, 2 * lease_s),
        "save_interval_max_s": 8.0,
    }
    lines = [f"{name} = {value}" for name, value in policy.items()]
    return "\n".join(
        [
            "[policy]",
            *lines,
            "seek_faster = false  # all nodes of one box are the same machine",
            "[pools.default]",
            "bare_commands = true",
            "",
        ]
    )


class Box:
    """A server on a free port, with nodes that are started, and killed, by name; or one that rents `up_nodes` of its own."""

    def __init__(
        self,
        home: Path,
        *,
        lease_s: float,
        heartbeat_interval_s: float,
        price_usd_per_hour: float = 0.0,
        up_nodes: str | None = None,
    ) -> None:
        self.home = home
        self.nodes: dict[str, LocalNode] = {}
        self._port = 0
        self._command = ["up", "--nodes", up_nodes] if up_nodes else ["server"]
        self._settings = quick_settings(lease_s, heartbeat_interval_s)
        self._options = {"--home": str(home / "server"), "--price-usd-per-hour": str(price_usd_per_hour)}

    def __enter__(self) -> Self:
        (self.home / "server").mkdir(parents=True, exist_ok=True)
        settings = self.home / "server" / SETTINGS_FILE
        settings.touch(0o600)
        settings.write_text(self._settings)
        self.start_server()
        return self

    def start_server(self) -> None:
        """On a free port the first time, and on the same one after `kill_server`."""
        from gangline.compose.client import Client  # loads HTTP, which `--help` need not wait for

        options = [part for pair in self._options.items() for part in pair]
        with (self.home / "server.log").open("ab") as errors:
            self._server = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "gangline.cli.main",
                    *self._command,
                    "-o",
                    "json",
                    "--port",
                    str(self._port),
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        if not line:
            raise GanglineError("the server did not start", hint=f"{self.home / 'server.log'} shows the reason")
        access = json.loads(line)
        self.url: str = access["url"]
        self.join_token: str = access["join_token"]
        self.page: str = access["page"]
        self.client = Client(self.url, access["operator_key"])
        self._port = int(self.url.rsplit(":", 1)[1])

    def kill_server(self) -> None:
        self.client.close()
        self._server.kill()
        self._server.communicate()

    def stop_server(self) -> int:
        """Stop the server as Ctrl-C does, and return its exit code."""
        self.client.close()
        self._server.terminate()
        self._server.communicate()
        return self._server.returncode

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop_all(list(self.nodes.values()))
        if self._server.returncode is None:
            self.stop_server()

    def start_node(self, name: str) -> LocalNode:
        node = start_node(name=name, home=self.home / name, server=self.url, join_token=self.join_token)
        self.nodes[name] = node
        return node
