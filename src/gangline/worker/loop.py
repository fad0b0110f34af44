"""The worker's only loop: it steps the agent with a short wait between, and decides nothing."""

import signal
import threading
import time
from collections.abc import Callable

from gangline.worker.agent import Agent

STEP_EVERY_S, HURRY_S = 0.2, 0.03
"""Seconds between two steps, and while a checkpoint is written. A transfer that ends makes a step at once."""


def run(agent: Agent, tell: Callable[[str], None], woken: threading.Event) -> None:
    """Step the agent until it has stopped, which SIGTERM and SIGINT ask it to. Call it from the main thread. It steps at once when it is
    `woken`."""

    def stop(*_: object) -> None:
        agent.ask_to_stop()
        woken.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while not agent.stopped:
        agent.step(time.monotonic())
        while agent.news:
            tell(agent.news.pop(0))
        wait_for_news(agent, woken)


def wait_for_news(agent: Agent, woken: threading.Event) -> None:
    """Wait until the agent's next step is due."""
    woken.wait(HURRY_S if agent.hurries else STEP_EVERY_S)
    woken.clear()
