"""Load the certificates that this process trusts, once: loading them takes longer than a request."""

import os
from functools import cache
from ssl import SSLContext

import httpx


def trusted() -> SSLContext:
    """Return the TLS context of every client in this process. SSL_CERT_FILE or SSL_CERT_DIR override the default authorities.

    Raises `OSError` if they cannot be read.
    """
    return _read(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _read(_file: str | None, _folder: str | None) -> SSLContext:
    """Return httpx's context. The arguments are only the key of the cache, as httpx reads the same variables."""
    return httpx.create_ssl_context()
