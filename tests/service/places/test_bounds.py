"""What one job may make the server fetch has bounds in time and on the disk, and what nobody wants any more is left at once."""

import sys
import tracemalloc
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from gangline.adapters.places.fetcher import PlacesFetcher
from gangline.adapters.places.web import Web
from gangline.core.errors import Unreachable
from gangline.core.files import PART_BYTES
from gangline.core.jobs.keys import blob_key
from gangline.core.jobs.retry import PAUSE_S_FIRST
from gangline.core.places.places import parse_places
from gangline.core.server.sources import FetchingSettings
from gangline.core.specs.spec import parse_spec
from gangline.service.content.imports import fetch_photos
from gangline.service.jobs import steer
from tests.service.conftest import PROJECT, Service
from tests.service.places.conftest import allow
from tests.service.places.site import Site, picture
from tests.service.places.test_imports import ask, because, fetch_all

LATE_S = 20
PLACES = parse_places("https://a.example/x.zip")


def looking(folder: Path, program: str) -> PlacesFetcher:
    look = (sys.executable, "-c", program)
    return PlacesFetcher(folder, FetchingSettings(), {}, Web(), lambda source, bucket: pytest.fail(), look)


def test_a_file_on_its_way_is_left_when_its_job_is_canceled(fetching: Service, site: Site, tmp_path: Path) -> None:
    job = ask(fetching, [site.put("one.png", picture())])
    ended = Event()

    def stall(path: str) -> None:
        steer.cancel(fetching.deployment, job, fetching.now_ms)
        ended.wait(2 * LATE_S)

    site.before = stall
    begun_s = monotonic()
    fetch_all(fetching.deployment)
    ended.set()
    assert monotonic() - begun_s < LATE_S
    assert fetching.look("SELECT state FROM photo_import") == [{"state": "dropped"}]
    assert list((tmp_path / "imports").iterdir()) == []


def test_photos_that_nobody_wants_any_more_are_looked_at_no_longer(tmp_path: Path) -> None:
    def cancel() -> None:
        raise Unreachable("nobody wants them")

    begun_s = monotonic()
    with pytest.raises(Unreachable, match="nobody wants them"):
        looking(tmp_path, f"import time; time.sleep({2 * LATE_S})").look("job", PLACES, cancel)
    assert monotonic() - begun_s < LATE_S


def test_a_large_photo_is_never_in_memory_as_a_whole(fetching: Service, site: Site) -> None:
    large = picture() + bytes(4 * PART_BYTES)
    job = ask(fetching, [site.put("one.png", large)])
    tracemalloc.start()
    fetch_all(fetching.deployment)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3 * PART_BYTES
    (file,) = parse_spec(fetching.ask("GET", f"/v1/jobs/{job}").json()["spec"]).photos
    assert fetching.objects.read(blob_key(PROJECT, file.sha256)) == large


def test_what_decodes_photos_may_not_answer_without_end(tmp_path: Path) -> None:
    endless = "import sys\nwhile True: sys.stdout.write('x' * 10**6)"
    begun_s = monotonic()
    with pytest.raises(Unreachable, match="did not finish"):
        looking(tmp_path, endless).look("job", PLACES, lambda: None)
    assert monotonic() - begun_s < LATE_S


def test_photos_that_take_too_long_in_all_fail_their_job_with_what_to_do(
    service: Service, site: Site, tmp_path: Path
) -> None:
    at = allow(service, tmp_path, job_s=100).deployment
    job = ask(service, [site.put(f"{name}.png", picture(name)) for name in ("red", "blue", "green")])
    steps = fetch_photos(at)
    for _ in range(2):
        next(steps)
        service.wait(51)
    assert list(steps) == []
    assert (service.state(job), because(service, job)) == (
        "failed",
        "its photos could not be fetched: fetching them took longer than 100 s in all (name fewer or smaller photos, or a faster "
        "place; the operator sets this limit with job_s in [fetching])",
    )
    assert list((tmp_path / "imports").iterdir()) == []


def test_a_file_is_not_fetched_where_the_disk_has_no_room_for_it(service: Service, site: Site, tmp_path: Path) -> None:
    """The site says how long a file is; where it does not, room is needed for as much as a photo may have."""
    allow(service, tmp_path, file_bytes_max=10**12, bytes_max=10**12)
    job = ask(service, [site.put("one.png", picture()), site.put("two.png", picture("blue"))])
    site.length = lambda path: "" if path == "/two.png" else str(len(site.files[path]))
    fetch_all(service.deployment)
    said = because(service, job)
    assert said.startswith(
        f"its photos are being fetched: 1 of 2; this server's disk has no room for {site.url}/two.png: "
    )
    assert "may take 1,000.0 GB" in said and "is tried again in 10 s" in said
    assert [path.name for path in (tmp_path / "imports" / job / "fetched").iterdir()] == ["one.png"]
    site.length = lambda path: str(len(site.files[path]))
    service.wait(PAUSE_S_FIRST + 1)
    fetch_all(service.deployment)
    assert len(parse_spec(service.ask("GET", f"/v1/jobs/{job}").json()["spec"]).photos) == 2
