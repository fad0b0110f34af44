"""The certificates that this process trusts, read once: each reading takes longer than a request."""

import os
from functools import cache
from ssl import SSLContext

import httpx


def trusted() -> SSLContext:
    """Return the context of every client of this process: SSL_CERT_FILE or SSL_CERT_DIR names others than the usual authorities.

    Raises `OSError` where what they name cannot be read."""
    return _read(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _read(_file: str | None, _folder: str | None) -> SSLContext:
    """Return what httpx reads; both names are the key."""
    return httpx.create_ssl_context()
