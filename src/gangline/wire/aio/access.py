"""The client's requests about projects, keys, secrets and join tokens: who may do what, and with which secrets."""

from collections.abc import AsyncIterator
from uuid import uuid4

from gangline.core.access import KeyRole, SignInCode
from gangline.core.views import JoinTokenView, KeyView, NewJoinToken, NewKey, ProjectView, SecretView
from gangline.wire.aio.calls import AsyncCalls
from gangline.wire.http import path_of


class AsyncProjectCalls(AsyncCalls):
    """Projects, their shares and budgets. All but `current` needs an operator's key."""

    async def current(self) -> ProjectView:
        """Return the project that the key belongs to, or `project` if the client was created with one."""
        return await self._http.read(ProjectView, "GET", "/v1/project")

    async def add(self, project: str, *, key: str = "") -> ProjectView:
        """Create a project; an existing one stays as it is. `key` makes a retry safe after a lost answer."""
        key = key or uuid4().hex
        return await self._http.read(ProjectView, "POST", "/v1/projects", {"project": project}, key=key)

    async def set(self, project: str, *, share: float = 1.0, budget_usd: float | None = None) -> ProjectView:
        """Set a project's share and budget in US dollars; None means no limit."""
        body = {"share": share, "budget_usd": budget_usd}
        return await self._http.read(ProjectView, "PUT", path_of("projects", project), body)

    async def list(self) -> AsyncIterator[ProjectView]:
        """Yield all projects."""
        for project in await self._http.read(tuple[ProjectView, ...], "GET", "/v1/projects"):
            yield project


class AsyncKeyCalls(AsyncCalls):
    """The project's keys; for an operator without a project, all keys. All but `sign_in` needs an admin's key."""

    async def add(self, name: str, role: KeyRole = "member", *, lasts_s: float | None = None, key: str = "") -> NewKey:
        """Create a key that expires after `lasts_s` seconds (None: never). Only this answer has its secret.

        `key` makes a retry safe after a lost answer: no second one is made, and the error names the first.
        """
        body = {"name": name, "role": role, "lasts_s": lasts_s}
        return await self._http.read(NewKey, "POST", "/v1/keys", body, key=key or uuid4().hex)

    async def revoke(self, key: str) -> None:
        """Revoke a key, given its id, at once and for good."""
        await self._http.ask("DELETE", path_of("keys", key))

    async def sign_in(self) -> SignInCode:
        """Make a link to the page, a path of this server, that signs in once with the key of this client. Any key may."""
        return await self._http.read(SignInCode, "POST", "/v1/sign-in-codes")

    async def list(self) -> AsyncIterator[KeyView]:
        """Yield the keys, without their secrets."""
        for key in await self._http.read(tuple[KeyView, ...], "GET", "/v1/keys"):
            yield key


class AsyncJoinTokenCalls(AsyncCalls):
    """Tokens with which workers join pools. All of it needs an operator's key."""

    async def add(
        self,
        name: str,
        pool: str = "default",
        *,
        lasts_s: float | None = None,
        price_usd_per_hour: float | None = None,
        trust: int | None = None,
        nodes_max: int | None = None,
        nodes_per_hour: int | None = None,
        key: str = "",
    ) -> NewJoinToken:
        """Create a join token. Its secret is in the answer and never shown again.

        Price (0: free) and trust default to the pool's. At most `nodes_max` are here at once; `nodes_per_hour` join within an hour.
        `key` makes a retry safe after a lost answer: no second one is made, and the error names the first.
        """
        terms = {"price_usd_per_hour": price_usd_per_hour, "trust": trust}
        limits = {"nodes_max": nodes_max, "nodes_per_hour": nodes_per_hour}
        given = {name: value for name, value in (terms | limits).items() if value is not None}
        body = {"name": name, "pool": pool, "lasts_s": lasts_s, **given}
        return await self._http.read(NewJoinToken, "POST", "/v1/join-tokens", body, key=key or uuid4().hex)

    async def revoke(self, join_token: str) -> None:
        """Revoke a join token, given its id: no more nodes join with it, and those that did stay."""
        await self._http.ask("DELETE", path_of("join-tokens", join_token))

    async def list(self) -> AsyncIterator[JoinTokenView]:
        """Yield all join tokens, without their secrets."""
        for token in await self._http.read(tuple[JoinTokenView, ...], "GET", "/v1/join-tokens"):
            yield token


class AsyncSecretCalls(AsyncCalls):
    """Values that the project's commands get as variables of their environment."""

    async def set(self, name: str, value: str) -> SecretView:
        """Keep a value that commands get as a variable of this name if their spec names it in `secrets`. No answer ever has it."""
        return await self._http.read(SecretView, "PUT", path_of("secrets", name), {"value": value})

    async def remove(self, name: str) -> None:
        """Delete a secret. A job that needs it is paused when a node would get it. Repeating this changes nothing."""
        await self._http.ask("DELETE", path_of("secrets", name))

    async def list(self) -> AsyncIterator[SecretView]:
        """Yield the project's secrets, without their values."""
        for secret in await self._http.read(tuple[SecretView, ...], "GET", "/v1/secrets"):
            yield secret
