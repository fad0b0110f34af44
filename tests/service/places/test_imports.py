"""Photos that a submission names by their address are fetched by the server, checked, and kept as uploads are; then the job begins."""

import errno
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangline.adapters.places.fetcher import PlacesFetcher
from gangline.adapters.places.web import Web
from gangline.core.errors import BadInput
from gangline.core.jobs.retry import PAUSE_S_FIRST
from gangline.core.places.places import parse_places
from gangline.core.server.sources import FetchingSettings
from gangline.core.specs.spec import parse_spec, spec_hash
from gangline.data.images.imported import FETCHED, TOLD_MAX, inspect_folder
from gangline.data.images.zips import ZipBounds
from gangline.service.content.imports import TURN_S, fetch_photos
from gangline.service.deployment import Deployment
from gangline.service.jobs import steer
from gangline.service.jobs.submit import submit
from gangline.service.retention.removal import remove
from tests.service.conftest import PROJECT, Service
from tests.service.places.conftest import allow
from tests.service.places.site import Site, packed, picture

RED, BLUE, GREEN = picture("red"), picture("blue"), picture("green")


def value(service: Service, photos: Any, **settings: Any) -> dict[str, Any]:
    base = {"source": "files", "files": [{"path": "a.png", "bytes": 7, "sha256": service.photo.sha256}]}
    return {"base": base, "photos": photos, "prompt": "a photo of sks dog", "steps": 10, **settings}


def ask(service: Service, photos: Any, request: str | None = None, **settings: Any) -> str:
    given = value(service, photos, **settings)
    return submit(service.deployment, PROJECT, given, name="", request=request, now_ms=service.now_ms)


def fetch_all(deployment: Deployment) -> None:
    for _ in fetch_photos(deployment):
        pass


def show(service: Service, job: str) -> dict[str, Any]:
    return service.ask("GET", f"/v1/jobs/{job}").json()


def because(service: Service, job: str) -> str:
    return show(service, job)["summary"]["because"]


def kinds(service: Service, job: str) -> list[str]:
    return [event["kind"] for event in service.ask("GET", f"/v1/jobs/{job}/events").json()]


def test_photos_of_a_list_of_urls_are_fetched_and_the_job_begins_with_them(fetching: Service, site: Site) -> None:
    urls = [site.put("one.png", RED), {"url": site.put("two.png", BLUE), "caption": "sks dog in snow"}]
    job = ask(fetching, urls)
    node = fetching.join()
    assert because(fetching, job) == "its photos are being fetched"
    assert show(fetching, job)["spec"]["photos"] == [{"url": urls[0]}, urls[1]]
    fetching.claim_nothing(node)
    fetch_all(fetching.deployment)
    spec = parse_spec(show(fetching, job)["spec"])
    assert [file.path for file in spec.photos] == ["one.png", "two.png"]
    assert [file.path for file in spec.captions] == ["two.txt"]
    assert fetching.store.load("job", id=job)[0]["spec_hash"] == spec_hash(spec)
    assignment = fetching.claim(node)
    given = {file.path: fetching.objects.read(file.key) for file in assignment.inputs}
    assert given["photos/one.png"] == RED and given["captions/two.txt"] == b"sks dog in snow"
    assert kinds(fetching, job)[:2] == ["submitted", "fetched"]
    assert (
        not list((Path(fetching.database).parent / "imports").glob("*/*")) if "://" not in fetching.database else True
    )


def test_the_same_photos_uploaded_or_fetched_are_the_same_job(fetching: Service, site: Site) -> None:
    job = ask(fetching, [site.put("one.png", RED)])
    fetch_all(fetching.deployment)
    uploaded = fetching.upload(RED, "one.png")
    other = ask(fetching, [{"path": "one.png", "bytes": uploaded.bytes, "sha256": uploaded.sha256}])
    specs = [show(fetching, each)["spec"] for each in (job, other)]
    assert specs[0] == specs[1]
    assert len({fetching.store.load("job", id=each)[0]["spec_hash"] for each in (job, other)}) == 1


