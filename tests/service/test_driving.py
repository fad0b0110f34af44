"""A driver in a thread of its own: what asks it never waits, and what it does is seen in order."""

import threading
from collections.abc import Iterator
from threading import Event

import pytest

from gangline.core.errors import Denied, TooMany, Unreachable
from gangline.ports.pool import Instance, MachineIdentity, NoCapacity, Offer, Rental
from gangline.service.driving import Look, OwnThread, RefusedStart
from tests.waiting import until

OFFER = Offer(id="any")


class SlowProvider:
    """A provider that answers when `may_answer` is set. `calls` has what it was asked, in order."""

    def __init__(self) -> None:
        self.may_answer = Event()
        self.may_answer.set()
        self.calls: list[str] = []
        self.refuses: Exception | None = None
        self.learned = False
        self.teaches: Exception | None = None

    def offers(self) -> list[Offer]:
        return [OFFER]

    def start(self, offer: str, rental: Rental) -> None:
        self._answer(f"start {rental.name}")

    def stop(self, instance: str) -> None:
        self._answer(f"stop {instance}")

    def list(self) -> list[Instance]:
        self._answer("list")
        return [Instance(id="i", name="n", billed_from_ms=1, billed_to_ms=None)]

    def reallocate(self, instance: str, because: str) -> None:
        self._answer(f"reallocate {instance}")

    @property
    def demands_identity(self) -> bool:
        return True

    def identify(self, token: str) -> MachineIdentity:
        if not self.learned:
            raise Unreachable("not learned yet")
        if not token.startswith("of-"):
            raise Denied("this token proves nothing")
        return MachineIdentity(machine=token.removeprefix("of-"), instance="i")

    def learn_to_identify(self) -> None:
        self._answer("learn")
        if self.teaches:
            raise self.teaches
        self.learned = True

    def _answer(self, what: str) -> None:
        self.calls.append(what)
        self.may_answer.wait()
        if self.refuses:
            raise self.refuses


@pytest.fixture
def provider() -> Iterator[SlowProvider]:
    made = SlowProvider()
    yield made
    made.may_answer.set()


@pytest.fixture
def driving(provider: SlowProvider) -> Iterator[OwnThread]:
    made = OwnThread("cloud", provider, limit_s=600)
    yield made
    made.close()


def rental(name: str) -> Rental:
    return Rental(name=name, server="http://nowhere", token="a secret")


def failure(driving: OwnThread) -> str:
    try:
        driving.look(1)
    except (Unreachable, Denied) as error:
        return error.message
    return ""


def seen(driving: OwnThread) -> Look:
    until(lambda: driving.look(1))
    found = driving.look(2)
    assert found
    return found


def test_a_look_is_the_last_one_and_is_there_without_waiting(provider: SlowProvider, driving: OwnThread) -> None:
    provider.may_answer.clear()
    assert driving.look(5) is None
    until(lambda: provider.calls == ["list"])
    assert driving.look(6) is None, "it has not answered yet"
    provider.may_answer.set()
    first = seen(driving)
    assert first.offers == (OFFER,) and first.instances[0].name == "n"


def test_what_was_asked_for_is_done_in_order_and_before_the_next_look(
    provider: SlowProvider, driving: OwnThread
) -> None:
    provider.may_answer.clear()
    driving.look(1)
    until(lambda: provider.calls == ["list"])
    driving.look(2)
    driving.start("any", rental("a"))
    driving.stop("i")
    driving.stop("i")
    provider.may_answer.set()
    until(lambda: len(provider.calls) == 4)
    assert provider.calls == ["list", "start a", "stop i", "list"]


@pytest.mark.parametrize("error", [NoCapacity("none left"), Denied("this key is not valid")])
def test_what_a_provider_refuses_is_told_once(provider: SlowProvider, driving: OwnThread, error: Exception) -> None:
    provider.refuses = error
    driving.start("any", rental("a"))
    found: list[RefusedStart] = []
    until(lambda: found.extend(driving.refusals()) or found)
    assert found == [RefusedStart(node="a", offer="any", because=str(error))] and driving.refusals() == []


