"""The screen of a job: it shows what the job is and did, says nothing that its text could make into markup, and acts as the API does."""

import json
import re
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest

from gangline.core.errors import NotFound
from gangline.core.parsing import to_json
from gangline.core.runs.contract import REPORT
from gangline.core.views import JobView
from gangline.ports.server import Done, Succeeded
from gangline.service.content.bases import bases_of
from gangline.service.jobs import query, steer
from gangline.service.jobs.finish import finish
from gangline.service.jobs.lists.labels import change_labels, labels_of
from gangline.service.retention.removal import remove
from gangline.web.frame.together import actions_together
from gangline.web.job.offered import offered_actions
from gangline.web.job.settings import spec_rows
from gangline.web.job.sight import EVENTS_SHOWN, OFTEN, PICTURES_SHOWN, SELDOM, JobScreen, look_at
from gangline.web.live.feed import Changes
from tests.service.conftest import POLICY, PROJECT, Service
from tests.service.jobs.test_extend import ended
from tests.service.jobs.test_follow import print_log
from tests.service.jobs.test_samples import DIFFUSERS_FILE, commit, hand_over, train
from tests.service.jobs.test_scratch import submit_scratch
from tests.service.pictures.many import write_pictures
from tests.service.test_rules import advance, beat, release, succeed
from tests.service.web.conftest import Browser

SignedIn = Callable[[str], Browser]
HOSTILE = "<script>alert('\"&x')</script>"


def view(service: Service, job: str) -> JobView:
    return query.job(service.deployment, PROJECT, job, service.now_ms)


def moved(browser: Browser, path: str, **fields: Any) -> str:
    """The job whose screen a form leads to."""
    answer = browser.post(path, **fields)
    assert answer.status_code == 204, answer.text
    return answer.headers["hx-redirect"].removeprefix("/jobs/")


# What it shows


def test_the_screen_has_the_sentence_the_figures_the_timeline_and_the_settings_that_differ(
    page: Service, signed_in: SignedIn
) -> None:
    job = ended(page, 40, 90, rank=8)
    shown = signed_in("viewer").get(f"/jobs/{job}")
    assert shown.status_code == 200
    assert view(page, job).verdict in shown.text
    for anchor in ("timeline", "charts", "pictures", "attempts", "checkpoints", "files", "log", "events", "spec"):
        assert f'<section id="{anchor}"' in shown.text and f'href="#{anchor}"' in shown.text
    changed, rest = shown.text.split('id="spec-rest"')
    assert "<code>rank</code>" in changed and "<code>alpha</code>" in rest
    assert "node-a" in shown.text and 'class="job-timeline"' in shown.text  # of the timeline
    assert " style=" not in shown.text and "<style" not in shown.text


def test_the_last_attempt_of_a_job_that_succeeded_ends_at_its_last_step(page: Service, signed_in: SignedIn) -> None:
    job, node = page.submit(steps=100), page.join()
    held = page.claim(node)
    beat(page, node, held.hold, 42)
    assert "<dt>Kept</dt>" in signed_in("viewer").get(f"/jobs/{job}").text
    succeed(page, node, held.hold)
    assert [each.step for each in view(page, job).attempts] == [100]
    assert "<dt>Kept</dt>" not in signed_in("viewer").get(f"/jobs/{job}").text
    assert "0 to 100" in signed_in("operator").get(f"/fleet/{node}").text


def test_a_queued_job_has_its_reason_and_its_place(page: Service, signed_in: SignedIn) -> None:
    page.submit()
    job, viewer = page.submit(), signed_in("viewer")
    page.join("a")
    shown = viewer.get(f"/jobs/{job}").text
    assert "it waits for its turn on a." in shown and '<a href="/queue">Number 2 in the queue</a>' in shown
    page.claim(page.join("b"))
    page.claim(page.join("c"))
    assert "in the queue</a>" not in viewer.get(f"/jobs/{job}").text


