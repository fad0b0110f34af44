"""`gangline experiments` and `gangline train --vary`: the real command line against a real server."""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from typer.testing import CliRunner

from gangline.cli import main
from gangline.ports.store import write
from tests.conftest import BASE
from tests.inputs import SUBJECT
from tests.service.conftest import OPERATOR, Service
from tests.service.experiments.at_work import PATH, body, runs_of, shown, submit, tick, work
from tests.service.served import serving

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
Typed = Callable[..., tuple[int, str, str]]
PHOTOS = (str(SUBJECT), "--base", str(BASE), "--prompt", "sks cat", "--resolution", "64", "--steps", "20")
HUNDRED = ",".join(map(str, range(1, 101)))


@pytest.fixture
def run(service: Service) -> Iterator[Typed]:
    with serving(service.app) as served:

        def gangline(*words: str) -> tuple[int, str, str]:
            done = CliRunner().invoke(main.app, [*words, "--server", served.url, "--token", OPERATOR])
            error: Any = done.exception
            message = f"{error.message} {error.hint}" if hasattr(error, "message") else ""
            code = 2 if message else done.exit_code
            return code, done.stdout, done.stderr + message

        yield gangline


def jobs(service: Service) -> int:
    return service.look("SELECT COUNT(*) AS jobs FROM job")[0]["jobs"]


def trained(service: Service, losses: dict[int, float], **given: Any) -> str:
    """An experiment of two ranks, of which those with a loss have succeeded."""
    held_out = service.upload(b"a held-out photo", "h.png")
    settings = {"held_out": (held_out,), "held_out_every_steps": 10} | given.pop("more", {})
    made = submit(service, settings=settings, **given)
    for number, loss in losses.items():
        worked = work(service, f"node-{number}")
        worked.train(100, loss)
        service.wait(60)
        worked.end()
        tick(service)
    return made["id"]


def give_picture(service: Service, job: str, path: str, colour: str, prompt: str) -> None:
    """Write a sample picture of a job, as the trainer makes one."""
    text, content = PngInfo(), io.BytesIO()
    text.add_text("prompt", prompt)
    Image.new("RGB", (64, 64), colour).save(content, "PNG", pnginfo=text)
    service.objects.write(f"pictures/{job}/{path}", content.getvalue())
    file = service.upload(content.getvalue(), path)
    attempt = service.look(f"SELECT id FROM attempt WHERE job = '{job}'")[0]["id"]
    service.execute(
        "INSERT INTO artifact (job, path, attempt, key, bytes, sha256) "
        f"VALUES ('{job}', '{path}', '{attempt}', 'pictures/{job}/{path}', {file.bytes}, '{file.sha256}')"
    )


def test_train_with_vary_submits_an_experiment_whose_photos_are_uploaded_once(service: Service, run: Typed) -> None:
    more = ("--vary", "rank=4,8", "--vary", "learning_rate=1e-4,.0003", "--seeds", "2", "--at-once", "3")
    code, out, err = run(
        "train", *PHOTOS, *more, "--budget", "5", "--experiment", "ranks", "--detach", "--label", "a=b"
    )
    assert code == 0, err
    found, runs = shown(service, out.strip()), runs_of(service, out.strip())
    assert (found["name"], found["jobs"], found["at_once"], found["budget_usd"]) == ("ranks", 8, 3, 5.0)
    assert [run["settings"] for run in runs[::2]] == [
        {"rank": rank, "learning_rate": rate} for rank in (4, 8) for rate in (1e-4, 3e-4)
    ]
    assert "8: 4 combinations of rank and learning_rate × 2 seeds" in err and err.count("uploaded") == 1
    assert service.ask("GET", f"/v1/jobs/{runs[0]['job']}").json()["summary"]["labels"] == {"a": "b"}


def test_the_plan_of_an_experiment_is_shown_and_nothing_is_submitted(service: Service, run: Typed) -> None:
    code, out, err = run("train", *PHOTOS, "--vary", "rank=4,8", "--plan")
    assert (
        (code, out) == (0, "")
        and "price of all" in err
        and "time on nodes in all" in err
        and "2: 2 combinations of rank" in err
    )
    found = json.loads(run("train", *PHOTOS, "--vary", "rank=4,8", "--plan", "-o", "json")[1])
    assert (found["jobs"], found["steps"]) == (2, 40)
    assert jobs(service) == 0


