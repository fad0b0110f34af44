"""What people read: each message names its job, says what happened in whole sentences, and what its reader may type next."""

import doctest
import re
import shlex
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.display import is_printable
from gangline.core.jobs.failure import MEANING
from gangline.core.notices import digest, facts, texts
from gangline.core.notices.digest import message_of
from gangline.core.notices.facts import NoticeBudget, NoticeFact, NoticeJob
from gangline.core.notices.kinds import FOR_PEOPLE, NoticeKind
from gangline.core.notices.message import NoticeMessage, NoticePicture
from gangline.core.notices.texts import WHAT_TO_DO, check_message

JOB = "job-0190c3a1f4b9c01d2e3"
TIMBER = NoticeJob(
    id=JOB, name="Timber", took_s=4320, machines=2, interruptions=3, step=300, steps=300, cost_usd=0.4217
)
BUDGET = NoticeBudget(project="shop", budget_usd=5, spent_usd=4.98, reserved_usd=0, waiting=3)
HOSTILE = "<b>@everyone</b>\n\u202e*gpj.exe* `rm -rf ~` [x](http://a)\x1b[31m\x00"
NAMES = st.text(max_size=300)


def fact(kind: NoticeKind, because: str = "", **of_job: Any) -> NoticeFact:
    return NoticeFact(kind=kind, because=because, job=replace(TIMBER, **of_job))


def read(message: NoticeMessage) -> str:
    return "\n".join((message.title, *message.lines, f"> {message.command}"))


def test_a_finished_job_reads_as_ready_with_its_time_its_machines_its_cost_and_the_command_that_fetches_it() -> None:
    assert read(message_of([fact("succeeded", "finished on rig-1")])) == (
        "Timber is ready\n"
        "It took 1 h 12 min on 2 machines (3 interruptions) and cost $0.42.\n"
        f"> gangline artifacts {JOB} --to timber"
    )
    undisturbed = fact("succeeded", "finished on rig-1", took_s=95, machines=1, interruptions=0, cost_usd=0.0008)
    assert message_of([undisturbed]).lines == ("It took 1 min 35 s on one machine and cost $0.00080.",)


def test_what_is_unknown_of_a_cost_is_said() -> None:
    free = fact("succeeded", cost_usd=0, cost_lacks=("node time", "storage"), interruptions=1)
    assert message_of([free]).lines == (
        "It took 1 h 12 min on 2 machines (1 interruption). "
        "What it cost is unknown: no price is set for node time and storage.",
    )
    partly = fact("succeeded", cost_lacks=("egress",), interruptions=0)
    assert message_of([partly]).lines == (
        "It took 1 h 12 min on 2 machines and cost $0.42 (no price is set for egress).",
    )


def test_a_job_that_ended_early_says_at_which_step_and_why() -> None:
    early = fact("succeeded", "finished on rig-1 at step 120 of 300, as its owner had asked", step=120)
    assert message_of([early]).lines[0] == (
        "It ended at step 120 of 300: finished on rig-1 at step 120 of 300, as its owner had asked."
    )


def test_a_failed_job_says_why_what_to_do_and_where_its_log_is() -> None:
    because = "out of memory: 24 GB are too few (the job has failed 3 times, which is its limit)"
    message = message_of([fact("failed", because, failure="out of memory", interruptions=0, cost_usd=1.5)])
    assert read(message) == (
        "Timber failed\n"
        "Reason: out of memory: 24 GB are too few (the job has failed 3 times, which is its limit).\n"
        "Ask for GPUs with more memory, or lower the resolution or the batch size.\n"
        "It took 1 h 12 min on 2 machines and cost $1.50.\n"
        f"`gangline jobs retry {JOB}` runs it again.\n"
        f"> gangline logs {JOB}"
    )
    assert message.urgent


def test_a_job_that_no_node_took_says_so() -> None:
    message = message_of([fact("failed", "no node came for it", took_s=None, machines=0, cost_usd=0)])
    assert message.lines[:2] == ("Reason: no node came for it.", "No machine ran it.")


