"""What every pool driver promises, also while its provider fails.

The test class of a driver subclasses `PoolSuite`, and of the other suites those whose faults its provider can have. It has one fixture,
`provider`: the provider with room for `PLACES` nodes, its driver, and what a test does to the provider behind the driver's back.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol

import pytest

from gangline.core.errors import Denied, Unreachable
from gangline.ports.pool import Instance, NoCapacity, Pool, Rental
from tests.waiting import until

PLACES = 2


class Fault(Enum):
    """What a provider suffers from, as long as the test says."""

    LOST_AFTER = "a request that rents is carried out, and its answer is lost"
    LOST_BEFORE = "a request that rents is lost"
    AWAY = "nothing answers"
    PARTIAL = "lists arrive in part"
    STALE = "lists show what there was when this began"
    NO_CAPACITY = "no machine is free"
    QUOTA = "the account may rent no more"
    CREDENTIALS = "the credentials are no longer accepted"
    DEAF = "a request to stop is accepted, and nothing happens"


class Provider(Protocol):
    """A provider with room for `PLACES` nodes, which a test can look at from behind."""

    @property
    def driver(self) -> Pool: ...

    def run(self, name: str) -> None:
        """Bring the node that was rented under this name to run."""
        ...

    def kill(self, name: str) -> None:
        """End the node as a power failure does."""
        ...


class FaultyProvider(Provider, Protocol):
    """A provider that is asked from afar."""

    def suffers(self, fault: Fault) -> AbstractContextManager[None]: ...

    def end_by_hand(self, name: str) -> None:
        """End the node as its operator does with the provider's own tools."""
        ...

    def rent_by_hand(self, name: str) -> str:
        """Rent something of this name in the same account, for another purpose. Return its id."""
        ...

    def has(self, instance: str) -> bool:
        """Return whether the provider itself still has something of this id."""
        ...

    def restarted(self) -> Pool:
        """Return another driver of the same provider, as a server that restarts makes it."""
        ...


class DoublingProvider(Provider, Protocol):
    """A provider whose names are not unique."""

    def double(self, name: str) -> None:
        """Rent a second node of this name, as another server that repeats a request does."""
        ...


def rental(name: str) -> Rental:
    return Rental(name=name, server="http://nowhere", token="a secret")


def ask(provider: Provider, name: str) -> None:
    provider.driver.start(provider.driver.offers()[0].id, rental(name))


def start(provider: Provider, name: str) -> Instance:
    ask(provider, name)
    provider.run(name)
    return alive(provider, name)


def alive(provider: Provider, name: str) -> Instance:
    (only,) = [each for each in provider.driver.list() if each.name == name and each.billed_to_ms is None]
    return only


def found(provider: Provider, name: str) -> Instance:
    (only,) = [each for each in provider.driver.list() if each.name == name]
    return only


def names(pool: Pool) -> list[str]:
    return sorted(each.name for each in pool.list() if each.billed_to_ms is None)


def has_ended(provider: Provider, name: str) -> Callable[[], bool]:
    return lambda: found(provider, name).billed_to_ms is not None


