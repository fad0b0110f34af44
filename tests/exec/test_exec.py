"""The same line, typed anywhere, goes on where it was; of two at once the older one stops; the store may be slow, away or damaged."""

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic

import pytest
from fastapi import FastAPI, Request, Response
from standardwebhooks import Webhook

from gangline.adapters.host.script.command import KeptCommand
from gangline.adapters.host.script.results import LocalResults
from gangline.adapters.host.script.workspace import LocalWorkspace
from gangline.adapters.notifiers.nobody import Nobody
from gangline.adapters.objects.folder import FolderObjects, FolderTransfer
from gangline.adapters.objects.s3 import S3Objects
from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.core.command.layout import Rules
from gangline.core.command.lineage import Begun
from gangline.exec.checkpoint_uploader import CheckpointUploader
from gangline.exec.error_reporter import ErrorReporter
from gangline.exec.plan import ExecPlan, Tools
from gangline.exec.run_prefix import PrefixContent, RunPrefix
from gangline.exec.watch import RunMonitor
from tests.exec.chain import save, state_after
from tests.exec.conftest import Line
from tests.processes import is_running
from tests.proxy import Fault, Proxy
from tests.servers import Lesser, before, served
from tests.waiting import until

SECRET = "whsec_" + "c2VjcmV0IG9mIGEgdGVzdCwgbG9uZyBlbm91Z2g="


def records(place: S3Objects) -> list[str]:
    return sorted(
        key for key in place.list("runs") if "/checkpoints/" in key and key.endswith(".json") and key.count("/") == 3
    )


def test_what_was_killed_goes_on_elsewhere_and_ends_as_if_nothing_had_been(line: Line, place: S3Objects) -> None:
    first = line.start("a", options=("--price", 1.5))
    first.until("is safe", times=2)
    first.kill()
    second = line.start("b", options=("--price", 1.5))
    second.until("is safe")
    second.kill()
    third = line.start("c", options=("--price", 1.5))
    code, told = third.end()
    assert (code, line.result("c")) == (0, state_after(60))
    assert "resumes from checkpoint-" in third.text and "from 0" not in third.text
    assert (told["run"], told["runs"], told["exit_code"], told["step"]) == (3, 3, 0, 60)
    assert told["restored_step"] >= 30 and told["bytes_downloaded"] > 200_000
    assert told["cost_usd"] == pytest.approx(told["seconds"] * 1.5 / 3600, rel=0.01)
    assert len(records(place)) == 2
    assert place.read("runs/000003/output/result.txt").decode() == state_after(60)
    logs = b"".join(place.read(key) for key in sorted(place.list("runs/000003/log")))
    assert b"step 60" in logs


def test_said_again_after_the_end_nothing_is_done_again(line: Line) -> None:
    assert line.start("a", chain=(20,)).end()[0] == 0
    again = line.start("b", chain=(20,))
    code, told = again.end()
    assert code == 0 and "has already finished this command" in told["because"]
    assert not (line.root / "b" / "out" / "result.txt").exists()
    more = line.start("b", chain=(30,))
    assert more.end()[0] == 0 and line.result("b") == state_after(30)
    assert "the arguments of the command differ" in more.text


def test_on_sigterm_the_last_checkpoint_goes_up_and_the_line_ends_with_75(line: Line, place: S3Objects) -> None:
    chain = (2000, "--every", 500, "--save-on-term")
    first = line.start("a", chain=chain)
    first.until("from 0")
    first.signal(signal.SIGTERM)
    code, told = first.end()
    assert (code, told["checkpoints"]) == (75, 1) and 0 < told["step"] < 500
    assert "this process received SIGTERM" in first.text
    second = line.start("b", chain=chain)
    assert f"from {told['step']}" in second.until("from ", times=2)
    second.signal(signal.SIGINT)
    assert second.end()[0] == 130


def test_a_command_that_will_not_stop_is_killed_after_its_grace(line: Line) -> None:
    stubborn = (
        "import signal, time; signal.signal(15, lambda *_: None); print('up', flush=True)\nwhile True: time.sleep(1)"
    )
    running = line.start("a", command=(sys.executable, "-c", stubborn), options=("--grace", 0.5))
    running.until("up")
    running.signal(signal.SIGTERM)
    assert running.end()[0] == 75


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("exit 0", 0)])
def test_it_ends_as_its_command_does(line: Line, script: str, code: int) -> None:
    running = line.start("a", command=("bash", "-c", script))
    assert running.end()[0] == code


