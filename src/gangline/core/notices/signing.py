"""Sign webhooks and name their messages as the Standard Webhooks specification says (https://www.standardwebhooks.com)."""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable

PREFIX = "whsec_"
MESSAGE = re.compile(r"msg_(.+)_([1-9]\d{0,15})")


def secret_text(key: bytes) -> str:
    """Return a signing secret as receivers are given it."""
    return PREFIX + base64.b64encode(key).decode()


def signature(keys: Iterable[bytes], message: str, at_s: int, body: bytes) -> str:
    """Return the value of `webhook-signature`: one signature for each key, so that a receiver may know any of them while keys rotate.

    `message` is the id of the message, `at_s` the moment of the try in seconds since 1970.
    """
    signed = f"{message}.{at_s}.".encode() + body
    digests = (hmac.new(key, signed, hashlib.sha256).digest() for key in keys)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


def message_id(endpoint: str, fact: int) -> str:
    """Return the id of the message that tells an endpoint of a fact: the same at each try, and of no other message."""
    return f"msg_{endpoint}_{fact}"


def parse_message_id(message: str) -> tuple[str, int] | None:
    """Return the endpoint and the fact of a message; None if no message has such an id."""
    found = MESSAGE.fullmatch(message)
    return (found[1], int(found[2])) if found else None
