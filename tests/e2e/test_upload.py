"""What lies beside photos comes to the job with them."""

import subprocess
import sys
from pathlib import Path

from PIL import Image

from gangline.cli.admin.box import Box
from gangline.core.specs.spec import parse_spec
from tests.conftest import BASE
from tests.unit.cli.test_plan import safetensors


def test_captions_masks_and_a_lora_are_uploaded_with_the_photos(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "3_sks dog").mkdir(parents=True)
    (tmp_path / "masks").mkdir()
    for name in ("a.png", "3_sks dog/b.png"):
        Image.new("RGB", (64, 64), "red").save(photos / name)
    Image.new("L", (64, 64)).save(tmp_path / "masks" / "a.png")
    (photos / "a.txt").write_text("sks dog on a beach")
    (photos / "metadata.jsonl").write_text('{"file_name": "a.png", "repeats": 2}')
    lora = safetensors(tmp_path / "old.safetensors", unet__conv_in__lora_A__weight=(1, 1))
    words = ["--prompt", "sks dog", "--resolution", "64", "--min-snr-gamma", "5", "--sample-seed", "7", "--no-flip"]
    files = ["--base", str(BASE), "--masks", str(tmp_path / "masks"), "--init-lora", str(lora)]
    with Box(tmp_path / "home", lease_s=10, heartbeat_interval_s=1) as box:
        where = ["--server", box.url, "--token", box.client._http.token, "--detach"]
        command = [sys.executable, "-m", "gangline.cli.main", "train", str(photos), *words, *files, *where]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        spec = parse_spec(box.client.jobs.get(ended.stdout.strip()).spec)
    assert {path.split("/", 1)[0] for path in spec.input_files()} == {
        "base",
        "photos",
        "captions",
        "masks",
        "init_lora",
    }
    assert sorted(file.path for file in spec.captions) == ["a.txt", "metadata.jsonl"]
    assert spec.init_lora is not None
    assert spec.init_lora.bytes == lora.stat().st_size
    assert (spec.mask, spec.min_snr_gamma, spec.sample_seeds, spec.flip) == ("files", 5.0, (7,), False)
    assert "photos are seen" in ended.stderr
    assert "tip: photos: use more than 2 photos" in ended.stderr
