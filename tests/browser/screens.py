"""The screens of the page. What holds for all of them is tested for each: a new screen is a line here."""

from collections.abc import Mapping

SCREENS: Mapping[str, str] = {
    "jobs": "/",
    "jobs of a state": "/?state=running&state=queued",
    "a list without jobs": "/?search=there-is-no-such-job",
    "a search for code": "/?search=%22%3E%3Cimg+src%3D%2Fhostile+onerror%3D1%3E&label=hostile&owner=me",
    "an address that is wrong": "/?label=%3D",
    "a job": "/jobs/{job}",
    "what differs between two jobs": "/jobs/{job}/diff?with={job}",
    "pictures of a job": "/jobs/{job}/pictures",
    "experiments": "/experiments",
    "new job": "/new",
    "a clone": "/new?from={job}",
    "fleet": "/fleet",
    "queue": "/queue",
    "cost": "/cost",
    "cost by job": "/cost?by=job",
    "keys": "/keys",
    "notices": "/notices",
    "sign-in": "/sign-in",
}
"""The address of each screen. `{job}` in it is that of a job whose every field is hostile."""
OPEN = frozenset({"sign-in"})
"""What people see who have not signed in."""
REFUSED = frozenset({"an address that is wrong"})
"""What the server answers with an error that is shown as a page."""


def address(screen: str, job: str) -> str:
    return SCREENS[screen].format(job=job)
