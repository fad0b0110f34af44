"""Captions written by a node, as processes: killed in the middle, and put beside the photos of the one who asked."""

import json
import shutil
from pathlib import Path

import pytest

from gangline.cli.admin.box import Box
from tests.conftest import ROOT, SUBJECT, Typed

TAGGER = ROOT / "assets" / "tiny-tagger"


@pytest.mark.tenths
def test_a_node_writes_captions_beside_the_photos_that_have_none(
    tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = tmp_path / "photos"
    shutil.copytree(SUBJECT, photos)
    names = sorted(path.stem for path in photos.glob("*.png"))
    for each in photos.glob("*.txt"):
        each.unlink()
    (photos / f"{names[0]}.txt").write_text("mine\n")
    with Box(tmp_path / "box", lease_s=10, heartbeat_interval_s=1) as box:
        box.start_node("node-1")
        monkeypatch.setenv("GANGLINE_SERVER", box.url)
        monkeypatch.setenv("GANGLINE_HOME", str(box.home / "server"))
        code, printed, said = typed(
            "captions", "write", photos, "--model", TAGGER, "--prefix", "sks cat, ", "-o", "json"
        )
    assert code == 0, said
    written = {row["photo"]: row["caption"] for row in json.loads(printed)}
    assert set(written) == {f"{name}.png" for name in names[1:]}
    assert all(caption.startswith("sks cat, ") for caption in written.values())
    assert (photos / f"{names[0]}.txt").read_text() == "mine\n"
    assert (photos / f"{names[1]}.txt").read_text() == f"{written[f'{names[1]}.png']}\n"
