"""`gangline estimate`: what it prints and draws, and that what is misspelt costs one sentence."""

import json
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import ROOT, Typed

ISSUE = (
    "--samples",
    "2867200000",
    "--gpus",
    "8,16",
    "--images-per-second",
    "128.2,254.0",
    "--usd-per-gpu-hour",
    "2.00",
)
SAMPLES, PRICE = ISSUE[:2], ISSUE[6:]
A100 = ("--measured-on", "A100 40GB")
RECIPE = str(ROOT / "recipes" / "sd2_base.toml")
TINY = str(ROOT / "recipes" / "tiny_sdxl.toml")
RATES = ("--images-per-second", "1100,11600", "--images-per-second", "290,4590")
OUTLINE = """
usd_per_gpu_hour = 2.0
[[phases]]
name = "256 px"
steps = 550_000
batch_size = 2048
microbatch = 16
gpus = [8, 128]
images_per_second = [1100, 11600]
[[phases]]
name = "512 px"
samples = 1_740_800_000
gpus = [8, 128]
images_per_second = [290, 4590]
[precompute]
gpu_hours = 3784
"""


def with_gpus(numbers: str) -> tuple[str, ...]:
    return tuple(numbers if word == "8,16" else word for word in ISSUE)


@pytest.fixture
def gangline(typed: Typed) -> Typed:
    """`gangline estimate` with such words."""
    return partial(typed, "estimate")


@pytest.fixture
def outline(tmp_path: Path) -> str:
    (tmp_path / "outline.toml").write_text(OUTLINE)
    return str(tmp_path / "outline.toml")


def test_rows_as_json_have_gpus_days_and_dollars(gangline) -> None:
    code, printed, said = gangline(*ISSUE, "-o", "json")
    rows = json.loads(printed)["rows"]
    assert (code, said) == (0, "")
    assert [(row["gpus"], round(row["days"], 2), round(row["usd"])) for row in rows] == [
        (8, 258.85, 99400),
        (16, 130.65, 100339),
    ]


def test_a_kind_of_gpu_as_an_option_stands_over_the_price_of_a_file_and_the_other_way_round(
    gangline, outline: str, tmp_path: Path
) -> None:
    kinds = ("--measured-on", "A100 40GB", "--gpu", "H200=4")
    rows = json.loads(gangline(outline, *kinds, "-o", "json")[1])["rows"]
    assert {(row["gpu"], row["usd_per_gpu_hour"]) for row in rows} == {("H200", 4)}
    of_kinds = OUTLINE.replace("usd_per_gpu_hour = 2.0", 'measured_on = "A100 40GB"\ngpu = {H200 = 4}')
    (tmp_path / "kinds.toml").write_text(of_kinds)
    rows = json.loads(gangline(tmp_path / "kinds.toml", "--usd-per-gpu-hour", "3", "-o", "json")[1])["rows"]
    assert {(row["gpu"], row["usd_per_gpu_hour"]) for row in rows} == {("A100 40GB", 3)}


def test_what_the_law_misses_is_said_below_the_table_and_in_json(gangline) -> None:
    words = (*SAMPLES, "--gpus", "8,16", "--images-per-second", "30,20", *PRICE)
    says = "training: the law misses what was measured by up to 30%, on 16 GPUs"
    assert says in gangline(*words)[1]
    assert any(note.startswith(says) for note in json.loads(gangline(*words, "-o", "json")[1])["notes"])


def test_a_phase_that_is_wrong_is_not_told_as_a_lack_of_phases(gangline) -> None:
    code, _, said = gangline(RECIPE, *RATES, "--gpus", "8,128", "--microbatch", "x", *PRICE)
    assert code == 2
    assert "phases.0.microbatch: " in said and "phases: " not in said


