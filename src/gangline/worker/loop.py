"""The worker's only loop: it steps the agent with a short wait between, and decides nothing."""

import signal
import threading
import time
from collections.abc import Callable

from gangline.worker.agent import Agent

STEP_EVERY_S = 0.2


def run(agent: Agent, tell: Callable[[str], None]) -> None:
    """Step the agent until it has stopped, which SIGTERM and SIGINT ask it to. Call it from the main thread."""
    woken = threading.Event()

    def stop(*_: object) -> None:
        agent.ask_to_stop()
        woken.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while not agent.stopped:
        agent.step(time.monotonic())
        while agent.news:
            tell(agent.news.pop(0))
        woken.wait(STEP_EVERY_S)
        woken.clear()
