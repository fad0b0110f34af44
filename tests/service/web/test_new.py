"""The form of a new job: it submits what the API would, says what is wrong at the field, and changes nothing while one types."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import httpx
import pytest

from gangline.core.parsing import to_json
from gangline.core.specs.form import form_of_settings
from gangline.core.specs.templates import Preset
from gangline.web.frame.forms import SentForm
from gangline.web.new.asked import KIND, all_fields, read_asked
from gangline.web.new.tiny import TinyBase
from tests.conftest import BASE
from tests.service.conftest import Service
from tests.service.datasets.conftest import InspectorHere, Sets, picture
from tests.service.web.conftest import Browser

TAGGER = {"model.onnx": b"a model", "tags.csv": b"tag_id,name"}
HOSTILE = "a photo of \"sks\" <script>alert('x')</script>"
OBJECT = Preset(name="object", about="One thing <b>.", settings={"rank": 8, "steps": 900})


@pytest.fixture
def browser(page: Service, signed_in: Callable[[str], Browser]) -> Browser:
    page.app.state.presets = {"object": OBJECT}
    return signed_in("member")


def send(browser: Browser, path: str, fields: dict[str, str]) -> httpx.Response:
    return browser.post(path, forged=False, **fields)


def specs_of(service: Service) -> list[dict[str, object]]:
    jobs = service.ask("GET", "/v1/jobs").json()["jobs"]
    return [service.ask("GET", f"/v1/jobs/{job['id']}").json()["spec"] for job in jobs]


def test_the_form_has_a_field_for_every_setting_and_the_presets(browser: Browser) -> None:
    shown = browser.get("/new").text
    assert set(re.findall(r'data-setting="([^"]+)"', shown)) == {
        field.name for field in all_fields(form_of_settings(KIND))
    }
    assert "One thing &lt;b&gt;." in shown and "<b>." not in shown
    assert json.loads(unescape(re.findall(r'data-settings="([^"]*)"', shown)[0])) == dict(OBJECT.settings)


def test_what_comes_from_a_job_is_escaped_and_its_files_are_used_again(page: Service, browser: Browser) -> None:
    first = page.submit(prompt=HOSTILE, rank=4)
    shown = browser.get(f"/new?from={first}").text
    assert "<script>alert" not in shown and "alert(&#39;x&#39;)" in shown
    made = send(browser, "/new", {"from": first, "prompt": "a photo of sks dog", "rank": "8", "count": "1"})
    assert made.status_code == 204 and made.headers["HX-Redirect"].startswith("/jobs/job-")
    second, before = specs_of(page)
    assert second["photos"] == before["photos"] and second["base"] == before["base"]
    assert (second["rank"], second["prompt"]) == (8, "a photo of sks dog")


def test_labels_come_from_the_job_and_may_have_spaces_in_quotes(page: Service, browser: Browser) -> None:
    labels = {"client": "acme", "about": "round 'two'"}
    first = page.submit()
    assert page.ask("PATCH", f"/v1/jobs/{first}/labels", json={"labels": labels}).is_success
    shown = browser.get(f"/new?from={first}").text
    line = unescape(re.findall(r'name="labels"[^>]* value="([^"]*)"', shown)[0])
    made = send(browser, "/new", {"from": first, "count": "1", "prompt": "x", "labels": line})
    second = made.headers["HX-Redirect"].rsplit("/", 1)[-1]
    assert page.ask("GET", f"/v1/jobs/{second}").json()["summary"]["labels"] == labels
    for wrong, said in {
        "client='acme": "labels: a quote is not closed",
        "acme": "labels: 'acme' is not a label",
    }.items():
        refused = send(browser, "/new", {"from": first, "count": "1", "prompt": "x", "labels": wrong})
        assert refused.status_code == 422 and refused.json()["detail"].startswith(said)


def test_only_what_differs_from_the_defaults_and_the_presets_is_sent(page: Service, browser: Browser) -> None:
    first = page.submit()
    sent = {"from": first, "prompt": "x", "preset": "object", "steps": "900", "rank": "", "batch_size": "1"}
    for extra in (dict[str, str](), {"steps": ""}):
        assert send(browser, "/new", sent | extra).status_code == 204
    later, earlier, _ = specs_of(page)
    assert later == earlier and (later["steps"], later["rank"]) == (900, 8)


def test_a_form_that_is_sent_twice_makes_one_job(page: Service, browser: Browser) -> None:
    first = page.submit()
    browser.headers["Idempotency-Key"] = "the-key-of-the-form"
    made = {send(browser, "/new", {"from": first, "prompt": "x"}).headers["HX-Redirect"] for _ in range(2)}
    assert len(made) == 1 and len(specs_of(page)) == 2


@pytest.mark.parametrize("path", ["/new", "/new/plan"])
def test_every_wrong_field_is_named_at_once_and_no_job_is_made(page: Service, browser: Browser, path: str) -> None:
    first = page.submit()
    wrong = {"rank": "0", "steps": "many", "needs.trust": "99", "seed": "4..1"}
    fields = {name: wrong[name] for name in wrong if name != "seed"}
    answer = send(browser, path, {"from": first, "prompt": "x"} | fields)
    assert answer.status_code == 422
    assert {each["field"] for each in answer.json()["problems"]} == {"rank", "steps", "needs.trust"}
    answer = send(browser, path, {"from": first, "prompt": "x", "seed": wrong["seed"]})
    assert [each["field"] for each in answer.json()["problems"]] == ["seed"]
    assert len(specs_of(page)) == 1


def test_the_plan_says_what_the_form_lacks_and_changes_nothing(page: Service, browser: Browser) -> None:
    first = page.submit()
    shown = browser.post("/new/plan").text
    assert all(words in shown for words in ("Add photos", "Choose a base", "Say what is in the photos"))
    before = page.dump()
    shown = send(browser, "/new/plan", {"from": first, "photos": "", "prompt": HOSTILE}).text
    assert "<script>alert" not in shown and "Add photos" not in shown and "The whole plan" in shown
    assert page.dump() == before


def test_several_values_are_an_experiment_of_every_combination(page: Service, browser: Browser) -> None:
    first = page.submit()
    sent = {
        "from": first,
        "prompt": "x",
        "rank": "4, 8",
        "seed": "1..3",
        "also": "schedule=constant,cosine",
        "at_once": "2",
    }
    assert "12 jobs" in send(browser, "/new/plan", sent).text
    made = send(browser, "/new", sent).headers["HX-Redirect"]
    found = page.ask("GET", made.replace("/experiments", "/v1/experiments")).json()
    assert (found["jobs"], found["at_once"], set(found["settings"])) == (12, 2, {"rank", "seed", "schedule"})
    answer = send(browser, "/new/plan", sent | {"also": "schedule=square"})
    assert answer.status_code == 422 and answer.json()["detail"].startswith("also: schedule=square")


def test_a_recipe_fills_in_the_form_and_keeps_what_has_no_field(browser: Browser) -> None:
    recipe = 'prompt = "sks dog"\nrank = 32\nflip = true\n[[sample_prompts]]\nprompt = "sks dog at sea"\nwidth = 512\n[needs]\ngpu = "L4"\n'
    shown = browser.post("/new/recipe", recipe=recipe).text
    assert 'name="prompt" value="sks dog"' in shown and 'name="rank" value="32"' in shown
    assert 'name="needs.gpu" value="L4"' in shown and "<option selected>yes</option>" in shown
    kept = json.loads(unescape(re.findall(r'name="more" value="([^"]*)"', shown)[0]))
    assert kept == {"sample_prompts": [{"prompt": "sks dog at sea", "width": 512}]}
    as_json = browser.post("/new/recipe", recipe=json.dumps({"spec": {"prompt": "sks dog"}, "name": "<i>"})).text
    assert 'data-name="&lt;i&gt;"' in as_json
    for refused in ('kind = "command"\nargv = ["true"]', "prompt =", "[1", '{"spec": 3', '{"kind": []}'):
        answer = browser.post("/new/recipe", recipe=refused)
        assert answer.status_code == 422, refused


def test_the_tiny_base_brings_settings_that_suit_it_and_no_prompt(page: Service, browser: Browser) -> None:
    recipe = 'prompt = "sks cat face"\nsample_prompts = ["crying sks cat face"]\nresolution = 64\nsteps = 30\n'
    page.app.state.tiny = TinyBase(folder=BASE, licence="apache-2.0", recipe=recipe)
    more = json.dumps({"subjects": [{"folder": "mug", "prompt": "a <mug>"}]})
    shown = browser.post("/new/tiny", sample_prompts="a mug at sea", steps="50", seed="7", more=more).text
    assert 'name="resolution" value="64"' in shown and 'name="steps" value="30"' in shown
    assert "sks cat" not in shown and "crying" not in shown
    assert 'name="seed" value="7"' in shown and ">a mug at sea</textarea>" in shown, "what was typed stays"
    assert json.loads(unescape(re.findall(r'name="more" value="([^"]*)"', shown)[0])) == json.loads(more)
    assert 'data-told="The tiny base is there, and the form has settings that suit it."' in shown
    assert '<option value="tiny-sdxl" selected>' in shown


def test_a_base_that_is_smaller_than_its_family_is_not_charged_with_the_familys_memory(
    page: Service, browser: Browser
) -> None:
    assert page.ask("POST", "/v1/bases", json={"name": "ours", "base": to_json(page.upload_base()), "family": "sdxl"})
    assert browser.post("/new/tiny").status_code == 200
    asked = {"prompt": "x", "count": "5", "needs.gpu": "H100", "resolution": "64"}
    memory = re.compile(r"<dt>Memory</dt><dd>(?:<b>)?([^<]*)")
    assert memory.findall(browser.post("/new/plan", base="ours", **asked).text)[0].endswith(" GB")
    shown = browser.post("/new/plan", base="tiny-sdxl", **asked).text
    assert memory.findall(shown) == ["–"] and "not known for this base" in shown
    assert "the base is not as large as SDXL" in shown


def test_a_suggestion_says_which_setting_it_is_about(page: Service, browser: Browser) -> None:
    asked = {"from": page.submit(), "prompt": "x", "batch_size": "5", "learning_rate": "0.5"}
    shown = send(browser, "/new/plan", asked).text
    assert "<li><b>Batch size</b>: 1 is enough." in shown and "<li><b>Learning rate</b>: Use 1e-4 or less" in shown


def test_the_limit_of_a_number_is_written_alike_below_its_field_and_where_it_is_exceeded(
    page: Service, browser: Browser
) -> None:
    assert "1 to 10,000,000." in browser.get("/new").text
    answer = send(browser, "/new/plan", {"from": page.submit(), "prompt": "x", "steps": "10000001"})
    assert answer.json()["problems"] == [{"field": "steps", "message": "must be 10,000,000 or less, not 10000001"}]


def test_data_sets_to_train_on_are_listed_the_newest_first_with_their_age(
    page: Service, browser: Browser, tmp_path: Path
) -> None:
    page.deployment = replace(page.deployment, inspector=InspectorHere(tmp_path / "inspected", ()))
    page.app.state.deployment = page.deployment
    sets = Sets(page)
    sets.ready("older", {"a.png": picture(1)})
    page.wait(7200)
    sets.ready("newer", {"a.png": picture(1), "b.png": picture(2)})
    sets.add("broken", {"a.png": b"no picture"})
    sets.check()
    page.wait(60)
    listed = re.findall(r'<option value="(\w+@1)">([^<]*)', browser.get("/new").text)
    assert [name for name, _ in listed] == ["newer@1", "older@1"]
    assert listed[0][1].startswith("newer@1 (2 photos, 1 min")


def test_a_known_price_is_said_before_the_time_is_known(page: Service, browser: Browser) -> None:
    token = page.join_token(price_usd_per_hour=0.3)["secret"]
    assert page.join_with(token, "at-home").is_success
    shown = send(browser, "/new/plan", {"from": page.submit(), "prompt": "x"}).text
    assert "no price" not in shown and shown.count("$0.30") == 3, "in the plan, its rows, and a phone's bar"


def test_a_new_job_is_for_members(page: Service, signed_in: Callable[[str], Browser]) -> None:
    viewer = signed_in("viewer")
    assert viewer.get("/new").status_code == 403
    assert viewer.post("/new", prompt="x").status_code == 403
    assert 'href="/new"' not in viewer.get("/").text


def test_a_job_of_another_project_is_not_found(page: Service, signed_in: Callable[..., Browser]) -> None:
    first = page.submit()
    page.add_project("other")
    other = signed_in("member", "other")
    assert other.get(f"/new?from={first}").status_code == 404
    assert send(other, "/new/plan", {"from": first}).status_code == 404


def test_captions_can_be_written_as_soon_as_the_project_has_a_model_for_them(page: Service, browser: Browser) -> None:
    assert 'data-write=""' in browser.get("/new").text, "the button is there, and says what lacks"
    model = {"source": "files", "files": [to_json(page.upload(content, name)) for name, content in TAGGER.items()]}
    spec = {"kind": "caption", "photos": [to_json(page.photo)], "model": model}
    answer = page.ask("POST", "/v1/jobs", json={"spec": spec})
    assert answer.status_code == 201, answer.text
    job = answer.json()["summary"]["id"]
    assert f'data-write="{job}"' in browser.get("/new").text, "one that waits has a model, too"
    page.ask("POST", f"/v1/jobs/{job}/cancel")
    assert 'data-write=""' in browser.get("/new").text


def filled_in(html: str) -> dict[str, str]:
    """What a form sends that a recipe has filled in and nobody has touched, without empty fields."""
    shown = html[html.index('id="settings"') :]
    more = unescape(re.findall(r'name="more" value="([^"]*)"', shown)[0])
    base = re.findall(r'<option value="([^"]*)" selected', shown[shown.index('id="s-base"') : shown.index("</select>")])
    prompt = unescape(re.findall(r'name="prompt" value="([^"]*)"', shown)[0])
    return {"more": more, "base": base[0] if base else "", "prompt": prompt}


def test_the_base_of_a_pasted_spec_is_the_one_that_is_trained_on(page: Service, browser: Browser) -> None:
    ours = {"name": "ours", "base": to_json(page.upload_base()), "family": "sdxl"}
    assert page.ask("POST", "/v1/bases", json=ours).is_success
    first = page.submit()
    copied = page.ask("GET", f"/v1/jobs/{first}").json()["spec"]
    hub = {"source": "hub", "repo": "somebody/something", "revision": "0" * 40}
    for base in (copied["base"], hub):
        shown = browser.post("/new/recipe", base="ours", recipe=json.dumps(copied | {"base": base})).text
        assert '<option value="" selected>as in the recipe</option>' in shown
        sent = filled_in(shown)
        assert sent["base"] == "" and json.loads(sent["more"])["base"] == base
    sent = filled_in(browser.post("/new/recipe", base="ours", recipe=json.dumps(copied)).text)
    assert send(browser, "/new", sent).status_code == 204
    made, before = specs_of(page)
    assert (made["base"], made["photos"]) == (before["base"], before["photos"])
    named = filled_in(browser.post("/new/recipe", recipe='prompt = "x"\nbase = "ours"').text)
    assert named["base"] == "ours" and named["more"] == ""
    other = filled_in(browser.post("/new/recipe", base="", recipe='prompt = "x"').text)
    assert other["base"] == "ours", "the base of a recipe before is not this one's"


def test_the_vae_of_a_recipe_stays_with_its_base(page: Service, browser: Browser) -> None:
    vae = {"source": "files", "files": [to_json(page.photo)]}
    sent = filled_in(browser.post("/new/recipe", recipe=json.dumps({"prompt": "x", "base": "ours", "vae": vae})).text)
    asked = read_asked(form_of_settings(KIND), SentForm(tuple(sent.items())), {}, {"base": "theirs"}).spec
    assert (asked["base"], asked["vae"]) == ("ours", vae)
    sent = filled_in(browser.post("/new/recipe", base="theirs", recipe=json.dumps({"prompt": "x", "vae": vae})).text)
    asked = read_asked(form_of_settings(KIND), SentForm((*sent.items(), ("base", "theirs"))), {}, {}).spec
    assert (asked["base"], asked["vae"]) == ("theirs", vae)


def test_a_recipe_in_the_form_of_a_job_brings_its_own_files_or_says_what_it_leaves_out(
    page: Service, browser: Browser
) -> None:
    first = page.submit()
    other = to_json(page.upload(b"another photo", "other.png"))
    text = to_json(page.upload(b"a caption", "other.txt"))
    recipe = json.dumps({"prompt": "sks dog", "photos": [other], "captions": [text], "rank": 4})
    shown = send(browser, "/new/recipe", {"recipe": recipe, "from": first}).text
    assert "these count, too: captions, photos." in shown and f"as {first}</option>" in shown
    assert send(browser, "/new", filled_in(shown) | {"from": first}).status_code == 204
    made, before = specs_of(page)
    assert (made["photos"], made["captions"], made["base"]) == ([other], [text], before["base"])
    shown = send(browser, "/new/recipe", {"recipe": recipe, "photos": "dogs@1", "from": first}).text
    assert "Left out, as the form&#39;s photos have their own: captions, photos." in shown
    assert filled_in(shown)["more"] == ""


def test_a_recipe_that_no_form_can_have_is_refused_with_what_is_wrong(browser: Browser) -> None:
    deep = "[" * 90_000
    for recipe, because in {
        'needs = "A100"': "recipe: needs must be a table",
        '{"needs": ["A100"]}': "recipe: needs must be a table",
        f'{{"a": {deep}': "nested more than 50 deep",
        f"a = {deep}": "nested more than 50 deep",
        f'{{"a": {"[" * 60}{"]" * 60}}}': "nested more than 50 deep",
        "sample_prompts = [2026-01-01]": "no setting is a date or a time",
        '{"prompt": "\\ud800"}': "neither JSON nor TOML",
    }.items():
        answer = browser.post("/new/recipe", recipe=recipe)
        assert answer.status_code == 422 and because in answer.json()["detail"], recipe[:100]


@pytest.mark.parametrize("path", ["/new", "/new/plan", "/new/tiny"])
def test_hidden_fields_that_the_page_cannot_have_made_are_refused(page: Service, browser: Browser, path: str) -> None:
    first = page.submit()
    sent = {"from": first, "prompt": "x", "needs.gpu": "L4"}
    answer = send(browser, path, sent | {"more": f'{{"a": {"[" * 90_000}'})
    assert answer.status_code == 422 and answer.json()["detail"] == "more is not JSON"
    if path != "/new/tiny":
        answer = send(browser, path, sent | {"more": '{"needs": "A100"}'})
        assert answer.json()["problems"] == [{"field": "needs", "message": "must be a table"}]
