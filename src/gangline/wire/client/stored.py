# Made of src/gangline/wire/aio/stored.py by `python -m tests.wire.sync_client`: change that file, and make this one again.
"""The client's requests about what a project stores: bases, and how much there is of everything."""

from collections.abc import Iterator
from uuid import uuid4

from gangline.core.runs.kept import StorageView
from gangline.core.specs.fields import Base, base_to_json
from gangline.core.views import BaseView
from gangline.wire.client.calls import Calls
from gangline.wire.http import path_of


class BaseCalls(Calls):
    """Models that trainings start from, by their names."""

    def add(
        self,
        name: str,
        base: Base,
        *,
        vae: Base | None = None,
        family: str = "",
        prediction_type: str = "",
        licence: str = "",
        because: str = "",
        key: str = "",
    ) -> BaseView:
        """Add a base. On the hub, the server detects the fields that are left empty; for uploaded files, the caller states them.

        `key` makes a retry safe after a lost answer.
        """
        said = {"family": family, "prediction_type": prediction_type, "licence": licence, "because": because}
        models = {"base": base_to_json(base), "vae": base_to_json(vae) if vae else None}
        body, key = {"name": name} | models | said, key or uuid4().hex
        return self._http.read(BaseView, "POST", "/v1/bases", body, key=key)

    def get(self, name: str) -> BaseView:
        """Return a base. Raise `NotFound`."""
        return self._http.read(BaseView, "GET", path_of("bases", name))

    def remove(self, name: str) -> None:
        """Delete the name only: jobs refer to bases by content, and what they need stays."""
        self._http.ask("DELETE", path_of("bases", name))

    def list(self) -> Iterator[BaseView]:
        """Yield the project's bases."""
        for base in self._http.read(tuple[BaseView, ...], "GET", "/v1/bases"):
            yield base


class StorageCalls(Calls):
    """What the project keeps in the object store."""

    def get(self) -> StorageView:
        """Return what the project keeps, until when, and what it costs."""
        return self._http.read(StorageView, "GET", "/v1/storage")
