"""Activities side by side: who has a turn in a step, and when the next step is due."""

from gangline.worker.activities import Activities
from gangline.worker.edges import NEWS, Activity, Clock, together, unless


class Turns(list[str]):
    """Who had a turn, in order."""

    def activity(self, name: str, *until_s: float) -> Activity[None]:
        for moment_s in until_s:
            self.append(name)
            yield moment_s
        self.append(f"{name} ends")


def test_each_has_one_turn_a_step_in_the_order_in_which_they_began() -> None:
    turns, activities = Turns(), Activities(Clock(0))
    activities.begin(turns.activity("a", NEWS, NEWS), turns.activity("b", NEWS))
    activities.begin(turns.activity("c", NEWS))
    activities.go_on()
    activities.go_on()
    assert turns == ["a", "b", "c", "a", "b ends", "c ends"]


def test_one_that_begins_in_the_midst_of_a_step_has_its_first_turn_in_the_next_which_is_due_at_once() -> None:
    turns, activities = Turns(), Activities(Clock(7))

    def course() -> Activity[None]:
        activities.begin(turns.activity("loop", NEWS))
        yield NEWS

    activities.begin(course())
    activities.go_on()
    assert (turns, activities.due_s) == ([], 7)
    activities.go_on()
    assert turns == ["loop"]


def test_a_step_is_due_when_the_first_of_them_wants_one() -> None:
    turns, activities = Turns(), Activities(Clock(0))
    activities.begin(turns.activity("a", 30, 40), turns.activity("b", 20), turns.activity("c", NEWS, NEWS))
    activities.go_on()
    assert activities.due_s == 20
    activities.go_on()
    assert activities.due_s == 40, "b has ended, and waits for nothing"


def test_what_has_ended_is_known_to_have() -> None:
    turns, activities = Turns(), Activities(Clock(0))
    short, long = turns.activity("short"), turns.activity("long", NEWS)
    activities.begin(short, long)
    activities.go_on()
    assert activities.any_running((short, long)) and not activities.any_running((short,))
    activities.go_on()
    assert activities.all_ended


def test_one_that_fails_takes_the_turn_of_those_after_it() -> None:
    """The caller is told at once: what failed may be the lease, and then nobody may go on."""
    turns, activities = Turns(), Activities(Clock(0))

    def failing() -> Activity[None]:
        yield NEWS
        raise OSError

    activities.begin(turns.activity("a", NEWS, NEWS), failing(), turns.activity("b", NEWS, NEWS))
    activities.go_on()
    try:
        activities.go_on()
    except OSError:
        turns.append("failed")
    assert turns == ["a", "b", "a", "failed"]


def test_an_activity_is_left_in_its_midst_once_it_is_over() -> None:
    over: list[str] = []
    turns = Turns()
    left = unless(lambda: bool(over), turns.activity("a", 1, 2, 3))
    assert [next(left), next(left)] == [1, 2]
    over.append("yes")
    assert list(left) == [] and turns == ["a", "a", "a"]


def test_an_activity_that_comes_to_its_end_gives_what_it_came_to() -> None:
    def asked() -> Activity[str]:
        yield NEWS
        return "answer"

    found: list[str | None] = []

    def course() -> Activity[None]:
        found.append((yield from unless(lambda: False, asked())))

    assert list(course()) == [NEWS] and found == ["answer"]


def test_two_that_go_on_together_are_over_with_the_last_and_wait_for_the_first_that_wants_a_turn() -> None:
    turns = Turns()
    both = together(turns.activity("a", 30), turns.activity("b", 20, NEWS))
    assert list(both) == [20, NEWS]
    assert turns == ["a", "b", "a ends", "b", "b ends"]
    assert list(together()) == []
