"""A noun of the client: what one subject's requests have in common."""

from gangline.wire.aio.http import AsyncHttp


class AsyncCalls:
    def __init__(self, http: AsyncHttp) -> None:
        self._http = http
