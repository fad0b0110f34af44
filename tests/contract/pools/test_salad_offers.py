"""What the `salad` driver offers: classes at priorities, with prices, as far as machines are free."""

from dataclasses import replace
from typing import Any

import pytest

from gangline.adapters.pools.salad.offers import device_name
from gangline.adapters.pools.salad.settings import SaladPoolSettings, SaladProvider, SaladSettings
from gangline.core.errors import BadInput
from gangline.core.parsing import parse_as
from gangline.ports.pool import NoCapacity, Offer
from tests.contract.pools.salad import RTX_3060, FakeSalad, gpu_class
from tests.contract.pools.salad import SaladProvider as Rented
from tests.contract.pools.suite import rental

NVIDIA = SaladSettings()


def offers(cloud: FakeSalad, url: str, settings: SaladSettings = NVIDIA) -> list[Offer]:
    return Rented(cloud, url, settings).driver.offers()


def test_an_offer_is_a_class_at_a_priority_with_its_price(cloud: FakeSalad, url: str) -> None:
    by_id = {offer.id: offer for offer in offers(cloud, url)}
    assert by_id["rtx-4090-24gb:batch"] == Offer(
        id="rtx-4090-24gb:batch",
        gpu="NVIDIA GeForce RTX 4090",
        gpu_memory_gb=24,
        price_micro_usd_per_hour=180_000,
    )
    assert by_id["rtx-3060-12gb:low"].price_micro_usd_per_hour == 47_000
    assert len(by_id) == 8, "no card of another vendor: the image's PyTorch is for NVIDIA's"


def test_a_price_that_salad_does_not_say_or_that_is_none_is_unknown(cloud: FakeSalad, url: str) -> None:
    cloud.classes = [gpu_class(RTX_3060, "RTX 3060 (12 GB)", {"high": "0", "medium": "-1", "low": "free"})]
    assert {(offer.price_known, offer.price_micro_usd_per_hour) for offer in offers(cloud, url)} == {(False, 0)}


@pytest.mark.parametrize("name", ["RTX 3060 (12 GB)", "rtx 3060 (12 gb)", RTX_3060])
def test_the_settings_choose_classes_by_name_or_id_and_priorities(cloud: FakeSalad, url: str, name: str) -> None:
    settings = replace(NVIDIA, classes=(name,), priorities=("batch",))
    assert [offer.id for offer in offers(cloud, url, settings)] == ["rtx-3060-12gb:batch"]


def test_a_class_that_does_not_exist_is_refused_with_those_that_do(cloud: FakeSalad, url: str) -> None:
    with pytest.raises(BadInput, match="Salad has no GPU class RTX 9090") as error:
        offers(cloud, url, replace(NVIDIA, classes=("RTX 9090", RTX_3060)))
    assert "RTX 4090 (24 GB)" in error.value.hint


def test_a_class_that_cannot_have_what_the_settings_ask_for_is_not_offered(cloud: FakeSalad, url: str) -> None:
    cloud.classes[0] |= {"max_ram": 8192}
    assert {offer.id.partition(":")[0] for offer in offers(cloud, url)} == {"rtx-3060-12gb"}
    with pytest.raises(BadInput, match=r"RTX 4090 .* cannot have as much CPU, memory or storage"):
        offers(cloud, url, replace(NVIDIA, classes=("RTX 4090 (24 GB)",)))


def test_a_class_that_has_more_at_least_is_asked_for_that(cloud: FakeSalad, url: str) -> None:
    cloud.classes = [gpu_class(RTX_3060, "8x H100 (80 GB)", {"high": "9.5"}, gpu_count=8, min_vcpu=64, max_vcpu=128)]
    provider = Rented(cloud, url)
    (offer, *_) = provider.driver.offers()
    assert (offer.slots, offer.price_micro_usd_per_hour) == (8, 9_500_000)
    provider.driver.start(offer.id, rental("node-a"))
    assert cloud.created[0]["container"]["resources"]["cpu"] == 64


def test_two_classes_of_one_name_are_two_offers(cloud: FakeSalad, url: str) -> None:
    secure = cloud.classes[0] | {"id": "5ec0e000-0000-0000-0000-000000000000", "gpu_class_type": "secure"}
    cloud.classes = [cloud.classes[0], secure]
    assert len({offer.id for offer in offers(cloud, url)}) == 8


