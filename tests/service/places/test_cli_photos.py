"""`gangline train` takes a zip of this machine, and addresses that the server fetches from; Python does, too."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline import Client, train_lora
from gangline.core.errors import BadInput, UserError
from gangline.core.parsing import InvalidSpec
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import parse_spec
from tests.conftest import BASE, Typed
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.places.conftest import allow
from tests.service.places.site import Site, packed, picture
from tests.service.places.test_imports import fetch_all
from tests.service.served import serving

PROMPT = ("--prompt", "a photo of sks dog", "--steps", "5", "--resolution", "64")


@pytest.fixture
def served(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with serving(allow(service, tmp_path).app) as at:
        monkeypatch.setenv("GANGLINE_SERVER", at.url)
        monkeypatch.setenv("GANGLINE_TOKEN", OPERATOR)
        monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "client"))
        yield service


def spec_of(service: Service, job: str):
    return parse_spec(service.ask("GET", f"/v1/jobs/{job}").json()["spec"])


def test_a_zip_of_this_machine_is_unpacked_and_uploaded(served: Service, typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "timber.zip"
    path.write_bytes(packed({"timber/1.png": picture(), "timber/1.txt": b"sks dog in snow"}))
    code, out, err = typed("train", path, "--base", BASE, *PROMPT, "--detach")
    assert code == 0, err
    spec = spec_of(served, out.strip())
    assert [file.path for file in (*spec.photos, *spec.captions)] == ["1.png", "1.txt"]
    path.write_bytes(packed({"../1.png": picture()}))
    code, _, err = typed("train", path, "--base", BASE, *PROMPT, "--detach")
    assert code == 2 and "leads out of it" in err


SUBJECTS = (
    "--subject",
    "photos=cat,prompt=sks cat,repeats=2",
    "--subject",
    "photos=dog,prompt=zwx dog,class_prompt=dog",
)
OF_TWO = ("--base", BASE, *SUBJECTS, "--resolution", "64", "--detach")


def test_a_zip_may_have_the_folders_of_several_subjects(served: Service, typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "two.zip"
    path.write_bytes(packed({"cat/1.png": picture(), "dog/1.png": picture("blue"), "dog/1.txt": b"zwx dog in snow"}))
    code, out, err = typed("train", path, *OF_TWO)
    assert code == 0, err
    spec = spec_of(served, out.strip())
    assert isinstance(spec, LoraSpec)
    assert [file.path for file in (*spec.photos, *spec.captions)] == ["cat/1.png", "dog/1.png", "dog/1.txt"]
    assert [(each.prompt, each.repeats, each.class_prompt) for each in spec.all_subjects] == [
        ("sks cat", 2, None),
        ("zwx dog", 1, "dog"),
    ]


def test_several_subjects_are_submitted_from_python_by_the_same_words(
    served: Service, typed: Typed, tmp_path: Path
) -> None:
    for name in ("cat/1.png", "dog/1.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(picture())
    subjects = [{"photos": "cat", "prompt": "sks cat"}, {"photos": "dog", "prompt": "zwx dog", "weight": 0.5}]
    with Client(os.environ["GANGLINE_SERVER"], OPERATOR, PROJECT) as client:
        job = train_lora(client, tmp_path, base=str(BASE), subjects=subjects, resolution=64)
    spec = spec_of(served, job.summary.id)
    assert isinstance(spec, LoraSpec)
    assert job.summary.name == "sks cat and 1 other subject"
    assert [(each.folder, each.weight, len(each.photos)) for each in spec.all_subjects] == [
        ("cat", 1.0, 1),
        ("dog", 0.5, 1),
    ]


def test_photos_of_several_subjects_are_not_fetched(served: Service, typed: Typed) -> None:
    code, _, err = typed("train", "https://a.example/two.zip", *OF_TWO)
    assert code == 2 and "--subject works only with photos on this machine" in err
    entries = [{"folder": "cat", "prompt": "sks cat"}]
    wanted = {"base": {"source": "hub", "repo": "a/b"}, "photos": "https://a.example/two.zip", "subjects": entries}
    refusal = pytest.raises(UserError, match="the server fetches photos of one subject only")
    with Client(os.environ["GANGLINE_SERVER"], OPERATOR, PROJECT) as client, refusal:
        client.jobs.submit(wanted)


def test_urls_of_photos_are_given_between_commas_or_in_a_file(
    served: Service, site: Site, typed: Typed, tmp_path: Path
) -> None:
    urls = [site.put("1.png", picture()), site.put("2.png", picture("blue"))]
    (tmp_path / "urls.txt").write_text(f"# timber\n{urls[0]}\n\n{urls[1]}  sks dog in snow\n")
    for given, captions in ((",".join(urls), []), (f"@{tmp_path / 'urls.txt'}", ["2.txt"])):
        code, out, err = typed("train", given, "--base", BASE, *PROMPT, "--detach")
        assert code == 0, err
        assert "the server fetches and checks them" in " ".join(err.split()) and "its photos are being fetched" in err
        fetch_all(served.deployment)
        spec = spec_of(served, out.strip())
        assert [file.path for file in spec.photos] == ["1.png", "2.png"]
        assert [file.path for file in spec.captions] == captions
        assert (spec.steps, spec.resolution) == (5, 64)


def test_a_plan_of_an_address_says_where_and_how_long_and_submits_nothing(served: Service, typed: Typed) -> None:
    served.join("4090", gpu="NVIDIA GeForce RTX 4090", gpu_memory_gb=24)
    words = ("train", "https://a.example/timber.zip", "--base", BASE, *PROMPT)
    code, out, err = typed(*words, "--plan", "-o", "json")
    plan = json.loads(out)
    assert code == 0 and plan["photos"] == ["https://a.example/timber.zip"]
    assert (plan["asked"], plan["steps"], plan["base"]["family"]) == (None, 5, "sdxl")
    assert [node["name"] for node in plan["nodes"]] == ["4090"]
    assert "https://a.example/timber.zip: the server fetches and checks them" in " ".join(err.split())
    assert served.look("SELECT * FROM job") == []


def test_photos_of_the_class_lie_here_and_go_with_an_address(
    served: Service, site: Site, typed: Typed, tmp_path: Path
) -> None:
    (tmp_path / "dogs").mkdir()
    (tmp_path / "dogs" / "1.png").write_bytes(picture())
    (tmp_path / "dogs" / "1.txt").write_text("a dog on grass")
    url = site.put("timber.zip", packed({"1.png": picture("blue")}))
    own = ("--class-photos", str(tmp_path / "dogs"), "--class-prompt", "a photo of a dog", "--class-images", "1")
    code, out, err = typed("train", url, "--base", BASE, *PROMPT, *own, "--detach")
    assert code == 0, err
    assert "1 photo of your own" in " ".join(err.split())
    fetch_all(served.deployment)
    spec = spec_of(served, out.strip())
    assert [file.path for file in (*spec.class_photos, *spec.class_captions)] == ["1.png", "1.txt"]
    assert len(spec.photos) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("s3://bucket/timber/",), f"the project {PROJECT} has no source for s3://bucket/timber/"),
        (("ftp://a.example/x.zip",), "is not an address that this server can fetch from"),
        (("@nowhere.txt",), "nowhere.txt cannot be read"),
        (("https://a.example/x.zip", "--hold-out", "a.png"), "--hold-out works only with photos on this machine"),
        (("https://a.example/x.zip", "--rank", "0"), "rank"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(
    served: Service, typed: Typed, words: tuple[str, ...], said: str
) -> None:
    code, _, err = typed("train", *words, "--base", BASE, *PROMPT, "--detach")
    assert code == 2 and said in " ".join(err.split()), err
    assert served.look("SELECT * FROM job") == []


def test_python_says_it_with_the_same_words(served: Service, site: Site) -> None:
    client = Client(os.environ["GANGLINE_SERVER"], OPERATOR)
    client.bases.add("tiny", served.spec().base)
    url = site.put("timber.zip", packed({"1.png": picture()}))
    job = client.jobs.submit({"base": "tiny", "photos": url, "prompt": "a photo of sks dog"}, name="timber")
    assert job.summary.because == "its photos are being fetched"
    fetch_all(served.deployment)
    assert [event.kind for event in client.events.list(job.summary.id)] == ["submitted", "fetched"]


def test_python_takes_what_the_command_line_takes(served: Service, site: Site, tmp_path: Path) -> None:
    client = Client(os.environ["GANGLINE_SERVER"], OPERATOR)
    (tmp_path / "dogs").mkdir()
    (tmp_path / "dogs" / "1.png").write_bytes(picture())
    (tmp_path / "dogs.zip").write_bytes(packed({"1.png": picture()}))
    url, other = site.put("timber.zip", packed({"1.png": picture("blue")})), site.put("2.png", picture("green"))
    for photos in (tmp_path / "dogs", str(tmp_path / "dogs.zip"), url, [{"url": other, "caption": "sks dog in snow"}]):
        job = train_lora(
            client, photos, base=str(BASE), prompt="a photo of sks dog", name="timber", preset="object", resolution=64
        )
        fetch_all(served.deployment)
        spec = spec_of(served, job.summary.id)
        assert len(spec.photos) == 1 and spec.train_text_encoder and spec.steps == 1000
        assert (job.summary.name, spec.output_name) == ("timber", "timber")
    with pytest.raises(BadInput, match="there is no folder nowhere"):
        train_lora(client, "nowhere", base=str(BASE), prompt="sks dog")
    with pytest.raises(InvalidSpec, match="rank: must be 1 or more, not 0"):
        train_lora(client, tmp_path / "dogs", base=str(BASE), prompt="sks dog", rank=0)