def test_nothing_that_the_command_started_outlives_a_kill(line: Line) -> None:
    script = """
import subprocess, time
process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("child", process.pid, flush=True)
time.sleep(1000)"""
    running = line.start("a", command=(sys.executable, "-c", script))
    child = int(running.until("child ").split()[-1])
    running.kill()
    until(lambda: not is_running(child))


def test_a_checkpoint_that_the_script_deletes_at_once_is_not_missed(line: Line) -> None:
    running = line.start("a", chain=(60, "--keep", 1, "--step-s", 0.05))
    running.until("is safe", times=5)
    assert running.end()[0] == 0
    assert "left out" not in running.text


# Two at once


def test_of_two_at_once_the_older_stops_and_what_it_sends_is_never_the_newest(line: Line, place: S3Objects) -> None:
    chain = (4000, "--step-s", 0.02)
    old = line.start("a", chain=chain)
    old.until("is safe", times=2)
    new = line.start("b", chain=chain)
    new.until("resumes from")
    code, told = old.end()
    assert code == 77 and "run 2 has overtaken this one, run 1" in told["because"]
    new.until("is safe")
    new.kill()
    third = line.start("c", chain=chain)
    assert "runs/" not in third.until("resumes from")
    assert max(records(place)).startswith("runs/000002/")
    third.kill()


def test_what_an_overtaken_run_hands_in_after_that_counts_for_nothing(line: Line, place: S3Objects) -> None:
    """As if it had been cut off, and had not heard."""
    first = line.start("a")
    first.until("is safe", times=2)
    first.kill()
    second = line.start("b", chain=(60, "--every", 1000))
    second.until("resumes from")
    second.kill()
    (late,) = [key for key in records(place) if key.startswith("runs/000001/")][-1:]
    record = json.loads(place.read(late))
    for file in record["manifest"]["files"]:
        content = place.read(f"{late.removesuffix('.json')}/{file['path']}")
        place.write(f"runs/000001/checkpoints/000099/{file['path']}", content)
    place.write("runs/000001/checkpoints/000099.json", json.dumps(record).encode())
    third = line.start("c")
    third.until("is safe")
    assert third.end()[0] == 0
    assert "runs/000001/checkpoints/000099.json" not in set(place.list("runs"))


def test_two_in_one_folder_are_one_too_many(line: Line) -> None:
    running = line.start("a", chain=(2000,))
    running.until("from 0")
    code, _ = (other := line.start("a", chain=(2000,))).end()
    assert code == 2 and "another gangline exec already uses out" in other.text
    running.kill()


def test_a_store_that_writes_over_objects_gives_out_numbers_too(
    bucket: S3Bucket, make_line: Callable[[S3Bucket], Line], place: S3Objects
) -> None:
    with before(Lesser(bucket, frozenset({"if-none-match"}))) as seen:
        line = make_line(replace(seen, prefix=place._wire.bucket.prefix))
        first = line.start("a")
        first.until("is safe")
        first.kill()
        second = line.start("b")
        assert second.end()[0] == 0 and line.result("b") == state_after(60)
    assert len(list(place.list("claims"))) == 2


# Faults


def test_a_damaged_checkpoint_is_passed_over_and_the_one_before_is_used(line: Line, place: S3Objects) -> None:
    first = line.start("a")
    first.until("is safe", times=3)
    first.kill()
    newest = max(records(place)).removesuffix(".json")
    weights = next(key for key in place.list(newest) if key.endswith(".safetensors"))
    content = bytearray(place.read(weights))
    content[-1] ^= 1
    place.delete([weights])
    place.write(weights, bytes(content))
    second = line.start("b")
    assert second.end()[0] == 0 and line.result("b") == state_after(60)
    assert "a checkpoint in the store is damaged, so it is skipped" in second.text


@pytest.mark.tenths
@pytest.mark.parametrize("damage", ["empty", "gone", "record empty", "record deep", "record gone"])
def test_whatever_is_damaged_of_the_newest_checkpoint_the_one_before_is_used(
    line: Line, place: S3Objects, damage: str
) -> None:
    first = line.start("a")
    first.until("is safe", times=3)
    first.kill()
    newest, before = sorted(records(place))[::-1][:2]
    weights = next(key for key in place.list(newest.removesuffix(".json")) if key.endswith(".safetensors"))
    key = newest if "record" in damage else weights
    place.delete([key])
    if "gone" not in damage:
        place.write(key, b"[" * 200_000 if "deep" in damage else b"")
    second = line.start("b", chain=(60, "--every", 1000))
    assert second.end()[0] == 0 and line.result("b") == state_after(60)
    assert f"resumes from {json.loads(place.read(before))['name']} in" in second.text


