"""What a webhook is sent: bytes that steer nothing wherever they are shown, signed as they are."""

import json

import pytest
from fastapi import FastAPI, Request, Response
from standardwebhooks import Webhook

from gangline.adapters.notifiers.webhook import Webhooks
from tests.servers import served

SECRET = "whsec_" + "c2VjcmV0IG9mIGEgdGVzdCwgbG9uZyBlbm91Z2g="
NAME = "[sks] \x1b[2J\x7f\x9b31m\u202e\u2028\n<script> 猫 \udcff"


def test_any_name_is_sent_in_ascii_and_the_signature_is_of_these_bytes() -> None:
    app, heard, said = FastAPI(), list[bytes](), list[str]()

    @app.post("/hook")
    async def hook(request: Request) -> Response:
        body = await request.body()
        Webhook(SECRET).verify(body, dict(request.headers))
        heard.append(body)
        return Response(status_code=204)

    with served(app) as url:
        webhooks = Webhooks(f"{url}/hook", SECRET, lambda: 1_000, said.append)
        webhooks.tell(f"exec.{NAME}", {"because": NAME})
        assert webhooks.close(20) == 0
    assert said == []
    [body] = heard
    assert body.isascii() and body.decode().isprintable()
    assert json.loads(body) == {
        "type": f"exec.{NAME}",
        "timestamp": "1970-01-01T00:00:01.000Z",
        "data": {"because": NAME},
    }


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/\x1b", "http://127.0.0.1:9/\udcff", f"http://{NAME}", ""], ids=ascii
)
def test_an_address_that_is_none_is_a_warning_and_holds_up_nothing(url: str) -> None:
    said = list[str]()
    webhooks = Webhooks(url, SECRET, lambda: 1_000, said.append)
    webhooks.tell("exec.ended", {})
    assert webhooks.close(5) == 1
    assert said == ["the webhook does not answer; the message will be sent again"]