def test_a_budget_that_is_used_up_says_how_much_how_many_wait_and_how_to_raise_it() -> None:
    message = message_of([fact("over_budget", "stopped: the budget …")], budget=BUDGET)
    assert read(message) == (
        "The budget of shop is used up\n"
        "Timber was stopped; what it saved is kept.\n"
        "$4.98 of $5.00 is spent.\n"
        "3 jobs wait now, and resume once an operator raises the budget.\n"
        "> gangline projects set shop --usd AMOUNT"
    )
    assert message.urgent
    several = message_of([fact("over_budget"), fact("over_budget", name="Rover")], budget=replace(BUDGET, waiting=1))
    assert several.lines == (
        "Timber and Rover were stopped; what they saved is kept.",
        "$4.98 of $5.00 is spent.",
        "1 job waits now, and resumes once an operator raises the budget.",
    )


def test_a_budget_that_was_raised_meanwhile_asks_for_nothing() -> None:
    message = message_of([fact("over_budget")], budget=replace(BUDGET, budget_usd=None))
    assert message.title == "The budget of shop was used up" and not message.urgent and not message.command


def test_results_that_were_not_delivered_are_said_to_be_kept() -> None:
    because = "the results could not be delivered to s3://there/: it answered 403, in 12 tries"
    assert read(message_of([fact("not_delivered", because)])) == (
        "The results of Timber were not delivered\n"
        "Reason: the results could not be delivered to s3://there/: it answered 403, in 12 tries.\n"
        "They are kept on the server, and can be downloaded from there.\n"
        f"> gangline artifacts {JOB} --to timber"
    )


@pytest.mark.parametrize("kind", get_args(NoticeKind))
def test_each_kind_of_notice_has_a_message_that_names_its_job(kind: NoticeKind) -> None:
    message = message_of([fact(kind, "step 20")])
    assert "Timber" in message.title and message.title[0].isupper() and message.title[-1] != "."
    for line in message.lines:
        assert line[-1] == "." and ".." not in line and (line[0].isupper() or line[0] == "`")
    assert message.command.startswith("gangline ")


def test_the_picture_stands_in_the_message_of_one_fact() -> None:
    picture = NoticePicture(name="grid.png", content=b"\x89PNG")
    assert message_of([fact("succeeded")], picture=picture).picture == picture


def test_there_is_advice_for_each_failure_that_can_end_a_job() -> None:
    assert set(WHAT_TO_DO) == {kind for kind, meaning in MEANING.items() if meaning.counts or meaning.confirm}


def test_a_check_says_which_endpoint_works() -> None:
    message = check_message("shop", "phone")
    assert message.title == "Gangline can reach you"
    assert message.lines == ("The endpoint phone of the project shop receives messages like this one.",)


# ---------------------------------------------------------------------------------------------------------------- digests


def many(kind: NoticeKind, count: int, **of_job: Any) -> list[NoticeFact]:
    return [fact(kind, "out of memory", id=f"job-{kind}-{n}", name=f"{kind}-{n}", **of_job) for n in range(count)]


def test_many_facts_are_one_digest_with_counts_names_and_the_sum_of_money() -> None:
    message = message_of([*many("succeeded", 12, cost_usd=0.25), *many("failed", 2, cost_usd=0.05)])
    assert read(message) == (
        "2 jobs failed and 12 jobs succeeded\n"
        "Succeeded: succeeded-0, succeeded-1, succeeded-2, succeeded-3, succeeded-4 and 7 more.\n"
        "failed-0 failed: out of memory.\n"
        "failed-1 failed: out of memory.\n"
        "These 14 jobs together cost $3.10.\n"
        "> gangline jobs ls"
    )
    assert message.urgent


def test_a_digest_counts_each_job_once_in_the_sum_and_says_what_it_lacks() -> None:
    twice = [*many("succeeded", 1, cost_usd=1, cost_lacks=("storage",)), fact("rendered", id="job-succeeded-0")]
    assert message_of(twice).lines[-1] == "succeeded-0 cost $1.00 (no price is set for storage)."
    unknown = many("succeeded", 2, cost_usd=0, cost_lacks=("node time",))
    assert message_of(unknown).lines[-1] == "What these 2 jobs together cost is unknown: no price is set for node time."


