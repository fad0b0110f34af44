"""A server ends when it is asked to."""

import signal
import subprocess
import sys
from pathlib import Path

STUCK = """
import asyncio, sys, threading
from pathlib import Path
from gangline.api import serve
from gangline.api.lanes import USERS
from gangline.compose.server import run_server
from gangline.core.server.programs import ServerProgram
from gangline.core.server.settings import ServerSettings

serve.ENDING_S = 0.5
begun = threading.Event()

def never_return():
    begun.set()
    threading.Event().wait()

def ready(*_):
    threading.Thread(target=lambda: asyncio.run(USERS.run(never_return)), daemon=True).start()
    begun.wait()
    print("ready", flush=True)

run_server(ServerSettings(server=ServerProgram(home=Path(sys.argv[1]), port=0)), ready)
"""


def test_a_server_ends_in_time_although_a_thread_never_returns(tmp_path: Path) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", STUCK, str(tmp_path)], text=True, **pipes) as server:
        assert server.stdout and server.stdout.readline() == "ready\n"
        server.send_signal(signal.SIGTERM)
        try:
            said = server.communicate(timeout=60)[1]
        finally:
            server.kill()
    assert server.returncode == 1 and "never_return" in said
