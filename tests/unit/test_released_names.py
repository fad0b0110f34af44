"""Code for the client of older versions still works, and hears what the names are now."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import httpx
import pytest

from gangline import AsyncClient, Client, Damaged, Unreachable
from gangline.types import ArtifactView
from gangline.wire.client.calls import Calls
from gangline.wire.released import CALLED, RELEASED


@pytest.fixture
def client() -> Iterator[Client]:
    with Client("http://127.0.0.1:9", "a-key") as client:
        yield client


@pytest.mark.parametrize(("older", "now"), RELEASED.items(), ids=RELEASED)
def test_an_older_name_is_the_method_that_it_names(client: Client, older: str, now: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"client\.{older}\(…\) is client\.{now}\(…\) now"):
        found = getattr(client, older)
    assert older in ("pool_drivers", "pool_instances") or found == attrgetter(now)(client)


def test_every_noun_that_was_a_method_may_be_called_and_no_other(client: Client) -> None:
    nouns = {name: type(noun).__name__ for name, noun in vars(client).items() if isinstance(noun, Calls)}
    assert {name: CALLED[of] for name, of in nouns.items() if of in CALLED} == {
        name: f"{name}.{'get' if name in ('logs', 'metrics', 'storage') else 'list'}"
        for name in nouns
        if name not in ("costs", "datasets", "endpoints", "experiments", "facts", "files", "pictures", "queue")
    }


@pytest.fixture
def asked(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The requests of the client, each of which is answered with an empty list."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        return httpx.Response(200, json=[], request=request)

    with httpx.Client(transport=httpx.MockTransport(answer), base_url="http://127.0.0.1:9") as there:
        monkeypatch.setattr(client._http, "_client", there)
        yield asked


def test_a_list_that_was_a_list_is_one(client: Client, asked: list[str]) -> None:
    with pytest.warns(DeprecationWarning, match=r"client\.join_tokens\(…\) is client\.join_tokens\.list\(…\) now"):
        assert client.join_tokens() == []  # type: ignore[operator]


CALLS: dict[str, Callable[[Any], object]] = {
    "/v1/jobs/j/metrics?after=5": lambda client: client.metrics("j", after=5),
    "/v1/jobs/j/logs?after=1.2": lambda client: client.logs("j", after="1.2"),
    "/v1/jobs/j/events?after=3": lambda client: client.events("j", after=3),
    "/v1/jobs/j/artifacts": lambda client: client.artifacts(job="j"),
    "/v1/pools/p/instances": lambda client: client.pool_instances(name="p"),
    "/v1/jobs/j/checkpoints/4": lambda client: client.checkpoint(job="j", step=4),
    "/v1/bases": lambda client: client.bases(),
}


@pytest.mark.parametrize("path", CALLS)
def test_an_older_call_may_name_its_arguments_and_its_own_line_is_warned(
    client: Client, asked: list[str], path: str
) -> None:
    call = CALLS[path]
    with pytest.warns(DeprecationWarning) as warned, suppress(Unreachable):  # an empty list is no log
        assert call(client) == []
    assert asked == [path]
    assert [(each.filename, each.lineno) for each in warned] == [(__file__, call.__code__.co_firstlineno)]


def test_a_download_may_name_its_artifact_as_before(client: Client, tmp_path: Path) -> None:
    outside = ArtifactView(path="../outside", bytes=1, sha256="0" * 64, url="/outside")
    with pytest.warns(DeprecationWarning), pytest.raises(Damaged, match="cannot be the name of a file"):
        client.download(artifact=outside, folder=tmp_path)  # type: ignore[attr-defined]


def test_what_never_was_is_no_attribute(client: Client) -> None:
    with pytest.raises(AttributeError, match="'Client' object has no attribute 'nothing'"):
        client.nothing  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(AsyncClient("http://127.0.0.1:9", "a-key"), "submit"), "it has no older version"
