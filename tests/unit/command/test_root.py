"""Files that lie in no folder are a checkpoint together: those of the newest number, and those without one."""

import pytest

from gangline.core.command.root import may_be_in_root, newest_in_root, whole_folder


@pytest.mark.parametrize(
    ("names", "newest"),
    [
        (["ckpt_10.pt", "ckpt_20.pt"], {"ckpt_20.pt"}),
        (["model_10.pt", "optim_10.pt", "model_20.pt", "optim_20.pt"], {"model_20.pt", "optim_20.pt"}),
        (
            ["dog_000010.safetensors", "optimizer.pt", "dog_000020.safetensors"],
            {"dog_000020.safetensors", "optimizer.pt"},
        ),
        (["best.pt", "latest.pt"], {"best.pt", "latest.pt"}),
        (["model.pt", "optimizer.pt"], set()),  # of which nobody says that training goes on from them
        (["lora.safetensors"], set()),
        (["ckpt_20.pt", "ckpt_10.pt"], {"ckpt_10.pt"}),  # a count that began anew
    ],
)
def test_the_number_that_was_written_last_is_the_newest(names: list[str], newest: set[str]) -> None:
    assert newest_in_root({name: at for at, name in enumerate(names)}) == newest


@pytest.mark.parametrize("name", ["model-00001-of-00002.bin", ".latest.pt", "tmp_1.pt", "photo_1.png", "loss_1.csv"])
def test_what_is_nothing_of_a_checkpoint(name: str) -> None:
    assert not may_be_in_root(name)


def test_the_whole_folder_is_all_but_what_a_script_shows() -> None:
    state = {"net/weights.dat", "net/optim.pkl", "loop.json"}
    shown = {"samples/1.png", "logs/events.out.tfevents.1.host", ".cache/a.pkl", "train.log"}
    assert whole_folder(state | shown) == state
    assert whole_folder({"a.txt", *shown}) == frozenset()
