"""`gangline estimate` of a recipe that nobody measured: what it prints, and what it cannot be asked."""

import json
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import BASE, ROOT, Typed

RECIPE = str(ROOT / "recipes" / "sd2_base.toml")
KINDS = ("--gpu", "B200=4.5", "--gpu", "A100 40GB=2")
LORA = """
prompt = "a photo of sks dog"
steps = 500
rank = 16
base = "stabilityai/stable-diffusion-xl-base-1.0"
"""


@pytest.fixture
def gangline(typed: Typed) -> Typed:
    return partial(typed, "estimate")


@pytest.fixture
def lora(tmp_path: Path) -> str:
    (tmp_path / "dog.toml").write_text(LORA)
    return str(tmp_path / "dog.toml")


def test_a_recipe_without_throughput_has_computed_rows_with_a_band_and_a_reason(gangline) -> None:
    code, printed, said = gangline(RECIPE, *KINDS, "--gpus", "1,8,64", "-o", "json")
    found = json.loads(printed)
    assert (code, said) == (0, "")
    assert [(row["gpu"], row["gpus"], row["how"]) for row in found["rows"]] == [
        (kind, gpus, "computed") for kind in ("B200", "A100 40GB") for gpus in (1, 8, 64)
    ]
    for row in found["rows"]:
        assert row["days_low"] < row["days"] < row["days_high"]
        assert row["usd_low"] < row["usd"] < row["usd_high"]
        assert row["because"].startswith("not measured: at ")
    assert found["band_share"] == 0.8


def test_what_was_published_of_this_recipe_lies_in_the_computed_band(gangline) -> None:
    """MosaicML's table: 81.33 days on 8 A100s, 10.14 on 64, at $2.00."""
    rows = json.loads(gangline(RECIPE, "--gpu", "A100 40GB=2", "--gpus", "8,64", "-o", "json")[1])["rows"]
    for row, days in zip(rows, (81.33, 10.14), strict=True):
        assert row["days_low"] < days < row["days_high"]


def test_the_page_says_that_it_is_computed_and_why(gangline) -> None:
    code, printed, _ = gangline(RECIPE, *KINDS, "--gpus", "8")
    words = " ".join(printed.split())
    assert code == 0
    assert "B200 8: computed, not measured: at 23% of the 2250 TFLOP/s of B200's data sheet" in words
    assert "a band is meant to hold 80% of what would be measured" in words
    assert "512 px: 2.45 TFLOP an image" in words
    assert "the gain from compile was not measured" in words


def test_throughput_that_is_given_or_a_price_without_a_kind_leaves_all_as_it_was(gangline) -> None:
    rates = ("--images-per-second", "1100", "--images-per-second", "290", "--gpus", "8")
    measured = json.loads(gangline(RECIPE, *rates, "--measured-on", "A100 40GB", *KINDS, "-o", "json")[1])["rows"]
    assert {row["how"] for row in measured} == {"measured", "extrapolated"}
    code, _, said = gangline(RECIPE, "--gpus", "8", "--usd-per-gpu-hour", "2")
    assert code == 2
    assert "the recipe does not say how fast its phases are" in said
    assert '--gpu "H100 SXM=3"' in " ".join(said.split())


def test_gpus_of_the_recipe_are_taken_where_none_are_given(gangline) -> None:
    rows = json.loads(gangline(RECIPE, *KINDS, "-o", "json")[1])["rows"]
    assert {row["gpus"] for row in rows} == {8}


def test_interruptions_and_storage_count_for_computed_rows_too(gangline) -> None:
    taken = ("--interruptions-per-node-hour", "0.05", "--checkpoint-s", "30", "--restart-s", "300")
    kept = ("--dataset-gb", "50000", "--storage-usd-per-gb-month", "0.02")
    (plain,) = json.loads(gangline(RECIPE, "--gpu", "B200=4.5", "-o", "json")[1])["rows"]
    (row,) = json.loads(gangline(RECIPE, "--gpu", "B200=4.5", *taken, *kept, "-o", "json")[1])["rows"]
    assert row["days"] > plain["days"]
    assert row["usd_storage"] > 0


def test_a_lora_takes_minutes_and_dollars_by_the_kind_of_gpu(gangline, lora: str) -> None:
    code, printed, said = gangline(lora, "--gpu", "RTX 4090=0.3", "--gpu", "H100 SXM=3", "-o", "json")
    slow, fast = json.loads(printed)["rows"]
    assert (code, said) == (0, "")
    assert slow["minutes"]["middle"] > 2 * fast["minutes"]["middle"]
    assert slow["usd"]["middle"] == pytest.approx(slow["minutes"]["middle"] / 60 * 0.3)
    assert (slow["how"], slow["fits"], slow["gpu"]) == ("computed", "yes", "RTX 4090")
    assert slow["minutes"]["low"] < slow["minutes"]["middle"] < slow["minutes"]["high"]


