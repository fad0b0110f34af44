"""The identity of a machine at Salad: its metadata service signs a token that names it, and nobody else can."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import time_ns

import httpx
from joserfc.errors import (
    BadSignatureError,
    ExpiredTokenError,
    InvalidClaimError,
    InvalidKeyIdError,
    JoseError,
    MissingClaimError,
    UnsupportedAlgorithmError,
)
from joserfc.jwk import KeySet
from joserfc.jwt import JWTClaimsRegistry, Token, decode

from gangline.adapters.pools.salad.settings import KEYS
from gangline.core.errors import Denied, Unreachable
from gangline.tls import trusted

ALGORITHMS = ["ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "EdDSA", "Ed25519"]
"""Signatures with a private key. One with a shared secret would let anybody sign who has the public keys."""
KEPT_MS, REFRESH_MS = 3_600_000, 60_000
"""How long keys are used, and how soon after a try they are fetched again: for a token with a key that is not among them, too."""
UNREFRESHED_MAX_MS = 24 * KEPT_MS
"""How long keys are used while no others can be fetched."""
LEEWAY_S = 60
ID_MAX = 100
BYTES_MAX = 1_000_000
TIMEOUT = httpx.Timeout(10, connect=5)
NOT_PROVED = "the node does not prove which machine of Salad's it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaladMachine:
    """A machine, and the container group that runs on it."""

    id: str
    group: str


class SaladIdentity:
    """Verifies tokens of the machines that run groups of an organization. `clock` returns the time in milliseconds since 1970. Several
    threads may call it: `verify` asks nobody, and `fetch` gets the keys that it lacks.
    """

    def __init__(
        self, organization: str, keys: str = KEYS, *, clock: Callable[[], int] = lambda: time_ns() // 1_000_000
    ) -> None:
        self._organization = organization
        self._url = keys
        self._clock = clock
        self._lock = Lock()
        self._keys: KeySet | None = None
        self._fetched_ms = 0
        self._tried_ms: int | None = None
        self._failed: Unreachable | None = None

    def verify(self, token: str) -> SaladMachine:
        """Return the machine that the token proves. Raises `Denied` if it proves none, and `Unreachable` if keys must be fetched first."""
        try:
            proved = self._decode(token)
            self._claims().validate(proved.claims)
        except (JoseError, ValueError) as error:
            raise Denied(f"{NOT_PROVED}: {_why(error)}") from None
        machine, group = proved.claims["salad_machine_id"], proved.claims.get("salad_workload_name", "")
        if not isinstance(machine, str) or not isinstance(group, str) or not 0 < len(machine) <= ID_MAX:
            raise Denied(f"{NOT_PROVED}: its token names none")
        return SaladMachine(id=machine, group=group)

    def _claims(self) -> JWTClaimsRegistry:
        return JWTClaimsRegistry(
            now=self._clock() // 1000,
            leeway=LEEWAY_S,
            exp={"essential": True},
            salad_machine_id={"essential": True},
            salad_organization_name={"essential": True, "value": self._organization},
        )

    def fetch(self) -> None:
        """Fetch the keys. Raises `Unreachable` if they cannot be."""
        now_ms = self._clock()
        try:
            keys, failed = self._download(), None
        except Unreachable as error:
            keys, failed = None, error
        with self._lock:
            self._tried_ms, self._failed = now_ms, failed
            if keys:
                self._keys, self._fetched_ms = keys, now_ms
        if failed:
            raise failed

    def _decode(self, token: str) -> Token:
        keys = self._known()
        try:
            return decode(token, keys, algorithms=ALGORITHMS)
        except InvalidKeyIdError:
            # Salad may have changed its keys. A stranger's token must not make the server ask for them each time.
            if self._is_time_to_fetch():
                raise Unreachable("the keys of Salad are fetched again, as it may have new ones") from None
            raise

    def _known(self) -> KeySet:
        with self._lock:
            age_ms = self._clock() - self._fetched_ms
            keys, failed = self._keys, self._failed
        if keys is None or age_ms >= UNREFRESHED_MAX_MS or (age_ms >= KEPT_MS and self._is_time_to_fetch()):
            said = failed.message if failed else "the keys of Salad are not fetched yet"
            raise Unreachable(said, hint=(failed and failed.hint) or "try again")
        return keys

    def _is_time_to_fetch(self) -> bool:
        with self._lock:
            return self._tried_ms is None or self._clock() - self._tried_ms >= REFRESH_MS

    def _download(self) -> KeySet:
        try:
            answer = httpx.get(self._url, timeout=TIMEOUT, verify=trusted())
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(f"the keys of Salad at {self._url} cannot be fetched: {type(error).__name__}") from None
        if answer.status_code != 200 or len(answer.content) > BYTES_MAX:
            raise Unreachable(f"the keys of Salad at {self._url} cannot be fetched (HTTP {answer.status_code})")
        try:
            return KeySet.import_key_set(answer.json())
        except (JoseError, ValueError, KeyError, TypeError):
            raise Unreachable(
                f"{self._url} has no keys (JWKS) of Salad's", hint="check `keys` in the settings of the provider"
            ) from None


def _why(error: Exception) -> str:
    """Return what is wrong with a token, and nothing of what it holds: that is whatever a stranger wrote."""
    match error:
        case ExpiredTokenError():
            return "its token has expired"
        case InvalidClaimError(claim="salad_organization_name"):
            return "its token is of another organization"
        case MissingClaimError(claim=claim):
            return f"its token lacks {claim}"
        case BadSignatureError() | InvalidKeyIdError() | UnsupportedAlgorithmError():
            return "its token is not signed with a key of Salad's"
        case InvalidClaimError(claim=claim):
            return f"its token has a {claim} that does not hold"
    return "its token cannot be read"
