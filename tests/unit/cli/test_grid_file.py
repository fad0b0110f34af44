"""The file of an experiment is read with the types of its settings; each mistake names the file and the key."""

from pathlib import Path
from typing import Any

import pytest

from gangline.cli.experiments.grid_file import GridFile, read_grid
from gangline.core.errors import BadInput

WHOLE = """
photos = "photos"
name = "ranks"
preset = ["object"]
seeds = 2
at_once = 4
budget_usd = 5.0
measure = "held_out_loss"
labels = {team = "vision"}

[settings]
prompt = "a photo of sks dog"
needs = {pool = "home"}

[vary]
rank = [8, "16"]
learning_rate = [1e-4, 3]
"needs.slots" = [1]

[halving]
min_steps = 100
"""


def read(tmp_path: Path, text: str) -> GridFile:
    (tmp_path / "grid.toml").write_text(text)
    return read_grid(tmp_path / "grid.toml")


def test_a_file_says_all_that_is_asked_of_an_experiment(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    found = read(tmp_path, WHOLE)
    assert found.photos == str(tmp_path / "photos")
    assert found.settings == {"prompt": "a photo of sks dog", "needs": {"pool": "home"}}
    asked: dict[str, Any] = found.asked({"kind": "lora"})
    assert asked == {
        "name": "ranks",
        "spec": {"kind": "lora"},
        "vary": {"rank": [8, 16], "learning_rate": [1e-4, 3.0], "needs.slots": [1]},
        "list": (),
        "seeds": 2,
        "at_once": 4,
        "budget_usd": 5.0,
        "measure": "held_out_loss",
        "labels": {"team": "vision"},
        "halving": {"min_steps": 100, "eta": 3},
    }


def test_settings_of_each_job_and_drawn_ones_are_read(tmp_path: Path) -> None:
    listed = read(tmp_path, 'photos = "p"\n[[list]]\nrank = 8\n[[list]]\nrank = 16\nalpha = 4\n')
    assert listed.list == ({"rank": 8}, {"rank": 16, "alpha": 4.0})
    drawn = read(
        tmp_path, 'photos = "p"\n[random]\ndraws = 9\nvary.learning_rate = {min = 1e-5, max = 1e-3, log = true}\n'
    )
    random = drawn.asked({})["random"]
    assert (random["draws"], random["vary"]["learning_rate"]["log"]) == (9, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("photos = ", "cannot be read"),
        ("", "nothing says how the jobs differ"),
        ("seeds = 0", "seeds: must be 1 or more"),
        ("seeds = 2", "photos is missing"),
        ("sedes = 2", "sedes: is not a known field"),
        ('photos = "p"\n[vary]\nrnak = [8]', "vary rnak: there is no such setting"),
        ('photos = "p"\n[vary]\nrank = []', "vary.rank has no value"),
        ('photos = "p"\n[vary]\nrank = 8', "vary.rank: must be a list"),
        ('photos = "p"\n[vary]\nrank = [8, "many"]', "vary rank=many: must be a whole number"),
        ('photos = "p"\n[[list]]\nrank = 8\n[[list]]\nrank = 0', "list.1 rank=0: must be 1 or more"),
        ('photos = "p"\n[vary]\nrank = [8]\n[random]\ndraws = 1\nvary = {}', "both say how the jobs differ"),
        ('photos = "p"\nat_once = 0\n[vary]\nrank = [8]', "at_once: must be 1 or more"),
        ('photos = "p"\nmeasure = "beauty"\n[vary]\nrank = [8]', "measure: must be 'held_out_loss' or 'loss'"),
        ('photos = "p"\n[vary]\nrank = [8]\n[halving]\neta = 3', "halving.min_steps: is missing"),
        (
            'photos = "p"\n[random]\ndraws = 2\nvary.rnak = {choices = [1]}',
            "random.vary rnak: there is no such setting",
        ),
        ('photos = "p"\n[vary]\nneeds = [{slots = 1}]', "vary: needs is a table"),
        ('photos = "p"\nseeds = 2\n[settings]\nsteps = "x"', "settings steps=x: must be a whole number"),
        ('photos = "p"\nseeds = 2\n[settings]\nstesp = 9', "settings stesp: there is no such setting"),
        ('photos = "p"\nseeds = 2\n[settings]\nneeds = 9', "settings.needs must be a table"),
        (
            'photos = "p"\nseeds = 2\n[settings]\nneeds = {slots = "x"}',
            "settings needs.slots=x: must be a whole number",
        ),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_file_and_the_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(tmp_path, text)
    assert said in refused.value.message and "grid.toml" in refused.value.message
    assert "\n" not in refused.value.message
    assert refused.value.hint


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none.toml cannot be read: no such file or directory$"):
        read_grid(tmp_path / "none.toml")


def test_a_file_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(BadInput, match=r"grid.toml cannot be read: it is not a text file$"):
        read_grid(tmp_path / "grid.toml")


def test_what_is_of_the_file_and_not_of_a_job_belongs_at_its_top(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"grid.toml: settings recipe: there is no such setting") as refused:
        read(tmp_path, 'photos = "p"\nseeds = 2\n[settings]\nrecipe = "mine.toml"')
    assert refused.value.hint == "recipe belongs at the top of the file"
    paths = 'base = "b"\nvae = "v"\nhold_out = ["7.jpg"]\nclass_photos = "c"\nmasks = "m"\ninit_lora = "l"'
    assert read(tmp_path, f'photos = "p"\nseeds = 2\n[settings]\n{paths}').settings["masks"] == "m"