def test_the_plan_of_an_experiment_knows_the_pace_of_the_same_work_on_a_base_here(service: Service, run: Typed) -> None:
    given = ("train", *PHOTOS, "--vary", "rank=4,8")
    assert json.loads(run(*given, "--plan", "-o", "json")[1])["hours_high"] is None
    code, _, err = run(*given, "--detach")
    assert code == 0, err
    for number, job in enumerate(service.look("SELECT workload FROM job ORDER BY name")):
        pace = {"gpu": "", "machine": "m", "seconds_per_step": 9.0 * (number + 1)}
        service.store.apply(write("set_pace", workload=job["workload"], **pace, now=service.now_ms))
    found = json.loads(run(*given, "--plan", "-o", "json")[1])
    assert found["hours_low"] == found["hours_high"] == pytest.approx(20 * (9 + 18) / 3600)


def test_the_plan_of_one_job_is_that_of_the_first(service: Service, run: Typed, tmp_path: Path) -> None:
    err = run("train", *PHOTOS, "--vary", "rank=4,8", "--vary", "steps=30,60", "--plan")[2]
    assert " ".join(err.split()).startswith("plan of job 1 of 4: rank=4, steps=30 base SDXL")
    assert "30 steps, batch size 1" in err and "rank 4 in the U-Net" in err and jobs(service) == 0
    assert "plan of" not in run("train", *PHOTOS, "--plan")[2]
    file = tmp_path / "grid.toml"
    common = f'photos = "{SUBJECT}"\n[settings]\nbase = "{BASE}"\nresolution = 64\nsteps = 20\nprompt = "sks cat"\n'
    for differing, said in (
        ("[random]\ndraws = 2\n[random.vary]\nrank = {choices = [6, 6, 12]}\n", "job 1 of 2: rank="),
        ("[[list]]\nrank = 5\n[[list]]\nrank = 6\n", "job 1 of 2: rank=5"),
    ):
        file.write_text(common + differing)
        code, _, err = run("experiments", "run", str(file), "--plan")
        assert code == 0 and said in err, err
    assert "job 1 of 3\n" in "\n".join(map(str.rstrip, run("train", *PHOTOS, "--seeds", "3", "--plan")[2].splitlines()))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--vary", "rnak=4,8"), "there is no such setting"),
        (("--vary", "rank="), "has an empty value"),
        (("--vary", "rank=4,4"), "comes twice"),
        (("--seeds", "0"), ""),
        (("--vary", "photos=a,b"), "photos"),
        (("--at-once", "2"), "is for an experiment"),
        (("--vary", "rank=4,8", "--halving", "2"), "measure none"),
        (
            [word for name in ("seed", "warmup_steps", "rank") for word in ("--vary", f"{name}={HUNDRED}")],
            "1,000,000 jobs, and the most is 1,000",
        ),
    ],
)
def test_an_experiment_that_cannot_be_is_one_sentence(
    service: Service, run: Typed, more: Sequence[str], said: str
) -> None:
    code, _, err = run("train", *PHOTOS, *more, "--detach")
    assert code == 2 and said in err and jobs(service) == 0
    assert "to train on" not in err  # the sentence stands alone


def test_a_file_is_submitted_with_its_recipe_and_halving(service: Service, run: Typed, tmp_path: Path) -> None:
    (tmp_path / "any.toml").write_text('prompt = "a photo of {subject}"\n[variables]\nsubject = ""\n')
    text = f"""
        photos = "{SUBJECT}"
        recipe = "any.toml"
        [variables]
        subject = "sks cat"
        [settings]
        base = "{BASE}"
        resolution = 64
        steps = 100
        hold_out = ["crying-cat.png"]
        held_out_every_steps = 10
        [vary]
        rank = [4, 8, 16]
        [halving]
        min_steps = 10
        eta = 3
    """
    file = tmp_path / "grid.toml"
    file.write_text(text)
    code, out, err = run("experiments", "run", str(file), "--name", "of a file", "--detach")
    assert code == 0, err
    found, runs = shown(service, out.strip()), runs_of(service, out.strip())
    assert (found["name"], found["halving"], len(runs)) == ("of a file", {"min_steps": 10, "eta": 3}, 3)
    spec = service.ask("GET", f"/v1/jobs/{runs[0]['job']}").json()["spec"]
    assert (spec["prompt"], spec["rank"]) == ("a photo of sks cat", 4)
    before = jobs(service)
    file.write_text(text.replace("rank = [4, 8, 16]", "rank = [4, 8]\nseed = [" + "1, " * 20 + "]") + "seeds = 1\n")
    code, _, err = run("experiments", "run", str(file), "--detach")
    assert code == 2 and "grid.toml" in err and jobs(service) == before


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ('[variables]\nsubjct = "x"', "variables.subjct: the recipe has no such variable", "it has subject"),
        ("", "the recipe needs a value of its variable subject", 'write subject = "VALUE" in [variables]'),
        ('[variables]\nsubject = "x"', "prompt: is missing", "gangline docs experiments"),
    ],
)
def test_a_mistake_in_the_variables_of_a_file_names_it(
    service: Service, run: Typed, tmp_path: Path, text: str, said: str, hint: str
) -> None:
    (tmp_path / "any.toml").write_text('output_name = "{subject}"\n[variables]\nsubject = ""\n')
    file = tmp_path / "grid.toml"
    file.write_text(f'photos = "{SUBJECT}"\nrecipe = "any.toml"\nseeds = 2\n{text}\n[settings]\nbase = "{BASE}"\n')
    code, _, err = run("experiments", "run", str(file), "--detach")
    assert code == 2 and err.startswith(f"{file}: {said}") and hint in err and "--var" not in err