class PoolSuite:
    """What every driver promises, with a provider that has no faults but that its machines die."""

    def test_a_fresh_pool_has_offers_and_no_instances(self, provider: Provider) -> None:
        offers = provider.driver.offers()
        assert provider.driver.list() == []
        assert offers and len({offer.id for offer in offers}) == len(offers)
        assert all(offer.slots >= 1 and offer.price_micro_usd_per_hour >= 0 for offer in offers)

    def test_what_was_started_is_listed_by_its_name_and_billed_from_when_it_runs(self, provider: Provider) -> None:
        instance = start(provider, "node-a")
        assert instance.billed_from_ms is not None and instance.billed_to_ms is None and not instance.ended
        assert provider.driver.list() == [instance] == provider.driver.list()

    def test_what_was_stopped_ends_and_stays_in_the_list_with_the_end_of_its_bill(self, provider: Provider) -> None:
        instance = start(provider, "node-a")
        provider.driver.stop(instance.id)
        until(has_ended(provider, "node-a"))
        ended = found(provider, "node-a")
        assert (ended.id, ended.billed_from_ms) == (instance.id, instance.billed_from_ms)
        assert instance.billed_from_ms is not None and ended.billed_to_ms is not None
        assert instance.billed_from_ms <= ended.billed_to_ms
        assert found(provider, "node-a") == ended

    def test_to_stop_again_or_what_never_was_is_no_error(self, provider: Provider) -> None:
        instance = start(provider, "node-a")
        for _ in range(3):
            provider.driver.stop(instance.id)
        provider.driver.stop("no such instance")
        until(has_ended(provider, "node-a"))
        provider.driver.stop(instance.id)

    def test_what_was_stopped_before_it_ran_ends_too(self, provider: Provider) -> None:
        ask(provider, "node-a")
        for instance in provider.driver.list():
            provider.driver.stop(instance.id)
        until(lambda: names(provider.driver) == [])

    def test_a_second_request_with_one_name_rents_nothing(self, provider: Provider) -> None:
        instance = start(provider, "node-a")
        assert start(provider, "node-a") == instance and provider.driver.list() == [instance]

    def test_stopping_one_leaves_the_others(self, provider: Provider) -> None:
        first, second = start(provider, "node-a"), start(provider, "node-b")
        provider.driver.stop(first.id)
        until(has_ended(provider, "node-a"))
        assert found(provider, "node-b") == second

    def test_where_there_is_no_room_start_says_so_and_starts_nothing(self, provider: Provider) -> None:
        offer = provider.driver.offers()[0].id
        for name in ("node-a", "node-b"):
            start(provider, name)
        with pytest.raises(NoCapacity):
            provider.driver.start(offer, rental("node-c"))
        assert {instance.name for instance in provider.driver.list()} == {"node-a", "node-b"}

    def test_room_that_became_free_can_be_rented_and_every_instance_has_its_own_id(self, provider: Provider) -> None:
        first, second = start(provider, "node-a"), start(provider, "node-b")
        provider.driver.stop(first.id)
        until(has_ended(provider, "node-a"))
        third = start(provider, "node-c")
        assert len({first.id, second.id, third.id}) == 3

    def test_an_offer_that_is_not_there_cannot_be_had(self, provider: Provider) -> None:
        with pytest.raises(NoCapacity):
            provider.driver.start("no such offer", rental("node-a"))
        assert provider.driver.list() == []

    def test_a_node_that_dies_ends_with_its_reason_or_is_shown_in_another_place(self, provider: Provider) -> None:
        before = start(provider, "node-a")
        provider.kill("node-a")

        def is_told() -> bool:
            now = found(provider, "node-a")
            return bool(now.ended) if now.billed_to_ms is not None else now.place not in ("", before.place)

        until(is_told)


class LostAnswerSuite:
    """A request may have been carried out although it got no answer."""

    def test_a_request_whose_answer_was_lost_has_rented_one_node(self, provider: FaultyProvider) -> None:
        offer = provider.driver.offers()[0].id
        with provider.suffers(Fault.LOST_AFTER), pytest.raises(Unreachable):
            provider.driver.start(offer, rental("node-a"))
        provider.run("node-a")
        instance = alive(provider, "node-a")
        provider.driver.start(offer, rental("node-a"))
        assert provider.driver.list() == [instance]

    def test_a_request_that_was_lost_has_rented_nothing_and_may_be_repeated(self, provider: FaultyProvider) -> None:
        offer = provider.driver.offers()[0].id
        with provider.suffers(Fault.LOST_BEFORE), pytest.raises(Unreachable):
            provider.driver.start(offer, rental("node-a"))
        assert provider.driver.list() == []
        instance = start(provider, "node-a")
        assert provider.driver.list() == [instance]

    def test_a_provider_that_does_not_answer_is_unreachable_and_nothing_is_forgotten(
        self, provider: FaultyProvider
    ) -> None:
        instance, offer = start(provider, "node-a"), provider.driver.offers()[0].id
        with provider.suffers(Fault.AWAY):
            with pytest.raises(Unreachable):
                provider.driver.list()
            with pytest.raises(Unreachable):
                provider.driver.start(offer, rental("node-b"))
            with pytest.raises(Unreachable):
                provider.driver.stop(instance.id)
        assert provider.driver.list() == [instance]