@pytest.mark.parametrize("path", ["dogs.zip", "download"])
def test_photos_of_a_zip_are_fetched_with_their_captions(fetching: Service, site: Site, path: str) -> None:
    files = {"dogs/1.png": RED, "dogs/1.txt": b"sks dog", "dogs/2.png": BLUE, "dogs/readme.doc": b"hello"}
    job = ask(fetching, site.put(path, packed(files)))
    fetch_all(fetching.deployment)
    spec = parse_spec(show(fetching, job)["spec"])
    assert [file.path for file in (*spec.photos, *spec.captions)] == ["1.png", "2.png", "1.txt"]
    told = fetching.ask("GET", f"/v1/jobs/{job}/events").json()[1]["because"]
    assert told == "2 photos and 1 file of captions fetched; readme.doc is skipped: not an image"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<html>sign in</html>", "is not a photo: not an image"),
        (RED[:80], "cannot be read to its end"),
        (b"", "is not a photo: not an image"),
    ],
)
def test_what_is_no_photo_fails_the_job_in_words(fetching: Service, site: Site, content: bytes, said: str) -> None:
    url = site.put("dog.png" if content == RED[:80] else "view", content)
    job = ask(fetching, [site.put("good.png", RED), url])
    fetch_all(fetching.deployment)
    found = show(fetching, job)["summary"]
    assert found["state"] == "failed" and said in found["because"], found["because"]
    assert kinds(fetching, job) == ["submitted", "failed"]
    assert fetching.look("SELECT * FROM photo_import")[0]["state"] == "failed"


def test_what_is_not_there_fails_the_job_with_its_address(fetching: Service, site: Site) -> None:
    job = ask(fetching, f"{site.url}/dogs.zip?signature=secret")
    fetch_all(fetching.deployment)
    said = because(fetching, job)
    assert said.startswith(f"its photos could not be fetched: {site.url}/dogs.zip answered 404")
    assert "secret" not in said


def test_an_address_that_is_not_public_fails_the_job_before_it_is_asked(
    service: Service, site: Site, tmp_path: Path
) -> None:
    allow(service, tmp_path, networks=())
    job = ask(service, [site.put("one.png", RED).replace("http:", "https:")])
    fetch_all(service.deployment)
    assert service.state(job) == "failed" and "127.0.0.1 may not be fetched from: its address is loopback" in because(
        service, job
    )
    assert site.asked == []


@pytest.mark.parametrize(
    ("photos", "said"),
    [
        ("s3://bucket/dogs/", "has no source for s3://bucket/dogs/"),
        ("dogs/", "is not an address"),
        ("https://me:secret@a.example/1.zip", "a user's name or password"),
        ([], "photos"),
        (["https://a.example/1.jpg"] * 11, "more than 10"),
    ],
)
def test_what_may_not_be_fetched_is_refused_when_it_is_submitted(
    fetching: Service, tmp_path: Path, photos: Any, said: str
) -> None:
    allow(fetching, tmp_path, files_max=10)
    with pytest.raises(BadInput) as refused:
        ask(fetching, photos)
    assert said in refused.value.message and "secret" not in refused.value.message
    assert fetching.look("SELECT * FROM job") == []


def test_a_server_that_fetches_nothing_says_so(service: Service) -> None:
    with pytest.raises(BadInput, match="this server fetches no photos"):
        ask(service, "https://a.example/dogs.zip")


def test_other_problems_of_the_spec_are_found_at_once(fetching: Service) -> None:
    with pytest.raises(BadInput, match="steps"):
        ask(fetching, "https://a.example/dogs.zip", steps=-1)
    with pytest.raises(BadInput, match="captions: they are fetched"):
        ask(fetching, "https://a.example/dogs.zip", captions=[{"path": "a.txt", "bytes": 1, "sha256": "0" * 64}])


def test_limits_of_size_and_number_hold(fetching: Service, site: Site, tmp_path: Path) -> None:
    allow(fetching, tmp_path, file_bytes_max=1000, bytes_max=5000)
    large = picture("red", 3000) + bytes(1000)
    job = ask(fetching, [site.put("large.png", large)] * 2)
    fetch_all(fetching.deployment)
    assert "large.png is larger than" in because(fetching, job)
    swollen = ask(fetching, site.put("bomb.zip", packed({"a.png": bytes(4000)})))
    fetch_all(fetching.deployment)
    assert "a.png of bomb.zip unpacks to more than" in because(fetching, swollen)


