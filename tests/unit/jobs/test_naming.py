"""A job is meant by its id, a part of that, or its name; never by a coincidence, and never the wrong one."""

import pytest

from gangline.core.errors import BadInput, NotFound
from gangline.core.jobs.naming import SHOWN_MAX, is_job_id, short, the_one

ONE, TWO = "job-1a2091e587d3d81267e", "job-1a2091e5880aaaa267e"
FOUND = [(TWO, "sks dog"), (ONE, "sks cat")]


@pytest.mark.parametrize("given", [ONE, "sks cat"])
def test_an_id_or_a_name_means_its_job(given: str) -> None:
    assert the_one(given, FOUND) == ONE


@pytest.mark.parametrize("given", [ONE[:18], short(ONE), ONE[4:], "267e"])
def test_a_part_of_an_id_means_the_one_job_that_was_found_by_it(given: str) -> None:
    assert the_one(given, FOUND[1:]) == ONE


@pytest.mark.parametrize("given", ["67e", "job-1a2", "7"])
def test_too_short_a_part_means_nothing(given: str) -> None:
    with pytest.raises(NotFound, match=f"there is no job {given}"):
        the_one(given, FOUND[1:])


def test_a_name_is_meant_before_an_id_that_happens_to_begin_so() -> None:
    assert the_one("1a20", [(TWO, ""), (ONE, "1a20")]) == ONE


def test_several_jobs_are_named_and_none_is_taken() -> None:
    with pytest.raises(BadInput) as refused:
        the_one("267e", FOUND)
    assert refused.value.message == f"267e matches several jobs, the newest first: {TWO}, {ONE}"
    with pytest.raises(BadInput, match=r"the newest first: .* and more"):
        the_one("a dog", [(f"job-{number}", "a dog") for number in range(SHOWN_MAX)])


def test_nothing_found_is_no_job() -> None:
    with pytest.raises(NotFound) as refused:
        the_one("sks cat", [])
    assert "`gangline jobs ls`" in refused.value.hint


def test_the_last_of_no_jobs_is_told_as_there_being_none() -> None:
    with pytest.raises(NotFound, match="no job was submitted yet"):
        the_one("last", [])


def test_a_short_id_is_the_end_of_a_whole_one() -> None:
    assert is_job_id(ONE) and ONE.endswith(short(ONE)) and len(short(ONE)) == 8
    assert short("job-1") == "job-1" and not is_job_id("job-1")
