"""Versions of data sets: what they are, who sees them, and what a check says of them."""

import io

import pytest
from PIL import Image

from gangline.core.jobs.keys import blob_key, thumbnail_key
from gangline.service.datasets.check import check_datasets
from tests.service.conftest import PROJECT
from tests.service.datasets.conftest import Sets, named, picture

DOGS = {"a.png": picture(1), "b.png": picture(2), "a.txt": b"a dog on a lawn"}


def test_the_files_of_the_newest_version_again_are_that_version(sets: Sets) -> None:
    first = sets.add("timber", DOGS)
    again = sets.add("timber", dict(reversed(DOGS.items())))
    assert (first["number"], first["made"], again["made"]) == (1, True, False)
    assert first["digest"] == again["digest"] and again["number"] == 1
    other = sets.add("timber", DOGS | {"c.png": picture(3)})
    assert other["number"] == 2 and other["digest"] != first["digest"]
    assert sets.add("timber", DOGS | {"c.png": picture(3)})["number"] == 2
    assert [each["number"] for each in sets.get("/v1/datasets/timber").json()] == [2, 1]
    assert [each["number"] for each in sets.get("/v1/datasets/timber?limit=1").json()] == [2]
    assert [each["number"] for each in sets.get("/v1/datasets/timber?below=2").json()] == [1]