def test_a_digest_with_a_used_up_budget_says_how_to_raise_it() -> None:
    message = message_of([*many("over_budget", 2), *many("succeeded", 1)], budget=BUDGET)
    assert message.title == "2 jobs stopped at the budget and 1 job succeeded"
    assert "The budget of shop is used up." in message.lines and "$4.98 of $5.00 is spent." in message.lines
    assert message.command == "gangline projects set shop --usd AMOUNT"


def test_a_digest_says_of_each_threshold_what_was_spent_and_which_command_lists_them() -> None:
    crossed = [
        fact(
            "cost_threshold",
            f"the project p{n} has cost $6.00 today: 60 % of the threshold of $10.00 a day",
            name=f"p{n}",
        )
        for n in range(7)
    ]
    assert read(message_of(crossed[:2])) == (
        "2 thresholds of costs\n"
        "The project p0 has cost $6.00 today: 60 % of the threshold of $10.00 a day.\n"
        "The project p1 has cost $6.00 today: 60 % of the threshold of $10.00 a day.\n"
        "> gangline costs thresholds ls"
    )
    lines = message_of(crossed).lines
    assert lines[0].startswith("The project p2 has cost") and len(lines) == 6
    assert lines[-1] == "Thresholds of the costs, too: p0 and p1."
    assert message_of([*crossed, *many("succeeded", 1)]).command == "gangline jobs ls"


def test_a_digest_of_every_kind_has_a_bounded_length() -> None:
    everything = [each for kind in get_args(NoticeKind) for each in many(kind, 200, cost_lacks=("storage",))]
    message = message_of([replace(each, because="x" * 4000) for each in everything], budget=BUDGET)
    assert len(message.title) < 120 and len("\n".join(message.lines)) < 7000


def test_several_checkpoints_of_one_job_name_it_once() -> None:
    message = message_of([fact("committed", f"step {step}") for step in (10, 20, 30)])
    assert (message.title, message.lines) == ("3 checkpoints", ("Saved: Timber.",))


# ------------------------------------------------------------------------------------------------- what others wrote in it


@given(NAMES, NAMES, st.sampled_from(get_args(NoticeKind)))
def test_no_name_and_no_reason_brings_control_characters_into_a_message(
    name: str, because: str, kind: NoticeKind
) -> None:
    for found in (
        message_of([fact(kind, because, name=name)], budget=BUDGET),
        message_of([fact(kind, because, name=name), *many("failed", 1)], budget=BUDGET),
        check_message("shop", name),
    ):
        for text in (found.title, *found.lines, found.command):
            assert is_printable(text) and "\n" not in text
        assert len(found.title) < 200 and all(len(line) < 1200 for line in found.lines)


@given(NAMES)
def test_a_command_is_safe_to_type_whatever_the_job_is_called(name: str) -> None:
    command = message_of([fact("succeeded", name=name)]).command
    assert re.fullmatch(rf"gangline artifacts {JOB} --to [a-z0-9][a-z0-9-]*", command)
    assert shlex.split(command)[-1] == command.rpartition(" ")[2]


def test_a_hostile_name_is_escaped_or_plain() -> None:
    assert "\\n\\u202e" in message_of([fact("succeeded", name=HOSTILE)]).title


def test_people_hear_by_default_of_kinds_that_read_well() -> None:
    assert [message_of([fact(kind)], budget=BUDGET).title for kind in FOR_PEOPLE] == [
        "Timber is ready",
        "Timber failed",
        "The budget of shop is used up",
        "The results of Timber were not delivered",
        "A threshold of the costs of Timber",
    ]


@pytest.mark.parametrize("module", [digest, facts, texts], ids=lambda module: module.__name__)
def test_examples_in_docstrings_hold(module: Any) -> None:
    assert doctest.testmod(module).failed == 0
