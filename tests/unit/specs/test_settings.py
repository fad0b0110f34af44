"""No setting without its sentence, its option, and a word on what it decides."""

from dataclasses import fields, replace
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from gangline.cli.jobs.settings import with_settings
from gangline.core.specs.fields import Needs
from gangline.core.specs.form import offered_settings
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.phases import DataRef, TrainingPhase, VaeLosses
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.specs.sections.continuing import Continued
from gangline.core.specs.sections.previews import SamplePrompt
from gangline.core.specs.sections.subjects import SubjectEntry
from gangline.core.specs.settings import (
    BITS,
    CLASS_IMAGES,
    EMBEDDINGS,
    LATENTS,
    PLACE,
    RESULT,
    WATCH,
    WORKLOAD,
    Decides,
    Setting,
    SettingGroup,
    deciding,
    default_of,
    groups_of,
    section,
    settings_of,
)
from gangline.core.specs.spec import Spec
from tests.unit.specs.specs_of_every_setting import (
    LORA_WITH_ALL,
    OF_A_PHASE,
    OF_A_PROMPT,
    OF_A_SUBJECT,
    UNET,
    changes_of,
    keys_of,
    with_phase,
    with_prompt,
    with_subject,
)

SPECS = (LoraSpec, ScratchSpec, Needs, SamplePrompt, SubjectEntry, DataRef, TrainingPhase, VaeLosses, Continued)


def test_a_spec_with_a_setting_that_does_not_say_what_it_decides_cannot_be_defined() -> None:
    with pytest.raises(TypeError, match=r"Photos\.letterbox does not say what it decides"):

        @section(SettingGroup.CUTTING)
        class Photos:
            flip: Annotated[bool, Setting("Mirrored, too.", LATENTS | RESULT)] = False
            letterbox: bool = False


def test_a_setting_of_no_consequence_or_of_half_of_one_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="decides"):
        Setting("Add bars.")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="decides nothing: Add bars"):
        Setting("Add bars.", Decides(0))
    with pytest.raises(TypeError, match="does not decide: Add bars"):
        Setting("Add bars.", LATENTS)


def test_a_new_setting_is_in_the_keys_of_what_it_says_it_decides() -> None:
    @section(SettingGroup.CUTTING)
    class Letterboxed(LoraSpec):
        letterbox: Annotated[bool, Setting("Add bars.", LATENTS | RESULT)] = False

    known = {field.name: getattr(LORA_WITH_ALL, field.name) for field in fields(LORA_WITH_ALL)}
    before, now = Letterboxed(**known), Letterboxed(**known, letterbox=True)
    assert changed(before, now) == {"latents", "hash"}
    assert "letterbox" in offered_settings(Letterboxed)[SettingGroup.CUTTING]
    old = keys_of(LORA_WITH_ALL)
    assert keys_of(before)["hash"] == old["hash"] and keys_of(before)["workload"] == old["workload"]


def changed(before: Spec, now: Spec) -> set[str]:
    old, new = keys_of(before), keys_of(now)
    return {key for key in old if old[key] != new[key]}


KEYS = {"latents": LATENTS, "embeddings": EMBEDDINGS, "class_images": CLASS_IMAGES, "workload": WORKLOAD}


def decided_by(setting: Setting, result: Decides) -> set[str]:
    return {key for key, what in (KEYS | {"hash": result}).items() if setting.decides & what}


@pytest.mark.parametrize("name", changes_of(LORA_WITH_ALL))
def test_a_setting_of_a_lora_decides_what_it_says_and_nothing_else(name: str) -> None:
    found = changed(LORA_WITH_ALL, replace(LORA_WITH_ALL, **{name: changes_of(LORA_WITH_ALL)[name]}))
    always = {"workload"} if name == "guidance_scale" else set[str]()  # released keys have it
    assert found - {"kohya"} == decided_by(settings_of(LoraSpec)[name], RESULT | BITS) | always


@pytest.mark.parametrize("name", changes_of(UNET))
def test_a_setting_of_a_training_on_data_sets_decides_what_it_says_and_nothing_else(name: str) -> None:
    of_node = settings_of(Needs)["slots"] if name == "needs" else settings_of(ScratchSpec)[name]
    found = changed(UNET, replace(UNET, **{name: changes_of(UNET)[name]}))
    assert found == decided_by(of_node, RESULT) & {"hash", "workload"}


