"""Latents that MosaicML's diffusion made are trained on as they are, where their user says whose VAE made them, and where it is true."""

import json
import shutil
import struct
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from gangline.core.errors import BadInput
from gangline.core.specs.phases import TrainingPhase
from gangline.data.dataset import DataSet
from gangline.data.making.conversion import Conversion, ConvertedPiece, left_out_counts
from gangline.data.making.convert import convert
from gangline.data.making.engine import Processes
from gangline.data.making.fetch import Fetching
from gangline.data.place import DataPlace
from gangline.data.sources import Hints, find_source
from gangline.data.sources.tables import TableSource
from gangline.train.encoding.drawn import drawn_elsewhere
from gangline.train.model.base import load_base
from gangline.train.model.digest import weights_digest
from tests.conftest import BASE, Typed
from tests.data import made
from tests.train.sets import draw_pictures, finish, lay_out, report_of, scratch_spec

COLUMNS = {  # those of mosaicml/diffusion's scripts/precompute_latents.py that matter here, by their own names and encodings
    "punsafe": "float64",
    "caption": "str",
    "width": "int32",
    "jpg": "bytes",
    "hash": "int64",
    "caption_latents": "bytes",
    "latents_16": "bytes",
    "latents_32": "bytes",
}
COUNT = 24


@dataclass
class Written:
    """`latents` by caption and resolution, as they were drawn."""

    source: Path
    latents: dict[tuple[str, int], np.ndarray]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the scale of Stable Diffusion's VAE."""
    folder = shutil.copytree(BASE, tmp_path_factory.mktemp("base") / "base")
    config = folder / "vae" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"scaling_factor": 0.18215}))
    return folder


def write(root: Path, base: Path = BASE, scale: float | None = None, **changes: bytes) -> Written:
    """As that script does: the largest square in the middle, one sample of the posterior, times the scale, in half precision."""
    pictures = draw_pictures(root / "pictures", COUNT)
    vae: Any = load_base(base, torch.device("cpu"), torch.float32).vae
    generator = torch.Generator().manual_seed(1)
    rows: list[dict[str, bytes]] = []
    latents: dict[tuple[str, int], np.ndarray] = {}
    for path in sorted(pictures.glob("*.png")):
        image = Image.open(path).convert("RGB")
        file = BytesIO()
        image.save(file, "JPEG", quality=95)
        caption = f"{path.with_suffix('.txt').read_text()} {path.stem}"
        row = {
            "punsafe": struct.pack("<d", 0.25),
            "caption": caption.encode(),
            "width": struct.pack("<i", image.width),
            "jpg": file.getvalue(),
            "hash": struct.pack("<q", -1),
            "caption_latents": bytes(64),
        }
        for resolution in (16, 32):
            drawn = _drawn(vae, image, resolution, generator)
            stored = (drawn * (vae.config.scaling_factor if scale is None else scale)).numpy().astype("<f2")
            row[f"latents_{resolution}"] = stored.tobytes()
            latents[caption, resolution] = drawn.numpy()
        rows.append(row)
    rows[0] |= changes
    return Written(made.write_mds(root / "source" / "0", COLUMNS, [rows[:10], rows[10:]]).parent, latents)


@torch.no_grad()
def _drawn(vae: Any, image: Image.Image, resolution: int, generator: torch.Generator) -> torch.Tensor:
    share = resolution / min(image.size)
    small = image.resize((round(image.width * share), round(image.height * share)), Image.Resampling.BILINEAR)
    left, top = (small.width - resolution) // 2, (small.height - resolution) // 2
    square = small.crop((left, top, left + resolution, top + resolution))
    pixels = torch.from_numpy(np.asarray(square).copy()).permute(2, 0, 1)[None].float() / 127.5 - 1
    return vae.encode(pixels).latent_dist.sample(generator=generator)[0]


def kept(written: Written, *resolutions: int, base: Path = BASE, scaled_by: float | None = None) -> TableSource:
    found, entries = find_source(DataPlace(str(written.source)), Hints())
    assert isinstance(found, TableSource)
    return drawn_elsewhere(found, entries, base, resolutions, scaled_by)


def converted(source: TableSource, target: Path) -> tuple[DataSet, list[ConvertedPiece]]:
    entries = source.place.entries()
    return convert(Conversion(source=source, target=DataPlace(str(target)), rows=8), entries, Processes(1), Fetching())


def test_latents_that_were_drawn_once_are_kept_as_the_vae_gave_them_with_no_deviation(
    base: Path, tmp_path: Path
) -> None:
    written = write(tmp_path, base)
    data, done = converted(kept(written, base=base), tmp_path / "made.lance")
    vae: Any = load_base(base, torch.device("cpu"), torch.float32).vae
    for resolution in (16, 32):
        known = data.latents(f"latents_{resolution}")
        assert (known.vae, known.scale, known.drawn) == (weights_digest(vae), 0.18215, True)
        assert (known.resolution, known.crop, known.compute_precision) == (resolution, "center", None)
        for row in data.table.to_table().to_pylist():
            mean, deviation = np.split(np.array(row[f"latents_{resolution}"]), 2)
            drawn = written.latents[row["captions"][0], resolution]
            np.testing.assert_allclose(mean, drawn.reshape(-1), rtol=2e-3, atol=1e-3)
            assert not deviation.any()
    assert data.rows == COUNT
    assert not left_out_counts(done)
    assert data.info.dropped == {"caption_latents (bytes)": COUNT}
    assert (data.table.to_table()["source_width"].to_pylist()[0], data.table.to_table()["hash"].to_pylist()[0]) == (
        40,
        -1,
    )


