"""`gangline pools check` against a server whose provider is the shop: what it shows, and that it leaves nothing behind."""

import _thread
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import typer

from gangline.adapters.objects.local import LocalObjects
from gangline.cli.tools.check import run_check
from gangline.cli.tools.pool_check import PoolCheck
from gangline.compose.client import Client
from gangline.core.errors import BadInput, Denied
from gangline.core.fleet.check import STAGES, CheckLimits
from gangline.ports.server import Assignment, Hold
from gangline.service.fleet.fleet import tend
from gangline.service.jobs.claim import claim
from tests.service.conftest import OPERATOR, Service, a_service
from tests.service.fleet.test_pools import add, join, rented
from tests.service.served import serving
from tests.service.test_rules import beat, succeed


@dataclass
class World:
    """The server's ticks and the workers of the shop's nodes, a second of the test's time after the other."""

    service: Service
    joins: bool = True
    happens: Callable[[], object] = lambda: None
    nodes: dict[str, str] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    broken: BaseException | None = None

    def step(self) -> None:
        service = self.service
        service.wait(1)
        service.till.now_ms = service.now_ms
        self.happens()
        tend(service.deployment, service.now_ms)
        for rental in rented(service) if self.joins else []:
            if rental not in self.nodes:
                self.nodes[rental] = join(service, rental)
            self._work(self.nodes[rental])

    def _work(self, node: str) -> None:
        if node in self.holds:
            succeed(self.service, node, self.holds.pop(node))
            return
        given = claim(self.service.deployment, node, self.service.now_ms)
        if isinstance(given, Assignment):
            self.holds[node] = given.hold
            beat(self.service, node, given.hold, 10)

    @contextmanager
    def turning(self) -> Iterator[None]:
        over = threading.Event()

        def turn() -> None:
            try:
                while not over.wait(0.02):
                    self.step()
            except BaseException as error:
                self.broken = error
                _thread.interrupt_main()

        thread = threading.Thread(target=turn)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            if self.broken:
                raise self.broken


@dataclass
class Shop:
    service: Service
    client: Client

    def check(self, world: World, offer: str = "small", gone_s: float = 60.0, **limits: Any) -> PoolCheck:
        """Run a check to its end while the world turns."""
        found = self.made(gone_s, **limits)
        with world.turning():
            run_check(found, offer)
        return found

    def made(self, gone_s: float = 60.0, **limits: Any) -> PoolCheck:
        return PoolCheck(
            self.client,
            "cloud-1",
            CheckLimits(**({"usd_max": 1.0, "minutes_max": 5.0} | limits)),
            look_every_s=0.02,
            gone_s=gone_s,
        )

    def nothing_is_left(self) -> bool:
        jobs = {row["state"] for row in self.service.look("SELECT state FROM job")}
        return (
            not rented(self.service)
            and jobs <= {"succeeded", "canceled"}
            and all(found.billed_to_ms is not None for found in self.service.till.instances.values())
        )


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    database, objects = str(tmp_path / "db.sqlite"), LocalObjects(tmp_path / "store", "secret")
    with (
        a_service(tmp_path, database, objects) as service,
        serving(service.app) as served,
        Client(served.url, OPERATOR) as client,
    ):
        add(service)
        yield Shop(service, client)


def test_a_pool_that_works_is_shown_to_work_with_nothing_left_and_its_bill(shop: Shop) -> None:
    found = shop.check(World(shop.service))
    assert found.because == "" and found.left == []
    assert set(found.stages) == set(STAGES) - {"saved"}, "the shop's worker saves nothing"
    (bill,) = found.bills
    (instance,) = shop.service.till.instances.values()
    assert bill.settled and [each.instance for each in bill.billed] == [instance.id]
    assert instance.billed_to_ms and instance.billed_from_ms is not None
    hours = (instance.billed_to_ms - instance.billed_from_ms) / 3_600_000
    assert bill.cost_usd == pytest.approx(0.1 * hours, abs=2e-6)
    assert shop.service.till.started == ["small"] and shop.nothing_is_left()