def test_where_the_notes_of_its_beginning_and_the_claims_have_expired_a_run_goes_on_and_nothing_good_is_deleted(
    line: Line, place: S3Objects
) -> None:
    """As a rule of the bucket does that deletes what is old: these are the oldest of a run."""
    first = line.start("a")
    first.until("is safe", times=3)
    first.kill()
    kept = records(place)
    name = json.loads(place.read(max(kept)))["name"]
    place.delete([key for key in place.list("") if key.startswith("claims/") or key.endswith("begun.json")])
    second = line.start("b", chain=(60, "--every", 1000))
    code, told = second.end()
    assert (code, told["run"], line.result("b")) == (0, 2, state_after(60))
    assert f"resumes from {name} in" in second.text and set(kept) <= set(records(place))
    assert told["seconds"] < 3600
    place.delete([key for key in place.list("") if key.startswith("claims/") or key.endswith("begun.json")])
    third = line.start("a", chain=(80, "--every", 10))
    code, told = third.end()
    assert (code, told["run"], line.result("a")) == (0, 3, state_after(80)) and told["seconds"] < 3600
    steps = [json.loads(place.read(key))["manifest"]["step"] for key in records(place)]
    assert sorted(steps) == [70, 80]


def test_while_the_store_is_away_training_goes_on_and_nothing_is_lost(
    bucket: S3Bucket, make_line: Callable[[S3Bucket], Line], place: S3Objects
) -> None:
    host, port = bucket.endpoint.removeprefix("http://").split(":")
    with Proxy((host, int(port))) as proxy:
        line = make_line(replace(bucket, endpoint=proxy.url, prefix=place._wire.bucket.prefix))
        running = line.start("a", chain=(400, "--every", 50))
        running.until("is safe")
        proxy.faults.extend([Fault(kind="answer")] * 100_000)
        running.until("step 300")
        proxy.faults.clear()
        code, told = running.end()
    assert (code, told["step"]) == (0, 400)
    newest = json.loads(place.read(max(records(place))))
    assert newest["name"] == "checkpoint-400"
    assert place.read("runs/000001/output/result.txt").decode() == state_after(400)


def test_at_the_end_a_store_that_is_away_is_waited_for_until_somebody_ends_that(
    bucket: S3Bucket, make_line: Callable[[S3Bucket], Line], place: S3Objects
) -> None:
    host, port = bucket.endpoint.removeprefix("http://").split(":")
    with Proxy((host, int(port))) as proxy:
        line = make_line(replace(bucket, endpoint=proxy.url, prefix=place._wire.bucket.prefix))
        options = ("--grace", 0.5)
        first = line.start("a", chain=(20,), options=options)
        first.until("checkpoint-10 is safe")
        proxy.faults.extend([Fault(kind="answer")] * 100_000)
        first.until("retrying until it answers")
        first.signal(signal.SIGTERM)
        code, told = first.end()
        assert (code, told["results"]) == (75, None) and "not everything is in it" in told["because"]
        proxy.faults.clear()
        second = line.start("a", chain=(20,), options=options)
        code, told = second.end()
    assert code == 0 and "resumes from checkpoint-20 on this disk" in second.text
    assert place.read("runs/000002/output/result.txt").decode() == state_after(20)


def test_where_a_notice_has_stopped_it_one_signal_ends_the_wait_for_the_store(
    bucket: S3Bucket, make_line: Callable[[S3Bucket], Line], place: S3Objects, tmp_path: Path
) -> None:
    host, port = bucket.endpoint.removeprefix("http://").split(":")
    with Proxy((host, int(port))) as proxy:
        line = make_line(replace(bucket, endpoint=proxy.url, prefix=place._wire.bucket.prefix))
        running = line.start("a", chain=(9_000,), options=("--grace", 0.5, "--notice", tmp_path / "notice"))
        running.until("checkpoint-10 is safe")
        proxy.faults.extend([Fault(kind="answer")] * 100_000)
        (tmp_path / "notice").touch()
        running.until("retrying until it answers")
        running.signal(signal.SIGTERM)
        code, told = running.end()
    assert code == 75 and "has appeared; the object store did not answer, so not everything is in it" in told["because"]