class ListSuite:
    """A list may be incomplete or late."""

    def test_a_list_that_arrives_in_part_is_no_shorter_list(self, provider: FaultyProvider) -> None:
        instances = [start(provider, "node-a"), start(provider, "node-b")]
        with provider.suffers(Fault.PARTIAL), pytest.raises(Unreachable):
            provider.driver.list()
        assert sorted(provider.driver.list(), key=lambda each: each.name) == instances

    def test_what_a_late_list_does_not_show_yet_has_not_ended_and_is_not_rented_twice(
        self, provider: FaultyProvider
    ) -> None:
        offer = provider.driver.offers()[0].id
        provider.driver.list()
        with provider.suffers(Fault.STALE):
            provider.driver.start(offer, rental("node-a"))
            assert not any(instance.ended for instance in provider.driver.list())
            provider.driver.start(offer, rental("node-a"))
        provider.run("node-a")
        assert [each.name for each in provider.driver.list()] == ["node-a"]

    def test_what_a_late_list_still_shows_ends_when_it_catches_up(self, provider: FaultyProvider) -> None:
        instance = start(provider, "node-a")
        with provider.suffers(Fault.STALE):
            provider.driver.stop(instance.id)
            provider.driver.list()
            provider.driver.stop(instance.id)
        until(has_ended(provider, "node-a"))


class RefusalSuite:
    """A provider that refuses has rented nothing, and the error says which refusal it is."""

    @pytest.mark.parametrize("fault", [Fault.NO_CAPACITY, Fault.QUOTA])
    def test_what_cannot_be_had_now_can_be_had_later(self, provider: FaultyProvider, fault: Fault) -> None:
        offer = provider.driver.offers()[0].id
        with provider.suffers(fault):
            with pytest.raises(NoCapacity) as refusal:
                provider.driver.start(offer, rental("node-a"))
            assert provider.driver.list() == []
        assert refusal.value.message and "\n" not in refusal.value.message
        start(provider, "node-a")

    def test_credentials_that_are_refused_are_denied_in_every_call(self, provider: FaultyProvider) -> None:
        instance, offer = start(provider, "node-a"), provider.driver.offers()[0].id
        with provider.suffers(Fault.CREDENTIALS):
            with pytest.raises(Denied):
                provider.driver.list()
            with pytest.raises(Denied):
                provider.driver.start(offer, rental("node-b"))
            with pytest.raises(Denied):
                provider.driver.stop(instance.id)
        assert provider.driver.list() == [instance]


class StubbornSuite:
    """A node may go on although its provider was told to stop it."""

    def test_a_node_that_does_not_stop_is_listed_as_running_until_it_has_ended(self, provider: FaultyProvider) -> None:
        instance = start(provider, "node-a")
        with provider.suffers(Fault.DEAF):
            for _ in range(3):
                provider.driver.stop(instance.id)
                listed = found(provider, "node-a")
                assert (listed.id, listed.billed_to_ms, listed.ended) == (instance.id, None, "")
        provider.driver.stop(instance.id)
        until(has_ended(provider, "node-a"))


class HandSuite:
    """An account is changed by hand, and by other servers than this one."""

    def test_a_node_that_was_ended_by_hand_is_listed_as_ended(self, provider: FaultyProvider) -> None:
        start(provider, "node-a")
        provider.end_by_hand("node-a")
        until(has_ended(provider, "node-a"))
        assert found(provider, "node-a").ended

    def test_what_is_not_of_this_pool_is_neither_listed_nor_stopped(self, provider: FaultyProvider) -> None:
        other = provider.rent_by_hand("my-own-work")
        start(provider, "node-a")
        assert names(provider.driver) == ["node-a"]
        provider.driver.stop(other)
        assert provider.has(other)

    def test_a_driver_that_is_made_anew_lists_what_the_one_before_has_rented(self, provider: FaultyProvider) -> None:
        instance = start(provider, "node-a")
        again = provider.restarted()
        assert again.list() == [instance]
        again.stop(instance.id)
        until(lambda: names(again) == [])


class DoubleSuite:
    """Two nodes may have one name."""

    def test_both_of_one_name_are_listed_and_either_can_be_stopped(self, provider: DoublingProvider) -> None:
        first = start(provider, "node-a")
        provider.double("node-a")
        until(lambda: names(provider.driver) == ["node-a", "node-a"])
        provider.driver.stop(first.id)
        until(lambda: names(provider.driver) == ["node-a"])
        assert alive(provider, "node-a").id != first.id