def test_a_node_that_never_joins_is_given_back_with_what_it_printed(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    found = shop.check(World(shop.service, joins=False), minutes_max=0.05)
    assert found.because.startswith("its job has not succeeded in 0.05 minutes (cloud-1-1 has not joined")
    assert "instance-0 is ready" in capsys.readouterr().err
    assert found.left == [] and "gone" in found.stages and shop.nothing_is_left()


def until_it_sees_a_node(found: PoolCheck) -> None:
    ends_s = time.monotonic() + 60
    while not found.rented and time.monotonic() < ends_s:
        threading.Event().wait(0.01)
    assert found.rented


def test_what_the_provider_refuses_is_said_in_its_words(shop: Shop) -> None:
    shop.service.till.sold_out = {"small"}
    found = shop.check(World(shop.service))
    assert found.because == "the provider refused small: no small is left"
    assert shop.service.till.instances == {} and shop.nothing_is_left()


@pytest.mark.parametrize("sold_out", [{"small"}, {"small", "large"}])
def test_a_node_that_is_seen_before_its_provider_refuses_it_was_none(shop: Shop, sold_out: set[str]) -> None:
    world, found = World(shop.service), shop.made(usd_max=5.0)
    shop.service.till.sold_out = sold_out
    shop.service.till.before_refusing = lambda: until_it_sees_a_node(found)
    with world.turning():
        run_check(found, "")
    assert next(iter(found.rented.values())).refused and shop.nothing_is_left()
    if "large" in sold_out:
        assert found.because == "the provider refused large: no large is left" and found.bills == []
    else:
        assert found.because == "" and [bill.rental for bill in found.bills] == list(found.were_rented())


@pytest.mark.parametrize(
    ("offer", "limits", "because"),
    [
        ("medium", {}, "the provider of cloud-1 has no offer medium now"),
        ("large", {"usd_max": 0.1}, "5 minutes of large cost $0.17, and the check may cost $0.1"),
    ],
)
def test_a_wrong_offer_and_too_small_a_budget_are_refused_before_anything_is_submitted(
    shop: Shop, offer: str, limits: dict[str, Any], because: str
) -> None:
    with pytest.raises(BadInput) as refused:
        shop.check(World(shop.service), offer, **limits)
    assert refused.value.message == because
    assert shop.service.look("SELECT id FROM job") == [] and shop.service.till.started == []


def test_a_pool_that_rents_nothing_is_refused_without_asking_its_provider(shop: Shop) -> None:
    """No world turns here, so no provider answers."""
    shop.client.pools.pause("cloud-1")
    with pytest.raises(BadInput, match="the pool cloud-1 is paused, so no node would be rented"):
        run_check(shop.made(), "small")
    shop.client.pools.resume("cloud-1")
    token = shop.service.join_token(pool="cloud-1")["secret"]
    assert shop.service.join_with(token, "idle").status_code == 201
    with pytest.raises(BadInput, match="idle has no job and would take the check's job, so no node would be rented"):
        run_check(shop.made(), "small")
    assert shop.service.look("SELECT id FROM job") == []


def test_after_ctrl_c_the_job_is_canceled_and_the_node_is_given_back(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(shop.service, joins=False)

    def interrupt() -> None:
        if shop.service.look("SELECT id FROM node WHERE instance IS NOT NULL"):
            world.happens = lambda: None
            _thread.interrupt_main()

    world.happens = interrupt
    with pytest.raises(typer.Exit) as ended:
        shop.check(world)
    assert ended.value.exit_code == 130
    assert "`gangline pools instances cloud-1` shows what is left" in capsys.readouterr().err
    shop.service.wait(1)
    tend(shop.service.deployment, shop.service.now_ms)
    assert shop.nothing_is_left()


def test_a_double_that_appears_late_is_stopped_before_the_check_is_over(shop: Shop) -> None:
    world, till = World(shop.service), shop.service.till

    def double() -> None:
        ended = [each for each in till.instances.values() if each.billed_to_ms is not None]
        if ended and "double" not in till.instances:
            till.instances["double"] = replace(ended[0], id="double", billed_to_ms=None)

    world.happens = double
    found = shop.check(world)
    assert found.because == "" and found.left == [] and shop.nothing_is_left()
    assert {each.instance for each in found.bills[0].billed} == {"double", "instance-0"}


def test_an_instance_that_does_not_end_is_named_and_the_check_does_not_pass(shop: Shop) -> None:
    shop.service.till.never_stops = True
    found = shop.check(World(shop.service), gone_s=1.0)
    assert [each.id for each in found.left] == ["instance-0"]
    assert found.because == "it could not be shown in 1 s that nothing is left" and "gone" not in found.stages


def test_a_provider_that_answers_no_more_shows_nothing_and_the_check_does_not_pass(shop: Shop) -> None:
    world = World(shop.service)

    def lock() -> None:
        if shop.service.look("SELECT id FROM job WHERE state = 'succeeded'"):
            shop.service.till.refuses = Denied("this key is not valid any more")

    world.happens = lock
    found = shop.check(world, gone_s=1.0)
    assert found.because == "it could not be shown in 1 s that nothing is left: this key is not valid any more"
    assert "finished" in found.stages and "gone" not in found.stages
