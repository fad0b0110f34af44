"""Photos that `gangline train` is given otherwise than as a folder: a zip of this machine, or addresses that the server fetches from."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.parsing import to_json
from gangline.core.places.places import parse_places
from gangline.core.places.places import to_json as places_to_json
from gangline.core.specs.fields import Base, FilesBase, base_to_json
from gangline.core.specs.lora import parse_lora

if TYPE_CHECKING:
    from gangline.wire.client import Client

STAND_IN = File(path="photo", bytes=0, sha256="0" * 64)
NEED_A_FOLDER = {"masks": "--masks", "hold_out": "--hold-out"}
LIST_BYTES_MAX = 1_000_000


def addresses_of(given: str) -> list[dict[str, Any]] | None:
    """What a submission says of photos that lie elsewhere: an address, several between commas, or `@FILE` with one a line, each with its
    caption behind it. None for what lies on this machine. Raises `BadInput`."""
    if given.startswith("@"):
        return places_to_json(parse_places([_line(line) for line in _lines(Path(given[1:]))]))
    if "://" not in given:
        return None
    several = given.replace(",http", "\nhttp").split("\n")
    return places_to_json(parse_places(several if len(several) > 1 else given))


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > LIST_BYTES_MAX:
            raise BadInput(f"{path} is too long for a list of URLs", hint="put the photos into one zip")
        found = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "it is no text"
        raise BadInput(f"{path} cannot be read: {why}", hint="give a file with a URL on each line") from None
    wanted = [line for line in found if line and not line.startswith("#")]
    if not wanted:
        raise BadInput(f"{path} names no URL", hint="give a file with a URL on each line")
    return wanted


def _line(line: str) -> dict[str, str]:
    url, *caption = line.split(maxsplit=1)
    return {"url": url, **({"caption": caption[0]} if caption else {})}


@contextmanager
def unpacked(photos: Path) -> Iterator[Path]:
    """The folder of photos; where a zip is given, a folder with what is in it until the context ends. Raises `BadInput`."""
    if photos.suffix.lower() != ".zip" or not photos.is_file():
        yield photos
        return
    from gangline.data.images.zips import Bounds, unpack

    with TemporaryDirectory(prefix="gangline-") as folder:
        into = Path(folder) / photos.stem
        into.mkdir()
        unpack(photos, into, Bounds())
        yield into


def checked(settings: dict[str, Any]) -> list[tuple[str, str]]:
    """Check all that can be known without the photos; what will be done, for people. Raises `BadInput`."""
    given = next((option for name, option in NEED_A_FOLDER.items() if settings.get(name)), None)
    if given:
        raise BadInput(f"{given} needs photos on this machine", hint="give their folder, and they are uploaded")
    if not settings.get("base"):
        raise BadInput(
            "no base model is given", hint="pass --base with a folder, a .safetensors file, a hub id or a name"
        )
    rest = {name: value for name, value in settings.items() if name not in ("base", "vae", "init_lora", "photos")}
    stand_ins = {"base": FilesBase(files=(STAND_IN,)), "photos": (STAND_IN,)}
    spec = parse_lora(rest | stand_ins, options=True)
    photos = settings["photos"]
    return [
        ("base", settings["base"] if isinstance(settings["base"], str) else settings["base"].id),
        (
            "photos",
            f"{photos[0]['url']}{f' and {len(photos) - 1} more' * (len(photos) > 1)}: the server fetches and checks them",
        ),
        ("steps", f"{spec.steps} steps, batch size {spec.batch_size}"),
    ]


def body_of(client: "Client", settings: dict[str, Any]) -> dict[str, Any]:
    """Upload the models that lie here, and return the spec for the server to complete."""
    from gangline.cli.jobs.plan.files import Files, find_base, find_vae
    from gangline.cli.jobs.plan.make import find_lora

    def sent(model: Base | Files) -> dict[str, Any]:
        files = client.hand_in(model.paths, model.below) if isinstance(model, Files) else ()
        return base_to_json(FilesBase(files=files) if isinstance(model, Files) else model)

    models: dict[str, Any] = {"base": sent(find_base(settings["base"]))}
    if settings.get("vae"):
        models["vae"] = sent(find_vae(settings["vae"]))
    if settings.get("init_lora"):
        lora = find_lora(Path(settings["init_lora"]), None)
        models["init_lora"] = to_json(client.hand_in(lora.paths, lora.below)[0])
    # Texts of the command line become numbers here; the server takes nothing else.
    rest = {name: value for name, value in settings.items() if name not in (*models, "photos", "kind")}
    stand_ins = {"base": FilesBase(files=(STAND_IN,)), "photos": (STAND_IN,)}
    read = to_json(parse_lora(rest | stand_ins, options=True))
    return {"kind": "lora"} | {name: read[name] for name in rest} | models | {"photos": settings["photos"]}
