"""Between two ticks the server glances: work that has just come is rented for at once."""

from dataclasses import replace

import pytest

from gangline.core.fleet.autoscale import PoolLimits
from gangline.ports.pool import Offer
from gangline.service.controller import Controller
from gangline.service.deployment import RentedPool
from gangline.service.driving import AtOnce
from gangline.service.outage import take_turn
from tests.service.conftest import POLICY, Service
from tests.unit.fleet.test_autoscale_found import Shop


@pytest.fixture
def shop(service: Service) -> Shop:
    made = Shop(Offer(id="offer"))
    limits = PoolLimits(name="cloud", nodes_min=0, nodes_max=2)
    service.deployment = replace(service.deployment, pools={"cloud": RentedPool(limits, AtOnce(made))})
    return made


@pytest.fixture
def controller(service: Service, shop: Shop) -> Controller:
    made = Controller(service.deployment)
    made.tick(service.now_ms)
    return made


def test_what_came_since_the_last_tick_is_rented_for_at_a_glance(
    service: Service, shop: Shop, controller: Controller
) -> None:
    service.wait(0.5)
    controller.glance(service.now_ms)
    assert shop.started == []
    service.wait(0.001)
    service.submit()
    service.wait(0.5)
    controller.glance(service.now_ms)
    assert shop.started == ["offer"]


def test_work_that_waits_does_not_make_every_glance_a_look(
    service: Service, shop: Shop, controller: Controller
) -> None:
    service.wait(0.001)
    service.submit()
    service.wait(0.5)
    controller.glance(service.now_ms)
    looks = shop.looks
    for _ in range(5):
        service.wait(0.5)
        controller.glance(service.now_ms)
    assert shop.looks == looks


def test_a_server_that_has_not_its_turn_rents_nothing(service: Service, shop: Shop, controller: Controller) -> None:
    service.store.time_ms += POLICY.turn_ms + 1
    assert take_turn(replace(service.deployment, server="another"), service.now_ms)
    service.store.time_ms += 1
    service.submit()
    controller.glance(service.now_ms)
    assert shop.started == []
