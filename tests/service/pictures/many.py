"""Many pictures of a job at once, written below the door: more than its nodes would render in a test."""

import hashlib
import io
from collections.abc import Sequence

from PIL import Image, ImageDraw

from gangline.core.jobs.keys import attempt_prefix, small_picture_key
from gangline.core.runs.contract import picture_name, pictures_folder
from tests.service.conftest import PROJECT, Service

PIXELS = 512
SMALL = 256
AT_ONCE = 200


def drawn(prompt: int, step: int, seed: int, pixels: int = PIXELS) -> Image.Image:
    """A picture that says what it is: a disc that grows with the step, in a colour of the prompt."""
    image = Image.linear_gradient("L").resize((pixels, pixels)).convert("RGB")
    draw, hue = ImageDraw.Draw(image), (prompt * 47 + seed * 31) % 256
    radius = pixels * (0.1 + 0.35 * min(1.0, step / 1200))
    middle = pixels / 2
    draw.ellipse(
        (middle - radius, middle - radius, middle + radius, middle + radius), fill=(hue, 255 - hue, step % 256)
    )
    draw.text((8, 8), f"prompt {prompt} step {step} seed {seed}", fill="red", font_size=pixels / 16)
    return image


def _encoded(image: Image.Image, form: str) -> bytes:
    out = io.BytesIO()
    image.save(out, form)
    return out.getvalue()


def write_pictures(
    service: Service, job: str, *, prompts: int, steps: Sequence[int], seeds: Sequence[int] = (1,), small: bool = True
) -> None:
    """Write the pictures of a job that a node has taken: each prompt and seed at each step, of which 0 is the base; with their thumbnails
    if they are `small`."""
    (attempt,) = service.look(f"SELECT id FROM attempt WHERE job = '{job}' ORDER BY fencing DESC LIMIT 1")
    prefix, rows = attempt_prefix(PROJECT, job, attempt["id"]), list[str]()
    for order, step in enumerate(steps):
        for prompt in range(prompts):
            for seed in seeds:
                whole = drawn(prompt, step, seed)
                content, thumbnail = _encoded(whole, "PNG"), _encoded(whole.resize((SMALL, SMALL)), "JPEG")
                sha256 = hashlib.sha256(content).hexdigest()
                name = picture_name(prompt, seed, "base") if step == 0 else picture_name(prompt, seed)
                path = f"samples/{name}" if step == 0 else f"{pictures_folder(step)}/{name}"
                key, small_key = f"{prefix}/{path}", small_picture_key(prefix, sha256)
                service.objects.write(key, content)
                if small:
                    service.objects.write(small_key, thumbnail)
                rows.append(
                    f"('{job}', '{path}', '{attempt['id']}', '{key}', {len(content)}, '{sha256}', {service.now_ms + order}, {PIXELS}, "
                    f"{PIXELS}, '{small_key if small else ''}', {len(thumbnail) if small else 0})"
                )
    columns = "job, path, attempt, key, bytes, sha256, made_ms, width, height, thumbnail, thumbnail_bytes"
    for start in range(0, len(rows), AT_ONCE):
        service.execute(f"INSERT INTO artifact ({columns}) VALUES {','.join(rows[start : start + AT_ONCE])}")