def test_jobs_are_shown_by_what_differs_the_best_first(service: Service, run: Typed) -> None:
    experiment = trained(service, {1: 0.4, 2: 0.3})
    code, out, err = run("experiments", "show", experiment)
    assert code == 0, err
    table = out[out.index("job  ") :].splitlines()
    assert table[0].split()[:7] == ["job", "run", "rank", "held-out", "loss", "training", "loss"]
    assert [line.split()[1:4] for line in table[1:3]] == [["2", "8", "0.3000"], ["1", "4", "0.4000"]]
    assert "ranks-002 with rank=8 has a held-out loss of 0.3" in out and "2 succeeded" in out
    found = json.loads(run("experiments", "show", "ranks", "-o", "json")[1])
    assert [each["number"] for each in found["runs"]] == [2, 1] and found["experiment"]["id"] == experiment
    assert [each["settings"] for each in found["combinations"]] == [{"rank": 8}, {"rank": 4}]


def test_seeds_are_shown_as_means_and_every_run_if_it_is_wanted(service: Service, run: Typed) -> None:
    experiment = trained(service, {1: 0.4, 2: 0.2, 3: 0.25, 4: 0.25}, seeds=2)
    table = run("experiments", "show", experiment)[1]
    rows = [line.split() for line in table[table.index("rank  ") :].splitlines()]
    assert [row[:4] for row in rows[1:3]] == [["8", "2", "ø", "0.2500"], ["4", "2", "ø", "0.3000"]]
    whole = run("experiments", "show", experiment, "--runs")[1]
    assert len(whole[whole.index("job  ") :].splitlines()) == 5 and "seed" in whole


def test_an_experiment_that_waits_says_what_for(service: Service, run: Typed) -> None:
    experiment = submit(service, at_once=1)["id"]
    out = run("experiments", "show", experiment[-8:])[1]
    assert "1 job in progress; 1 held: 1 job at a time" in out and "1 held, 1 queued" in out
    listed = json.loads(run("experiments", "ls", "-o", "json")[1])
    assert [each["id"] for each in listed] == [experiment]
    assert "1 held, 1 queued" in run("experiments", "ls")[1]


def test_stop_cancels_what_has_not_ended_and_follow_ends_with_it(service: Service, run: Typed) -> None:
    experiment = submit(service)["id"]
    code, _, err = run("experiments", "stop", "last")
    assert code == 0 and "2 canceled" in err, err
    assert {each["state"] for each in runs_of(service, experiment)} == {"canceled"}
    code, out, _ = run("experiments", "show", experiment, "--follow")
    assert code == 0 and "2 canceled" in out
    assert run("experiments", "resume", experiment)[0] == 2


def test_stop_says_once_what_it_did_and_that_an_ended_experiment_is_left_alone(service: Service, run: Typed) -> None:
    submit(service)
    assert run("experiments", "stop", "ranks") == (
        0,
        "",
        "ranks has ended: stopped; 2 canceled\n",
    )
    assert run("experiments", "stop", "ranks") == (0, "", "ranks has ended already; nothing was stopped\n")
    assert json.loads(run("experiments", "stop", "ranks", "-o", "json")[1])["state"] == "ended"


