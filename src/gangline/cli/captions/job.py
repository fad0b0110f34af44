"""Jobs that write captions: whether a request for one is small enough, and what one has written."""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gangline.cli.captions.photos import CaptionedPhotos
from gangline.cli.output import say
from gangline.core.errors import BadInput
from gangline.core.server.limits import Limits
from gangline.core.specs.caption import RESULT_FILE
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.compose.client import Client

REQUEST_BYTES_MAX = Limits().json_bytes_max
AROUND_BYTES = 20_000
"""The size of the name and the labels of a job in a request, at most, nearly always."""


def check_request(spec: Mapping[str, Any], photos: int) -> None:
    """Raise `BadInput` if a server would not take a request with this spec of that many photos."""
    if len(json.dumps(spec, ensure_ascii=False).encode()) + AROUND_BYTES <= REQUEST_BYTES_MAX:
        return
    raise BadInput(
        f"the names of {counted(photos, 'photo')} do not fit into one request, which has at most {REQUEST_BYTES_MAX:,} bytes",
        hint="push the folder as a data set, with `gangline datasets push`, and name that in its place"
        if isinstance(spec["photos"], list)
        else "split the data set, or give --overwrite to write captions for all of its photos",
    )


def captions_of_job(client: "Client", job: str, photos: Collection[str]) -> dict[str, str]:
    """Download the captions that a job wrote for these photos. Raise `BadInput` if it wrote none for them, or is a job of another kind."""
    kind = client.jobs.get(job).summary.kind
    if kind != "caption":
        raise BadInput(
            f"{job} is of the kind {kind}: it writes no captions", hint="give a job of `gangline captions write`"
        )
    with TemporaryDirectory(prefix="gangline-") as at:
        client.artifacts.download(job, Path(at))
        file = Path(at) / RESULT_FILE
        written = dict(_lines(file.read_text(encoding="utf-8"), job)) if file.is_file() else {}
    found = {photo: written[photo] for photo in photos if photo in written}
    if not found:
        raise BadInput(
            f"{job} has written no captions for these photos", hint="`gangline artifacts JOB` lists its results"
        )
    return found


def _lines(text: str, job: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        if not line:
            continue
        try:
            value = json.loads(line)
            yield str(value["photo"]), " ".join(str(value["caption"]).split())
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{RESULT_FILE} of {job} is damaged", hint="run the job again") from None


def only_missing(found: CaptionedPhotos, written: dict[str, str], *, overwrite: bool) -> dict[str, str]:
    """Return the captions of photos that have none now, or all with `overwrite`: a person may have written some while the job ran."""
    stated = {} if overwrite else found.stated(lambda sentence: None)
    kept = [photo for photo in written if photo in stated]
    if kept:
        has = "has a caption by now and keeps it" if len(kept) == 1 else "have captions by now and keep them"
        say(f"{counted(len(kept), 'photo')} {has}; --overwrite replaces them")
    return {photo: caption for photo, caption in written.items() if photo not in stated}