def test_the_table_tells_measured_rows_from_predicted_ones_and_why(gangline) -> None:
    code, printed, _ = gangline(*ISSUE, "--predict", "12,32")
    lines = {line.split()[0]: line.split() for line in printed.splitlines()[1:5]}
    assert code == 0
    assert [lines[gpus][-1] for gpus in ("8", "12", "16", "32")] == [
        *("measured", "interpolated", "measured", "extrapolated")
    ]
    assert "32: extrapolated, by the law fitted to 2 measured numbers of GPUs, 8 to 16" in printed
    assert "a band is meant to hold 90%" in printed


def test_an_outline_and_options_are_one_question(gangline, outline: str) -> None:
    rows = json.loads(gangline(outline, "--predict", "64", "--usd-per-gpu-hour", "1,128=3", "-o", "json")[1])["rows"]
    assert [row["gpus"] for row in rows] == [8, 64, 128]
    assert [row["usd_per_gpu_hour"] for row in rows] == [1, 1, 3]
    assert [part["phase"] for part in rows[0]["phases"]] == ["precompute", "256 px", "512 px"]
    printed = gangline(outline, "--interruptions-per-node-hour", "0.01", "--checkpoint-s", "60", "--restart-s", "300")[
        1
    ]
    assert "checkpoint every" in printed and "precompute" in printed


def test_phases_as_options_are_those_of_an_outline(gangline, outline: str) -> None:
    words = ("--phase", "256 px:1126400000:8=1100,128=11600:16", "--phase", "512 px:1.7408e9:8=290,128=4590")
    more = ("--batch-size", "2048", "--precompute-gpu-hours", "3784", "--usd-per-gpu-hour", "2", "-o", "json")
    ours, theirs = (json.loads(gangline(*each)[1])["rows"] for each in ((*words, *more), (outline, "-o", "json")))
    assert [row["usd"] for row in ours] == [row["usd"] for row in theirs]


# Training recipes


def test_a_recipe_of_several_phases_takes_throughputs_once_for_each_of_them(gangline, outline: str) -> None:
    words = (RECIPE, "--gpus", "8,128", *RATES, "--microbatch", "16", "--precompute-gpu-hours", "3784")
    ours, theirs = (
        json.loads(gangline(*each, "-o", "json")[1])["rows"] for each in ((*words, *PRICE), (outline, *PRICE))
    )
    assert [part["phase"] for part in ours[0]["phases"]] == ["precompute", "256 px", "512 px"]
    assert [row["usd"] for row in ours] == [row["usd"] for row in theirs]


def test_each_phase_of_a_recipe_may_have_been_measured_on_other_numbers_of_gpus(gangline) -> None:
    words = ("--gpus", "8,16", "--images-per-second", "1100,2180", "--gpus", "8", "--images-per-second", "290")
    rows = json.loads(gangline(RECIPE, *words, *PRICE, "-o", "json")[1])["rows"]
    assert [[part["how"] for part in row["phases"]] for row in rows] == [
        ["measured", "measured"],
        ["measured", "extrapolated"],
    ]


