"""The grid of a job's pictures: what each row says, in which order, and to whom."""

from gangline.core.runs.contract import BASE, LORA, picture_name
from gangline.ports.server import Done, Succeeded
from gangline.service.jobs import steer
from gangline.service.jobs.finish import finish
from tests.service.conftest import Service
from tests.service.datasets.conftest import picture
from tests.service.jobs.test_samples import hand_over, train
from tests.service.pictures.conftest import PROMPTS, SEEDS, Album, sha256_of


def test_pictures_stand_by_prompt_and_seed_and_then_by_step(album: Album) -> None:
    album.show_all(100, 20, 10)
    assert [(row["prompt"], row["seed"], row["step"]) for row in album.rows()] == [
        (prompt, seed, step) for prompt in (0, 1) for seed in SEEDS for step in (10, 20, 100)
    ]


def test_a_row_says_what_its_picture_shows_and_where_it_is(album: Album) -> None:
    content = picture(7)
    album.show(10, {picture_name(1, 2): content})
    (row,) = album.rows()
    url = row.pop("url")
    assert album.service.http.get(url).content == content
    assert row == {
        "path": "samples/step-000010/prompt-01-seed-2.png",
        "of": "step",
        "step": 10,
        "prompt": 1,
        "text": PROMPTS[1],
        "seed": 2,
        "width": 1024,
        "height": 1024,
        "bytes": len(content),
        "sha256": sha256_of(content),
        "thumbnail": "waiting",
        "because": "",
        "weights": "none",
        "pinned": False,
        "winner": False,
    }


def test_the_size_of_a_picture_is_that_of_its_file_once_it_was_looked_at(album: Album) -> None:
    album.show(10, {picture_name(0, 1): picture(7, (40, 30))})
    album.make_thumbnails()
    (row,) = album.rows()
    assert (row["width"], row["height"], row["thumbnail"]) == (40, 30, "ready")


def test_files_beside_the_pictures_are_not_listed_and_other_names_are_no_pictures(album: Album) -> None:
    others = {
        "samples.json": b"{}",
        "sks-dog.safetensors": b"weights",
        "prompt-xx-seed-1.png": b"no",
        "grid.png": b"no",
    }
    album.show(10, others | {picture_name(0, 1): picture(1)})
    assert [row["path"] for row in album.rows()] == ["samples/step-000010/prompt-00-seed-1.png"]


def test_a_picture_of_a_prompt_that_the_spec_does_not_have_has_no_text(album: Album) -> None:
    album.show(10, {picture_name(77, 1): picture(1)})
    (row,) = album.rows()
    assert (row["prompt"], row["text"], row["width"]) == (77, "", 0)


def test_a_row_says_whether_the_weights_of_its_step_are_stored(album: Album) -> None:
    for step in (10, 20, 30):
        album.save(step)
    album.show(40, {"sks-dog.safetensors": b"a lora", picture_name(0, 1): picture(40)})
    for step in (10, 20, 30):
        album.show(step, {picture_name(0, 1): picture(step)})
    album.pin(20)
    found = [(row["step"], row["weights"], row["pinned"]) for row in album.rows()]
    assert found == [
        (10, "none", False),
        (20, "checkpoint", True),
        (30, "checkpoint", False),
        (40, "file", False),
    ]


def test_pictures_of_the_result_stand_behind_those_of_its_step_and_the_base_first(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_result=True, sample_prompts=PROMPTS[:1], sample_seeds=(1,))
    album = Album(service, training, node)
    album.show(100, {picture_name(0, 1): picture(1)})
    album.succeed()
    rendering = service.claim(node)
    assert rendering.kind == "sample"
    names = (picture_name(0, 1, BASE), picture_name(0, 1, LORA))
    files = tuple(hand_over(service, node, rendering.hold, "output", name, name.encode()) for name in names)
    assert finish(service.deployment, node, rendering.hold, Succeeded(output=files), service.now_ms) == Done()
    found = [(row["step"], row["of"], row["weights"]) for row in album.rows()]
    assert found == [(0, "base", "none"), (100, "step", "result"), (100, "result", "result")]


def test_the_result_of_a_job_that_was_finished_early_is_of_its_last_step(album: Album) -> None:
    album.show(30, {picture_name(0, 1): picture(1)})
    album.succeed()
    album.service.execute(f"UPDATE job SET ended_step = 30 WHERE id = '{album.job}'")
    assert [row["weights"] for row in album.rows()] == ["result"]


def test_a_long_list_has_parts_and_each_picture_is_in_one_of_them(album: Album) -> None:
    album.show_all(10, 20, 30)
    whole, paths, query = [row["path"] for row in album.rows()], [], "?limit=5"
    while query:
        answer = album.ask_list(query)
        paths += [row["path"] for row in answer.json()]
        query = answer.links["next"]["url"] if "next" in answer.links else ""
    assert paths == whole and len(whole) == 12
    assert album.ask_list("?after=samples/grid.png").status_code == 422
    assert album.ask_list("?limit=1001").status_code == 422


def test_a_picture_after_the_last_one_that_was_seen_is_found_though_that_was_deleted(album: Album) -> None:
    album.show_all(10)
    first, second, *_ = (row["path"] for row in album.rows())
    album.service.execute(f"DELETE FROM artifact WHERE path = '{first}'")
    assert album.ask_list(f"?after={first}&limit=1").json()[0]["path"] == second


def test_another_project_sees_no_picture_of_a_job_and_chooses_no_step_of_it(album: Album) -> None:
    album.save(10)
    album.show(10, {picture_name(0, 1): (content := picture(1))})
    album.make_thumbnails()
    album.service.add_project("other")
    ask, job, key = album.service.ask, album.job, album.service.key("admin", "other")
    assert ask("GET", f"/v1/jobs/{job}/pictures", key).status_code == 404
    assert ask("GET", f"/v1/jobs/{job}/pictures/{sha256_of(content)}/thumbnail", key).status_code == 404
    assert ask("PUT", f"/v1/jobs/{job}/winner", key, json={"step": 10}).status_code == 404
    assert ask("DELETE", f"/v1/jobs/{job}/winner", key).status_code == 404
    assert (album.pinned(), album.labels()) == ([], {})


def test_a_job_that_was_deleted_has_no_pictures(album: Album) -> None:
    album.show_all(10)
    steer.cancel(album.service.deployment, album.job, album.service.now_ms)
    album.remove()
    assert album.ask_list().status_code == 404
    assert album.thumbnail("0" * 64).status_code == 404
    assert album.choose(10).status_code == 404
