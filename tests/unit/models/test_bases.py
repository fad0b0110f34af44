"""Which files of a base are brought to a node."""

import json

import pytest

from gangline.core.models.bases import files_needed, is_complete, vae_files_needed, variant_of
from tests.conftest import BASE

NAMES = [path.relative_to(BASE).as_posix() for path in BASE.rglob("*") if path.is_file()]
INDEX = json.loads((BASE / "model_index.json").read_text())
NAMES_OF_SD = [name for name in NAMES if "_2/" not in name]
INDEX_OF_SD = {name: value for name, value in INDEX.items() if not name.endswith("_2")}


def test_the_readme_of_a_base_stays_behind() -> None:
    assert set(NAMES) - set(files_needed(NAMES)) == {"README.md"}


def test_of_two_precisions_the_smaller_is_taken() -> None:
    both = [*NAMES, "unet/diffusion_pytorch_model.fp16.safetensors"]
    assert "unet/diffusion_pytorch_model.safetensors" not in files_needed(both)
    assert "unet/diffusion_pytorch_model.fp16.safetensors" in files_needed(both)


def test_of_two_precisions_in_shards_one_set_with_its_index_is_taken() -> None:
    names = [name for name in NAMES if not name.startswith("unet/diff")]
    full = [f"unet/diffusion_pytorch_model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    half = [f"unet/diffusion_pytorch_model.fp16-0000{n}-of-00002.safetensors" for n in (1, 2)]
    index, index_of_half = (f"unet/diffusion_pytorch_model.safetensors.index{name}.json" for name in ("", ".fp16"))
    assert set(files_needed([*names, *full, *half, index, index_of_half])) >= {*half, index_of_half}
    assert not set(files_needed([*names, *full, *half, index, index_of_half])) & {*full, index}
    assert set(files_needed([*names, *full, index])) >= {*full, index}


def test_weights_that_are_not_averaged_stay_behind() -> None:
    names = ["diffusion_pytorch_model.non_ema.safetensors", "diffusion_pytorch_model.safetensors"]
    assert variant_of(names) is None
    assert files_needed(["model_index.json", *(f"unet/{name}" for name in names)]) == [
        "model_index.json",
        f"unet/{names[1]}",
    ]


def test_pickles_and_other_frameworks_stay_behind() -> None:
    others = ["unet/diffusion_pytorch_model.bin", "model.ckpt", "unet/model.onnx", "unet/flax_model.msgpack"]
    assert files_needed(others) == files_needed(["model_index.json", *others])[1:] == []


def test_a_single_file_is_the_whole_base_unless_there_are_several() -> None:
    assert files_needed(["anime.safetensors", "anime.png", "readme.md"]) == ["anime.safetensors"]
    assert files_needed(["a.safetensors", "b.safetensors"]) == []
    assert "sd_xl.safetensors" not in files_needed([*NAMES, "sd_xl.safetensors"])


def test_a_vae_is_a_folder_or_a_part_of_a_base_or_a_file() -> None:
    assert vae_files_needed(NAMES) == ["vae/config.json", "vae/diffusion_pytorch_model.safetensors"]
    own = ["config.json", "diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.fp16.safetensors", "x.bin"]
    assert vae_files_needed(own) == ["config.json", "diffusion_pytorch_model.fp16.safetensors"]
    assert vae_files_needed(["vae.safetensors"]) == ["vae.safetensors"]


def test_a_whole_base_is_complete() -> None:
    assert is_complete(NAMES, INDEX)


def test_a_base_with_one_text_encoder_is_complete_where_it_speaks_of_one() -> None:
    assert is_complete(NAMES_OF_SD, INDEX_OF_SD)
    assert not is_complete(NAMES_OF_SD, INDEX)


@pytest.mark.parametrize("missing", ["model_index.json", "unet/config.json", "vae/", "tokenizer_2/", "scheduler/"])
def test_a_base_without_a_part_is_not_complete(missing: str) -> None:
    assert not is_complete([name for name in NAMES if not name.startswith(missing)], INDEX)


def test_an_index_that_speaks_of_nothing_is_no_base() -> None:
    assert not is_complete(NAMES, {})


def test_a_base_without_one_of_its_shards_is_not_complete() -> None:
    names = [name for name in NAMES if not name.startswith("unet/diff")]
    shards = [f"unet/diffusion_pytorch_model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    assert is_complete([*names, *shards], INDEX)
    assert not is_complete([*names, *shards[:2]], INDEX)
