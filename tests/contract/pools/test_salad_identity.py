"""A machine of Salad's proves which it is by a signed token of its metadata service."""

import base64
import hmac
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey

from gangline.adapters.pools.salad.identity import SaladIdentity, SaladMachine
from gangline.adapters.pools.salad.metadata import fetch_identity
from gangline.compose.worker import make_identity
from gangline.core.errors import Denied, Unreachable
from tests.servers import served

NOW_S = 1_780_000_000
CLAIMS = {
    "iss": "https://matrix-api.salad.io",
    "sub": "m-1",
    "iat": NOW_S,
    "nbf": NOW_S,
    "exp": NOW_S + 600,
    "salad_machine_id": "m-1",
    "salad_organization_name": "acme",
    "salad_workload_name": "gl-node-a",
}


class FakeMetadata:
    """The metadata service of one container, and the address of Salad's public keys."""

    def __init__(self) -> None:
        self.keys: list[Any] = [ECKey.generate_key("P-256")]
        self.now_ms = NOW_S * 1000
        self.claims: dict[str, Any] = dict(CLAIMS)
        self.answer: Response | None = None
        self.asked = list[str]()
        self.app = FastAPI()
        self.app.get("/v1/token")(self._token)
        self.app.get("/jwks.json")(self._jwks)

    def sign(self, key: ECKey | None = None, **claims: Any) -> str:
        signer = key or self.keys[-1]
        given = {name: value for name, value in (self.claims | claims).items() if value is not None}
        return jwt.encode({"alg": "ES256", "kid": signer.thumbprint()}, given, signer)

    def _token(self, request: Request) -> Response:
        forwarded = any(name.startswith("x-forwarded-") for name in request.headers)
        if request.headers.get("metadata") != "true" or forwarded:
            return Response(status_code=403)
        return self.answer or Response(json.dumps({"jwt": self.sign()}), media_type="application/json")

    def _jwks(self) -> Response:
        self.asked.append("jwks")
        if self.answer is not None:
            return self.answer
        return Response(json.dumps(KeySet(list(self.keys)).as_dict(private=None)), media_type="application/json")


def verify(identity: SaladIdentity, token: str) -> SaladMachine:
    """As a server does for a worker that asks again if it cannot be told yet."""
    with suppress(Unreachable):
        return identity.verify(token)
    with suppress(Unreachable):
        identity.fetch()
    return identity.verify(token)


@pytest.fixture
def salad() -> FakeMetadata:
    return FakeMetadata()


@pytest.fixture
def url(salad: FakeMetadata) -> Iterator[str]:
    with served(salad.app) as url:
        yield url


@pytest.fixture
def identity(salad: FakeMetadata, url: str) -> SaladIdentity:
    return SaladIdentity("acme", f"{url}/jwks.json", clock=lambda: salad.now_ms)


def test_a_machine_is_the_one_that_its_token_names(
    identity: SaladIdentity, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    token = fetch_identity(url)
    monkeypatch.undo()
    assert verify(identity, token) == SaladMachine(id="m-1", group="gl-node-a")


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": NOW_S - 61}, "its token has expired"),
        ({"exp": None}, "its token lacks exp"),
        ({"nbf": NOW_S + 3600}, "its token has a nbf that does not hold"),
        ({"salad_organization_name": "another"}, "its token is of another organization"),
        ({"salad_organization_name": None}, "its token lacks salad_organization_name"),
        ({"salad_machine_id": None}, "its token lacks salad_machine_id"),
        ({"salad_machine_id": 7}, "its token names none"),
        ({"salad_machine_id": ""}, "its token"),
        ({"salad_machine_id": "m" * 101}, "its token names none"),
    ],
)
def test_a_token_that_does_not_hold_proves_nothing(
    identity: SaladIdentity, salad: FakeMetadata, claims: dict[str, Any], said: str
) -> None:
    with pytest.raises(Denied, match="does not prove which machine") as error:
        verify(identity, salad.sign(**claims))
    assert said in error.value.message


def signed_with_the_public_key(salad: FakeMetadata) -> str:
    """What is signed with a shared secret that everybody knows, as the algorithm is the token's own word."""
    header = {"alg": "HS256", "kid": salad.keys[0].thumbprint(), "typ": "JWT"}
    signed = f"{coded(json.dumps(header).encode())}.{salad.sign().split('.')[1]}"
    secret = salad.keys[0].as_pem(private=False)
    return f"{signed}.{coded(hmac.digest(secret, signed.encode(), 'sha256'))}"


def coded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def without_signature(salad: FakeMetadata) -> str:
    return salad.sign().rpartition(".")[0] + "."


def signed_by_another(salad: FakeMetadata) -> str:
    return salad.sign(ECKey.generate_key("P-256"))


def named_as_ours(salad: FakeMetadata) -> str:
    return jwt.encode({"alg": "ES256", "kid": salad.keys[0].thumbprint()}, CLAIMS, ECKey.generate_key("P-256"))