def test_who_goes_back_to_earlier_photos_gets_a_new_version_that_jobs_take(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    sets.ready("timber", {"a.png": picture(1)})
    back = sets.add("timber", DOGS)
    assert (back["number"], back["made"]) == (3, True)
    sets.check()
    assert sets.submit(photos="timber").json()["dataset"] == "timber@3"


def test_a_change_of_an_older_version_says_which_newer_ones_are_not_in_it(sets: Sets) -> None:
    for number in range(4):
        sets.ready("timber", {f"{number}.png": picture(number), "x.png": picture(9)})
    made = sets.post("timber", {"from": 2, "remove": ["x.png"]}).json()
    assert (made["number"], made["began_from"], made["left_out"]) == (5, 2, [3, 4])
    again = sets.post("timber", {"from": 2, "remove": ["x.png"]}).json()
    assert (again["number"], again["made"], again["left_out"]) == (5, False, [])
    sets.upload(b"a dog")
    made = sets.post("timber", {"from": 5, "put": [named("a.txt", b"a dog")]}).json()
    assert (made["number"], made["left_out"]) == (6, [])


def test_a_refused_version_that_is_pushed_again_is_checked_again(sets: Sets) -> None:
    sets.ready("timber", DOGS | {"z.jpg": b"words"})
    again = sets.add("timber", DOGS | {"z.jpg": b"words"})
    assert (again["number"], again["state"], again["made"]) == (1, "checking", False)
    assert again["because"] == "2 of 3 pictures are checked"
    sets.check()
    assert sets.show("timber", 1)["state"] == "refused"


def test_lists_of_versions_have_no_findings_and_one_version_has(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    assert sets.get("/v1/datasets/timber").json()[0]["findings"] is None
    assert sets.get("/v1/datasets").json()[0]["newest"]["findings"] is None
    assert sets.show("timber", 1)["findings"]["tiny_count"] == 2


def test_a_caption_that_is_gone_from_the_store_refuses_the_version_by_its_name(sets: Sets) -> None:
    sets.add("timber", DOGS)
    sets.service.objects.delete([blob_key(PROJECT, named("a", DOGS["a.txt"])["sha256"])])
    sets.check()
    found = sets.show("timber", 1)
    assert (found["state"], found["because"].partition(":")[0]) == (
        "refused",
        "a.txt is not in the object store any more",
    )


def test_a_photo_that_is_gone_refuses_its_version_after_three_steps_and_no_later_one(sets: Sets) -> None:
    sets.add("timber", DOGS)
    content = sets.service.objects.read(blob_key(PROJECT, named("a", picture(2))["sha256"]))
    key = blob_key(PROJECT, named("a", picture(2))["sha256"])
    sets.service.objects.delete([key])
    steps = [sets.show("timber", 1)["state"] for _ in check_datasets(sets.service.deployment)]
    assert steps == ["checking", "checking", "refused"]
    assert sets.show("timber", 1)["because"].startswith("b.png is not in the object store any more")
    sets.service.objects.write(key, content)
    assert sets.ready("timber", DOGS)["state"] == "ready", "the photo is back"


def test_a_thumbnail_that_is_gone_from_the_store_is_a_404_with_a_sentence(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    sha256 = named("a", picture(1))["sha256"]
    sets.service.objects.delete([thumbnail_key(PROJECT, sha256)])
    answer = sets.get(f"/v1/datasets/timber/1/thumbnails/{sha256}")
    assert answer.status_code == 404 and answer.json()["detail"] == f"there is no thumbnail of {sha256} in timber@1"
    assert sets.get("/v1/datasets/timber/1/thumbnails/nothing").status_code == 422


def test_a_version_is_checked_and_says_what_its_photos_show(sets: Sets) -> None:
    assert sets.add("timber", DOGS)["because"] == "0 of 2 pictures are checked"
    sets.check()
    found = sets.show("timber", 1)
    assert (found["state"], found["because"], found["photos"], found["captions"]) == ("ready", "", 2, 1)
    assert found["findings"]["tiny_count"] == 2 and found["findings"]["tiny"][0] == {"path": "a.png", "value": 16.0}
    files = sets.files("timber", 1)
    assert [file["path"] for file in files] == ["a.png", "a.txt", "b.png"]
    assert (files[0]["width"], files[0]["height"], files[0]["format"], files[0]["role"]) == (24, 16, "PNG", "photo")


def test_photos_that_look_alike_and_blurred_ones_are_advice_and_no_refusal(sets: Sets) -> None:
    sharp = picture(5, (600, 600))
    copy = io.BytesIO()
    Image.open(io.BytesIO(sharp)).resize((560, 560), Image.Resampling.LANCZOS).save(copy, "JPEG", quality=85)
    blurred = io.BytesIO()
    Image.linear_gradient("L").resize((700, 700)).convert("RGB").save(blurred, "PNG")
    found = sets.ready(
        "timber", {"a.png": sharp, "b.jpg": copy.getvalue(), "c.png": blurred.getvalue(), "d.png": sharp}
    )
    assert found["state"] == "ready"
    pairs = {(each["first"], each["second"]): each["distance"] for each in found["findings"]["duplicates"]}
    assert set(pairs) == {("a.png", "b.jpg"), ("a.png", "d.png")} and pairs["a.png", "d.png"] == 0
    assert [each["path"] for each in found["findings"]["blurred"]] == ["c.png"]
    assert found["findings"]["tiny_count"] == 0


def a_huge_jpeg() -> bytes:
    """A progressive JPEG that says it has 50,000 × 50,000 pixels."""
    out = io.BytesIO()
    Image.new("RGB", (16, 16)).save(out, "JPEG", progressive=True)
    content = bytearray(out.getvalue())
    start = content.index(b"\xff\xc2") + 5
    content[start : start + 4] = (50_000).to_bytes(2, "big") * 2
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "because"),
    [
        (b"these are words", "is not an image: its format is not known"),
        (a_huge_jpeg(), "has too many pixels to be read safely (progressive, 50000 × 50000)"),
        (picture(9, (300, 300), "JPEG")[:-2000], "cannot be read to its end"),
        (b"", "is not an image: it is empty"),
    ],
)
def test_a_file_that_is_no_usable_picture_refuses_the_version_with_its_name(
    sets: Sets, content: bytes, because: str
) -> None:
    found = sets.ready("timber", DOGS | {"z.jpg": content})
    assert found["state"] == "refused" and found["because"].startswith(f"z.jpg {because}")
    answer = sets.submit(photos="timber@1")
    assert answer.status_code == 422 and "timber@1 cannot be used: z.jpg" in answer.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "../a.jpg",
        "/etc/a.jpg",
        "a\x00.jpg",
        "..",
        "a/b.jpg",
        "notes.pdf",
        ".hidden.jpg",
        "masks",
        "a\n.jpg",
        "C:\\a.jpg",
        "",
    ],
)
def test_a_path_that_leads_elsewhere_or_that_nobody_reads_is_refused(sets: Sets, path: str) -> None:
    sets.upload(*DOGS.values())
    files = [named("a.png", DOGS["a.png"]), named("x", DOGS["b.png"]) | {"path": path}]
    answer = sets.post("timber", {"files": files})
    expected = 201 if path == "masks" else 422  # a photo without a suffix may be called so
    assert answer.status_code == expected, answer.text


@pytest.mark.parametrize("name", ["a b", "-x", "a@1", "x" * 101, "ä", "a\u202eb"])
def test_a_name_that_no_command_could_type_is_refused(sets: Sets, name: str) -> None:
    sets.upload(*DOGS.values())
    answer = sets.post(name, {"files": [named("a.png", DOGS["a.png"])]})
    assert answer.status_code == 422 and "is not a valid name for a data set" in answer.json()["detail"]


