"""SDXL's children as their authors publish them: by the names, shapes and metadata of their files, and trained as they were."""

import json
import struct
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DDPMScheduler
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from gangline.cli.jobs.plan.make import JobInputs, make_plan
from gangline.core.errors import BadInput
from gangline.core.models.families import SDXL
from gangline.core.parsing import to_json
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.sample import previews_of
from gangline.data.bases import describe_base
from gangline.data.safetensors_header import read_header
from gangline.train.lora.merge import merge_loras
from gangline.train.model import original
from gangline.train.model.base import load_base
from gangline.train.model.denoise import drawing_of, sampler_of
from gangline.train.model.loss import process_of
from gangline.train.run.contract import RunDirectory
from tests.conftest import SUBJECT, file_at
from tests.train.bases import in_original_layout, save_single, save_tiny
from tests.train.conftest import finish, small_spec
from tests.train.model.test_bases import CPU, predict, published

FIRST, SECOND = "conditioner.embedders.0.transformer.", "conditioner.embedders.1.model."
Shapes = dict[str, tuple[int, ...]]
KOHYA = {
    "modelspec.sai_model_spec": "1.0.0",
    "modelspec.architecture": "stable-diffusion-xl-v1-base",
    "modelspec.implementation": "https://github.com/Stability-AI/generative-models",
}
OF_OTHER_TOOLS: Shapes = {
    "conditioner.embedders.0.logit_scale": (),
    f"{FIRST}text_projection.weight": (768, 768),
    "denoiser.sigmas": (1000,),
    "model_ema.decay": (),
    "model_ema.diffusion_modelinput_blocks00weight": (320, 4, 3, 3),
    "alphas_cumprod": (1000,),
}
"""What ComfyUI, generative-models and merging tools leave in their files, and nothing reads."""
MARKS: Shapes = {"v_pred": (0,), "ztsnr": (0,)}
CHILDREN: dict[str, tuple[Shapes, dict[str, str], str, bool]] = {
    "Pony": ({}, {}, "epsilon", False),
    "Illustrious": ({}, KOHYA | {"modelspec.prediction_type": "epsilon"}, "epsilon", False),
    "NoobAI": (MARKS, {}, "v_prediction", True),
    "a merge of ComfyUI's": (MARKS | OF_OTHER_TOOLS, KOHYA | {"modelspec.predict_key": "v"}, "v_prediction", True),
    "a merge with one part's metadata": (MARKS, KOHYA | {"modelspec.prediction_type": "epsilon"}, "v_prediction", True),
    "trained by kohya's scripts": ({}, KOHYA | {"modelspec.prediction_type": "v"}, "v_prediction", False),
    "marked by its metadata alone": ({}, {"ss_v_parameterization": "True"}, "v_prediction", False),
    "v_pred alone": ({"v_pred": (0,)}, {}, "v_prediction", False),
    "ztsnr alone, which ComfyUI does not read": ({"ztsnr": (0,)}, {}, "epsilon", False),
}


@pytest.fixture(scope="session")
def shapes() -> Shapes:
    """SDXL's tensors as its authors published them."""
    unet, vae, encoders = published("sdxl")
    tensors = in_original_layout(unet, vae, encoders, "sdxl")
    scalars: Shapes = {f"{FIRST}text_model.embeddings.position_ids": (1, 77), f"{SECOND}logit_scale": ()}
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()} | scalars


def sparse(path: Path, shapes: Shapes, metadata: dict[str, str] | None = None) -> Path:
    """A file of float16 tensors that takes no room on the disk."""
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * prod(shape)
        entries[name] = {"dtype": "F16", "shape": shape, "data_offsets": [start, end]}
    header = json.dumps(entries).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + end)
    return path


def test_the_names_are_those_of_the_published_file(shapes: Shapes) -> None:
    counts = {
        prefix: sum(name.startswith(prefix) for name in shapes)
        for prefix in ("model.diffusion_model.", "first_stage_model.", FIRST, SECOND)
    }
    assert list(counts.values()) == [1680, 248, 197, 390] and len(shapes) == 2515