def test_a_priority_at_which_no_machine_is_free_is_not_offered_until_there_is_one(cloud: FakeSalad, url: str) -> None:
    provider = Rented(cloud, url)
    cloud.free |= {"batch": 0, "low": 0}
    assert {offer.id.partition(":")[2] for offer in provider.driver.offers()} == {"high", "medium"}
    cloud.free |= {"batch": 1}
    cloud.requests.clear()
    assert {offer.id.partition(":")[2] for offer in provider.driver.offers()} == {"high", "medium"}
    assert cloud.requests == [], "what was asked a moment ago is not asked again"
    cloud.advance(61)
    assert {offer.id.partition(":")[2] for offer in provider.driver.offers()} == {"high", "medium", "batch"}


def test_free_machines_that_salad_does_not_count_may_be_there(cloud: FakeSalad, url: str) -> None:
    cloud.free = {}
    assert len(offers(cloud, url)) == 8


def test_availability_is_asked_again_before_a_group_is_created(cloud: FakeSalad, url: str) -> None:
    provider = Rented(cloud, url)
    offer = provider.driver.offers()[0].id
    cloud.free = dict.fromkeys(cloud.free, 0)
    with pytest.raises(NoCapacity, match=r"Salad has no free RTX 4090 \(24 GB\) at priority high now"):
        provider.driver.start(offer, rental("node-a"))
    assert cloud.created == []


def test_prices_are_read_again_after_a_while(cloud: FakeSalad, url: str) -> None:
    provider = Rented(cloud, url)
    before = provider.driver.offers()
    cloud.classes[0]["prices"] = [{"priority": "high", "price": "0.31"}]
    assert provider.driver.offers() == before
    cloud.advance(601)
    assert provider.driver.offers()[0].price_micro_usd_per_hour == 310_000


def test_machines_are_asked_for_in_the_countries_of_the_settings(cloud: FakeSalad, url: str) -> None:
    provider = Rented(cloud, url, replace(NVIDIA, countries=("de", "us")))
    provider.driver.start(provider.driver.offers()[0].id, rental("node-a"))
    assert cloud.created[0]["country_codes"] == ["de", "us"]


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("RTX 4090 (24 GB)", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("RTX 4070 Ti Super (16 GB)", "NVIDIA GeForce RTX 4070 Ti Super"),
        ("RTX 5090 Laptop (24 GB)", "NVIDIA GeForce RTX 5090 Laptop GPU"),
        ("GTX 1660 Super (6 GB)", "NVIDIA GeForce GTX 1660 Super"),
        ("RTX A5000 (24 GB)", "NVIDIA RTX A5000"),
        ("RTX 6000 Ada (48 GB)", "NVIDIA RTX 6000 Ada"),
        ("Radeon RX 7900 XTX (24 GB)", "Radeon RX 7900 XTX"),
    ],
)
def test_a_card_is_called_as_its_driver_calls_it(name: str, device: str) -> None:
    assert device_name(name) == device


@pytest.mark.parametrize(
    "wrong",
    [
        {"organization": "../acme"},
        {"organization": ""},
        {"project": "Dogs"},
        {"project": "dogs\x1b"},
        {"keys": "https://example.org/keys.json"},  # a row must not choose whom the server believes
        {"priorities": []},
        {"priorities": ["lowest"]},
        {"cpu": 0},
        {"memory_gb": True},
        {"memory_gb": 1, "shared_memory_gb": 2},
        {"prefix": "Gl"},
        {"prefix": "a-b"},
        {"prefix": ""},
        {"countries": ["Germany"]},
        {"image": ""},
        {"timeout_s": 0},
        {"colour": "green"},
    ],
    ids=str,
)
def test_settings_that_contradict_or_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    right = {"organization": "acme", "project": "dogs", "classes": ["RTX 4090 (24 GB)"]}
    assert parse_as(SaladPoolSettings, right, options=True).classes == ("RTX 4090 (24 GB)",)
    with pytest.raises(BadInput):
        parse_as(SaladPoolSettings, right | wrong, options=True)


@pytest.mark.parametrize("wrong", [{"keys": "matrix-rest-api.salad.com"}, {"keys": ""}, {"endpoint": ""}], ids=str)
def test_addresses_of_salad_that_cannot_be_are_refused(wrong: dict[str, str]) -> None:
    assert parse_as(SaladProvider, {}, options=True) == SaladProvider()
    with pytest.raises(BadInput):
        parse_as(SaladProvider, wrong, options=True)