def test_names_of_files_may_be_in_any_script(sets: Sets) -> None:
    found = sets.ready("timber", {"собака 犬.png": picture(1), "собака 犬.txt": "犬".encode()})
    assert found["state"] == "ready" and found["findings"]["notes"] == []


def test_a_file_that_was_not_uploaded_adds_no_version(sets: Sets) -> None:
    answer = sets.post("timber", {"files": [named("a.png", b"never sent")]})
    assert (
        answer.status_code == 422 and "1 file is not in the object store, the first is a.png" in answer.json()["detail"]
    )
    assert sets.get("/v1/datasets").json() == []


def test_an_uploaded_list_of_files_is_the_same_version_as_the_files_in_the_request(sets: Sets) -> None:
    first = sets.add("timber", DOGS)
    listed = sets.service.upload(
        str([named(path, content) for path, content in DOGS.items()]).replace("'", '"').encode(), "m"
    )
    answer = sets.post("timber", {"manifest": {"sha256": listed.sha256, "bytes": listed.bytes}})
    assert answer.status_code == 201 and answer.json()["digest"] == first["digest"]
    no_list = sets.service.upload(b"{}", "m")
    answer = sets.post("timber", {"manifest": {"sha256": no_list.sha256, "bytes": no_list.bytes}})
    assert answer.status_code == 422 and "is not a list" in answer.json()["detail"]


def test_an_edit_makes_a_new_version_of_an_old_one_and_inspects_no_photo_again(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    inspected = sets.service.deployment.inspector
    assert inspected is not None
    sets.upload(b"a wolf", picture(7))
    put = [named("a.txt", b"a wolf"), named("c.png", picture(7))]
    made = sets.post("timber", {"from": 1, "put": put, "remove": ["b.png"]}).json()
    assert (made["number"], made["photos"], made["because"]) == (2, 2, "1 of 2 pictures are checked")
    sets.check()
    assert [file["path"] for file in sets.files("timber", 2)] == ["a.png", "a.txt", "c.png"]
    assert sets.files("timber", 2)[1]["sha256"] == named("x", b"a wolf")["sha256"]
    assert sets.files("timber", 1)[1]["sha256"] == named("x", DOGS["a.txt"])["sha256"], "the old version is as it was"
    gone = sets.post("timber", {"from": 2, "remove": ["b.png"]})
    assert gone.status_code == 422 and "b.png cannot be removed" in gone.json()["detail"]
    assert sets.post("timber", {"from": 9, "remove": ["b.png"]}).status_code == 404
    assert sets.post("timber", {"put": put}).status_code == 422


def test_captions_that_cannot_be_read_refuse_the_version(sets: Sets) -> None:
    found = sets.ready("timber", DOGS | {"metadata.jsonl": b"{not json"})
    assert found["state"] == "refused" and "line 1 of metadata.jsonl is not JSON" in found["because"]


def test_masks_belong_to_photos_and_have_their_shape(sets: Sets) -> None:
    found = sets.ready("timber", DOGS | {"masks/a.png": picture(3), "masks/z.png": picture(4)})
    assert found["state"] == "ready" and found["masks"] == 2
    assert found["findings"]["notes"] == [
        "b.png has no mask, so the loss counts all of it",
        "the mask z.png belongs to no photo",
    ]
    found = sets.ready("timber", DOGS | {"masks/a.png": picture(3, (40, 10))})
    assert found["state"] == "refused" and "the mask a.png is 40 × 10, its photo 24 × 16" in found["because"]


def test_a_thumbnail_is_a_small_jpeg_that_a_browser_may_keep(sets: Sets) -> None:
    wide = picture(6, (1024, 512))
    sets.add("timber", {"a.png": wide})
    path = f"/v1/datasets/timber/1/thumbnails/{named('a', wide)['sha256']}"
    assert sets.get(path).status_code == 404
    sets.check()
    answer = sets.get(path)
    assert answer.headers["content-type"] == "image/jpeg" and "immutable" in answer.headers["cache-control"]
    assert Image.open(io.BytesIO(answer.content)).size == (256, 128)
    assert sets.get(f"/v1/datasets/timber/1/thumbnails/{'0' * 64}").status_code == 404


def test_two_versions_are_checked_by_turns(sets: Sets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.service.datasets.check.PICTURES_AT_ONCE", 1)
    sets.add("large", {f"{number}.png": picture(number) for number in range(4)})
    sets.service.wait(1)
    sets.add("small", {"a.png": picture(9)})
    states = list[tuple[str, str]]()
    for _ in check_datasets(sets.service.deployment):
        sets.service.wait(1)
        states.append((sets.show("large", 1)["state"], sets.show("small", 1)["state"]))
    assert ("checking", "ready") in states and states[-1] == ("ready", "ready")
