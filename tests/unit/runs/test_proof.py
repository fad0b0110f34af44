"""What a node's proof of itself means for its work."""

from dataclasses import replace

from gangline.core.jobs.claim import mismatch
from gangline.core.runs.proof import DISK_BYTES_MIN, MEMORY_BYTES_MIN, has_kind, kinds_text, limits, shortages, unfit
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
    said = mismatch(replace(CANDIDATE, kind="scratch"), node, 0)
    assert said == "node-a has no libraries for scratch: lance is not installed"
    unknown = mismatch(replace(CANDIDATE, kind="caption"), node, 0)
    assert unknown == "node-a has no libraries for caption: its Gangline does not know this kind of job"
