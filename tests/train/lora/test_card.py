"""The model card, as the hub's own library reads it and as people do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from gangline.core.files import File
from gangline.core.models.families import FAMILIES, SDXL, FamilyName
from gangline.core.models.lora_metadata import Facts
from gangline.core.specs.fields import FilesBase, HubBase
from gangline.core.specs.lora import LoraSpec
from gangline.train.lora.card import CardPicture, card, write_card

SHA = "ab" * 32
SPEC = LoraSpec(
    base=HubBase(repo="stabilityai/stable-diffusion-xl-base-1.0", revision="abc"),
    photos=(File(path="a.png", bytes=1, sha256=SHA),),
    prompt="sks cat",
    rank=8,
)
FACTS = Facts(
    name="sks-cat",
    family=SDXL,
    prediction_type="epsilon",
    precision="bf16",
    microbatch=1,
    licence="openrail++",
    fingerprint={"gpu": "H200", "torch": "2.8"},
    held_out=({"photo": "b.png", "loss_before": 0.2, "loss_after": 0.1},),
)
PICTURES = (CardPicture(prompt="sks cat on Mars", path="samples/one.png"),)


def text_of(spec: LoraSpec = SPEC, **changes: Any) -> str:
    return card(spec, replace(FACTS, **changes), PICTURES)


def test_the_hub_reads_what_the_model_is(tmp_path: Path) -> None:
    read = ModelCard.load(write_card(tmp_path, SPEC, FACTS, PICTURES)).data.to_dict()
    assert read == {
        "library_name": "diffusers",
        "pipeline_tag": "text-to-image",
        "tags": ["text-to-image", "diffusers", "lora", "stable-diffusion-xl", "template:sd-lora"],
        "instance_prompt": "sks cat",
        "base_model": "stabilityai/stable-diffusion-xl-base-1.0",
        "base_model_relation": "adapter",
        "license": "openrail++",
        "widget": [{"text": "sks cat on Mars", "output": {"url": "samples/one.png"}}],
    }


def test_nothing_is_said_of_a_licence_or_a_base_that_nobody_knows() -> None:
    own = replace(SPEC, base=FilesBase(files=(File(path="dream.safetensors", bytes=7, sha256=SHA),)))
    text = text_of(own, licence=None)
    assert not {"license", "base_model"} & ModelCard(text).data.to_dict().keys()
    assert "- Licence of the base: unknown to Gangline" in text
    assert "- Base: `dream.safetensors`" in text
    assert "from_single_file('path/to/the/base'" in text


def test_words_of_a_prompt_are_text_and_never_markup_or_settings() -> None:
    prompt = "a: \"b' # [c](d) <script> `e` 猫"
    text = card(replace(SPEC, prompt=prompt), FACTS, (CardPicture(prompt=prompt, path="x.png"),))
    data = ModelCard(text).data.to_dict()
    assert (data["instance_prompt"], data["widget"][0]["text"]) == (prompt, prompt)
    assert "![a: \"b' \\# \\[c\\](d) \\<script\\> \\`e\\` 猫](<x.png>)" in text


@pytest.mark.parametrize("family", FAMILIES)
def test_its_example_is_python_that_loads_the_file_beside_it(family: FamilyName) -> None:
    text = text_of(replace(SPEC, prompt='sks "cat\'s" 😺'), family=FAMILIES[family])
    code = text.split("```python\n")[1].split("```")[0]
    compile(code, "card", "exec")
    assert 'sks "cat\\\'s" 😺' in code
    assert "'stabilityai/stable-diffusion-xl-base-1.0', revision='abc'" in code
    assert 'weight_name="pytorch_lora_weights.safetensors"' in code
    assert ("StableDiffusionXLPipeline" in code) == (family == "sdxl")


def test_it_lists_what_was_set_and_not_what_was_left_as_it_is() -> None:
    table = (
        text_of(replace(SPEC, dora=True, priority=7, target_modules=("to_q",))).split("## Settings")[1].split("##")[0]
    )
    rows = [line for line in table.splitlines() if line.startswith("| ") and "setting" not in line]
    assert rows == [
        "| rank | 8 | 16 |",
        "| dora | true | false |",
        '| target\\_modules | \\["to\\_q"\\] | \\["to\\_k", "to\\_q", "to\\_v", "to\\_out.0"\\] |',
    ]
    assert "All settings have Gangline's defaults." in text_of(replace(SPEC, rank=16))


def test_it_says_how_well_photos_are_met_that_were_not_trained_on() -> None:
    assert "| b.png | 0.2 | 0.1 |" in text_of()
    assert "not trained on" not in text_of(held_out=())


def test_it_says_whether_the_run_was_exact_and_under_which_fingerprint() -> None:
    assert "ends with the same bits" in text_of() and "| gpu | H200 |" in text_of()
    assert "not exact to the bit" in text_of(exact=False)


def test_it_says_which_file_of_a_dora_is_for_which_tool() -> None:
    text = text_of(replace(SPEC, dora=True))
    assert "gangline merge pytorch_lora_weights.safetensors --base BASE" in text
    assert "ComfyUI, Forge: put" in text and "ComfyUI, A1111, Forge: put" in text_of()
    assert "dora" in ModelCard(text_of(replace(SPEC, dora=True))).data.to_dict()["tags"]
    assert "DoRA" not in text_of()


def test_it_says_how_to_sample_a_model_of_zero_terminal_snr() -> None:
    assert "rescale_betas_zero_snr=True" in text_of(replace(SPEC, zero_terminal_snr=True))
    assert "rescale_betas" not in text_of()
    text = text_of(replace(SPEC, zero_terminal_snr=True), guidance_rescale=0.7)
    assert "pipeline('sks cat', guidance_rescale=0.7).images[0]" in text
    assert "CFG rescale 0.7" in text and "*RescaleCFG* in ComfyUI" in text
    assert "guidance_rescale" not in text_of()


def test_it_says_which_layer_of_the_text_encoder_is_read_as_each_tool_counts() -> None:
    text = text_of(replace(SPEC, clip_skip=2), family=FAMILIES["sd15"])
    assert "pipeline('sks cat', clip_skip=1).images[0]" in text
    assert "trained with clip skip 2: set that in A1111 and Forge, and -2 in ComfyUI" in text
    assert "clip" not in text_of().lower()
