"""Ask httpcore for URLs that passed the checks, and read its answers: what downloads and notices have in common."""

import httpcore

from gangline.core.places.urls import Url


def httpcore_url(url: Url) -> httpcore.URL:
    """Return the URL in parts: parsed from its text, httpcore would lose what follows a `;` in the path."""
    return httpcore.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target)


def http_header(answer: httpcore.Response, name: bytes) -> str:
    """Return the value of a header, whose name is given in lower case; empty without one."""
    return next((value.decode("latin-1") for key, value in answer.headers if key.lower() == name), "")