def test_a_viewer_is_offered_nothing_to_do_and_a_member_what_the_job_allows(page: Service, signed_in: SignedIn) -> None:
    job = page.submit()
    seen, steered = (signed_in(role).get(f"/jobs/{job}").text for role in ("viewer", "member"))
    for offer in ('"action": "pause"', 'data-opens="labels"', 'id="dialog-clone"'):
        assert offer in steered and offer not in seen
    assert '"action": "save"' not in steered  # no node works on it
    assert signed_in("viewer").get("/jobs/job-of-nobody").status_code == 404


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_hostile_text_is_shown_as_text(page: Service, signed_in: SignedIn, role: str) -> None:
    job = page.submit(prompt=HOSTILE, sample_prompts=(HOSTILE,), output_name="x")
    node = page.join(name=HOSTILE)
    page.claim(node)
    steer.cancel(page.deployment, job, page.now_ms)
    change_labels(page.deployment, job, {"team": HOSTILE})
    page.execute("UPDATE job SET name = '<script>alert(1)</script>', because = '<script>alert(2)</script>'")
    page.execute("UPDATE attempt SET because = '<script>alert(3)</script>'")
    page.execute("UPDATE event SET because = '<script>alert(4)</script>'")
    browser, other = signed_in(role), page.submit()
    for path in (f"/jobs/{job}", f"/jobs/{job}/events", f"/jobs/{job}/diff?with={other}", f"/jobs/{other}/diff"):
        shown = browser.get(path)
        assert shown.status_code == 200 and "alert(" in shown.text
        assert "<script>alert" not in shown.text and "alert('\"" not in shown.text


def test_an_event_names_its_node_once(page: Service, signed_in: SignedIn) -> None:
    job = page.submit()
    page.claim(page.join("bear"))
    page.execute("UPDATE event SET because = 'samples by bear' WHERE node IS NOT NULL")
    browser = signed_in("viewer")
    assert "<span>samples by bear</span>" in browser.get(f"/jobs/{job}/events").text
    page.execute("UPDATE event SET because = 'step 5' WHERE node IS NOT NULL")
    assert '<span class="muted">bear</span> step 5' in browser.get(f"/jobs/{job}/events").text