def test_a_loras_page_says_what_does_not_fit(gangline, lora: str) -> None:
    code, printed, _ = gangline(lora, "--gpu", "RTX 3080 10GB=0.1")
    words = " ".join(printed.split())
    assert code == 0
    assert "it does not fit into RTX 3080 10GB, which has 10 GB: with one sample at a time it takes 11.9 to" in words
    assert "downloads, the start of a node, pictures on the way, checkpoints and uploads are left out" in words


def test_more_photos_and_settings_of_the_recipe_count(gangline, lora: str) -> None:
    def minutes(*words: str) -> float:
        return json.loads(gangline(lora, "--gpu", "T4=0.1", "-o", "json", *words)[1])["rows"][0]["minutes"]["middle"]

    assert minutes("--photos", "200") > minutes()
    assert minutes("--set", "steps=1000") > 1.5 * minutes()


def test_a_base_in_a_folder_is_counted_as_large_as_it_is(gangline, lora: str) -> None:
    small, large = (
        json.loads(gangline(lora, *base, "--gpu", "T4=0.1", "-o", "json")[1])["rows"][0]["memory_gb_low"]
        for base in (("--base", str(BASE)), ())
    )
    assert small < 3 < large


@pytest.mark.parametrize("preset", ["face", "object", "style", "8gb"])
def test_a_preset_is_a_recipe_of_a_lora(gangline, preset: str) -> None:
    base = ("--base", "stabilityai/stable-diffusion-xl-base-1.0")
    (row,) = json.loads(gangline(preset, *base, "--gpu", "RTX 4090=0.3", "-o", "json")[1])["rows"]
    assert (row["how"], row["gpus"]) == ("computed", 1)


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ((RECIPE, "--gpu", "H100=3"), "there is no GPU H100", "did you mean H100 SXM"),
        ((RECIPE, "--gpu", "B200=x"), "--gpu B200 must be a number", ""),
        (
            (RECIPE, *KINDS, "--gpus", "1,x"),
            "--gpus and --predict take numbers of GPUs, which are at least 1",
            "--gpus 1,8,64",
        ),
        ((RECIPE, *KINDS, "--gpus", "3"), "a batch of 2048 images is not shared evenly by 3 GPUs", ""),
        ((RECIPE, *KINDS, "--base", "some/one"), "the family of some/one is not known", "--family"),
        ((RECIPE, *KINDS, "--family", "sd9"), "there is no family sd9", "sdxl, sd15, sd2"),
        ((RECIPE, *KINDS, "--set", "precision=fp32"), "the speed of GPUs in fp32 was not measured", "--measure"),
        ((RECIPE, "--gpu", "T4=0.1"), "T4 only emulates bf16", "--measure"),
        ((RECIPE, *KINDS, "--data", "x.lance"), "--data works only with --measure", ""),
        ((RECIPE, *KINDS, "--measured-on", "B200"), "--measured-on works only with a measured throughput", ""),
        (("LORA",), "there is no kind of GPU to estimate for", "--gpu"),
        (("LORA", *KINDS, "--gpus", "8"), "a LoRA trains on one GPU", "--gpus"),
        (("LORA", *KINDS, "--samples", "8"), "--samples cannot be used with a recipe of a LoRA", ""),
        (("LORA", "--gpu", "T4=-1"), "--gpu T4=-1 does not have a valid price", "dollars"),
        (("LORA", "--gpu", "T4=1", "--set", "rank=0"), "rank", ""),
    ],
)
def test_what_cannot_be_computed_costs_one_sentence(
    gangline, lora: str, words: tuple[str, ...], says: str, hint: str
) -> None:
    code, printed, said = gangline(*(lora if word == "LORA" else word for word in words))
    assert (code, printed) == (2, "")
    first, _, rest = said.partition("\n")
    assert says in f"{first} {rest}".replace("\n", " ")
    assert first.startswith("error: ")
    assert hint in rest


def test_a_family_can_be_named_for_a_base_that_nobody_knows(gangline) -> None:
    code, printed, _ = gangline(RECIPE, *KINDS, "--base", "some/one", "--family", "sdxl", "-o", "json")
    assert code == 0
    assert json.loads(printed)["rows"][0]["days"] > 0
