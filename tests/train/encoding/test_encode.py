"""Latents that are stored are the VAE's own, of the part of the picture that training would see, and made once."""

import json
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest
import torch
from PIL import Image

from gangline.core.errors import BadInput
from gangline.data.columns import KEY, TextsColumn
from gangline.data.dataset import DataSet, open_data_set
from gangline.data.images.buckets import Size, cut_view
from gangline.data.images.crops import square
from gangline.data.look import summarise
from gangline.data.making.engine import Processes, Ray
from gangline.data.place import DataPlace
from gangline.train.encoding.encode import encode_data_set, forecast_encoding
from gangline.train.encoding.encoder import Encoder, Encoding
from gangline.train.model.base import load_base
from gangline.train.model.digest import weights_digest
from gangline.train.model.text import embed_all, tokenize
from tests.conftest import BASE
from tests.data import made
from tests.data.made import converted, samples

ROWS = 12


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    return converted(made.as_tars(tmp_path / "source", samples(ROWS)), tmp_path / "made.lance")[0]


def encoding(data: DataSet, **changes: Any) -> Encoding:
    settings: dict[str, Any] = {"base": BASE, "vae": None, "resolutions": (32,)} | changes
    return Encoding(target=data.place, version=data.version, **settings)


@pytest.mark.parametrize("crop", ["center", "random"])
def test_stored_latents_are_the_posterior_of_the_pictures_square(crop: Any, data: DataSet) -> None:
    made_of = encode_data_set(data, encoding(data, crop=crop, resolutions=(32, 16)), Processes(1))
    base = load_base(BASE, torch.device("cpu"), torch.float32)
    rows = made_of.table.to_table().to_pylist()
    for resolution in (32, 16):
        name = f"latents_{resolution}" + ("_random" if crop == "random" else "")
        known = made_of.latents(name)
        assert (known.resolution, known.crop, known.side) == (resolution, crop, resolution // 4)
        assert known.scale == base.vae.config.scaling_factor
        assert known.vae == weights_digest(base.vae)
        for row in rows:
            picture = Image.open(BytesIO(row["image"])).convert("RGB")
            view = square(Size(width=picture.width, height=picture.height), resolution, crop, row["sha256"])
            pixels = (
                torch.from_numpy(np.asarray(cut_view(picture, view), dtype=np.float32)).permute(2, 0, 1)[None] / 127.5
                - 1
            )
            with torch.no_grad():
                posterior = base.vae.encode(pixels).latent_dist
            expected = torch.stack((posterior.mean, posterior.std), dim=1).flatten().numpy()
            np.testing.assert_allclose(np.asarray(row[name], dtype=np.float32), expected, atol=2e-3, rtol=2e-3)


def test_random_crops_differ_between_pictures_and_never_for_one(data: DataSet) -> None:
    places = {
        one["sha256"]: square(Size(width=200, height=30), 16, "random", one["sha256"]).left
        for one in data.table.to_table().to_pylist()
    }
    assert len(set(places.values())) > ROWS // 2
    assert places == {hashed: square(Size(width=200, height=30), 16, "random", hashed).left for hashed in places}


def test_texts_are_those_of_the_encoders_and_only_on_request(data: DataSet) -> None:
    assert "texts" not in Encoder(encoding(data)).schema.names
    made_of = encode_data_set(data, encoding(data, texts=True), Processes(1))
    known = made_of.computed()["texts"]
    assert isinstance(known, TextsColumn)
    base = load_base(BASE, torch.device("cpu"), torch.float32)
    for row in made_of.table.to_table(columns=["captions", "texts", "texts_pooled"]).to_pylist()[:3]:
        one = embed_all(base, tokenize(base, row["captions"][:1]))
        assert one.pooled is not None
        np.testing.assert_allclose(
            np.asarray(row["texts"], np.float32).reshape(known.tokens, known.width), one.tokens[0], atol=5e-3, rtol=2e-3
        )
        np.testing.assert_allclose(np.asarray(row["texts_pooled"], np.float32), one.pooled[0], atol=5e-3, rtol=2e-3)


class Cut(Exception):
    pass


class CutOff:
    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.done = 0

    def run(self, work: Any, tasks: Any) -> Iterator[Any]:
        for number, task in enumerate(tasks):
            if number == self.pieces:
                raise Cut
            self.done += 1
            yield work(task)


def test_what_is_encoded_stays_encoded(data: DataSet) -> None:
    with pytest.raises(Cut):
        encode_data_set(data, encoding(data), CutOff(2))
    assert "latents_32" not in open_data_set(data.place).table.schema.names
    rest = CutOff(100)
    told: list[tuple[int, int]] = []
    made_of = encode_data_set(data, encoding(data), rest, lambda done, before: told.append((done, before)))
    assert rest.done == 1
    assert told == [(8, 8), (12, 8)]
    assert made_of.table.count_rows("latents_32 is not null") == ROWS
    assert not data.place.beside(".encoding").entries()


def test_what_a_try_that_was_cut_off_left_is_swept_and_no_version_loses_a_file(data: DataSet) -> None:
    with pytest.raises(Cut):
        encode_data_set(data, encoding(data), CutOff(2))
    for name in (".tmpOwV5jj", "unnamed.lance", "thesis.txt"):
        data.place.below("data").write(name, b"")
    made_of = encode_data_set(data, encoding(data), Processes(1))
    named = {file.path for fragment in made_of.table.get_fragments() for file in fragment.data_files()}
    assert {entry.name for entry in data.place.below("data").entries()} == named | {"thesis.txt"}
    for version in range(1, made_of.version + 1):
        assert open_data_set(data.place, version=version).table.to_table().num_rows == ROWS


def test_other_settings_do_not_go_on_with_what_was_begun(data: DataSet) -> None:
    with pytest.raises(Cut):
        encode_data_set(data, encoding(data), CutOff(2))
    with pytest.raises(BadInput, match="has other columns, or the data set has changed"):
        encode_data_set(data, encoding(data, crop="random"), Processes(1))
    data.table.delete("width > 44")
    changed = open_data_set(data.place)
    with pytest.raises(BadInput, match="has other columns, or the data set has changed"):
        encode_data_set(changed, encoding(changed), Processes(1))


def test_settings_of_which_nothing_was_made_stand_in_no_others_way(data: DataSet) -> None:
    with pytest.raises(Cut):
        encode_data_set(data, encoding(data), CutOff(0))
    made_of = encode_data_set(data, encoding(data, crop="random"), Processes(1))
    assert "latents_32_random" in made_of.table.schema.names


def test_what_is_cut_off_is_made_again_its_data_though_its_note_is_there_and_its_note(data: DataSet) -> None:
    """A machine that loses its power may leave it so."""
    named = {entry.name for entry in data.place.below("data").entries()}
    with pytest.raises(Cut):
        encode_data_set(data, encoding(data), CutOff(2))
    one = next(entry.name for entry in data.place.below("data").entries() if entry.name not in named)
    data.place.below("data").write(one, b"")
    data.place.beside(".encoding").write(".2.json.partial", b"{")
    rest = CutOff(100)
    made_of = encode_data_set(data, encoding(data), rest)
    assert rest.done == 2
    assert made_of.table.count_rows("latents_32 is not null") == ROWS


def test_what_was_begun_for_a_data_set_is_not_used_for_another_in_its_place(data: DataSet, tmp_path: Path) -> None:
    with pytest.raises(Cut):
        encode_data_set(data, encoding(data), CutOff(2))
    shutil.rmtree(data.place.uri)
    other, _ = converted(made.as_tars(tmp_path / "other", samples(ROWS, 100)), tmp_path / "made.lance")
    assert other.version == data.version
    with pytest.raises(BadInput, match="has other columns, or the data set has changed"):
        encode_data_set(other, encoding(other), Processes(1))


def test_other_weights_in_the_place_of_the_model_do_not_go_on_with_what_was_begun(
    data: DataSet, tmp_path: Path
) -> None:
    from diffusers import AutoencoderKL

    base = tmp_path / "model"
    shutil.copytree(BASE, base)
    with pytest.raises(Cut):
        encode_data_set(data, encoding(data, base=base), CutOff(2))
    AutoencoderKL.from_config(AutoencoderKL.load_config(base / "vae")).save_pretrained(base / "vae")
    with pytest.raises(BadInput, match=r"an unfinished encoding of .* has other columns"):
        encode_data_set(data, encoding(data, base=base), Processes(1))


def test_a_data_set_that_changes_meanwhile_is_told(data: DataSet) -> None:
    class Changing(CutOff):
        def run(self, work: Any, tasks: Any) -> Iterator[Any]:
            yield from super().run(work, tasks)
            data.table.delete("width > 44")

    with pytest.raises(BadInput, match="was changed while it was encoded"):
        encode_data_set(data, encoding(data), Changing(100))


def test_what_is_there_is_not_made_twice(data: DataSet) -> None:
    with_latents = encode_data_set(data, encoding(data), Processes(1))
    with pytest.raises(BadInput, match="has latents_32 already"):
        forecast_encoding(with_latents, encoding(with_latents, resolutions=(16, 32)))


def test_a_second_resolution_leaves_the_first_as_it_was(data: DataSet) -> None:
    first = encode_data_set(data, encoding(data), Processes(1))
    both = encode_data_set(first, encoding(first, resolutions=(16,)), Processes(1))
    assert both.table.to_table(columns=["latents_32"]) == first.table.to_table(columns=["latents_32"])
    assert set(both.computed()) == {"latents_32", "latents_16"}


def test_a_resolution_that_the_vae_cannot_is_told(data: DataSet) -> None:
    with pytest.raises(BadInput, match="resolution 30 is not a multiple of 4"):
        forecast_encoding(data, encoding(data, resolutions=(30,)))


@contextmanager
def memory_for_no_more_than(bytes_: int) -> Iterator[None]:
    """Beside what this process has already."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + bytes_, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_batch_that_memory_has_no_room_for_is_told_with_what_to_do(data: DataSet) -> None:
    encoder = Encoder(encoding(data, resolutions=(1024,), batch_size=ROWS))
    rows = data.table.to_table(columns=["image", "sha256", "captions"]).combine_chunks().to_batches()[0]
    encoder.encode(rows.slice(0, 1))
    with (
        memory_for_no_more_than(2**28),
        pytest.raises(BadInput, match="12 images of 1024 × 1024 at a time do not fit into memory") as told,
    ):
        encoder.encode(rows)
    assert "a smaller --batch-size" in told.value.hint and "finished work is kept" in told.value.hint


def test_what_an_encoder_refuses_is_told_as_it_says_it(data: DataSet, tmp_path: Path) -> None:
    from diffusers import AutoencoderKL

    vae = AutoencoderKL.from_pretrained(BASE, subfolder="vae")
    vae.quant_conv.bias.data.fill_(torch.inf)
    vae.save_pretrained(tmp_path / "vae")
    with pytest.raises(BadInput, match="this VAE computes values that are not finite in float32"):
        encode_data_set(data, encoding(data, vae=tmp_path / "vae"), Processes(1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_a_vae_computed_in_stays_known_beside_what_is_stored(dtype: str, data: DataSet) -> None:
    known = encode_data_set(data, encoding(data, dtype=dtype), Processes(1)).latents("latents_32")
    assert (known.compute_precision, known.precision) == (dtype, "float16")


def test_latents_of_before_have_no_compute_precision_and_are_read_as_ever(data: DataSet, tmp_path: Path) -> None:
    table = encode_data_set(data, encoding(data), Processes(1)).table.to_table()
    column = table.schema.field("latents_32")
    notes = json.loads(column.metadata[KEY])
    del notes["compute_precision"]
    schema = table.schema.set(
        table.schema.get_field_index("latents_32"), column.with_metadata({KEY: json.dumps(notes).encode()})
    )
    lance.write_dataset(table.cast(schema), tmp_path / "before.lance")
    before = open_data_set(DataPlace(str(tmp_path / "before.lance")))
    assert before.latents("latents_32").compute_precision is None
    assert "computed in" not in "".join(column.what for column in summarise(before).columns)


def test_a_forecast_knows_the_size_before_it_starts(data: DataSet) -> None:
    expected = forecast_encoding(data, encoding(data, resolutions=(32, 16), texts=True))
    assert expected.columns == {"latents_32": 1024, "latents_16": 256, "texts": 24 * 128 * 2, "texts_pooled": 128}
    assert expected.bytes_added == ROWS * sum(expected.columns.values())
    assert expected.images_per_second > 0


def test_a_vae_has_one_digest_whatever_its_weights_are_stored_in(tmp_path: Path) -> None:
    from diffusers import AutoencoderKL

    vae = AutoencoderKL.from_pretrained(BASE, subfolder="vae")
    assert weights_digest(vae) == weights_digest(vae.half())
    other = AutoencoderKL.from_config(vae.config)
    assert weights_digest(other) != weights_digest(vae)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", [Processes(2), Ray(processes=2)], ids=["processes", "ray"])
def test_others_make_the_same_latents(engine: Any, data: DataSet, tmp_path: Path) -> None:
    together = encode_data_set(data, encoding(data), engine).table.to_table(columns=["latents_32"])
    alone, _ = converted(tmp_path / "source", tmp_path / "alone.lance")
    assert encode_data_set(alone, encoding(alone), Processes(1)).table.to_table(columns=["latents_32"]) == together


def test_the_notes_of_a_fragment_are_json(data: DataSet) -> None:
    with pytest.raises(Cut):
        encode_data_set(data, replace(encoding(data), batch_size=3), CutOff(1))
    for entry in data.place.beside(".encoding").entries():
        assert json.loads(data.place.beside(".encoding").read(entry.name))