def test_a_fault_that_may_pass_is_tried_again_later_each_time_and_says_so(fetching: Service, site: Site) -> None:
    job = ask(fetching, [site.put("one.png", RED), site.put("two.png", BLUE)])
    site.before = lambda path: 503 if path == "/two.png" else None
    fetch_all(fetching.deployment)
    assert because(fetching, job) == (
        f"its photos are being fetched: 1 of 2; {site.url}/two.png answered 503, and is tried again in 10 s"
    )
    fetch_all(fetching.deployment)
    assert site.asked == ["/one.png", "/two.png"], "not before its time"
    fetching.wait(PAUSE_S_FIRST + 1)
    fetch_all(fetching.deployment)
    assert site.asked == ["/one.png", "/two.png", "/two.png"], "what came is not fetched again"
    assert because(fetching, job).endswith("tried again in 20 s")
    site.before = lambda path: None
    fetching.wait(2 * PAUSE_S_FIRST + 1)
    fetch_all(fetching.deployment)
    assert len(parse_spec(show(fetching, job)["spec"]).photos) == 2


def test_it_ends_although_a_fault_never_does(fetching: Service, site: Site, tmp_path: Path) -> None:
    allow(fetching, tmp_path, tries_max=3)
    job = ask(fetching, [site.put("one.png", RED)])
    site.before = lambda path: 503
    for _ in range(5):
        fetch_all(fetching.deployment)
        fetching.wait(1000)
    assert fetching.state(job) == "failed" and because(fetching, job).endswith("answered 503, in 3 tries")
    assert len(site.asked) == 3


def test_a_server_that_dies_in_the_midst_goes_on_where_it_was(fetching: Service, site: Site, tmp_path: Path) -> None:
    job = ask(fetching, [site.put("one.png", RED), site.put("two.png", BLUE), site.put("three.png", GREEN)])
    steps = fetch_photos(fetching.deployment)
    for _ in range(3):
        next(steps)
    steps.close()
    assert because(fetching, job) == "its photos are being fetched: 2 of 3"
    allow(fetching, tmp_path)  # another process, of the same home
    fetch_all(fetching.deployment)
    assert sorted(site.asked) == ["/one.png", "/three.png", "/two.png"]
    assert [file.path for file in parse_spec(show(fetching, job)["spec"]).photos] == ["one.png", "three.png", "two.png"]


def test_of_several_servers_one_fetches_and_another_goes_on_when_that_is_gone(
    fetching: Service, site: Site, tmp_path: Path
) -> None:
    job = ask(fetching, [site.put("one.png", RED), site.put("two.png", BLUE)])
    first = fetch_photos(fetching.deployment)
    next(first)
    other = replace(allow(fetching, tmp_path / "other").deployment, server="other")
    fetch_all(other)
    assert site.asked == [], "it is not its turn"
    fetching.wait(TURN_S + fetching.deployment.fetching.file_s + 1)
    fetch_all(other)
    assert len(parse_spec(show(fetching, job)["spec"]).photos) == 2
    before = fetching.look("SELECT * FROM job") + fetching.look("SELECT * FROM photo_import")
    for _ in first:
        pass
    assert fetching.look("SELECT * FROM job") + fetching.look("SELECT * FROM photo_import") == before


def test_a_job_that_is_canceled_meanwhile_is_not_fetched_for(fetching: Service, site: Site) -> None:
    job = ask(fetching, [site.put("one.png", RED), site.put("two.png", BLUE), site.put("three.png", GREEN)])
    steps = fetch_photos(fetching.deployment)
    next(steps)
    next(steps)
    steer.cancel(fetching.deployment, job, fetching.now_ms)
    assert list(steps) == []
    assert "/three.png" not in site.asked, "one file was on its way"
    assert fetching.state(job) == "canceled"
    fetch_all(fetching.deployment)
    assert fetching.look("SELECT state FROM photo_import") == [{"state": "dropped"}]
    remove(fetching.deployment, job, fetching.now_ms)
    assert fetching.look("SELECT * FROM photo_import") == []


