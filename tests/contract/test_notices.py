"""What a provider says before it takes a machine back, as its documentation shows it; and a file that appears."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI, Request, Response

from gangline.adapters.host.notices import Notices
from tests.servers import served
from tests.waiting import until

OFTEN_S = 0.01


class Metadata:
    """The service at a link-local address; `taken` is whether it takes the machine back."""

    def __init__(self) -> None:
        self.taken = False
        self.app = FastAPI()
        self.app.put("/latest/api/token")(self.token)
        self.app.get("/latest/meta-data/spot/instance-action")(self.amazon)
        self.app.get("/computeMetadata/v1/instance/preempted")(self.google)
        self.app.get("/metadata/scheduledevents")(self.azure)

    def token(self, request: Request) -> Response:
        known = "x-aws-ec2-metadata-token-ttl-seconds" in request.headers
        return Response("secret" if known else "", 200 if known else 400)

    def amazon(self, request: Request) -> Response:
        if request.headers.get("x-aws-ec2-metadata-token") != "secret":
            return Response(status_code=401)
        told = '{"action": "terminate", "time": "2026-09-18T08:22:00Z"}'
        return Response(told) if self.taken else Response(status_code=404)

    def google(self, request: Request) -> Response:
        assert request.headers["metadata-flavor"] == "Google"
        return Response("TRUE" if self.taken else "FALSE")

    def azure(self, request: Request) -> dict[str, object]:
        assert request.headers["metadata"] == "true"
        return {"DocumentIncarnation": 1, "Events": [{"EventId": "1", "EventType": "Preempt"}] if self.taken else []}


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metadata]:
    service = Metadata()
    with served(service.app) as url:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        monkeypatch.setenv("GANGLINE_AZURE_METADATA", url)
        monkeypatch.setenv("GCE_METADATA_HOST", url.removeprefix("http://"))
        yield service


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        ("aws", "Amazon will terminate this machine at 2026-09-18T08:22:00Z"),
        ("gcp", "Google will preempt this machine"),
        ("azure", "Azure will delete this machine"),
    ],
)
def test_a_provider_is_asked_until_it_says_so(metadata: Metadata, provider: str, words: str) -> None:
    said = list[str]()
    notice = Notices(provider, said.append, os.environ, OFTEN_S)
    assert notice() == ""
    metadata.taken = True
    until(notice)
    assert (notice(), said) == (words, [])


def test_a_file_that_appears_is_a_notice(tmp_path: Path) -> None:
    notice = Notices(str(tmp_path / "going"), lambda text: None, os.environ, OFTEN_S)
    (tmp_path / "going").touch()
    until(notice)
    assert notice() == f"{tmp_path / 'going'} has appeared"


def test_where_there_is_nobody_to_ask_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9")
    said = list[str]()
    notice = Notices("aws", said.append, os.environ, OFTEN_S)
    until(lambda: said)
    assert "the metadata service gave no usable answer" in said[0] and notice() == ""