@pytest.mark.parametrize("child", CHILDREN)
def test_each_is_recognised_and_every_tensor_is_where_the_loader_looks(
    child: str, shapes: Shapes, tmp_path: Path
) -> None:
    more, metadata, prediction, zero = CHILDREN[child]
    file = sparse(tmp_path / "child.safetensors", shapes | more, metadata)
    model = describe_base(file)
    assert (model.family, model.prediction_type, model.zero_terminal_snr) == (SDXL, prediction, zero)
    assert model.has_vae and ("zero terminal SNR" in model.because) == zero
    header = read_header(file)
    unet, vae, encoders = published("sdxl")
    sources = [
        (unet, original.unet_source(original.unet_config(header, SDXL))),
        (vae, original.vae_source(original.vae_prefix(header), original.vae_config(header, SDXL))),
        *(
            (module, original.text_source(header, kind))
            for module, kind in zip(encoders, SDXL.text_encoders, strict=True)
        ),
    ]
    for module, source in sources:
        for name, tensor in module.state_dict().items():
            found = source(name)
            count = prod(header.tensors[found.name].shape) // (1 if found.third is None else 3)
            assert count == tensor.numel(), name


def plan_of(base: Path, photos: Path, **settings: Any) -> Any:
    own = {"vae": settings.pop("vae")} if "vae" in settings else {}
    return make_plan(JobInputs(photos=photos, base=str(base), **own), {"prompt": "a photo of sks dog", **settings})


def test_the_plan_says_what_is_trained_and_refuses_what_cannot_be(shapes: Shapes, tmp_path: Path) -> None:
    from gangline.cli.jobs.plan.lora import lora_document
    from gangline.core.plans.document import Answer
    from gangline.core.plans.rows import base_rows

    metadata = {"modelspec.license": "fair-ai-public-license-1.0-sd"}
    file = sparse(tmp_path / "noobaiXL.safetensors", shapes | MARKS, metadata)
    found = lora_document(plan_of(file, SUBJECT), Answer(placed=None))
    row = dict(base_rows(found))["base"]
    assert "predicts v_prediction with zero terminal SNR (" in row and "licence fair-ai-public-license-1.0-sd" in row
    assert found.base.zero_terminal_snr is True
    with pytest.raises(BadInput, match="trained with v-prediction and zero terminal SNR") as refused:
        plan_of(file, SUBJECT, prediction_type="epsilon")
    assert refused.value.hint == "leave prediction_type out"
    with pytest.raises(BadInput, match="which other tools call clip skip 2"):
        plan_of(file, SUBJECT, clip_skip=2)


def test_a_file_without_a_vae_needs_one(shapes: Shapes, tmp_path: Path) -> None:
    vae = {name: shape for name, shape in shapes.items() if name.startswith("first_stage_model.")}
    file = sparse(tmp_path / "base" / "bare.safetensors", {name: shapes[name] for name in shapes.keys() - vae.keys()})
    own = sparse(tmp_path / "vae" / "vae.safetensors", vae)
    with pytest.raises(BadInput, match="has no VAE"):
        plan_of(file, SUBJECT)
    assert plan_of(file, SUBJECT, vae=str(own)).base.has_vae is False


def test_what_a_user_sets_against_the_base_is_advised_against(shapes: Shapes, tmp_path: Path) -> None:
    def advised(file: Path, **settings: Any) -> set[str]:
        return {advice.setting for advice in plan_of(file, SUBJECT, **settings).advice}

    v = sparse(tmp_path / "v.safetensors", shapes | {"v_pred": (0,)})
    about = {"prediction_type", "zero_terminal_snr", "sample_prompts"}
    assert advised(v) & about == set()
    assert advised(v, prediction_type="epsilon") & about == {"prediction_type"}
    assert advised(v, zero_terminal_snr=True) & about == {"zero_terminal_snr"}
    marked = sparse(tmp_path / "marked.safetensors", shapes | MARKS)
    assert advised(marked, zero_terminal_snr=True) & about == set()
    pony = sparse(tmp_path / "ponyDiffusionV6XL.safetensors", shapes)
    assert advised(pony) & about == {"sample_prompts"}
    assert advised(pony, sample_prompts=["score_9, score_8_up, sks dog"]) & about == set()


# Small models of this layout, with data


@pytest.fixture(scope="session")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("marked")
    return save_single(save_tiny(at / "folder", "sdxl"), at / "single" / "v.safetensors", "sdxl", marks=tuple(MARKS))