@pytest.mark.parametrize("name", OF_A_PHASE)
def test_a_setting_of_a_phase_decides_what_it_says_and_nothing_else(name: str) -> None:
    found = changed(UNET, with_phase(**{name: OF_A_PHASE[name]}))
    assert found == decided_by(settings_of(TrainingPhase)[name], RESULT) & {"hash", "workload"}


@pytest.mark.parametrize("name", OF_A_PROMPT)
def test_a_setting_of_a_prompt_decides_what_it_says_and_nothing_else(name: str) -> None:
    found = changed(with_prompt(), with_prompt(**{name: OF_A_PROMPT[name]}))
    assert found == decided_by(settings_of(SamplePrompt)[name], RESULT)


@pytest.mark.parametrize("name", OF_A_SUBJECT)
def test_a_setting_of_a_subject_decides_what_it_says_and_nothing_else(name: str) -> None:
    found = changed(with_subject(), with_subject(**{name: OF_A_SUBJECT[name]}))
    assert found - {"kohya"} == decided_by(settings_of(SubjectEntry)[name], RESULT)


def test_what_only_places_a_job_or_is_only_watched_is_no_part_of_its_result() -> None:
    for of in (LoraSpec, ScratchSpec):
        assert not {*deciding(of, PLACE | WATCH)} & {*deciding(of, RESULT | BITS)}


@pytest.mark.parametrize("of", SPECS)
def test_every_setting_has_one_sentence_in_one_group(of: type) -> None:
    grouped = [(name, one.says) for settings in groups_of(of).values() for name, one in settings.items()]
    assert sorted(name for name, _ in grouped) == sorted(field.name for field in fields(of))
    assert all(says.endswith(".") for _, says in grouped)


@pytest.mark.parametrize("of", SPECS)
def test_the_unit_in_a_settings_name_is_the_one_that_it_declares(of: type) -> None:
    units = {"s": "s", "gb": "GB"}
    for name, setting in settings_of(of).items():
        _, _, last = name.rpartition("_")
        assert setting.unit == units[last] if "_" in name and last in units else setting.unit in ("", "px"), name


def test_settings_of_both_kinds_are_declared_in_one_place() -> None:
    """But for those whose values are others, as a data set's rows that are held out are a condition and photos are files."""
    common = settings_of(LoraSpec).keys() & settings_of(ScratchSpec).keys()
    assert len(common) == 56
    apart = {name for name in common if settings_of(LoraSpec)[name].says != settings_of(ScratchSpec)[name].says}
    assert apart == {"held_out", "optimizer"}


def test_a_default_is_written_as_people_write_it() -> None:
    asked: list[tuple[type, str, str]] = [
        (LoraSpec, "flip", "no"),
        (LoraSpec, "sample_seeds", "1, 2"),
        (LoraSpec, "checkpoint_every_s", "60 s"),
        (ScratchSpec, "checkpoint_every_s", "600 s"),
        (LoraSpec, "learning_rate", "0.0001"),
        (LoraSpec, "needs", ""),
        (LoraSpec, "prompt", ""),
        (LoraSpec, "ema_decay", ""),
    ]
    assert [default_of(of, name) for of, name, _ in asked] == [default for _, _, default in asked]


def test_options_are_passed_on_as_they_were_typed() -> None:
    heard: dict[str, object] = {}
    app = typer.Typer()

    @app.command()
    @with_settings
    def command(photos: str, *, settings: dict[str, object], needs: dict[str, object]) -> None:
        heard.update(photos=photos, settings=settings, needs=needs)

    words = [
        "p",
        "--steps",
        "many",
        "--flip",
        "--no-dora",
        "--sample-prompt",
        "a",
        "--sample-prompt",
        "b",
        "--gpu",
        "T4",
    ]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert heard == {
        "photos": "p",
        "settings": {"steps": "many", "flip": True, "dora": False, "sample_prompts": ["a", "b"]},
        "needs": {"gpu": "T4"},
    }