def test_a_model_trains_on_latents_that_were_drawn_elsewhere(base: Path, tmp_path: Path) -> None:
    data, _ = converted(kept(write(tmp_path, base), 32, base=base), tmp_path / "made.lance")
    phase = TrainingPhase(steps=3, resolution=32, batch_size=4, latents="required")
    run = finish(lay_out(tmp_path / "run", scratch_spec(base, data, phases=(phase,)), base))
    assert report_of(run)


def test_without_a_model_latents_are_left_out_with_what_to_do(tmp_path: Path) -> None:
    found, _ = find_source(DataPlace(str(write(tmp_path).source)), Hints())
    assert any("latents_16, latents_32: skipped; to keep them, name the model" in note for note in found.notes)
    assert any(
        "caption_latents: skipped; MosaicML's script embeds no text for every tenth" in note for note in found.notes
    )
    assert "latents_16" not in found.columns.names


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"", "no latents_32"),
        (bytes(64), "latents_32 of another size than 4 × 8 × 8"),
        (np.full(256, np.nan, "<f2").tobytes(), "latents_32 with numbers that are not finite"),
    ],
)
def test_a_sample_whose_latents_cannot_be_used_is_left_out(bad: bytes, why: str, tmp_path: Path) -> None:
    written = write(tmp_path, latents_32=bad)
    data, done = converted(kept(written), tmp_path / "made.lance")
    assert left_out_counts(done) == {why: 1}
    assert data.rows == COUNT - 1
    small, _ = converted(kept(written, 16), tmp_path / "small.lance")
    assert (small.rows, list(small.computed())) == (COUNT, ["latents_16"])


def test_an_image_that_its_exif_turns_is_not_the_one_whose_latents_were_drawn(tmp_path: Path) -> None:
    turned, file = Image.Exif(), BytesIO()
    turned[0x0112] = 6
    Image.new("RGB", (40, 40)).save(file, "JPEG", exif=turned)
    _, done = converted(kept(write(tmp_path, jpg=file.getvalue())), tmp_path / "made.lance")
    assert left_out_counts(done) == {"rotated by its EXIF, unlike its latents": 1}


def test_latents_that_another_vae_made_are_refused(base: Path, tmp_path: Path) -> None:
    other = shutil.copytree(base, tmp_path / "other")
    vae: Any = load_base(other, torch.device("cpu"), torch.float32).vae
    with torch.no_grad():
        vae.quant_conv.weight[:4] = vae.quant_conv.weight[:4].flip(
            0
        )  # the same latents, their channels in another order
        vae.quant_conv.bias[:4] = vae.quant_conv.bias[:4].flip(0)
    vae.save_pretrained(other / "vae")
    written = write(tmp_path, base)
    with pytest.raises(BadInput, match=r"latents_16 was not made by this VAE, or not multiplied by 0\.18215"):
        kept(written, base=other)


def test_latents_with_another_scale_are_refused_unless_it_is_said(base: Path, tmp_path: Path) -> None:
    written = write(tmp_path, base, scale=1.0)
    with pytest.raises(BadInput, match=r"latents_16 was not made by this VAE, or not multiplied by 0\.18215") as told:
        kept(written, base=base)
    assert "--latents-scaled-by their factor (1 if" in told.value.hint
    data, _ = converted(kept(written, 32, base=base, scaled_by=1.0), tmp_path / "made.lance")
    row = data.table.to_table().to_pylist()[0]
    drawn = written.latents[row["captions"][0], 32]
    np.testing.assert_allclose(row["latents_32"][:256], drawn.reshape(-1), rtol=2e-3, atol=1e-3)


def test_a_resolution_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no column latents_64") as told:
        kept(write(tmp_path), 64)
    assert told.value.hint == "it has latents_16, latents_32"


def test_other_latents_are_another_conversion(tmp_path: Path) -> None:
    written = write(tmp_path)
    plans = {
        Conversion(source=source, target=DataPlace("x")).digest([])
        for source in (kept(written), kept(written, 32), kept(written, 32, scaled_by=1.1))
    }
    assert len(plans) == 3


def test_the_command_keeps_them_and_shows_that_they_were_drawn(typed: Typed, tmp_path: Path) -> None:
    source, target = write(tmp_path).source, tmp_path / "made.lance"
    code, _, said = typed("data", "convert", source, target, "--latents-of", BASE, "--processes", 2)
    assert code == 0, said
    _, printed, _ = typed("data", "inspect", target)
    assert "latents of 32 × 32 (center): drawn once" in printed
    for wrong, what in (
        (("--latents-resolution", 32), "--latents-of does not name"),
        (("--latents-of", BASE, "--latents-resolution", 8), "has no column latents_8"),
    ):
        code, _, said = typed("data", "convert", source, tmp_path / "other.lance", *wrong)
        assert (code, what in said) == (2, True)
    made.as_folder(tmp_path / "folder", made.samples(1))
    code, _, said = typed("data", "convert", tmp_path / "folder", tmp_path / "other.lance", "--latents-of", BASE)
    assert (code, "has no columns of latents" in said) == (2, True)