def test_the_newest_events_are_on_the_screen_and_all_of_them_on_a_page(page: Service, signed_in: SignedIn) -> None:
    job = page.submit()
    for _ in range(EVENTS_SHOWN // 2 + 1):
        steer.pause(page.deployment, job, page.now_ms)
        steer.resume(page.deployment, job, page.now_ms)
    browser = signed_in("viewer")
    screen, whole = browser.get(f"/jobs/{job}").text, browser.get(f"/jobs/{job}/events").text
    assert "<b>submitted</b>" not in screen and f'href="/jobs/{job}/events"' in screen
    assert "<b>submitted</b>" in whole and whole.count("<b>paused</b>") == EVENTS_SHOWN // 2 + 1


def test_a_file_is_reached_by_an_address_that_does_not_expire(page: Service, signed_in: SignedIn) -> None:
    job = ended(page, 40)
    browser, (file, *_) = signed_in("viewer"), query.artifacts_of(page.deployment, PROJECT, job, page.now_ms)
    assert f'href="/jobs/{job}/files/{file.path}"' in browser.get(f"/jobs/{job}").text
    for _ in range(2):
        answer = browser.get(f"/jobs/{job}/files/{file.path}")
        assert answer.status_code == 303
        assert page.http.get(answer.headers["location"]).is_success
        page.wait(30 * 86_400 // 2 - 1)  # sessions last longer, signed addresses do not
    assert browser.get(f"/jobs/{job}/files/other.bin").status_code == 404


def test_pictures_stand_apart_from_results_the_newest_first(page: Service, signed_in: SignedIn) -> None:
    job = ended(page, 40)
    (attempt,) = view(page, job).attempts
    for step in range(1, PICTURES_SHOWN + 2):
        path = f"samples/step-{step:06d}/prompt-00-seed-1.png"
        page.execute(
            f"INSERT INTO artifact (job, path, attempt, key, bytes, sha256) VALUES ('{job}', '{path}', '{attempt.id}', 'k{step}', 1, '0')"
        )
    seen = look_at(page.deployment, PROJECT, job, page.now_ms)
    assert not [file.path for file in seen.files if file.path.startswith("samples/")] and seen.files
    assert [picture.place.step for picture in seen.pictures] == list(range(PICTURES_SHOWN + 1, 1, -1))
    shown = signed_in("viewer").get(f"/jobs/{job}").text
    assert f"All {PICTURES_SHOWN + 1} pictures" in shown and f'href="/jobs/{job}/pictures"' in shown


def test_the_strip_of_pictures_loads_small_copies_alone_and_says_which_are_on_their_way(page: Service) -> None:
    job = train(page, page.join(), sample_prompts=("a", "b")).job
    write_pictures(page, job, prompts=2, steps=[0, 10])
    screen = JobScreen(PROJECT, job, may=True)
    strip = screen.refresh(page.deployment, None).partition('class="strip"')[2].partition("</a>")[0]
    assert strip.count(f'src="/v1/jobs/{job}/pictures/') == strip.count("/thumbnail") == strip.count("<img") == 4
    write_pictures(page, job, prompts=2, steps=[20], small=False)
    changed = screen.refresh(page.deployment, Changes(frozenset({job})))  # a heartbeat: pictures have no event
    strip = changed.partition('class="strip"')[2].partition("</a>")[0]
    assert strip.count("<img") == 4 and strip.count("soon") == 2
    places = [each.place for each in look_at(page.deployment, PROJECT, job, page.now_ms).pictures]
    assert [(each.step, each.prompt) for each in places] == [(20, 0), (20, 1), (10, 0), (10, 1), (0, 0), (0, 1)]
    page.execute("UPDATE artifact SET unusable = 'is no picture' WHERE thumbnail_bytes = 0")
    assert "cannot be" in screen.refresh(page.deployment, Changes(frozenset({job})))


def test_the_files_of_a_checkpoint_are_listed_with_their_addresses(page: Service, signed_in: SignedIn) -> None:
    job = ended(page, 40)
    found = signed_in("viewer").part(f"/jobs/{job}/checkpoints/40")
    assert "weights.safetensors" in found.text and "signature=" in found.text
    assert signed_in("viewer").part(f"/jobs/{job}/checkpoints/41").status_code == 404


def test_two_jobs_are_compared_by_id_and_by_name(page: Service, signed_in: SignedIn) -> None:
    one, other = page.submit(rank=8), page.submit(rank=16)
    page.execute(f"UPDATE job SET name = 'sixteen' WHERE id = '{other}'")
    browser = signed_in("viewer")
    by_id, by_name = (browser.get(f"/jobs/{one}/diff?with={named}").text for named in (other, "sixteen"))
    for shown in (by_id, by_name):
        assert "<code>rank</code>" in shown and "<td>8</td><td>16</td>" in shown and "sixteen" in shown
    refused = browser.get(f"/jobs/{one}/diff?with=nothing")
    assert refused.status_code == 404 and "There is no job nothing. Write its id, or its name." in refused.text
    assert 'value="nothing"' in refused.text and f'<option value="{other}">' in refused.text  # to choose another one
    page.execute("UPDATE job SET name = 'sixteen'")
    assert browser.part(f"/jobs/{one}/diff?with=sixteen").json()["detail"] == "several jobs are called sixteen"


# What is done


def test_labels_are_set_and_removed_and_others_that_came_meanwhile_stay(page: Service, signed_in: SignedIn) -> None:
    job, browser = page.submit(), signed_in("member")
    change_labels(page.deployment, job, {"team": "a", "old": ""})
    change_labels(page.deployment, job, {"meanwhile": "b"})
    answer = browser.post(f"/jobs/{job}/labels", before="team=a\nold", labels="team = vision\n\nalone")
    assert "changed" in answer.headers["hx-trigger"]
    assert labels_of(page.deployment, job) == {"team": "vision", "alone": "", "meanwhile": "b"}
    assert browser.post(f"/jobs/{job}/labels", before="", labels="Not A Key=1").status_code == 422


def test_a_job_is_retried_from_its_beginning_from_its_newest_and_from_a_chosen_checkpoint(
    page: Service, signed_in: SignedIn
) -> None:
    job, browser = ended(page, 40, 90), signed_in("member")
    begun = {begin: moved(browser, f"/jobs/{job}/retry", **{"from": begin}) for begin in ("", "newest", "40")}
    assert [view(page, made).summary.committed_step for made in begun.values()] == [0, 90, 40]
    assert view(page, begun[""]).summary.owner is not None
    assert browser.post(f"/jobs/{begun['']}/retry").status_code == 422  # it waits


def test_an_extension_is_shown_before_it_is_submitted(page: Service, signed_in: SignedIn) -> None:
    job, browser = ended(page, 90, schedule="cosine"), signed_in("member")
    shown = browser.part(f"/jobs/{job}/extension?steps=150&schedule=keep")
    assert "continues from step 90" in shown.text and "stays what it was at the last" in shown.text
    assert "How long its steps take is not known" in shown.text or "About <b>" in shown.text
    made = moved(browser, f"/jobs/{job}/extend", steps="150", schedule="keep")
    assert view(page, made).summary.steps == 150
    wrong = browser.post(f"/jobs/{job}/extend", steps="many", schedule="keep")
    assert wrong.status_code == 422 and wrong.json()["detail"].startswith("steps: must be")


def test_what_is_refused_names_the_job_as_the_page_does_and_no_command(page: Service, signed_in: SignedIn) -> None:
    job, browser = ended(page, 90), signed_in("member")
    page.execute(f"UPDATE job SET name = 'a mug' WHERE id = '{job}'")
    paused = browser.post("/jobs/actions", job=job, action="pause").json()
    assert paused["detail"] == "a mug has succeeded and cannot be paused"
    longer = browser.post(f"/jobs/{job}/extend", steps="100", schedule="keep").json()
    assert longer["detail"] == "this job has reached step 100, so it cannot be extended to 100"
    for found in (paused, longer):
        assert found["hint"] and "`" not in found["hint"] and "--" not in found["hint"]
    both = browser.post("/jobs/actions", job=[job, page.submit()], action="pause").headers["HX-Trigger"]
    assert json.loads(both)["toast"]["text"] == "1 job paused; 1 job not: a mug has succeeded and cannot be paused"


def test_a_clone_is_shown_before_it_is_submitted(page: Service, signed_in: SignedIn) -> None:
    job, browser = page.submit(rank=8), signed_in("member")
    shown = browser.post(f"/jobs/{job}/clone/plan", name="", settings="rank=16\n")
    assert "<td>8</td><td>16</td>" in shown.text and "It would wait" in shown.text
    for figure in ("Cost", "Time", "Memory"):  # the plan of a new job
        assert f"<dt>{figure}</dt>" in shown.text
    assert f'href="/new?from={job}"' in browser.get(f"/jobs/{job}").text
    made = view(page, moved(browser, f"/jobs/{job}/clone", name="sixteen", settings="rank=16"))
    assert (made.summary.name, made.spec["rank"]) == ("sixteen", 16)
    for path in (f"/jobs/{job}/clone/plan", f"/jobs/{job}/clone"):
        wrong = browser.post(path, settings="rankk=16")
        assert wrong.status_code == 422 and wrong.json()["hint"] == "did you mean rank?"


def test_a_clone_of_a_kind_without_a_plan_says_where_it_could_run(page: Service, signed_in: SignedIn) -> None:
    job, browser = submit_scratch(page), signed_in("member")
    shown = browser.post(f"/jobs/{job}/clone/plan", name="", settings="")
    assert shown.status_code == 200 and "It would wait" in shown.text and "<dt>Cost</dt>" not in shown.text
    assert f'href="/new?from={job}"' not in browser.get(f"/jobs/{job}").text


def test_a_checkpoint_is_pinned_and_unpinned(page: Service, signed_in: SignedIn) -> None:
    job, browser = ended(page, 40), signed_in("member")
    for act, kept in (("pin", 1), ("unpin", 0)):
        assert browser.post(f"/jobs/{job}/checkpoints/40/{act}").status_code == 204
        assert page.store.load("checkpoints_of_job", job=job)[0]["pinned"] == kept
        assert f"/checkpoints/40/{'un' * kept}pin" in browser.get(f"/jobs/{job}").text


def test_what_goes_with_a_job_is_shown_before_it_is_deleted(page: Service, signed_in: SignedIn) -> None:
    job, browser = ended(page, 40), signed_in("member")
    assert "checkpoints: 1 file" in browser.part(f"/jobs/{job}/removal").text
    assert browser.post(f"/jobs/{job}/delete").headers["hx-redirect"] == "/"
    assert browser.get(f"/jobs/{job}").status_code == 404


def test_a_job_that_has_not_ended_is_not_deleted(page: Service, signed_in: SignedIn) -> None:
    job, browser = page.submit(), signed_in("member")
    assert browser.post(f"/jobs/{job}/delete").status_code == 422 and page.state(job) == "queued"


def names(job: JobView, *, keeps: bool = False) -> list[str]:
    return [each.name for each in offered_actions(job, keeps=keeps)]


def test_what_is_offered_is_what_the_job_allows(page: Service) -> None:
    job = page.submit(sample_prompts=("a dog",))
    assert names(view(page, job)) == ["pause", "clone", "cancel"]
    assert names(view(page, job), keeps=True) == ["finish", "sample", "pause", "clone", "cancel"]
    node = page.join()
    page.claim(node)
    assert names(view(page, job)) == ["finish", "sample", "save", "pause", "clone", "cancel"]
    page.ask("POST", f"/v1/jobs/{job}/save")
    assert "save" not in names(view(page, job))  # it is asked already
    other = page.submit()
    steer.pause(page.deployment, other, page.now_ms)
    assert names(view(page, other)) == ["resume", "clone", "cancel"]
    steer.cancel(page.deployment, other, page.now_ms)
    assert names(view(page, other)) == ["retry", "clone", "delete"]
    assert names(view(page, other), keeps=True) == ["extend", "retry", "clone", "delete"]


@pytest.mark.parametrize("keeps", [False, True])
def test_nothing_that_is_offered_is_refused_for_the_state_of_the_job(
    page: Service, signed_in: SignedIn, keeps: bool
) -> None:
    browser, node = signed_in("member"), page.join()
    for action in ("finish", "sample", "save", "pause", "cancel"):
        job = page.submit(sample_prompts=("a dog",), priority=1)
        training = page.claim(node)
        if keeps:
            commit(page, node, training, 10)
        assert action in names(view(page, job), keeps=keeps)
        assert browser.post("/jobs/actions", job=job, action=action).status_code == 204
        steer.cancel(page.deployment, job, page.now_ms)
        page.wait(60)
        page.tick()


def test_what_is_offered_for_several_is_what_each_of_them_allows(page: Service, signed_in: SignedIn) -> None:
    job, node = page.submit(), page.join()

    def offered() -> tuple[str, ...]:
        return actions_together(view(page, job).summary)

    assert offered() == ("pause", "cancel")
    page.claim(node)
    assert offered() == ("finish", "pause", "cancel")
    steer.pause(page.deployment, job, page.now_ms)
    assert offered() == ("finish", "resume", "cancel")
    steer.cancel(page.deployment, job, page.now_ms)
    assert offered() == ("delete",)
    assert f'id="{job}"' in (shown := signed_in("member").get("/").text) and 'data-may="delete"' in shown
    assert "data-may" not in signed_in("viewer").get("/").text


def test_several_jobs_are_deleted_but_for_those_that_may_not_be(page: Service, signed_in: SignedIn) -> None:
    ended, waits, theirs = page.submit(), page.submit(), page.submit(project=page.add_project("other"))
    for job in (ended, theirs):
        steer.cancel(page.deployment, job, page.now_ms)
    answer = signed_in("member").post("/jobs/actions", action="delete", job=[ended, waits, theirs])
    assert "1 job deleted; 2 jobs not:" in answer.headers["hx-trigger"]
    assert page.ask("GET", f"/v1/jobs/{ended}").status_code == 404
    assert (page.state(waits), page.state(theirs)) == ("queued", "canceled")


# What follows it


def test_a_stream_sends_what_a_heartbeat_changed_and_no_more(page: Service) -> None:
    job, node = page.submit(), page.join()
    hold = page.claim(node).hold
    screen = JobScreen(PROJECT, job, may=True)
    assert screen.is_about(Changes(frozenset({job}))) and not screen.is_about(
        Changes(frozenset({"other"}), listed=True)
    )
    first = screen.refresh(page.deployment, None)
    assert all(f'id="job-{name}"' in first for name in (*OFTEN, *SELDOM))
    assert first.count('hx-swap-oob="outerMorph"') == len(OFTEN + SELDOM)
    assert screen.refresh(page.deployment, Changes(frozenset({job}))) == ""
    beat(page, node, hold, step=7)
    again = screen.refresh(page.deployment, Changes(frozenset({job})))
    assert "7/100" in again and 'id="job-pulse"' in again
    assert 'id="job-events"' not in again and 'id="job-timeline"' not in again and 'id="job-checkpoints"' not in again
    assert "7/100" in screen.whole() and 'id="job-events"' in screen.whole()


def test_the_stream_of_a_viewer_offers_nothing(page: Service) -> None:
    job = page.submit()
    sent = {may: JobScreen(PROJECT, job, may=may).refresh(page.deployment, None) for may in (False, True)}
    assert "hx-post" in sent[True] and "hx-post" not in sent[False]


def test_the_screen_of_a_deleted_job_ends(page: Service) -> None:
    job = page.submit()
    screen = JobScreen(PROJECT, job, may=True)
    screen.refresh(page.deployment, None)
    steer.cancel(page.deployment, job, page.now_ms)
    remove(page.deployment, job, page.now_ms)
    with pytest.raises(NotFound):
        screen.refresh(page.deployment, None)


def test_the_page_and_the_stream_have_the_same_parts(page: Service, signed_in: SignedIn) -> None:
    job = ended(page, 40)
    shown = signed_in("member").get(f"/jobs/{job}").text
    screen = JobScreen(PROJECT, job, may=True)
    sent = screen.refresh(page.deployment, None).replace(' hx-swap-oob="outerMorph"', "")
    for name in ("head", "progress", "attempts", "checkpoints"):
        part = sent[sent.index(f'<div id="job-{name}"') :]
        assert part[: part.index("</div>")] in shown


# The log


def test_parts_of_a_log_before_and_after_a_position_are_all_of_it(service: Service) -> None:
    job, first, second = service.submit(), service.join("node-a"), service.join("node-b")
    print_log(service, first, service.claim(first).hold, ["one\n", "two\n", "three\n"])
    service.wait(60)
    service.tick()
    print_log(service, second, service.claim(second).hold, ["four\n"])

    def read(**at: str) -> str:
        answer = service.ask("GET", f"/v1/jobs/{job}/logs", params=at)
        assert answer.status_code == 200
        return answer.json()["text"]

    assert [(each.fencing, each.bytes) for each in query.log_extents(service.deployment, job)] == [(1, 14), (2, 5)]
    assert read(after="1.4", before="1.8") == "two\n"
    assert read(before="1.8") + read(after="1.8", before="2.0") + read(after="2.0") == read()
    assert read(after="1.0", before="2.0") == "one\ntwo\nthree\n"
    assert service.ask("GET", f"/v1/jobs/{job}/logs", params={"before": "x"}).status_code == 404


# The spec


def test_settings_that_somebody_changed_stand_first_beside_their_defaults(service: Service) -> None:
    job = service.submit(rank=8, learning_rate=5e-5)
    rows = spec_rows(view(service, job).spec)
    first = [row.name for row in rows if row.changed]
    assert first == [row.name for row in rows[: len(first)]]
    assert {"base", "photos", "prompt", "rank", "learning_rate", "steps"} <= set(first) and "alpha" not in first
    assert next((row.value, row.default) for row in rows if row.name == "rank") == ("8", "16")
    assert next(row.value for row in rows if row.name == "photos") == "1 file"


def test_a_base_stands_under_its_name_and_lists_are_no_json(service: Service) -> None:
    base = to_json(service.spec().base)
    assert service.ask("POST", "/v1/bases", json={"name": "ours", "base": base}).status_code == 201
    prompts = ("a mug at sea", 'a mug, "blue"')
    job = service.submit(sample_prompts=prompts, sample_seeds=(1, 2), sample_every_steps=10)
    spec = view(service, job).spec
    values = {row.name: row.value for row in spec_rows(spec, bases_of(service.deployment, PROJECT))}
    assert values["base"].startswith("ours: a.png (") and values["sample_prompts"] == "\n".join(prompts)
    assert values["sample_seeds"] == "1, 2"
    assert {row.name: row.value for row in spec_rows(spec)}["base"].startswith("a.png (")


# What it learned


def test_what_training_did_to_photos_it_never_saw_stands_in_the_sentence_and_first_of_the_losses(
    page: Service, signed_in: SignedIn
) -> None:
    job, node = page.submit(held_out=(page.upload(b"another photo", "other.jpg"),)), page.join()
    hold = page.claim(node).hold
    beat(page, node, hold, 99)
    assert look_at(page.deployment, PROJECT, job, page.now_ms).held_out is None
    report = json.dumps({"held_out": [{"photo": "other.jpg", "loss_before": 0.5848, "loss_after": 0.1738}]})
    files = tuple(
        hand_over(page, node, hold, "output", name, content)
        for name, content in ((DIFFUSERS_FILE, b"weights"), (REPORT, report.encode()))
    )
    assert finish(page.deployment, node, hold, Succeeded(output=files), page.now_ms) == Done()
    assert "; held-out loss 0.5848 → 0.1738 (-70%)." in view(page, job).verdict
    shown = signed_in("viewer").get(f"/jobs/{job}").text
    assert 'data-held-out="0.5848 0.1738"' in shown  # which the chart draws
    assert "<dt>Held-out loss</dt><dd>0.1738</dd>" in shown
    assert shown.index("<dt>Held-out loss</dt>") < shown.index("<dt>Loss</dt>")


def test_a_job_of_which_the_report_is_lost_is_shown_without_it(page: Service, signed_in: SignedIn) -> None:
    job, node = page.submit(held_out=(page.upload(b"another photo", "other.jpg"),)), page.join()
    hold = page.claim(node).hold
    files = tuple(hand_over(page, node, hold, "output", name) for name in (DIFFUSERS_FILE, REPORT))
    assert finish(page.deployment, node, hold, Succeeded(output=files), page.now_ms) == Done()
    assert view(page, job).verdict.startswith("Succeeded in ") and "held-out" not in view(page, job).verdict
    page.execute("UPDATE artifact SET key = key || '-lost'")
    assert signed_in("viewer").get(f"/jobs/{job}").status_code == 200


def test_a_node_that_is_silent_is_seen_in_the_list_on_the_job_and_on_the_fleet(
    page: Service, signed_in: SignedIn
) -> None:
    job, node = page.submit(), page.join("bear")
    held = page.claim(node).hold
    advance(page, node, held)
    addresses = ("/", f"/jobs/{job}", "/fleet", f"/fleet/{node}")
    browser = signed_in("viewer")
    for phase in ("training", "silent"):
        for address in addresses:
            assert (phase == "silent") is (re.search(r"[>\s]silent\b", browser.get(address).text) is not None), address
        (found,) = page.ask("GET", "/v1/nodes").json()
        assert [found["phase"]] == [each["phase"] for each in found["jobs"]] == [phase]
        page.wait(2 * POLICY.heartbeat_interval_s + 1)
    shown = browser.get(f"/jobs/{job}").text
    assert shown.count('data-phase="silent"') == 3  # the head of the screen, its dot, and the attempt's


def test_a_job_that_has_not_begun_has_cost_nothing_to_speak_of(page: Service, signed_in: SignedIn) -> None:
    job = page.submit()
    browser = signed_in("viewer")
    assert "spent" not in row_of(browser, job)
    advance(page, node := page.join(), page.claim(node).hold)
    page.wait(5)
    assert "spent" in row_of(browser, job)


def test_a_cost_that_is_known_in_part_gives_no_cost_of_a_step(page: Service, signed_in: SignedIn) -> None:
    job, browser = page.submit(), signed_in("viewer")
    node = page.join("bear")
    hold = page.claim(node).hold
    page.wait(5)
    advance(page, node, hold)
    per_step = re.compile(r"<dt>1,000 steps</dt><dd>([^<]*)")
    assert "for 1,000 steps" in row_of(browser, job)
    assert per_step.findall(browser.get(f"/jobs/{job}").text)[0].startswith("$")
    release(page, node, hold)
    page.wait(60)
    other = page.join("wolf")
    page.claim(other)
    page.execute(f"UPDATE attempt SET price_known = 0 WHERE node = '{other}'")
    page.wait(5)
    assert "over $" in row_of(browser, job) and "for 1,000 steps" not in row_of(browser, job)
    assert per_step.findall(browser.get(f"/jobs/{job}").text) == ["–"]


def row_of(browser: Browser, job: str) -> str:
    return browser.get("/").text.split(f'<li id="{job}"')[1].split("</li>")[0]


@pytest.mark.parametrize("value", ["round two", 'o\'brien says "so"', "a=b", "  "])
def test_a_label_leads_to_the_jobs_that_have_it_whatever_is_in_it(
    page: Service, signed_in: SignedIn, value: str
) -> None:
    job, other, browser = page.submit(), page.submit(), signed_in("viewer")
    change_labels(page.deployment, job, {"about": value, "two": ""})
    change_labels(page.deployment, other, {"about": "round", "two": ""})
    (link,) = re.findall(r'class="label" href="([^"]*about[^"]*)"', browser.get(f"/jobs/{job}").text)
    answer = browser.get(unescape(link))
    assert answer.status_code == 200 and f'id="{job}"' in answer.text and f'id="{other}"' not in answer.text
    (line,) = re.findall(r'<input name="labels" value="([^"]*)"', answer.text)
    again = browser.get(f"/?{urlencode({'labels': unescape(line)})}").text
    assert f'id="{job}"' in again and f'id="{other}"' not in again
    assert f'<input name="labels" value="{line}"' in again
    both = browser.get(f"/?{urlencode({'labels': unescape(line) + ' two'})}").text
    assert f'id="{job}"' in both and f'id="{other}"' not in both
    refused = browser.get("/?labels='about")
    assert refused.status_code == 422 and "a quote is not closed" in refused.text