def test_one_that_has_no_number_and_did_not_arrive_goes_before_the_one_that_did(line: Line, tmp_path: Path) -> None:
    """It is written over in its place: only when it was written tells which is the newer."""
    script = """
        if [ -e out/last.pt ]; then cp out/last.pt out/result.txt; exit; fi
        echo one > out/last.pt
        until [ -e go ]; do sleep 0.02; done
        echo two > out/last.pt
        mv go gone
        sleep 1000
    """
    options = ("--complete-when", "last.pt")
    first = line.start("a", command=("bash", "-c", script), options=options)
    first.until("last.pt is safe")
    first.signal(signal.SIGSTOP)
    (tmp_path / "a" / "go").touch()
    until((tmp_path / "a" / "gone").exists)
    first.kill()
    second = line.start("a", command=("bash", "-c", script), options=options)
    assert second.end()[0] == 0 and "resumes from last.pt on this disk" in second.text
    assert line.result("a") == "two\n"


def test_what_lacks_its_last_checkpoint_has_not_come_to_its_end(line: Line) -> None:
    script = r"mkdir -p out/step_1; echo x > 'out/step_1/a\b'; echo > out/step_1/done"
    for number in (1, 2):
        running = line.start("a", command=("bash", "-c", script), options=("--complete-when", "step_*/done"))
        assert running.end()[0] == 0 and "let the script give the file another one" in running.text
        assert f"run {number} " in running.text and "has already finished this command" not in running.text


def test_half_of_a_checkpoint_at_the_end_is_said(line: Line) -> None:
    script = "mkdir out/checkpoint-5; echo > out/checkpoint-5/model.safetensors"
    running = line.start("a", command=("bash", "-c", script))
    assert running.end()[0] == 0
    assert (
        "checkpoint-5 is incomplete, so it is not uploaded: model.safetensors is not completely written" in running.text
    )


def test_a_log_that_is_gone_does_not_end_the_watch_for_others(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path / "store")
    said = list[str]()
    prefix = RunPrefix(
        objects=objects, transfer=FolderTransfer(objects), address="store", rng=Random(1), now_ms=lambda: 0
    )
    workspace = LocalWorkspace(tmp_path / "out", Rules())
    tools = Tools(
        prefix=prefix,
        workspace=workspace,
        files=LocalResults(workspace.root, workspace.state, Rules(), (), workspace.is_written),
        start=KeptCommand,
        notifier=Nobody(),
        notice=str,
        download=lambda stopped: 0,
        show=lambda stream, content: None,
        log=tmp_path / "gone" / "log.txt",
        say=said.append,
        status=said.append,
        host="a",
        environment={},
        now_s=monotonic,
        now_ms=lambda: 0,
    )
    run = prefix.claim({})
    begun = Begun(run=run, origin=None)
    sender = CheckpointUploader(
        ExecPlan(command=("x",)), prefix, workspace, begun, PrefixContent(), lambda committed: None, said.append
    )
    over = Looks(lambda: prefix.claim({}))
    RunMonitor(tools, sender, run, lambda: 0, ErrorReporter(said.append)).watch(over)
    assert sender.overtaken == "000002" and "log.txt" in " ".join(said)


class Looks(Event):
    """Two of them, something in between."""

    def __init__(self, between: Callable[[], object]) -> None:
        super().__init__()
        self._waits: list[Callable[[], object]] = [lambda: None, between]

    def wait(self, timeout: float | None = None) -> bool:
        if self._waits:
            self._waits.pop(0)()
            return False
        return True


def test_results_lie_elsewhere_too_and_what_is_not_there_is_said(line: Line, place: S3Objects) -> None:
    words = ("bash", "-c", "mkdir -p pictures && echo x > 'pictures/a prompt: dog?.png'; echo y > notes.txt")
    options = ("--results", "pictures", "--results", "notes.txt", "--results", "missing")
    running = line.start("a", command=words, options=options)
    assert running.end()[0] == 0
    found = {key.removeprefix("runs/000001/output/") for key in place.list("runs/000001/output")}
    assert found == {"pictures/a prompt%3A dog%3F.png", "notes.txt"}
    assert "warning: --results missing does not exist" in running.text
    assert "no checkpoint was found" in running.text


