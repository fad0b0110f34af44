"""A search finds jobs by a text in what people remember of them, page by page, and beside every other filter."""

from typing import Any

import pytest

from gangline.core.jobs.lists import search as core
from gangline.core.specs.fields import HubBase
from gangline.core.specs.sections.previews import SamplePrompt
from gangline.service.jobs.lists import search as searching
from gangline.service.jobs.submit import queue
from tests.service.conftest import PROJECT, Service
from tests.service.lists.many import NAMED, write_many
from tests.service.lists.test_lists import ids, listed
from tests.service.test_http import problem

REVISION = "a" * 40


def submit(service: Service, name: str = "plain", **settings: Any) -> str:
    service.wait(0.001)
    spec = service.spec(prompt="a picture", **settings) if "prompt" not in settings else service.spec(**settings)
    return queue(service.deployment, PROJECT, spec, name=name, request=None, now_ms=service.now_ms)


def test_a_job_is_found_by_its_name_id_prompts_base_and_labels_in_any_case_of_letters(service: Service) -> None:
    submit(service)
    by_name = submit(service, name="Timber's FIRST run")
    by_prompt = submit(service, prompt="a photo of sks dog", class_prompt="a photo of a dog")
    by_class = submit(service, prompt="xyz", class_prompt="a Ceramic Bowl")
    by_sample = submit(service, sample_prompts=("a castle", SamplePrompt(prompt="a lighthouse at DUSK")))
    by_base = submit(service, base=HubBase(repo="Lykon/DreamShaper", revision=REVISION))
    by_label = submit(service)
    service.ask("PATCH", f"/v1/jobs/{by_label}/labels", json={"labels": {"team": "Vision Lab"}})
    wanted = {
        "timber's first": by_name,
        "SKS DOG": by_prompt,
        "ceramic": by_class,
        "at dusk": by_sample,
        "Castle": by_sample,
        "dreamshaper": by_base,
        "team=vision": by_label,
        by_prompt[-9:].upper(): by_prompt,
    }
    assert {text: ids(service, search=text) for text in wanted} == {text: [job] for text, job in wanted.items()}
    assert ids(service, search="nowhere to be found") == []


def test_a_job_is_found_by_the_name_that_its_base_has_in_the_project(service: Service) -> None:
    job = submit(service)
    base = service.look(f"SELECT base FROM job WHERE id = '{job}'")[0]["base"]
    service.execute(
        "INSERT INTO base (project, name, base, base_id, vae, vae_id, family, prediction_type, licence, because, bytes, made_ms) "
        f"VALUES ('{PROJECT}', 'pony', '{{}}', '{base}', '', '', 'sdxl', 'epsilon', '', '', 1, 1)"
    )
    assert ids(service, search="PONY") == [job]


@pytest.mark.parametrize(
    "text", ["%", "_", "100%", "a_b", "'; DROP TABLE job; --", '"quoted"', "\\n", "[a-z]", "*", "🐕"]
)
def test_every_character_of_a_text_stands_for_itself(service: Service, text: str) -> None:
    submit(service, name="100 of ab, quoted")
    named, prompted = submit(service, name=f"x{text}y"), submit(service, prompt=f"x{text}y")
    assert ids(service, search=text) == [prompted, named]


@pytest.mark.parametrize(
    ("stored", "text"),
    [("ÉTÉ à la mer", "été À"), ("cafe\u0301", "CAFÉ"), ("Straße", "STRASSE"), ("ΟΔΟΣ", "οδος"), ("ДОМ", "дом")],
)
def test_the_case_of_letters_counts_in_no_script(service: Service, stored: str, text: str) -> None:
    submit(service)
    assert ids(service, search=text) == []
    named, prompted = submit(service, name=stored), submit(service, prompt=stored)
    assert ids(service, search=text) == [prompted, named]


def test_a_search_is_one_filter_of_several(service: Service) -> None:
    made = write_many(service, 120, ("key-1", "key-2"))
    for params, meets in (
        ({"state": "failed"}, lambda job: job.state == "failed"),
        ({"kind": "lora", "label": "third"}, lambda job: job.kind == "lora" and "third" in job.labels),
        ({"label": "parity=odd"}, lambda job: job.labels["parity"] == "odd"),
    ):
        for size in (1, 7, 200):
            wanted = [job.id for job in made if "run" in job.name and meets(job)]
            assert ids(service, search="RUN", limit=size, **params) == wanted, (params, size)
            assert wanted


def test_a_page_compares_a_bounded_number_of_jobs_and_leads_on(service: Service) -> None:
    made = write_many(service, 2 * core.SEARCHED_MAX + 50, ("key-1", "key-2"))
    oldest = made[-1]
    pages = list(listed(service, search=oldest.id))
    assert [[job["id"] for job in page["jobs"]] for page in pages] == [[], [], [oldest.id]]


def test_a_page_compares_fewer_jobs_if_their_specs_are_large(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_many(service, 3 * core.SEARCHED_AT_ONCE, ("key-1", "key-2"))
    monkeypatch.setattr(searching, "SEARCHED_BYTES_MAX", 2 * core.SEARCHED_AT_ONCE - 1)  # a spec is `{}` there
    pages = list(listed(service, search=NAMED, limit=200))
    assert len(pages) == 3
    assert [job["id"] for page in pages for job in page["jobs"]] == [job.id for job in made if job.name == NAMED]


def test_pages_of_any_size_find_the_same_jobs(service: Service) -> None:
    made = write_many(service, 90, ("key-1", "key-2"))
    for size in (1, 3, 20, 200):
        assert ids(service, search="run", limit=size) == [job.id for job in made if job.name.startswith("run")]


def test_a_cursor_of_another_search_is_refused(service: Service) -> None:
    write_many(service, 30, ("key-1", "key-2"))
    page = service.ask("GET", "/v1/jobs", params={"search": "photo", "limit": 3}).json()
    other = service.ask("GET", "/v1/jobs", params={"search": "run", "limit": 3, "cursor": page["next"]})
    assert "other filters" in problem(other, 422, "bad-input")["detail"]


def test_an_empty_search_and_one_that_is_too_long_are_refused(service: Service) -> None:
    for text in ("", "x" * 201):
        assert service.ask("GET", "/v1/jobs", params={"search": text}).status_code == 422


def test_the_jobs_of_another_project_are_not_searched(service: Service) -> None:
    service.add_project("other")
    service.submit("other", prompt="a hidden subject")
    assert ids(service, search="hidden") == []
