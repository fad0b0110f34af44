"""Before several jobs are submitted, the plan of one is that of the first."""

from dataclasses import replace
from typing import Any

import pytest

from gangline.cli.jobs.submitting.first_job import first_job
from gangline.core.files import STAND_IN
from gangline.core.parsing import to_json
from gangline.core.specs.fields import HubBase
from gangline.core.specs.lora import LoraSpec

SPEC = LoraSpec(base=HubBase(repo="one/model", revision="main"), photos=(STAND_IN,), prompt="sks cat")


@pytest.mark.parametrize(
    ("differing", "words", "settings"),
    [
        ({"vary": {"rank": [2, 4], "needs.slots": [1, 2]}}, "job 1 of 4: rank=2, needs.slots=1", {"rank": 2}),
        ({"list": [{"rank": 5}, {"steps": 9}]}, "job 1 of 4: rank=5", {"rank": 5}),
        ({"random": {"draws": 1, "vary": {"rank": {"choices": [6]}}}}, "job 1 of 4: rank=6", {"rank": 6}),
        ({"seeds": 4}, "job 1 of 4", {}),
        ({"vary": {"rank": [2], "base": ["a/b", "c/d"]}}, "the settings that all 4 jobs share", {}),
    ],
)
def test_the_first_job_has_the_first_values(differing: dict[str, Any], words: str, settings: dict[str, Any]) -> None:
    found = first_job({"spec": to_json(SPEC)} | differing, SPEC, 4)
    assert (found.words, found.spec) == (words, replace(SPEC, **settings))
