"""The browser that tests, pictures of the docs and benchmarks use. Without windows it needs two thirds of the time on a core."""

from shutil import which

CHROMIUM = next(
    filter(None, map(which, ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))), None
)
SWITCHES = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
