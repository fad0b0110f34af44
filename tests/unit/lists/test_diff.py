"""Two jobs are compared: settings, models and inputs that differ, and whether the last bits can be compared."""

from dataclasses import replace
from typing import Any

from gangline.core.files import File
from gangline.core.jobs.lists.diff import ComparedJob, InputChange, JobOutcome, JobsDiff, compare
from gangline.core.parsing import to_json
from gangline.core.specs.changes import SettingChange
from gangline.core.specs.fields import FilesBase, HubBase, Needs
from gangline.core.specs.lora import LoraSpec

PHOTOS = tuple(File(path=f"{name}.png", bytes=1, sha256=name * 64) for name in "abc")
ONE = LoraSpec(base=HubBase(repo="some/base", revision="1" * 40), photos=PHOTOS, prompt="a dog")


def job(spec: Any, numerics: tuple[str, ...] = ()) -> ComparedJob:
    outcome = JobOutcome(
        id="job-1",
        name="n",
        state="succeeded",
        because="",
        step=1,
        steps=1,
        held_out_loss=None,
        best_held_out_loss=None,
        loss=None,
        seconds=1.0,
        cost_usd=0.1,
        numerics=numerics,
    )
    return ComparedJob(outcome=outcome, spec=spec if isinstance(spec, dict) else to_json(spec))


def differing(**changes: Any) -> JobsDiff:
    return compare(job(ONE), job(replace(ONE, **changes)))


def test_only_the_settings_that_differ_are_listed_in_the_order_of_the_spec() -> None:
    found = differing(seed=7, rank=8, needs=Needs(pool="home"))
    assert found.settings == (
        SettingChange(setting="rank", before=16, after=8),
        SettingChange(setting="seed", before=0, after=7),
        SettingChange(setting="needs.pool", before="", after="home"),
    )
    assert (found.models, found.inputs) == ((), ())


def test_inputs_differ_by_name_and_by_content() -> None:
    captions = (File(path="a.txt", bytes=1, sha256="d" * 64),)
    other = File(path="b.png", bytes=1, sha256="e" * 64)
    found = differing(photos=(other, PHOTOS[2], File(path="x.png", bytes=1, sha256="a" * 64)), captions=captions)
    assert found.inputs == (
        InputChange(role="photos", path="a.png", has="only the first"),
        InputChange(role="photos", path="b.png", has="other content"),
        InputChange(role="photos", path="x.png", has="only the second"),
        InputChange(role="captions", path="a.txt", has="only the second"),
    )
    assert found.settings == ()


def test_a_base_is_called_by_its_commit_or_by_its_files() -> None:
    found = differing(base=FilesBase(files=PHOTOS[:2]), init_lora=PHOTOS[0])
    assert found.models == (
        SettingChange(setting="base", before="some/base@111111111111", after="a.png (aaaaaaaaaaaa) and 1 more files"),
        SettingChange(setting="init_lora", before=None, after="a.png (aaaaaaaaaaaa)"),
    )


def test_a_setting_that_an_older_spec_lacks_has_its_default() -> None:
    old = {name: value for name, value in to_json(ONE).items() if name not in ("rank", "keep_loras", "kind")}
    assert compare(job(old), job(ONE)).settings == ()


def test_photos_that_are_still_to_be_fetched_are_compared_by_their_addresses() -> None:
    first, second = (to_json(ONE) | {"photos": f"s3://bucket/{name}/"} for name in "ab")
    assert [(each.path, each.has) for each in compare(job(first), job(second)).inputs] == [
        ("s3://bucket/a/", "only the first"),
        ("s3://bucket/b/", "only the second"),
    ]


def test_the_bits_of_two_results_are_comparable_only_under_the_same_numerics_throughout() -> None:
    for first, second, same in (
        (("n",), ("n",), True),
        (("n",), ("m",), False),
        (("n", "m"), ("n",), False),
        (("n",), (), None),
    ):
        assert compare(job(ONE, first), job(ONE, second)).same_numerics is same
