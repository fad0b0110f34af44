"""What a node's proof of itself means for its work."""

from dataclasses import replace

import pytest

from gangline.core.jobs.claim import mismatch
from gangline.core.runs.proof import (
    DISK_BYTES_MIN,
    MEMORY_BYTES_MIN,
    has_kind,
    isolation_of,
    kinds_text,
    limits,
    offered_kinds,
    shortages,
    unfit,
    wanted_kind,
    why_unwanted,
)
from gangline.core.server.isolation import IsolationLevel
from tests.unit.examples import CANDIDATE, NODE

NO_TORCH = "torch is not installed: pip install 'gangline[train]'"


def test_a_node_with_one_kind_that_works_may_work_and_says_what_it_lacks() -> None:
    problems = {"scratch": "lance is not installed"}
    assert unfit(("lora",), problems) == ""
    assert limits(problems) == "no libraries for scratch: lance is not installed"


def test_a_node_without_any_kind_may_not_and_says_why_once() -> None:
    assert unfit((), dict.fromkeys(("lora", "scratch", "sample"), NO_TORCH)) == f"failed its probe: {NO_TORCH}"


def test_a_card_or_a_disk_that_fails_is_the_reason_whatever_the_libraries() -> None:
    assert unfit(("lora",), {"card": "the driver is too old"}) == "failed its probe: the driver is too old"
    assert unfit((), {"lora": NO_TORCH, "disk": "full", "burst": "wrong"}) == "failed its probe: wrong; full"


def test_disk_and_memory_have_a_least_size() -> None:
    large = {"disk_free_bytes": DISK_BYTES_MIN, "memory_bytes": MEMORY_BYTES_MIN}
    assert shortages(folder="/home", **large) == {}
    short = shortages(folder="/home", disk_free_bytes=10**9, memory_bytes=10**9)
    assert set(short) == {"disk", "memory"}
    assert "/home has 1.0 GB free" in short["disk"] and "--home" in short["disk"]


def test_a_kind_is_found_in_the_text_of_kinds_and_no_other() -> None:
    text = kinds_text(("scratch", "lora"))
    assert [has_kind(text, kind) for kind in ("lora", "scratch", "sample", "")] == [True, True, False, False]
    assert not has_kind(kinds_text(()), "lora")


def test_a_node_without_the_libraries_of_a_job_says_so_by_its_name() -> None:
    node = replace(NODE, kinds=kinds_text(("lora",)), problems='{"scratch": "lance is not installed"}')
    assert mismatch(CANDIDATE, node, 0) is None
    said = mismatch(replace(CANDIDATE, kind="scratch", wanted="scratch"), node, 0)
    assert said == "node-a has no libraries for scratch: lance is not installed"
    unknown = mismatch(replace(CANDIDATE, kind="caption", wanted="caption"), node, 0)
    assert unknown == "node-a has no libraries for caption: its Gangline does not know this kind of job"


@pytest.mark.parametrize(
    ("offered", "isolation", "lack"),
    [
        ("none", "none", ""),
        ("none", "uid", "isolation uid"),
        ("uid", "uid", ""),
        ("uid", "sandbox", "isolation sandbox"),
        ("sandbox", "uid", ""),
        ("of a later version", "uid", "isolation uid"),
    ],
)
def test_a_job_that_asks_for_isolation_goes_where_there_is_as_much(
    offered: str, isolation: IsolationLevel, lack: str
) -> None:
    kinds = kinds_text(offered_kinds(("lora", "sample"), offered))
    wanted = wanted_kind("lora", isolation)
    node, job = replace(NODE, kinds=kinds), replace(CANDIDATE, wanted=wanted)
    assert isolation_of(wanted) == isolation
    assert why_unwanted(kinds, wanted) == lack
    assert mismatch(job, node, 0) == (f"node-a has no {lack}" if lack else None)
    assert why_unwanted(kinds, wanted_kind("scratch", isolation)) == "libraries for scratch"
