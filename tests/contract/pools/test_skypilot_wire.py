"""What goes wrong between the `skypilot` driver and SkyPilot's API server, in one sentence each, and what the driver offers."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from gangline.adapters.pools.skypilot.driver import SkyPilotPool
from gangline.adapters.pools.skypilot.settings import SkyPilotSettings
from gangline.core.errors import BadInput, Denied, GanglineError, TooMany, Unreachable
from gangline.core.gpus import kind_of_device
from gangline.ports.pool import NoCapacity
from tests.contract.pools.salad import web_page
from tests.contract.pools.skypilot import TOKEN, WANTED, FakeSkyPilot, SkyPilotProvider, row
from tests.contract.pools.suite import ask, rental, start
from tests.servers import served


@pytest.fixture
def cloud() -> FakeSkyPilot:
    return FakeSkyPilot()


@pytest.fixture
def provider(cloud: FakeSkyPilot, url: str) -> SkyPilotProvider:
    return SkyPilotProvider(cloud, url)


def refusal(status: int, **said: Any) -> Response:
    return JSONResponse(said, status)


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (web_page(502), Unreachable, "SkyPilot's server failed at status (HTTP 502)"),
        (web_page(200), Unreachable, "SkyPilot's answer to status has no request id"),
        (web_page(403), Unreachable, "a web page answers status (HTTP 403) in place of SkyPilot's API"),
        (Response(status_code=302, headers={"location": "/login"}), Unreachable, "in place of SkyPilot's API"),
        (refusal(401, detail="Invalid credentials"), Denied, "refuses this (HTTP 401): Invalid credentials"),
        (refusal(403, detail="Not a member."), Denied, "refuses this (HTTP 403): Not a member"),
        (refusal(503, detail="Server is shutting down."), Unreachable, "(HTTP 503): Server is shutting down"),
        (refusal(429, detail="busy"), TooMany, "has too much to do: busy"),
        (refusal(422, detail=[{"msg": "a\x1b[31mb"}]), BadInput, "SkyPilot's server refuses status (HTTP 422)"),
    ],
)
def test_an_answer_that_is_no_list_is_one_sentence_of_its_kind(
    provider: SkyPilotProvider, cloud: FakeSkyPilot, answer: Response, kind: type[GanglineError], said: str
) -> None:
    before = start(provider, "node-a")
    cloud.answers["/status"] = answer
    with pytest.raises(kind) as error:
        provider.driver.list()
    assert said in error.value.message and type(error.value) is kind
    assert error.value.message.isprintable() and len(error.value.message) < 500
    assert TOKEN not in error.value.message + error.value.hint
    cloud.answers.clear()
    assert provider.driver.list() == [before]


def test_a_server_of_an_older_version_is_one_sentence_and_nothing_is_asked_of_it(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    offer = provider.driver.offers()[0].id
    cloud.api_version = "41"
    said = "has version 41 of its API .*, and this driver needs 62"
    for call in (provider.driver.list, lambda: provider.driver.start(offer, rental("node-a"))):
        with pytest.raises(Unreachable, match=said) as error:
            call()
        assert error.value.hint == "upgrade SkyPilot's server"
    assert cloud.launched == [] and cloud.clusters == {}
    cloud.api_version = "63"
    provider.driver.list()


def test_a_newer_server_that_no_longer_knows_this_drivers_version_is_one_sentence(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    before, offer = start(provider, "node-a"), provider.driver.offers()[0].id
    cloud.api_version, known = "70", cloud.api_version
    too_old = refusal(400, error="version_mismatch", message="Your SkyPilot client version is too old: 0.14.1")
    cloud.answers |= dict.fromkeys(("/status", "/api/status", "/launch"), too_old)
    said = r"has version 70 of its API \(.*\), and this driver needs 62 \(0\.14\.1\)$"
    for call in (provider.driver.list, lambda: provider.driver.start(offer, rental("node-b"))):
        with pytest.raises(Unreachable, match=said) as error:
            call()
        assert error.value.hint == "upgrade Gangline"
    cloud.answers.clear()
    cloud.api_version = known
    assert provider.driver.list() == [before]


def test_what_is_no_server_of_skypilots_is_told_so() -> None:
    app = FastAPI()
    app.get("/api/status")(lambda: Response("[]", media_type="application/json"))
    with (
        served(app) as url,
        pytest.raises(Unreachable, match=r"what answers at 127\.0\.0\.1 is no API server of SkyPilot"),
    ):
        SkyPilotPool(settings=WANTED, mark="p1", endpoint=url).list()


def test_a_status_that_skypilot_cannot_tell_is_unreachable(provider: SkyPilotProvider, cloud: FakeSkyPilot) -> None:
    start(provider, "node-a")
    cloud.answers["/api/get"] = refusal(500, detail=failed("OperationalError", "database is locked\nTraceback"))
    with pytest.raises(Unreachable, match=r"^SkyPilot failed at status: database is locked$"):
        provider.driver.list()


@pytest.mark.parametrize(
    ("kind", "told", "said"),
    [
        ("ResourcesUnavailableError", NoCapacity, "SkyPilot found no machine: no"),
        ("NoCloudAccessError", Denied, "SkyPilot does not permit this node: no"),
        ("PermissionDeniedError", Denied, "SkyPilot does not permit this node: no"),
        ("RequestInterruptedError", Unreachable, "SkyPilot failed at launch: no"),
        ("ValueError", BadInput, "SkyPilot refuses the node: no"),
    ],
)
def test_a_launch_that_fails_at_once_says_what_kind_of_failure_it_is(
    provider: SkyPilotProvider,
    cloud: FakeSkyPilot,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    told: type[Exception],
    said: str,
) -> None:
    monkeypatch.setattr(cloud, "_do_launch", lambda made, _: cloud.fail(made, kind, "no"))
    with pytest.raises(told, match=f"^{said}$") as error:
        ask(provider, "node-a")
    assert type(error.value) is told or kind == "RequestInterruptedError"
    assert provider.driver.list() == []


@pytest.mark.parametrize(
    ("secret", "header"),
    [("", None), ("sky_abc", "Bearer sky_abc"), ("me:pass", "Basic " + base64.b64encode(b"me:pass").decode())],
)
def test_the_secret_is_a_token_or_a_name_with_a_password(secret: str, header: str | None) -> None:
    app, heard = FastAPI(), list[str | None]()

    @app.get("/api/status")
    def status(request: Request) -> Response:
        heard.append(request.headers.get("authorization"))
        return refusal(401, detail="no")

    with served(app) as url, pytest.raises(Denied):
        SkyPilotPool(settings=WANTED, mark="p1", endpoint=url, secret=secret).list()
    assert heard == [header]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"endpoint": "sky.example.org"}, "sky.example.org is no address of SkyPilot's API server"),
        ({"endpoint": "https://me:pass@sky.example.org"}, "has a password in it"),
        ({"secret": "a\nb"}, "characters that HTTP does not allow"),
    ],
)
def test_what_cannot_be_right_is_refused_before_anything_is_asked(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadInput) as error:
        SkyPilotPool(**{"settings": WANTED, "mark": "p1", "endpoint": "http://127.0.0.1:9"} | given)
    assert said in error.value.message and "pass" not in error.value.message.replace("password", "")


def test_a_server_that_is_away_names_its_host() -> None:
    with pytest.raises(Unreachable, match=r"^SkyPilot's server \(127\.0\.0\.1\) does not answer: "):
        SkyPilotPool(settings=WANTED, mark="p1", endpoint="http://127.0.0.1:9").list()


# Offers


def test_an_offer_is_a_gpu_in_a_region_at_its_spot_price_with_the_age_that_the_price_may_have(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    first, second = provider.driver.offers()
    assert (first.id, second.id) == ("runpod/CA/rtx4090", "runpod/US/rtx4090")
    assert (first.gpu, first.gpu_memory_gb, first.slots) == ("NVIDIA GeForce RTX 4090", 24, 1)
    assert (first.price_micro_usd_per_hour, first.price_known) == (350_000, True)
    assert first.priced_ms == cloud.now_ms - 7 * 3_600_000


@pytest.mark.parametrize(
    ("settings", "ids"),
    [
        ({"use_spot": False}, ["runpod/CA/rtx4090:on-demand", "runpod/US/rtx4090:on-demand"]),
        ({"regions": ("US",)}, ["runpod/US/rtx4090"]),
        ({"clouds": ("runpod",)}, ["runpod/CA/rtx4090", "runpod/US/rtx4090"]),
        ({"accelerators": ("rtx4090", "A10")}, ["runpod/CA/rtx4090", "runpod/US/rtx4090"]),
        ({"gpus": 2}, ["runpod/CA/2xrtx4090"]),
    ],
)
def test_settings_say_which_offers_there_are(
    cloud: FakeSkyPilot, url: str, settings: dict[str, Any], ids: list[str]
) -> None:
    cloud.catalog += [
        row("RunPod", "RTX4090", 1.4, 0.8, "CA", count=2.0),
        row("RunPod", "RTX4090", 9, 0.1, "CA", memory=8.0),
    ]
    cloud.catalog += [row("RunPod", "RTX4090", 0.9, 0.5, "CA", instance_type="1x_larger")]
    driver = SkyPilotProvider(cloud, url, replace(WANTED, **settings)).driver
    assert [each.id for each in driver.offers()] == ids
    driver.start(ids[0], rental("node-a"))
    assert '"infra": "runpod/' in cloud.launched[0]["task"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"accelerators": ("RTX4090", "RTX4091")}, "SkyPilot's catalog has no node with 1 × RTX4091 on the clouds"),
        ({"accelerators": ("A10",)}, "none of the pool's clouds sells these GPUs as spot machines"),
        ({"memory_gb": 1000}, "no machine in SkyPilot's catalog has what the pool's settings ask for"),
        ({"clouds": ("aws", "runpod")}, "SkyPilot's server has no account of aws"),
    ],
)
def test_settings_for_which_there_is_no_offer_are_told_at_once(
    cloud: FakeSkyPilot, url: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInput, match=said) as error:
        SkyPilotProvider(cloud, url, replace(WANTED, **settings)).driver.offers()
    assert error.value.hint


def test_a_catalog_that_skypilot_cannot_read_is_unreachable_and_the_last_one_stays(
    provider: SkyPilotProvider, cloud: FakeSkyPilot, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = provider.driver.offers()
    cloud.advance(3600)
    monkeypatch.setattr(cloud, "_do_list_accelerators", lambda made, _: cloud.fail(made, "ConnectionError", "no route"))
    assert provider.driver.offers() == before
    with pytest.raises(Unreachable, match=r"^SkyPilot cannot read its catalog: no route$"):
        provider.restarted().offers()


def test_a_price_of_zero_is_no_price(cloud: FakeSkyPilot, url: str) -> None:
    cloud.catalog, cloud.enabled = [row("Kubernetes", "RTX4090", 0.0, 0.0, "lab")], ["kubernetes"]
    (offer,) = SkyPilotProvider(cloud, url).driver.offers()
    assert (offer.id, offer.price_known) == ("kubernetes/lab/rtx4090", False)


@pytest.mark.parametrize(
    ("name", "memory", "kind"),
    [
        ("RTX4090", 24.0, "RTX 4090"),
        ("RTX3090", None, "RTX 3090"),
        ("A100", 40.0, "A100 40GB"),
        ("A100-80GB", None, "A100 80GB"),
        ("H100", 80.0, "H100 SXM"),
        ("L4", None, "L4"),
        ("L40S", 48.0, "L40S"),
        ("A10G", None, "A10G"),
        ("T4", None, "T4"),
        ("V100", 16.0, "V100 16GB"),
        ("RTX6000-Ada", 48.0, "RTX 6000 Ada"),
        ("RTXA6000", None, "RTX A6000"),
    ],
)
def test_gpus_of_the_catalog_are_known_by_what_their_nodes_will_report(
    cloud: FakeSkyPilot, url: str, name: str, memory: float | None, kind: str
) -> None:
    cloud.catalog = [row("RunPod", name, 1.0, 0.5, "CA", gpu_memory=memory)]
    (offer,) = SkyPilotProvider(cloud, url, SkyPilotSettings(accelerators=(name,))).driver.offers()
    found = kind_of_device(offer.gpu, offer.gpu_memory_gb)
    assert found is not None and (found.name, found.memory_gb) == (kind, offer.gpu_memory_gb)


def failed(kind: str, message: str) -> dict[str, Any]:
    request = {"request_id": "r", "name": "sky.status", "status": "FAILED", "cluster_name": None, "created_at": 1.0}
    return request | {
        "return_value": "null",
        "error": f'{{"type": "{kind}", "message": {message!r}}}'.replace("'", '"'),
    }