def test_a_job_may_be_paused_and_resumed_meanwhile(fetching: Service, site: Site) -> None:
    job = ask(fetching, [site.put("one.png", RED)])
    node = fetching.join()
    steer.pause(fetching.deployment, job, fetching.now_ms)
    steer.resume(fetching.deployment, job, fetching.now_ms)
    assert because(fetching, job) == "its photos are being fetched"
    fetching.claim_nothing(node)
    steer.pause(fetching.deployment, job, fetching.now_ms)
    fetch_all(fetching.deployment)
    assert (fetching.state(job), because(fetching, job)) == ("paused", "paused by its owner")
    steer.resume(fetching.deployment, job, fetching.now_ms)
    assert fetching.claim(node).job == job


def test_a_job_whose_photos_could_not_be_fetched_can_be_retried(fetching: Service, site: Site) -> None:
    job = ask(fetching, [f"{site.url}/one.png"])
    fetch_all(fetching.deployment)
    assert fetching.state(job) == "failed"
    site.put("one.png", RED)
    again = fetching.ask("POST", f"/v1/jobs/{job}/retry").json()["summary"]
    assert again["because"] == "its photos are being fetched"
    fetch_all(fetching.deployment)
    assert fetching.claim(fetching.join()).job == again["id"]


def test_the_same_request_again_gives_the_same_job_before_and_after_the_photos_came(
    fetching: Service, site: Site
) -> None:
    urls = [site.put("one.png", RED)]
    job = ask(fetching, urls, "once")
    assert ask(fetching, urls, "once") == job
    fetch_all(fetching.deployment)
    assert ask(fetching, urls, "once") == job
    with pytest.raises(BadInput, match="was used for another spec"):
        ask(fetching, [*urls, f"{site.url}/two.png"], "once")


def test_a_job_that_waits_for_photos_does_not_fail_for_lack_of_a_node(fetching: Service, site: Site) -> None:
    job = ask(fetching, [site.put("one.png", RED)])
    fetching.wait(fetching.deployment.policy.unmatched_s + 1)
    fetching.tick()
    assert fetching.state(job) == "queued"


def test_photos_that_a_job_fetched_are_kept_as_long_as_it_needs_them(fetching: Service, site: Site) -> None:
    job = ask(fetching, [site.put("one.png", RED)])
    fetch_all(fetching.deployment)
    (file,) = parse_spec(show(fetching, job)["spec"]).photos
    named = fetching.look(f"SELECT job FROM job_file WHERE sha256 = '{file.sha256}'")
    assert named == [{"job": job}]


