"""Signatures and ids are those of the Standard Webhooks specification."""

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from gangline.adapters.sealing import JweSealer
from gangline.core.notices.signing import message_id, parse_message_id, secret_text, signature


@given(key=st.binary(min_size=24, max_size=64), message=st.from_regex(r"msg_[0-9a-z_-]{1,60}", fullmatch=True))
def test_the_reference_implementation_verifies_what_is_signed(key: bytes, message: str) -> None:
    at_s, body = int(time.time()), b'{"type": "job.succeeded"}'
    headers = {"webhook-id": message, "webhook-timestamp": str(at_s)}
    signed = headers | {"webhook-signature": signature([key], message, at_s, body)}
    assert Webhook(secret_text(key)).verify(body, signed) == {"type": "job.succeeded"}
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_text(key)).verify(body + b" ", signed)


def test_while_keys_rotate_a_receiver_may_know_either() -> None:
    old, new, other = (bytes([number]) * 32 for number in range(3))
    at_s = int(time.time())
    signed = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(at_s),
        "webhook-signature": signature([new, old], "msg_1", at_s, b"{}"),
    }
    for key in (old, new):
        Webhook(secret_text(key)).verify(b"{}", signed)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_text(other)).verify(b"{}", signed)


@given(endpoint=st.from_regex(r"[a-z0-9-]{1,40}", fullmatch=True), fact=st.integers(1, 10**15))
def test_the_id_of_a_message_names_its_endpoint_and_fact_and_has_no_full_stop(endpoint: str, fact: int) -> None:
    message = message_id(endpoint, fact)
    assert parse_message_id(message) == (endpoint, fact)
    assert "." not in message


@pytest.mark.parametrize("text", ["", "msg_", "msg_a", "msg_a_", "msg_a_0", "msg_a_x", "a_1", "msg_a_1 "])
def test_what_is_no_id_names_nothing(text: str) -> None:
    assert parse_message_id(text) is None


def test_what_is_derived_is_different_for_each_key_and_part_and_stays_the_same_while_keys_are_added() -> None:
    old, new = "the old key of 32 characters, or longer", "the new key of 32 characters, or longer"
    first, both = JweSealer([old]), JweSealer([new, old])
    assert first.derive(first.current, "a", "1") == both.derive(first.current, "a", "1")
    found = {
        sealer.derive(key, *parts)
        for sealer, key in ((both, first.current), (both, both.current))
        for parts in (("a", "1"), ("a", "2"), ("a1",), ("a", "1", ""))
    }
    assert len(found) == 8 and all(each is not None and len(each) == 32 for each in found)
    assert JweSealer([new]).derive(first.current, "a", "1") is None
    assert base64.b64decode(secret_text(b"x" * 32).removeprefix("whsec_")) == b"x" * 32