def test_who_a_machine_is_is_told_at_once_or_learned_by_the_drivers_own_thread(
    provider: SlowProvider, driving: OwnThread
) -> None:
    provider.may_answer.clear()
    driving.look(1)
    until(lambda: provider.calls == ["list"])
    for _ in range(3):
        with pytest.raises(Unreachable, match="not learned yet"):
            driving.identify("of-m-1")
    assert "learn" not in provider.calls
    provider.may_answer.set()
    until(lambda: provider.calls.count("learn") == 1 and provider.learned)
    assert driving.identify("of-m-1") == MachineIdentity(machine="m-1", instance="i")
    with pytest.raises(Denied):
        driving.identify("nonsense")


def test_a_provider_whose_list_is_fine_is_not_away_because_keys_are(provider: SlowProvider, driving: OwnThread) -> None:
    provider.teaches = Unreachable("no keys there")
    with pytest.raises(Unreachable):
        driving.identify("of-m-1")
    until(lambda: "learn" in provider.calls)
    assert seen(driving)


@pytest.mark.parametrize("error", [TooMany("no more in this minute"), Unreachable("it timed out")])
def test_a_move_that_may_not_come_is_refused(provider: SlowProvider, driving: OwnThread, error: Exception) -> None:
    driving.reallocate("a", "i", "bad")
    until(lambda: provider.calls == ["reallocate i"])
    provider.refuses = error
    driving.reallocate("b", "i", "bad")
    found: list[RefusedStart] = []
    until(lambda: found.extend(driving.refusals()) or found)
    assert found == [RefusedStart(node="b", offer="", because=str(error))]


def test_a_request_without_an_answer_may_have_rented(provider: SlowProvider, driving: OwnThread) -> None:
    provider.refuses = Unreachable("it timed out")
    driving.start("any", rental("a"))
    until(lambda: failure(driving) == "it timed out")
    assert driving.refusals() == []


def test_while_a_provider_is_away_it_is_said_and_asked_again(provider: SlowProvider, driving: OwnThread) -> None:
    seen(driving)
    provider.refuses = Unreachable("it is away")
    until(lambda: failure(driving) == "it is away")
    provider.refuses = None
    until(lambda: failure(driving) == "")


def test_a_driver_that_fails_is_a_provider_that_is_away(provider: SlowProvider, driving: OwnThread) -> None:
    provider.refuses = KeyError("instances")
    until(lambda: failure(driving) == "its driver failed: KeyError")
    provider.refuses = None
    until(lambda: failure(driving) == "")


def test_a_call_that_never_ends_is_given_up_and_another_thread_takes_over(provider: SlowProvider) -> None:
    driving = OwnThread("cloud", provider, limit_s=0.05)
    provider.may_answer.clear()
    driving.look(1)
    until(lambda: provider.calls == ["list"])
    until(lambda: failure(driving) == "the driver did not answer within 0.05 s: list its instances")
    provider.may_answer.set()
    until(lambda: failure(driving) == "")
    assert seen(driving).number > 1, "what the first call said in the end is too old"
    driving.close()


def test_a_provider_that_hangs_for_good_holds_few_threads(provider: SlowProvider) -> None:
    driving = OwnThread("cloud", provider, limit_s=0)
    provider.may_answer.clear()
    for _ in range(50):
        failure(driving)
        Event().wait(0.002)
    assert 1 <= len(provider.calls) <= 4
    driving.close()


def test_who_closes_it_makes_no_further_call(provider: SlowProvider) -> None:
    driving = OwnThread("closed", provider, limit_s=600)
    driving.close()
    driving.start("any", rental("a"))
    driving.look(1)
    until(lambda: all(thread.name != "pool closed" for thread in threading.enumerate()))
    assert provider.calls == []