def test_what_decodes_photos_is_given_no_key_of_the_server(
    fetching: Service, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    told = "import json, os; print(json.dumps({'photos': [], 'captions': [], 'told': sorted(os.environ)}))"
    look = (sys.executable, "-c", told)
    fetcher = PlacesFetcher(
        tmp_path / "imports", FetchingSettings(), {}, Web(), lambda source, bucket: pytest.fail(), look
    )
    found = fetcher.look("job", parse_places("https://a.example/x.zip"), lambda: None)
    assert "PATH" in found.told and not [name for name in found.told if "AWS" in name or "GANGLINE" in name]


def test_a_full_disk_is_waited_for(fetching: Service, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(fetcher, name)

        def look(self, job: str, places: Any, check: Any) -> Any:
            raise OSError(errno.ENOSPC, "No space left on device")

    fetcher = fetching.deployment.fetcher
    job = ask(fetching, [site.put("one.png", RED)])
    fetch_all(replace(fetching.deployment, fetcher=Full()))
    assert "this server cannot keep what it fetches: no space left on device, and is tried" in because(fetching, job)
    fetching.wait(PAUSE_S_FIRST + 1)
    fetch_all(fetching.deployment)
    assert kinds(fetching, job) == ["submitted", "fetched"]


def test_what_a_user_wrote_steers_no_terminal(fetching: Service, site: Site) -> None:
    job = ask(fetching, site.put("dogs.zip", packed({"a\x1b[31m.doc": b"x", "b.png": RED})))
    fetch_all(fetching.deployment)
    text = json.dumps(show(fetching, job)) + because(fetching, job)
    assert "\\u001b" not in text and "\x1b" not in text


def test_a_lone_file_that_is_no_zip_is_as_small_as_others_must_be(service: Service, site: Site, tmp_path: Path) -> None:
    fetching = allow(service, tmp_path, file_bytes_max=10_000)
    job = ask(fetching, site.put("1.png", RED + bytes(20_000)))
    fetch_all(fetching.deployment)
    assert fetching.state(job) == "failed"
    assert "1.png has 0 MB, more than 0 MB" in because(fetching, job)


def test_an_error_that_nobody_expected_is_tried_again_later_and_ends_the_job_at_last(
    service: Service, site: Site, tmp_path: Path
) -> None:
    fetching = allow(service, tmp_path, tries_max=2)
    job = ask(fetching, site.put("1.png", RED))
    fetching.execute("UPDATE photo_import SET places = '[5'")
    fetch_all(fetching.deployment)
    assert fetching.state(job) == "queued"
    fetch_all(fetching.deployment)  # not at once
    assert fetching.state(job) == "queued"
    fetching.wait(3600)
    fetch_all(fetching.deployment)
    assert fetching.state(job) == "failed" and "its log says why" in because(fetching, job)


def test_what_was_brought_for_a_job_that_is_gone_is_deleted(fetching: Service, site: Site, tmp_path: Path) -> None:
    places = [site.put("one.png", RED), site.put("two.png", BLUE)]
    gone, waiting = ask(fetching, places), ask(fetching, places)
    for job in (gone, waiting):
        folder = tmp_path / "imports" / job
        folder.mkdir(parents=True)
        (folder / "one.png").write_bytes(RED)
    steer.cancel(fetching.deployment, gone, fetching.now_ms)
    remove(fetching.deployment, gone, fetching.now_ms)
    next(fetch_photos(fetching.deployment))
    assert [path.name for path in (tmp_path / "imports").iterdir()] == [waiting]


def test_a_job_that_is_deleted_in_the_midst_ends_its_fetching(fetching: Service, site: Site, tmp_path: Path) -> None:
    """Also where the very next thing that happens is an error."""
    job = ask(fetching, [site.put("one.png", RED), f"{site.url}/none.png"])
    steps = fetch_photos(fetching.deployment)
    next(steps)
    next(steps)
    steer.cancel(fetching.deployment, job, fetching.now_ms)
    remove(fetching.deployment, job, fetching.now_ms)
    assert list(steps) == []
    fetch_all(fetching.deployment)
    assert list((tmp_path / "imports").iterdir()) == []


def test_who_may_see_a_job_sees_no_key_of_a_url(fetching: Service, site: Site) -> None:
    signed = site.put("one.png", RED) + "?Signature=hush"
    job = ask(fetching, [{"url": signed, "caption": "sks dog"}])
    site.before = lambda path: 503
    fetch_all(fetching.deployment)
    assert show(fetching, job)["spec"]["photos"] == [{"url": f"{site.url}/one.png?…", "caption": "sks dog"}]
    assert "hush" not in json.dumps(show(fetching, job))
    site.before = lambda path: None
    fetching.wait(10 * PAUSE_S_FIRST)
    fetch_all(fetching.deployment)
    assert len(parse_spec(show(fetching, job)["spec"]).photos) == 1


def test_zips_of_one_folder_share_what_a_job_may_unpack(tmp_path: Path) -> None:
    fetched = tmp_path / FETCHED
    fetched.mkdir()
    for name in ("1_a", "2_b"):
        (fetched / f"{name}.zip").write_bytes(packed({f"{number}.png": RED for number in range(3)}))
    assert len(inspect_folder(tmp_path, ZipBounds(files_max=6), all_are_photos=False)["photos"]) == 6
    with pytest.raises(BadInput, match=r"2_b\.zip holds 3 files, more than 2"):
        inspect_folder(tmp_path, ZipBounds(files_max=5), all_are_photos=False)
    with pytest.raises(BadInput, match=r"2_b\.zip unpacks to"):
        inspect_folder(tmp_path, ZipBounds(bytes_max=5 * len(RED)), all_are_photos=False)


def test_what_is_told_of_strangers_files_is_short(tmp_path: Path) -> None:
    fetched = tmp_path / FETCHED
    fetched.mkdir()
    (fetched / "a.zip").write_bytes(packed({"1.png": RED} | {f"{number}.xyz": b"" for number in range(500)}))
    assert len(inspect_folder(tmp_path, ZipBounds(), all_are_photos=False)["told"]) <= TOLD_MAX