def test_a_key_that_ends_is_renewed(
    bucket: S3Bucket, make_line: Callable[[S3Bucket], Line], place: S3Objects, tmp_path: Path
) -> None:
    """A program gives keys out, each for some minutes; the store forgets the first while the command trains."""
    keys = tmp_path / "key.json"

    def give_out(access_key: str) -> None:
        until = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
        told = {
            "Version": 1,
            "AccessKeyId": access_key,
            "SecretAccessKey": "any",
            "SessionToken": "t",
            "Expiration": until,
        }
        keys.with_suffix(".new").write_text(json.dumps(told))
        keys.with_suffix(".new").replace(keys)

    give_out("first")
    (tmp_path / "config").write_text(f"[default]\ncredential_process = cat {keys}\n")
    lesser = Lesser(bucket, known={"first"})
    with before(lesser) as seen:
        line = make_line(replace(seen, prefix=place._wire.bucket.prefix))
        line.environment = {name: value for name, value in line.environment.items() if "ACCESS_KEY" not in name}
        line.environment |= {"AWS_CONFIG_FILE": str(tmp_path / "config")}
        running = line.start("a", chain=(300, "--every", 50))
        running.until("is safe")
        give_out("second")
        lesser.known = {"second"}
        assert running.end()[0] == 0 and line.result("a") == state_after(300)
    assert place.read("runs/000001/output/result.txt").decode() == state_after(300)


# Notifications


def test_a_webhook_is_told_signed_and_told_again_where_it_failed(line: Line) -> None:
    app, heard, failures = FastAPI(), list[dict[str, object]](), [500, 302]

    @app.post("/hook")
    async def hook(request: Request) -> Response:
        body = await request.body()
        told = Webhook(SECRET).verify(body, dict(request.headers))
        if failures and told["type"] == "exec.started":
            return Response(status_code=failures.pop())
        heard.append(told)
        return Response(status_code=204)

    line.environment["GANGLINE_WEBHOOK_SECRET"] = SECRET
    with served(app) as url:
        running = line.start("a", chain=(20,), options=("--webhook", f"{url}/hook", "--price", 2))
        assert running.end()[0] == 0
        failing = line.start("a", chain=(30, "--code", 9), options=("--webhook", f"{url}/hook"))
        assert failing.end()[0] == 9
    kinds = [told["type"] for told in heard]
    assert sorted(set(kinds)) == ["exec.checkpoint", "exec.ended", "exec.failed", "exec.started"]
    checkpoint = next(told for told in heard if told["type"] == "exec.checkpoint")
    data = checkpoint["data"]
    assert isinstance(data, dict)
    assert {"step", "key", "bytes", "cost_usd", "run", "name"} <= data.keys() and data["cost_usd"] > 0


def test_a_webhook_that_never_answers_is_a_warning(line: Line) -> None:
    running = line.start("a", chain=(20,), options=("--webhook", "http://127.0.0.1:9/hook"))
    assert running.end()[0] == 0
    assert "the webhook does not answer; the message will be sent again" in running.text
    assert " notifications not delivered" in running.text


# Data


def test_data_come_before_the_command_starts_and_only_once(line: Line, place: S3Objects, bucket: S3Bucket) -> None:
    photos = {f"{number}.png": os.urandom(1000) for number in range(3)} | {"deeper/4.png": b""}
    below = S3Objects(type(place._wire)(replace(place._wire.bucket, prefix="photos")), place._able)
    for name, content in photos.items():
        below.write(name, content)
    show = ("python3", "-c", "import pathlib; print(len([p for p in pathlib.Path('images').rglob('*.png')]), 'photos')")
    options = ("--data", f"s3://{bucket.name}/photos:images")
    running = line.start("a", command=show, options=options)
    running.until("4 photos")
    assert running.end()[1]["bytes_downloaded"] == 3000
    found = line.root / "a" / "images"
    assert {str(path.relative_to(found)): path.read_bytes() for path in found.rglob("*.png")} == photos
    assert {path.name for path in found.iterdir()} == {"0.png", "1.png", "2.png", "deeper"}
    again = line.start("a", command=(*show, "again"), options=options)
    assert again.end()[1]["bytes_downloaded"] == 0


def test_the_path_of_the_checkpoint_stands_where_the_line_says(line: Line) -> None:
    """As kohya's scripts want it; without one the option is left out."""
    words = ("python3", "-c", "import sys; print('got', sys.argv[1:], flush=True)", "--resume", "{checkpoint}", "--x=1")
    assert "got ['--x=1']" in line.start("a", command=words).until("got ")
    (line.root / "a" / "out" / "checkpoint-5").mkdir(parents=True)
    save_to = line.root / "b" / "out" / "checkpoint-5"
    save_to.mkdir(parents=True)
    save(save_to, 5, hashlib.sha256(b"").hexdigest(), 100, Event())
    line.to += "/other"
    assert "got ['--resume', 'out/checkpoint-5', '--x=1']" in line.start("b", command=words).until("got ")