def test_the_page_of_an_ended_experiment_names_the_best_job_once(service: Service, run: Typed) -> None:
    out = run("experiments", "show", trained(service, {1: 0.4, 2: 0.3}))[1]
    assert out.count("ranks-002 with rank=8") == 1
    state = next(line for line in out.splitlines() if line.startswith("state"))
    assert state.split(maxsplit=1)[1].strip() == "ended: 2 succeeded"


def test_the_list_shows_the_mean_over_the_seeds_of_the_best(service: Service, run: Typed) -> None:
    trained(service, {1: 0.4, 2: 0.2, 3: 0.2, 4: 0.25}, seeds=2)
    assert "ø 0.2250" in run("experiments", "ls")[1]


def test_the_list_shows_owners_where_there_are_several(service: Service, run: Typed) -> None:
    submit(service)
    assert "owner" not in run("experiments", "ls")[1]
    answer = service.ask("POST", PATH, service.key("member", name="Ada"), json=body(service, name="hers"))
    assert answer.status_code == 201, answer.text
    page = run("experiments", "ls")[1]
    assert "owner" in page and "Ada" in page


def test_change_sets_limits_and_takes_them_away(service: Service, run: Typed) -> None:
    experiment = submit(service, at_once=1, budget_usd=1.0)["id"]

    def limits() -> tuple[int | None, float | None]:
        found = shown(service, experiment)
        return found["at_once"], found["budget_usd"]

    code, _, err = run("experiments", "change", experiment, "--at-once", "2")
    assert (code, limits()) == (0, (2, 1.0)), err
    assert run("experiments", "change", experiment, "--at-once", "none", "--budget", "9")[0] == 0
    assert limits() == (None, 9.0)
    assert run("experiments", "change", experiment, "--budget", "none")[0] == 0
    assert limits() == (None, None)
    for wrong in (("--at-once", "0"), ("--at-once", "1.5"), ("--budget", "-1"), ("--budget", "nan"), ()):
        assert run("experiments", "change", experiment, *wrong)[0] == 2
    assert limits() == (None, None)


def test_a_whole_id_is_asked_for_by_itself_and_no_list_is_read(
    service: Service, run: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = submit(service)["id"]
    asked = list[str]()
    load = service.store.load
    monkeypatch.setattr(service.store, "load", lambda name, **given: asked.append(name) or load(name, **given))
    assert run("experiments", "show", experiment)[0] == 0
    assert "experiments_page" not in asked
    assert run("experiments", "show", experiment[:-1])[0] == 0
    assert "experiments_page" in asked


def test_the_best_is_named_with_its_reason_and_downloaded(service: Service, run: Typed, tmp_path: Path) -> None:
    early = run("experiments", "best", submit(service, name="early")["id"])
    assert early[0] == 2 and "has a result to compare" in early[2]
    run("experiments", "stop", "early")
    experiment = trained(service, {1: 0.4, 2: 0.3})
    job = runs_of(service, experiment)[1]["job"]
    give_picture(service, job, "samples/prompt-00-lora-seed-0.png", "red", "p")
    service.execute(f"DELETE FROM artifact WHERE job = '{job}' AND path NOT LIKE 'samples/%'")
    code, out, err = run("experiments", "best", experiment, "--download", str(tmp_path / "best"))
    assert (code, out.strip()) == (0, job), err
    assert "rank=8" in err and (tmp_path / "best" / "samples" / "prompt-00-lora-seed-0.png").is_file()
    found = json.loads(run("experiments", "best", experiment, "-o", "json")[1])
    assert (found["best"]["job"], found["files"]) == (job, [])


def test_a_sheet_has_a_row_for_each_job_and_a_word_where_there_is_no_picture(
    service: Service, run: Typed, tmp_path: Path
) -> None:
    experiment = trained(service, {1: 0.4, 2: 0.3})
    first, second = (each["job"] for each in runs_of(service, experiment))
    give_picture(service, first, "samples/prompt-00-lora-seed-0.png", "red", "sks dog on the moon")
    give_picture(service, first, "samples/prompt-01-lora-seed-0.png", "lime", "sks dog in a forest")
    give_picture(service, second, "samples/prompt-00-lora-seed-0.png", "blue", "sks dog on the moon")
    sheet = tmp_path / "sheet.png"
    code, _, err = run("experiments", "sheet", experiment, "--to", str(sheet), "--wait")
    assert code == 0 and "2 rows of 2 pictures" in err, err
    with Image.open(sheet) as picture:
        colours = {colour for _, colour in picture.getcolors(2**24) or []}
    assert {(255, 0, 0), (0, 255, 0), (0, 0, 255)} <= colours
    found = json.loads(run("experiments", "sheet", experiment, "--to", str(sheet), "-o", "json", "--prompt", "2")[1])
    assert [[cell["path"] for cell in row] for row in found["cells"]] == [[None], ["samples/prompt-01-lora-seed-0.png"]]
    assert found["rows"] == [{"rank": 8}, {"rank": 4}]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--to", "sheet.txt"), "not the name of a picture"),
        ((), "Missing option '--to'"),
        (("--to", "nowhere/sheet.png"), "does not exist"),
    ],
)
def test_a_sheet_needs_the_name_of_one_picture(service: Service, run: Typed, more: tuple[str, ...], said: str) -> None:
    code, _, err = run("experiments", "sheet", submit(service)["id"], *more)
    assert code == 2 and said in err


