"""Which files of a base are brought to a node."""

import pytest

from gangline.core.bases import files_needed, is_complete
from tests.conftest import BASE

NAMES = [path.relative_to(BASE).as_posix() for path in BASE.rglob("*") if path.is_file()]


def test_the_readme_of_a_base_stays_behind() -> None:
    assert set(NAMES) - set(files_needed(NAMES)) == {"README.md"}


def test_of_two_precisions_the_smaller_is_taken() -> None:
    both = [*NAMES, "unet/diffusion_pytorch_model.fp16.safetensors"]
    assert "unet/diffusion_pytorch_model.safetensors" not in files_needed(both)
    assert "unet/diffusion_pytorch_model.fp16.safetensors" in files_needed(both)


def test_pickles_and_other_frameworks_stay_behind() -> None:
    others = ["unet/diffusion_pytorch_model.bin", "model.ckpt", "unet/model.onnx", "unet/flax_model.msgpack"]
    assert files_needed(others) == []


def test_a_whole_base_is_complete() -> None:
    assert is_complete(NAMES)


@pytest.mark.parametrize("missing", ["model_index.json", "unet/config.json", "vae/", "tokenizer_2/", "scheduler/"])
def test_a_base_without_a_part_is_not_complete(missing: str) -> None:
    assert not is_complete([name for name in NAMES if not name.startswith(missing)])


def test_a_base_without_one_of_its_shards_is_not_complete() -> None:
    names = [name for name in NAMES if not name.startswith("unet/diff")]
    shards = [f"unet/diffusion_pytorch_model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    assert is_complete([*names, *shards])
    assert not is_complete([*names, *shards[:2]])
