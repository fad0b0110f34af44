"""What a base on the hub is, is known before anything is sent: its family, its size, its gate, its licence."""

import json
import shutil
from pathlib import Path

import pytest

from gangline.adapters.hub import HuggingFaceHub
from gangline.core.errors import BadInput, NotFound, Unreachable
from gangline.core.models import families
from gangline.core.models.bases import files_needed
from gangline.core.specs.fields import HubBase
from gangline.service.content.on_hub import OnHub, look_up
from tests.conftest import BASE
from tests.hub import COMMIT, REPO, TOKEN, fake_hub

NAMES = [path.relative_to(BASE).as_posix() for path in BASE.rglob("*") if path.is_file()]
ON_HUB = HubBase(repo=REPO)


def looked_up(folder: Path, token: str = "", *, gated: bool = False, base: HubBase = ON_HUB) -> OnHub:
    with fake_hub(folder, gated=gated, card={"license": "openrail++"}) as hub:
        return look_up(HuggingFaceHub(hub.url, token), base, "base")


def other_model(tmp_path: Path, kind: str) -> Path:
    """A folder as the hub has one of a model that Gangline does not train: its weights lie in `transformer`."""
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "w.safetensors").write_bytes(b"0" * 100)
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": kind}))
    return tmp_path


def test_a_base_on_the_hub_is_recognised_without_its_weights_being_read() -> None:
    with fake_hub(BASE, card={"license": "openrail++"}) as hub:
        found = look_up(HuggingFaceHub(hub.url), ON_HUB, "base")
        assert not [path for path in hub.asked if path.endswith(".safetensors")]
    assert (found.model.revision, found.family, found.licence) == (COMMIT, families.SDXL, "openrail++")
    assert found.recognised is not None and found.recognised.prediction_type == "v_prediction"
    assert found.bytes == sum((BASE / name).stat().st_size for name in files_needed(NAMES))
    assert (found.gated, found.opens) == (False, True)


def test_of_a_gated_base_the_gate_is_known_and_whether_the_token_opens_it() -> None:
    closed, opened = looked_up(BASE, gated=True), looked_up(BASE, TOKEN, gated=True)
    assert (closed.gated, closed.opens, closed.recognised) == (True, False, None)
    assert closed.family is families.SDXL  # the hub says of which class it is
    assert (opened.gated, opened.opens, opened.family) == (True, True, families.SDXL)
    assert closed.bytes == opened.bytes > 0


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("kind", ["FluxPipeline", "StableDiffusion3Pipeline"])
def test_another_kind_of_model_is_refused_by_its_name_behind_a_gate_too(tmp_path: Path, kind: str, gated: bool) -> None:
    with pytest.raises(BadInput, match=f"{REPO} is a {kind}") as refused:
        looked_up(other_model(tmp_path, kind), gated=gated)
    assert "SDXL" in refused.value.hint


def test_a_base_without_all_of_its_weights_in_safetensors_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(BASE, copy)
    for weights in (copy / "unet").glob("*.safetensors"):
        weights.rename(weights.with_suffix(".bin"))
    with pytest.raises(BadInput, match="lacks unet in safetensors"):
        looked_up(copy)


def test_a_vae_is_looked_up_by_its_files_alone() -> None:
    with fake_hub(BASE) as hub:
        found = look_up(HuggingFaceHub(hub.url), ON_HUB, "vae")
    assert found.recognised is None and found.files
    assert all(file.path.startswith("vae/") for file in found.files)


def test_what_the_hub_does_not_have_and_a_hub_that_is_away_are_told_apart() -> None:
    with pytest.raises(NotFound, match="the hub has no base"):
        looked_up(BASE, base=HubBase(repo="nobody/nothing"))
    with pytest.raises(Unreachable):
        look_up(HuggingFaceHub("http://127.0.0.1:1"), ON_HUB, "base")
