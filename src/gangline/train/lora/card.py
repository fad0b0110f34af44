"""The model card of a LoRA for people and for the Hugging Face hub. It states what is known, and what is not."""

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gangline.core.display import printable
from gangline.core.models.lora_metadata import DIFFUSERS_FILE, Facts, base_name, prompts_in_words, single_file
from gangline.core.parsing import to_json
from gangline.core.specs.fields import Base, HubBase
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sections.subjects import Subject
from gangline.core.specs.settings import BITS, RESULT, SettingGroup, settings_of
from gangline.core.words import counted

CARD = "README.md"
KNOWN_AS = {"epsilon": "the noise (ε)", "v_prediction": "the velocity (v)"}
UNKNOWN_LICENCE = (
    "unknown to Gangline; check it where you got the base. You may use this LoRA only as that licence allows."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPicture:
    """A picture of the card with its prompts; `path` is relative to the card."""

    prompt: str
    path: str
    negative_prompt: str = ""


def write_card(folder: Path, spec: LoraSpec, facts: Facts, pictures: tuple[CardPicture, ...] = ()) -> Path:
    path = folder / CARD
    path.write_text(card(spec, facts, pictures), encoding="utf-8")
    return path


def card(spec: LoraSpec, facts: Facts, pictures: tuple[CardPicture, ...]) -> str:
    sections = (
        _front_matter(spec, facts, pictures),
        _introduction(spec, facts),
        *(f"![{_text(picture.prompt)}](<{quote(picture.path)}>)" for picture in pictures),
        _use(spec, facts),
        _subjects(spec),
        _settings(spec, facts),
        _held_out(facts),
        _numerics(facts),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _front_matter(spec: LoraSpec, facts: Facts, pictures: tuple[CardPicture, ...]) -> str:
    """Return YAML. JSON values are valid YAML, except for characters that YAML accepts only escaped."""
    values: dict[str, Any] = {
        "library_name": "diffusers",
        "pipeline_tag": "text-to-image",
        "tags": [
            "text-to-image",
            "diffusers",
            "lora",
            *["dora"] * spec.dora,
            *["lokr"] * (spec.algorithm == "lokr"),
            facts.family.tag,
            "template:sd-lora",
        ],
        "instance_prompt": prompts_in_words(spec),
    }
    if isinstance(spec.base, HubBase):
        values |= {"base_model": spec.base.repo, "base_model_relation": "adapter"}
    if facts.licence:
        values["license"] = facts.licence
    if pictures:
        values["widget"] = [_widget(picture) for picture in pictures]
    lines = (f"{name}: {_yaml(value)}" for name, value in values.items())
    return "\n".join(("---", *lines, "---"))


def _widget(picture: CardPicture) -> dict[str, Any]:
    """Return an entry of the hub's gallery."""
    negative = picture.negative_prompt
    parameters = {"parameters": {"negative_prompt": negative}} if negative else {}
    return {"text": picture.prompt, **parameters, "output": {"url": picture.path}}


def _introduction(spec: LoraSpec, facts: Facts) -> str:
    kind = f"{_kind(spec)} for {facts.family.title}"
    return f"""# {_text(facts.name)}

A {kind}, trained by Gangline on {counted(len(spec.photos), "photo")}{_of_several(spec)}.

{_prompts(spec)}
- Base: {_link(spec.base)}
- Licence of the base: {_text(facts.licence) if facts.licence else UNKNOWN_LICENCE}"""


def _of_several(spec: LoraSpec) -> str:
    return f" of {counted(len(spec.subjects), 'subject')}" if spec.subjects else ""


def _prompts(spec: LoraSpec) -> str:
    return "\n".join(f"- Prompt: {_code(subject.prompt)}" for subject in spec.all_subjects)


def _subjects(spec: LoraSpec) -> str:
    if not spec.subjects:
        return ""
    rows = (
        f"| {_text(each.folder)} | {_text(each.prompt)} | {len(each.photos)} | {each.repeats} | {each.weight:g} | {_class(each)} |"
        for each in spec.all_subjects
    )
    head = "| folder | prompt | photos | repeats | weight | class |"
    return "\n".join(("## Subjects", "", head, "|---|---|---|---|---|---|", *rows))


def _class(subject: Subject) -> str:
    if not subject.class_prompt:
        return "none"
    count = counted(len(subject.class_photos) + subject.class_images_drawn, "image")
    return f"{_text(subject.class_prompt)}: {count}, weight {subject.weight * subject.prior_weight:g}"


def _kind(spec: LoraSpec) -> str:
    return "LoKr" if spec.algorithm == "lokr" else "DoRA" if spec.dora else "LoRA"


def _link(base: Base) -> str:
    if isinstance(base, HubBase):
        return f"[{_text(base.repo)}](https://huggingface.co/{quote(base.repo)}), revision {_code(base.revision)}"
    return _code(base_name(base))


def _use(spec: LoraSpec, facts: Facts) -> str:
    pipeline = facts.family.pipeline
    load = "from_single_file" if single_file(spec.base) else "from_pretrained"
    base = "'path/to/the/base'"
    if isinstance(spec.base, HubBase):
        base = f"{spec.base.repo!r}, revision={spec.base.revision!r}"
    return f"""## Use

```python
import torch
from diffusers import {pipeline}

pipeline = {pipeline}.{load}({base}, torch_dtype=torch.float16).to("cuda")
{_loading(spec)}
image = pipeline({spec.prompt!r}{_as_trained(spec, facts)}).images[0]
```

{UIS[spec.dora]}: put {_code(facts.kohya_file)} into `models/loras` (ComfyUI) or `models/Lora`. In ComfyUI, a *Load LoRA* node loads it; \
in the others, write {_code(f"<lora:{facts.name}:1>")} into the prompt.{_how(spec, facts)}"""


def _loading(spec: LoraSpec) -> str:
    if spec.algorithm == "lokr":
        return f'pipeline.unet.load_lora_adapter("path/to/this/folder", weight_name="{DIFFUSERS_FILE}", prefix="unet")'
    return f'pipeline.load_lora_weights("path/to/this/folder", weight_name="{DIFFUSERS_FILE}")'


UIS = {False: "ComfyUI, A1111, Forge", True: "ComfyUI, Forge"}
DORA = """

This DoRA has a norm for each output, as PEFT trains them, and the two files differ in these norms. In diffusers, load `{diffusers}`, \
which has the norms as they were trained: diffusers ignores those of {kohya}. ComfyUI (0.3.77) and Forge divide the norms by those of \
the base's weights alone, so {kohya} has norms that give the trained weights there, at strength 1; LyCORIS divides by the norms of base \
plus LoRA, and would get other weights from it. A1111 treats every DoRA as one with a norm for each input: merge it into the base with \
`gangline merge {diffusers} --base BASE --to merged.safetensors`, and use the result as the model."""

LOKR_OF_TEXT = """

It changes the text encoders, too, and diffusers loads a LoKr into the U-Net alone: there, merge it into the base with \
`gangline merge` (the file is {kohya}), and use the result as the model."""

ZERO_SNR = """

It was trained with zero terminal SNR: sample with `rescale_betas_zero_snr=True` and `timestep_spacing="trailing"`."""


def _how(spec: LoraSpec, facts: Facts) -> str:
    of_text = _lokr_of_text(facts) * (spec.algorithm == "lokr" and spec.train_text_encoder)
    return (
        _skip(spec)
        + of_text
        + _dora(facts) * spec.dora
        + ZERO_SNR * (spec.zero_terminal_snr or facts.zero_terminal_snr)
        + _rescale(facts)
    )


def _as_trained(spec: LoraSpec, facts: Facts) -> str:
    """Return the arguments without which a picture would differ from the job's. diffusers counts skipped layers."""
    skip = f", clip_skip={spec.clip_skip - 1}" if spec.clip_skip > 1 else ""
    return skip + (f", guidance_rescale={facts.guidance_rescale:g}" if facts.guidance_rescale else "")


def _skip(spec: LoraSpec) -> str:
    if spec.clip_skip == 1:
        return ""
    said = f"It was trained with clip skip {spec.clip_skip}: set that in A1111 and Forge"
    return f"\n\n{said}, and -{spec.clip_skip} in ComfyUI's *CLIP Set Last Layer*; diffusers calls it `clip_skip={spec.clip_skip - 1}`."


def _rescale(facts: Facts) -> str:
    if not facts.guidance_rescale:
        return ""
    share = f"{facts.guidance_rescale:g}"
    return f"\n\nIts pictures were made with CFG rescale {share}: set `guidance_rescale={share}` in diffusers, *RescaleCFG* in ComfyUI."


def _lokr_of_text(facts: Facts) -> str:
    return LOKR_OF_TEXT.format(kohya=_code(facts.kohya_file))


def _dora(facts: Facts) -> str:
    return DORA.format(diffusers=DIFFUSERS_FILE, kohya=_code(facts.kohya_file))


def _settings(spec: LoraSpec, facts: Facts) -> str:
    value, known = to_json(spec), settings_of(LoraSpec)
    shown = {
        name for name, one in known.items() if one.decides & (RESULT | BITS) and one.group is not SettingGroup.FILES
    }
    listed = [one for one in fields(spec) if one.name in shown - {"prompt", "subjects"}]  # already shown above
    changed = [one for one in listed if getattr(spec, one.name) != one.default]
    rows = [f"| {_text(one.name)} | {_cell(value[one.name])} | {_cell(one.default)} |" for one in changed]
    table = "\n".join(("| setting | value | default |", "|---|---|---|", *rows))
    return f"""## Settings

{table if rows else "All settings have Gangline's defaults."}
{_early(spec, facts)}{_continued(spec)}
Computed in {facts.precision}, {counted(facts.microbatch, "image")} in each forward pass. \
The base predicts {KNOWN_AS[facts.prediction_type]}."""


def _early(spec: LoraSpec, facts: Facts) -> str:
    if facts.steps in (None, spec.steps):
        return ""
    return f"\nIt was finished early, after {facts.steps} of these {counted(spec.steps, 'step')}.\n"


def _continued(spec: LoraSpec) -> str:
    if spec.continues is None:
        return ""
    return (
        f"\nIts first {counted(spec.continues.step, 'step')} were those of an earlier run with these settings, which may have been "
        "made for another number of steps: then the learning rate followed the schedule for that.\n"
    )


def _held_out(facts: Facts) -> str:
    if not facts.held_out:
        return ""
    rows = (f"| {_text(one['photo'])} | {one['loss_before']} | {one['loss_after']} |" for one in facts.held_out)
    head = "## Held-out photos\n\nThe loss on photos that were not trained on, at the same noise, with the base alone and with this LoRA."
    return "\n".join((head, "", "| photo | base | LoRA |", "|---|---|---|", *rows))


def _numerics(facts: Facts) -> str:
    exact = (
        "All steps were computed with these numerics: an uninterrupted run with them ends with the same bits."
        if facts.exact
        else "The numerics changed during the run, and these are the last: its result is not exact to the bit."
    )
    rows = (f"| {_text(name)} | {_text(value)} |" for name, value in sorted(facts.fingerprint.items()))
    return "\n".join(("## Numerics", "", exact, "", "| property | value |", "|---|---|", *rows))


def _cell(value: Any) -> str:
    return _text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


MARKUP = re.compile(r"[\\`*_\[\]<>|#&~@$]|:(?! )|(?<=www)\.", re.IGNORECASE)
"""Characters that Markdown, HTML and the sites that show cards interpret: their links, mentions, formulas and emoji, too."""


def _text(words: str) -> str:
    """Return foreign text with all markup escaped."""
    return MARKUP.sub(r"\\\g<0>", printable(words))


def _code(words: str) -> str:
    """Return foreign text as inline code, between more backticks than it contains."""
    shown = printable(words)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    pad = " " * (shown[:1] in "` " or shown[-1:] in "` ") if shown.strip() else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _yaml(value: Any) -> str:
    """Return JSON with every character escaped that YAML takes for a line break or refuses, or that is invisible."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in text)