def test_without_pictures_there_is_no_sheet_but_a_hint(service: Service, run: Typed, tmp_path: Path) -> None:
    code, _, err = run("experiments", "sheet", submit(service)["id"], "--to", str(tmp_path / "sheet.png"))
    assert code == 2 and "has sample pictures" in err and "--sample-prompt" in err


def test_pictures_that_are_still_to_be_rendered_are_waited_for(service: Service, run: Typed, tmp_path: Path) -> None:
    made = submit(service, settings={"sample_result": True})
    work(service, "node-a").end()
    tick(service)
    code, _, err = run("experiments", "sheet", made["id"], "--to", str(tmp_path / "sheet.png"))
    assert code == 2 and "wait for a node that has nothing to train" in err and "--wait" in err


def test_a_sheet_whose_cells_all_lack_their_picture_is_not_written(
    service: Service, run: Typed, tmp_path: Path
) -> None:
    """Of each combination the best seed is shown: pictures of the others are no reason to write a sheet."""
    experiment = trained(service, {1: 0.3, 2: 0.4, 3: 0.5, 4: 0.6}, seeds=2, more={"sample_result": True})
    worse = runs_of(service, experiment)[1]["job"]
    give_picture(service, worse, "samples/prompt-00-lora-seed-0.png", "red", "p")
    sheet = tmp_path / "sheet.png"
    code, _, err = run("experiments", "sheet", experiment, "--to", str(sheet))
    assert code == 2 and not sheet.exists()
    assert "no job on the sheet of ranks has sample pictures yet" in err and "--wait" in err


def test_a_sheet_says_how_many_of_its_pictures_are_missing_and_why(
    service: Service, run: Typed, tmp_path: Path
) -> None:
    sheet = str(tmp_path / "sheet.png")
    experiment = trained(service, {1: 0.3, 2: 0.4}, more={"sample_result": True})
    first = runs_of(service, experiment)[0]["job"]
    give_picture(service, first, "samples/prompt-00-lora-seed-0.png", "red", "p")
    give_picture(service, first, "samples/prompt-01-lora-seed-0.png", "red", "q")
    code, _, err = run("experiments", "sheet", experiment, "--to", sheet)
    assert code == 0, err
    assert "2 of 4 pictures are missing: some are still rendered; --wait waits for them" in err
    service.execute("UPDATE job SET state = 'canceled' WHERE kind = 'sample'")
    code, _, err = run("experiments", "sheet", experiment, "--to", sheet, "--prompt", "1")
    assert "1 of 2 pictures is missing: no more are on their way" in err


def test_a_sheet_before_the_end_says_that_waiting_helps(service: Service, run: Typed, tmp_path: Path) -> None:
    experiment = trained(service, {1: 0.3})
    first = runs_of(service, experiment)[0]["job"]
    give_picture(service, first, "samples/prompt-00-lora-seed-0.png", "red", "p")
    code, _, err = run("experiments", "sheet", experiment, "--to", str(tmp_path / "sheet.png"))
    assert code == 0 and "1 of 2 pictures is missing: some jobs have not ended; --wait waits for them" in err


def test_last_is_none_before_the_first_experiment(service: Service, run: Typed) -> None:
    code, _, err = run("experiments", "show", "last")
    assert code == 2 and err == "no experiment was submitted yet `gangline train --vary` submits one"


def test_an_experiment_that_is_none_is_one_sentence(service: Service, run: Typed) -> None:
    for given in ("nowhere", "experiment-0123456789abcdef012", "last"):
        code, _, err = run("experiments", "show", given)
        assert code == 2 and "no experiment" in err
