"""The client's requests about projects, keys, secrets and join tokens."""

from gangline.core.access import KeyRole
from gangline.core.views import JoinTokenView, KeyView, NewJoinToken, NewKey, ProjectView, SecretView
from gangline.wire.http import Http, parse_answer, path_of


class AccessCalls:
    """What a client asks about who may do what, and with which secrets."""

    _http: Http

    def project(self) -> ProjectView:
        """Return the project that the key belongs to, or `project` if the client was created with one."""
        return parse_answer(ProjectView, self._http.ask("GET", "/v1/project"))

    def projects(self) -> list[ProjectView]:
        """Return all projects. Needs an operator's key."""
        return parse_answer(list[ProjectView], self._http.ask("GET", "/v1/projects"))

    def add_project(self, project: str) -> ProjectView:
        """Create a project; an existing one stays as it is. Needs an operator's key."""
        return parse_answer(ProjectView, self._http.ask("POST", "/v1/projects", {"project": project}))

    def set_project(self, project: str, *, share: float = 1.0, budget_usd: float | None = None) -> ProjectView:
        """Set a project's share and budget in US dollars; None means no limit. Needs an operator's key."""
        body = {"share": share, "budget_usd": budget_usd}
        return parse_answer(ProjectView, self._http.ask("PUT", path_of("projects", project), body))

    def keys(self) -> list[KeyView]:
        """Return the project's keys; for an operator without a project, all keys. Needs an admin's key."""
        return parse_answer(list[KeyView], self._http.ask("GET", "/v1/keys"))

    def add_key(self, name: str, role: KeyRole = "member", *, lasts_s: float | None = None) -> NewKey:
        """Create a key that expires after `lasts_s` (None: never). Only this answer has its secret. Needs an admin's key."""
        return parse_answer(
            NewKey, self._http.ask("POST", "/v1/keys", {"name": name, "role": role, "lasts_s": lasts_s})
        )

    def revoke_key(self, key: str) -> None:
        """Revoke a key, given its id, at once and for good. Needs an admin's key."""
        self._http.ask("DELETE", path_of("keys", key))

    def join_tokens(self) -> list[JoinTokenView]:
        """Return all join tokens. Needs an operator's key."""
        return parse_answer(list[JoinTokenView], self._http.ask("GET", "/v1/join-tokens"))

    def add_join_token(
        self,
        name: str,
        pool: str = "default",
        *,
        lasts_s: float | None = None,
        price_usd_per_hour: float | None = None,
        trust: int | None = None,
        nodes_max: int | None = None,
        nodes_per_hour: int | None = None,
    ) -> NewJoinToken:
        """Create a join token. Its secret is in the answer and never shown again. Needs an operator's key.

        Price (0: free) and trust default to the pool's. At most `nodes_max` are here at once; `nodes_per_hour` join within an hour.
        """
        terms = {"price_usd_per_hour": price_usd_per_hour, "trust": trust}
        limits = {"nodes_max": nodes_max, "nodes_per_hour": nodes_per_hour}
        given = {name: value for name, value in (terms | limits).items() if value is not None}
        body = {"name": name, "pool": pool, "lasts_s": lasts_s, **given}
        return parse_answer(NewJoinToken, self._http.ask("POST", "/v1/join-tokens", body))

    def revoke_join_token(self, join_token: str) -> None:
        """Revoke a join token, given its id: no more nodes join with it, and those that did stay. Needs an operator's key."""
        self._http.ask("DELETE", path_of("join-tokens", join_token))

    def secrets(self) -> list[SecretView]:
        """Return the project's secrets, without their values."""
        return parse_answer(list[SecretView], self._http.ask("GET", "/v1/secrets"))

    def set_secret(self, name: str, value: str) -> SecretView:
        """Keep a value that commands get as a variable of this name if their spec names it in `secrets`. No answer ever has it."""
        return parse_answer(SecretView, self._http.ask("PUT", path_of("secrets", name), {"value": value}))

    def remove_secret(self, name: str) -> None:
        """Delete a secret. A job that needs it is paused when a node would get it. Repeating this changes nothing."""
        self._http.ask("DELETE", path_of("secrets", name))