def test_a_recipe_of_one_phase_takes_one_list_and_settings_over_its_own(gangline) -> None:
    phases = "[{steps=1000, resolution=64, batch_size=64, microbatch=32}, {steps=9, resolution=64, batch_size=64}]"
    measured = ("--gpus", "1", "--images-per-second", "64")
    one = json.loads(gangline(TINY, *measured, *PRICE, "-o", "json")[1])["rows"][0]
    two = json.loads(gangline(TINY, *measured, *measured[2:], "--set", f"phases={phases}", *PRICE, "-o", "json")[1])[
        "rows"
    ][0]
    (phase,) = tomllib.loads(Path(TINY).read_text())["phases"]
    assert one["phases"][0]["phase"] == "64 px"
    assert one["days"] == pytest.approx(phase["steps"] * phase["batch_size"] / 64 / 86_400)
    assert [(part["phase"], part["microbatches_per_step"]) for part in two["phases"]] == [
        ("phase 1, 64 px", 2),
        ("phase 2, 64 px", None),
    ]
    assert two["days"] == pytest.approx(1009 * 64 / 64 / 86_400)


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ((RECIPE,), "the recipe does not say how fast its phases are", "--measure"),
        (
            (RECIPE, "--gpus", "8", "--images-per-second", "1100"),
            "the recipe has 2 phases (256 px, 512 px), and --images-per-second is given once",
            "once for each phase in their order; or --measure",
        ),
        (
            (RECIPE, *RATES, "--gpus", "8", "--gpus", "8", "--gpus", "8"),
            "the recipe has 2 phases (256 px, 512 px), and --gpus is given 3 times",
            "once for all phases, or once for each",
        ),
        ((RECIPE, *SAMPLES), "phases are given twice", "either in the recipe"),
        ((RECIPE, "--phase", "x:1:8=1"), "phases are given twice", "either in the recipe"),
        ((RECIPE, *RATES, "--gpus", "8,128", "--batch-size", "64"), "batch_size is given twice", "the recipe"),
        ((RECIPE, *RATES, "--gpus", "8,128", "--microbatch", "x"), "phases.0.microbatch: ", ""),
        ((RECIPE, *RATES, "--gpus", "8,128", "--set", "sed=7"), "sed: ", "gangline docs scratch"),
        ((RECIPE, *RATES, "--gpus", "8,128", "--set", "7"), "--set 7 does not name a setting", "--set seed=7"),
        ((RECIPE, "--measure", *RATES), "the throughput is both given and to be measured", "either"),
        ((RECIPE, *RATES, "--gpus", "8,128", "--base", "x"), "--base works only with --measure", ""),
        (("--measure",), "--measure works only with a training recipe", "sd2_base"),
        ((*ISSUE, "--set", "seed=7"), "--set works only with a training recipe", "sd2_base"),
        ((*ISSUE, "--gpus", "8"), "--gpus is given twice", "--phase"),
        (
            (str(ROOT / "recipes" / "tiny_subject.toml"),),
            "--usd-per-gpu-hour cannot be used with a recipe of a LoRA",
            "pass --gpu",
        ),
    ],
)
def test_what_a_recipe_cannot_be_asked_for(gangline, words: tuple[str, ...], says: str, hint: str) -> None:
    code, printed, said = gangline(*words, "--usd-per-gpu-hour", "2")
    assert (code, printed) == (2, "")
    error, *hints = said.splitlines()
    assert error.startswith(f"error: {says}")
    assert hint in "".join(hints)


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_same_estimate_draws_the_same_figure(gangline, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    files = [tmp_path / f"{name}.{suffix}" for name in ("one", "two")]
    code, _, said = gangline(*ISSUE, "--predict", "32", *(word for file in files for word in ("--figure", str(file))))
    assert (code, said.splitlines()[0]) == (0, f"the figure is in {files[0]}")
    one, two = (file.read_bytes() for file in files)
    assert one == two
    if suffix == "svg":
        for word in ("GPUs", "days", "measured", "predicted", "258.85", "130.65"):
            assert f">{word}<" in one.decode()


def test_without_matplotlib_a_figure_is_one_sentence_and_the_table_needs_none(
    gangline, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert gangline(*ISSUE)[0] == 0
    code, printed, said = gangline(*ISSUE, "--figure", str(tmp_path / "x.svg"))
    assert (code, printed) == (2, "")
    assert said.splitlines() == [
        "error: a figure needs matplotlib",
        "hint: install it with pip install 'gangline[figures]'",
    ]


def test_the_command_line_loads_no_matplotlib_before_a_figure_is_asked_for() -> None:
    program = "import sys, gangline.cli.tools.estimate.command; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"matplotlib", "numpy", "pydantic"} & set(loaded)


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ((), "there is no phase to estimate", "pass an outline, or --samples"),
        (ISSUE[:-2], "usd_per_gpu_hour is missing", "gangline docs estimate"),
        (with_gpus("8"), "training has 1 gpus and 2 images_per_second", "gangline docs estimate"),
        (with_gpus(""), "--gpus is empty", ""),
        (with_gpus("8,x"), "--gpus must be a whole number", ""),
        (with_gpus("0,16"), "--gpus must be 1 or more, not 0", ""),
        (with_gpus(","), "--gpus , is not a list of numbers", "write e.g. --gpus 8,16"),
        (with_gpus("8,,16"), "--gpus 8,,16 is not a list of numbers", "write e.g. --gpus 8,16"),
        ((*ISSUE, "--predict", "32,"), "--predict 32, is not a list of numbers", "write e.g. --predict 8,16"),
        ((*ISSUE, "--samples", "0"), "--samples must be 1 or more, not 0", ""),
        ((*ISSUE, "--samples", ""), "--samples is empty", ""),
        (
            ("--phase", "x:1:0=1", *PRICE),
            "phases[0].gpus[0] must be 1 or more, not 0",
            "gangline docs estimate",
        ),
        ((RECIPE, *RATES, "--gpus", "0,8", *PRICE), "--gpus must be 1 or more, not 0", ""),
        (
            (*ISSUE[:6], "--usd-per-gpu-hour", "2,32=1,32=3", "--predict", "32"),
            "--usd-per-gpu-hour gives 32 two prices",
            "pass each of them once",
        ),
        (
            (*ISSUE[:6], *A100, "--gpu", "a100 80gb=2", "--gpu", "A100 80GB=3"),
            "--gpu gives a100 80gb two prices",
            "pass each of them once",
        ),
        (
            (*ISSUE[:6], *A100, "--usd-per-gpu-hour", "2,16=1", "--gpu", "H200=4"),
            "prices are given twice",
            "either --usd-per-gpu-hour, or --gpu with the price of each kind",
        ),
        ((*ISSUE, "--usd-per-gpu-hour", "nan"), "usd_per_gpu_hour should be a finite number, not nan", ""),
        ((*ISSUE, "--usd-per-gpu-hour", "2,3"), "--usd-per-gpu-hour 3 does not name a price", "a name or a number"),
        ((*ISSUE, "--phase", "x:1:8=1"), "phases are given twice", "either --phase"),
        ((*ISSUE[6:], "--phase", "x:8=1"), "--phase x:8=1 does not describe a phase", "write e.g. --phase"),
        ((*ISSUE, "--figure", "x.pdf"), "x.pdf does not name a figure", ".svg or .png"),
        ((*ISSUE, "--figure", "/proc/x.svg"), "/proc/x.svg cannot be written: ", "another file"),
        (
            (*ISSUE, "--figure", "/nowhere/x.svg"),
            "/nowhere/x.svg cannot be written: the folder /nowhere does not exist",
            "create the folder",
        ),
        (("OUTLINE", *ISSUE), "phases are given twice", "either in the outline"),
        (("/nowhere.toml",), "the outline /nowhere.toml cannot be read: no such file", "pass a TOML file"),
        (("OUTLINE", "--batch-size", "100"), "a batch of 100 images is not shared evenly by 8 or 128 GPUs", ""),
    ],
)
def test_what_cannot_be_asked_for(gangline, outline: str, words: tuple[str, ...], says: str, hint: str) -> None:
    code, printed, said = gangline(*(outline if word == "OUTLINE" else word for word in words))
    assert (code, printed) == (2, "")
    error, *hints = said.splitlines()
    assert error.startswith(f"error: {says}")
    assert hints and hints[0].startswith("hint: ") and hint in hints[0]


@pytest.mark.parametrize("content", [b"gpus = [8", b"\xff\xfe", b"phases = 3\n", b'phases = ["x"]\n', b"data = 3\n"])
def test_a_file_that_is_no_outline(gangline, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.toml").write_bytes(content)
    code, printed, said = gangline(str(tmp_path / "x.toml"), "--dataset-gb", "5")
    assert (code, printed, len(said.splitlines())) == (2, "", 2)
