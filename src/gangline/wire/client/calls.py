"""A noun of the client: what one subject's requests have in common."""

from typing import TYPE_CHECKING, Any

from gangline.wire.client.http import Http
from gangline.wire.released import call_noun


class Calls:
    def __init__(self, http: Http) -> None:
        self._http = http

    if not TYPE_CHECKING:

        def __call__(self, *given: Any, **named: Any) -> Any:
            return call_noun(self, *given, **named)
