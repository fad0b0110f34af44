"""A server below a path behind this machine's Caddy, with the Caddyfile of `deploy/`: TLS of its own authority, on ports that are free."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from gangline.compose.client import Client
from tests.conftest import ROOT
from tests.waiting import until

PATH = "/gangline"
PEAK = "VmHWM:"
WITH_REQUEST_BUFFERS = (2, 6, 4)
"""The first version of Caddy that has them, in place of `buffer_requests`."""
OF_COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]["caddy"]["environment"]
NEWER_BUFFERS = {name: OF_COMPOSE[name] for name in ("BUFFERING", "BODIES", "BATCHES")}


def caddy_version() -> tuple[int, ...]:
    """Return the version of this machine's Caddy, empty if it has none."""
    program = shutil.which("caddy")
    if program is None:
        return ()
    said = subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", said)
    assert found, said
    return tuple(map(int, found.groups()))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def answers(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def peak_bytes(process: "subprocess.Popen[str]") -> int:
    """Return the most memory that a process has had at once, as the kernel counts it."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(PEAK))


@dataclass
class Proxied:
    """`url` is the address that users have, and `origin` its host; `variables` are those of a program that uses it."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    https: int = field(default_factory=free_port)
    port: int = field(default_factory=free_port)
    token: str = ""
    join_token: str = ""
    caddy: "subprocess.Popen[str]" = field(init=False)
    server: "subprocess.Popen[str]" = field(init=False)

    def __post_init__(self) -> None:
        self.origin = f"https://localhost:{self.https}"
        self.url = f"{self.origin}{PATH}"

    @property
    def authority(self) -> Path:
        return self.folder / "caddy" / "pki" / "authorities" / "local" / "root.crt"

    def client(self) -> Client:
        return Client(self.url, self.token)

    def start_caddy(self, **environment: str) -> "subprocess.Popen[str]":
        """Return it once it has its certificate."""
        environment |= NEWER_BUFFERS if caddy_version() >= WITH_REQUEST_BUFFERS else {}
        environment |= {
            "SITE_ADDRESS": "localhost",
            "SITE_PATH": PATH,
            "SITE_TLS": "tls internal",
            "HTTP_PORT": str(free_port()),
            "HTTPS_PORT": str(self.https),
            "UPSTREAMS": f"127.0.0.1:{self.port}",
            "XDG_DATA_HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder),
            "HOME": str(self.folder),
        }
        command = ["caddy", "run", "--config", str(ROOT / "deploy" / "Caddyfile"), "--adapter", "caddyfile"]
        with (self.folder / "caddy.log").open("w") as log:
            process = subprocess.Popen(command, stderr=log, text=True, env=os.environ | environment)
        until(lambda: (self.authority.exists() and answers(self.https)) or process.poll() is not None)
        assert process.poll() is None, (self.folder / "caddy.log").read_text()[-2000:]
        self.variables["SSL_CERT_FILE"] = str(self.authority)
        return process

    def start_server(self, **environment: str) -> "subprocess.Popen[str]":
        """Return it once it answers, with the secrets that the script of `deploy/` makes, as containers have them."""
        secrets = self.folder / "secrets"
        subprocess.run([ROOT / "deploy" / "make-secrets", secrets], check=True)
        self.token, self.join_token = ((secrets / name).read_text().strip() for name in ("operator-key", "join-token"))
        environment |= {"GANGLINE_URL": self.url, "GANGLINE_SECRETS_KEY_FILE": str(secrets / "secrets-key")}
        environment |= {"GANGLINE_OPERATOR_KEY_FILE": str(secrets / "operator-key")}
        environment |= {"GANGLINE_JOIN_TOKEN_FILE": str(secrets / "join-token")}
        words = ("server", "--home", str(self.folder / "home"), "--port", str(self.port), "-o", "json")
        process = self.program(*words, **environment)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (self.folder / "gangline.log").read_text()[-2000:]
        access = json.loads(line)
        assert (access["operator_key"], access["join_token"]) == (self.token, self.join_token)
        return process

    def program(self, *words: str, **environment: str) -> "subprocess.Popen[str]":
        """Start a command of Gangline, as a user's shell does."""
        with (self.folder / "gangline.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "gangline.cli.main", *words],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | self.variables | environment,
            )


@contextmanager
def ending(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    with ExitStack() as ended:
        ended.callback(process.communicate)
        ended.callback(process.kill)
        yield process