def test_the_loss_is_of_the_velocity_and_the_last_step_of_noise_alone(marked: Path) -> None:
    process = process_of(load_base(marked, CPU, torch.float32))
    published = DDPMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", rescale_betas_zero_snr=True
    )
    clean, noise = torch.randn(3, 4, 8, 8), torch.randn(3, 4, 8, 8)
    timesteps = torch.tensor([0, 500, 999])
    assert process.prediction == "v_prediction"
    assert torch.allclose(process.noisy(clean, noise, timesteps), published.add_noise(clean, noise, timesteps))
    velocity = process.target(clean, noise, timesteps)
    assert torch.allclose(velocity, published.get_velocity(clean, noise, timesteps), atol=1e-6)
    assert torch.equal(velocity[2], -clean[2]) and torch.equal(process.noisy(clean, noise, timesteps)[2], noise[2])


@pytest.mark.parametrize("sampler", ["ddim", "euler", "euler_a", "dpm++"])
def test_pictures_begin_at_the_last_step_and_without_overexposure(marked: Path, sampler: str) -> None:
    base, spec = load_base(marked, CPU, torch.float32), small_spec(resolution=32, sample_steps=4)
    scheduler = sampler_of(base, sampler)
    scheduler.set_timesteps(4)
    assert float(scheduler.timesteps[0]) == 999
    assert (scheduler.config.rescale_betas_zero_snr, scheduler.config.prediction_type) == (True, "v_prediction")
    assert drawing_of(base, spec, previews_of(spec)[0]).guidance_rescale == 0.7


def test_the_loras_files_say_how_it_was_trained(marked: Path, tmp_path: Path) -> None:
    spec = small_spec(base=FilesBase(files=(file_at(marked, marked.parent),)), steps=1, sample_steps=1)
    (tmp_path / "inputs").mkdir()
    for name, target in (("base", marked.parent), ("photos", SUBJECT)):
        (tmp_path / "inputs" / name).symlink_to(target)
    (tmp_path / "spec.json").write_text(json.dumps(to_json(spec)))
    run = finish(RunDirectory(tmp_path))
    (kohya,) = (path for path in run.output.glob("*.safetensors") if not path.name.startswith("pytorch_lora"))
    with safe_open(kohya, framework="pt") as file:
        said = file.metadata()
    assert (said["modelspec.prediction_type"], said["ss_zero_terminal_snr"]) == ("v", "True")
    assert said["ss_base_model_version"] == "sdxl_base_v1-0"
    card = (run.output / "README.md").read_text()
    assert "trained with zero terminal SNR" in card and "CFG rescale 0.7" in card


def test_a_projection_under_the_name_of_a_layer_loads_to_the_same_model(marked: Path, tmp_path: Path) -> None:
    tensors = load_file(marked)
    projection = torch.randn(64, 64)
    tensors[f"{SECOND}text_projection"] = projection
    save_file(tensors, tmp_path / "matrix.safetensors")
    tensors[f"{SECOND}text_projection.weight"] = tensors.pop(f"{SECOND}text_projection").T.contiguous()
    save_file(tensors, tmp_path / "layer.safetensors")
    one, other = (load_base(tmp_path / f"{name}.safetensors", CPU, torch.float32) for name in ("matrix", "layer"))
    assert torch.equal(one.text_encoders[1].text_projection.weight, projection.T)
    assert torch.equal(predict(one), predict(other))


def test_a_base_that_its_metadata_marks_is_still_marked_after_a_merge(marked: Path, tmp_path: Path) -> None:
    tensors = {name: tensor for name, tensor in load_file(marked).items() if name not in MARKS}
    save_file(tensors, tmp_path / "base.safetensors", {"modelspec.prediction_type": "v"})
    down, up = "lora_unet_time_embed_0.lora_down.weight", "lora_unet_time_embed_0.lora_up.weight"
    save_file({down: torch.ones(2, 32), up: torch.ones(128, 2)}, tmp_path / "lora.safetensors")
    merge_loras(
        [(tmp_path / "lora.safetensors", 1.0)],
        tmp_path / "base.safetensors",
        tmp_path / "to.safetensors",
        torch.float32,
    )
    assert describe_base(tmp_path / "to.safetensors").prediction_type == "v_prediction"
