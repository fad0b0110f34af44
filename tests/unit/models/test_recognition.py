"""What a file or a folder is told to be, from names and shapes alone."""

import pytest

from gangline.core.errors import BadInput
from gangline.core.models.recognition import (
    FIRST_CONV,
    Header,
    RecognisedModel,
    TensorHeader,
    pipeline_of,
    recognise_file,
    recognise_folder,
)

CLIP = "cond_stage_model.transformer.text_model.final_layer_norm.weight"
OPEN_CLIP = "cond_stage_model.model.ln_final.weight"
VAE = "first_stage_model.encoder.conv_in.weight"
SIZES = "model.diffusion_model.label_emb.0.0.weight"
SDXL_TEXT = ("conditioner.embedders.0.transformer.text_model.x", "conditioner.embedders.1.model.ln_final.weight")
REFINER_TEXT = "conditioner.embedders.0.model.ln_final.weight"


def header(*names: str, channels: int = 4, shapes: dict[str, tuple[int, ...]] | None = None, **metadata: str) -> Header:
    tensors = {FIRST_CONV: (320, channels, 3, 3)} | dict.fromkeys(names, (1, 1)) | (shapes or {})
    entries = {name: TensorHeader(dtype="F16", shape=shape, start=0, end=0) for name, shape in tensors.items()}
    said = {name.replace("__", "."): value for name, value in metadata.items()}
    return Header(name="some.safetensors", data_start=0, tensors=entries, metadata=said)


SD1, SD2, SDXL = header(CLIP, VAE), header(OPEN_CLIP, VAE), header(*SDXL_TEXT, SIZES, VAE)


def test_a_family_is_known_by_its_text_encoders_and_size_conditioning() -> None:
    assert [recognise_file(found).family.name for found in (SD1, SD2, SDXL)] == ["sd15", "sd2", "sdxl"]
    assert recognise_file(SDXL).layout == "single file"


@pytest.mark.parametrize(
    ("found", "spread", "prediction", "because"),
    [
        (SDXL, None, "epsilon", "epsilon is assumed"),
        (header(*SDXL_TEXT, SIZES, "v_pred"), None, "v_prediction", "marked v_pred"),
        (header(CLIP, modelspec__prediction_type="v"), None, "v_prediction", "metadata says prediction_type v"),
        (header(CLIP, modelspec__prediction_type="epsilon"), None, "epsilon", "metadata says"),
        (header(OPEN_CLIP, modelspec__architecture="stable-diffusion-v2-768-v"), 0.0, "v_prediction", "v2-768-v"),
        (header(OPEN_CLIP, modelspec__architecture="stable-diffusion-v2-512"), 0.2, "epsilon", "v2-512"),
        (SD2, 0.2, "v_prediction", "spread"),
        (SD2, 0.05, "epsilon", "spread"),
        (SD1, 0.2, "epsilon", "epsilon is assumed"),
    ],
)
def test_the_prediction_is_read_where_it_is_said_and_else_assumed_in_words(
    found: Header, spread: float | None, prediction: str, because: str
) -> None:
    model = recognise_file(found, spread)
    assert model.prediction_type == prediction
    assert because in model.because


def test_the_mark_of_zero_terminal_snr_is_seen() -> None:
    assert recognise_file(header(*SDXL_TEXT, SIZES, "v_pred", "ztsnr")).zero_terminal_snr
    assert not recognise_file(SDXL).zero_terminal_snr


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (header(CLIP, channels=9), "is an inpainting model: its U-Net takes 9 channels"),
        (header(CLIP, channels=8), "is an image editing model"),
        (header(REFINER_TEXT, SIZES), "is SDXL's refiner"),
        (header(OPEN_CLIP, SIZES), "takes image embeddings"),
        (header(VAE), "holds no text encoder"),
        (header(*SDXL_TEXT, SIZES, "edm_mean"), "another noise process"),
        (header("lora_unet_x.lora_down.weight"), "is a LoRA, not a base"),
    ],
)
def test_a_model_of_another_kind_is_refused_in_words(found: Header, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        recognise_file(found)
    assert refused.value.message.startswith("some.safetensors ") and refused.value.hint


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model.diffusion_model.double_blocks.0.x", "is a FLUX model"),
        ("model.diffusion_model.joint_blocks.0.x", "is a Stable Diffusion 3 model"),
        ("control_model.x", "is a ControlNet"),
        ("first_stage_model.decoder.x", "holds a VAE and no U-Net"),
        ("down_blocks.0.resnets.0.x", "is one part of a model in diffusers' layout"),
        ("something.else", "holds no model that Gangline knows"),
    ],
)
def test_another_architecture_is_refused_by_its_name(name: str, says: str) -> None:
    entry = TensorHeader(dtype="F16", shape=(1,), start=0, end=0)
    with pytest.raises(BadInput, match=says):
        recognise_file(Header(name="x.safetensors", data_start=0, tensors={name: entry}, metadata={}))


def folder(
    pipeline: str = "StableDiffusionPipeline", act: str = "quick_gelu", width: int = 64, **scheduler: object
) -> RecognisedModel:
    kind = pipeline_of("base", {"_class_name": pipeline})
    unet = {"in_channels": 4, "cross_attention_dim": width}
    return recognise_folder("base", kind, unet=unet, text_encoder={"hidden_act": act}, scheduler=scheduler)


def test_a_folders_family_is_its_pipeline_and_the_width_of_its_text() -> None:
    assert folder("StableDiffusionXLPipeline", width=2048).family.name == "sdxl"
    assert folder(width=768).family.name == folder(act="quick_gelu").family.name == "sd15"
    assert folder(width=1024).family.name == folder(act="gelu").family.name == "sd2"


def test_a_folders_scheduler_says_what_is_predicted() -> None:
    assert folder(prediction_type="v_prediction", rescale_betas_zero_snr=True).prediction_type == "v_prediction"
    assert folder().prediction_type == "epsilon"
    with pytest.raises(BadInput, match="base predicts the sample"):
        folder(prediction_type="sample")


@pytest.mark.parametrize(
    "pipeline", ["FluxPipeline", "StableDiffusionXLInpaintPipeline", "StableDiffusionXLImg2ImgPipeline"]
)
def test_a_folder_of_another_pipeline_is_refused(pipeline: str) -> None:
    with pytest.raises(BadInput, match=f"base is a {pipeline}"):
        folder(pipeline)


def test_a_folder_of_another_noise_process_is_refused() -> None:
    with pytest.raises(BadInput, match="another noise process"):
        folder("StableDiffusionXLPipeline", _class_name="EDMDPMSolverMultistepScheduler")