def changed(salad: FakeMetadata) -> str:
    head, _, signature = salad.sign().split(".")
    return ".".join([head, salad.sign(salad_machine_id="m-2").split(".")[1], signature])


def without_algorithm(salad: FakeMetadata) -> str:
    return "eyJhbGciOiJub25lIn0." + salad.sign().split(".")[1] + "."


@pytest.mark.parametrize(
    "forge",
    [without_signature, signed_with_the_public_key, signed_by_another, named_as_ours, changed, without_algorithm],
)
def test_a_token_that_salad_did_not_sign_proves_nothing(
    identity: SaladIdentity, salad: FakeMetadata, forge: Any
) -> None:
    with pytest.raises(Denied, match="does not prove which machine"):
        verify(identity, forge(salad))


def test_a_secret_among_the_keys_signs_nothing(identity: SaladIdentity, salad: FakeMetadata) -> None:
    secret = OctKey.generate_key(256)
    salad.keys.append(secret)
    token = jwt.encode({"alg": "HS256", "kid": secret.thumbprint()}, CLAIMS, secret)
    with pytest.raises(Denied, match="not signed with a key of Salad's"):
        verify(identity, token)


@pytest.mark.parametrize("token", ["", "a.b.c", "..", "eyJ", "\x00", "ü.ü.ü", "a" * 100_000])
def test_what_is_no_token_proves_nothing(identity: SaladIdentity, token: str) -> None:
    with pytest.raises(Denied, match="does not prove which machine"):
        verify(identity, token)


def test_keys_are_fetched_once_and_again_when_salad_signs_with_a_new_one(
    identity: SaladIdentity, salad: FakeMetadata
) -> None:
    for _ in range(3):
        verify(identity, salad.sign())
    assert len(salad.asked) == 1
    salad.keys.append(ECKey.generate_key("P-256"))
    salad.now_ms += 61_000
    verify(identity, salad.sign())
    assert len(salad.asked) == 2


def test_while_keys_are_fetched_those_who_ask_are_told_and_wait_for_nothing(
    identity: SaladIdentity, salad: FakeMetadata
) -> None:
    with pytest.raises(Unreachable, match="not fetched yet"):
        identity.verify(salad.sign())
    assert salad.asked == []
    identity.fetch()
    assert identity.verify(salad.sign()).id == "m-1"
    salad.now_ms += 3_600_000
    with pytest.raises(Unreachable):
        identity.verify(salad.sign(exp=salad.now_ms // 1000 + 60))
    assert len(salad.asked) == 1


def test_tokens_of_strangers_do_not_make_the_server_fetch_keys_each_time(
    identity: SaladIdentity, salad: FakeMetadata
) -> None:
    for _ in range(5):
        with pytest.raises(Denied):
            verify(identity, signed_by_another(salad))
    assert len(salad.asked) == 1


def test_while_no_keys_can_be_fetched_the_known_ones_hold_for_a_day(
    identity: SaladIdentity, salad: FakeMetadata
) -> None:
    verify(identity, salad.sign())
    salad.answer = Response("<html>", 502)
    salad.now_ms += 2 * 3_600_000
    assert verify(identity, salad.sign(exp=salad.now_ms // 1000 + 60)).id == "m-1"
    salad.now_ms += 24 * 3_600_000
    with pytest.raises(Unreachable, match=r"cannot be fetched \(HTTP 502\)"):
        verify(identity, salad.sign(exp=salad.now_ms // 1000 + 60))


@pytest.mark.parametrize(
    "answer", [Response("<html>"), Response("{}"), Response('{"keys": []}'), Response("[]"), Response('{"keys": [1]}')]
)
def test_an_address_without_keys_is_said(identity: SaladIdentity, salad: FakeMetadata, answer: Response) -> None:
    token = salad.sign()
    salad.answer = answer
    with pytest.raises(Unreachable, match="has no keys"):
        verify(identity, token)


@pytest.mark.parametrize(
    "answer",
    [
        Response("{}"),
        Response("<html>"),
        Response('{"jwt": 7}'),
        Response('{"jwt": ""}'),
        Response("[]"),
        Response("", 404),
    ],
)
def test_a_metadata_service_without_a_token_is_unreachable(salad: FakeMetadata, url: str, answer: Response) -> None:
    salad.answer = answer
    with pytest.raises(Unreachable, match="metadata service"):
        fetch_identity(url)


def test_a_worker_has_a_token_where_its_start_names_the_metadata_service(identity: SaladIdentity, url: str) -> None:
    assert verify(identity, make_identity(url)()) == SaladMachine(id="m-1", group="gl-node-a")
    assert make_identity("")() == ""


def test_where_there_is_no_metadata_service_that_is_said() -> None:
    with pytest.raises(Unreachable, match="does not answer"):
        fetch_identity("http://127.0.0.1:9")
