"""What a user may get wrong is said in one sentence, with a hint, before anything starts: exit code 2."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gangline.adapters.objects.s3 import S3Objects
from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.core.command.lineage import Begun, CommittedCheckpoint, Ref
from gangline.core.files import File
from gangline.core.runs.contract import Manifest
from tests.conftest import Typed
from tests.disks import run_on_a_disk_of
from tests.exec.conftest import CHAIN, GANGLINE, Line, environment_of

Ask = Callable[..., tuple[str, str]]


@pytest.fixture
def refused(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: S3Bucket) -> Ask:
    """What is said of such words, which leave no trace: the sentence and the hint."""
    monkeypatch.chdir(tmp_path)
    for name, value in environment_of(bucket).items():
        monkeypatch.setenv(name, value)
    touched = tmp_path / "touched"

    def run(
        *options: object,
        to: object = "store",
        checkpoints: object = "out",
        command: tuple[object, ...] = ("touch", touched),
    ) -> tuple[str, str]:
        code, printed, said = typed("exec", "--checkpoints", checkpoints, "--to", to, *options, "--", *command)
        assert (code, printed) == (2, "") and not touched.exists(), said
        lines = [line for line in said.splitlines() if line.startswith(("error: ", "hint: "))]
        assert len(lines) == 2, said
        assert not lines[0].endswith(".")
        return lines[0].removeprefix("error: "), lines[1].removeprefix("hint: ")

    return run


def test_a_command_that_is_not_there(refused: Ask) -> None:
    sentence, hint = refused(command=("no-such-program", "x"))
    assert sentence == "the command no-such-program was not found" and "PATH" in hint


def test_a_command_that_is_no_program(refused: Ask, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("echo")
    sentence, hint = refused(command=("./train.sh",))
    assert sentence == "the command ./train.sh cannot be started" and "chmod" in hint


def test_no_command_at_all(typed: Typed) -> None:
    code, _, said = typed("exec", "--checkpoints", "out", "--to", "store", "--")
    assert code == 2 and "command" in said.lower()


@pytest.mark.parametrize("folder", ["/proc/out", "a-file/out"])
def test_a_folder_out_of_reach(refused: Ask, tmp_path: Path, folder: str) -> None:
    (tmp_path / "a-file").touch()
    sentence, hint = refused(checkpoints=folder)
    assert f"{folder} cannot be created" in sentence and "--checkpoints" in hint
    sentence, hint = refused(to=folder)
    assert "cannot be made" in sentence and "--to" in hint


def test_a_prefix_that_holds_something_else(refused: Ask, tmp_path: Path) -> None:
    (tmp_path / "store" / "photos").mkdir(parents=True)
    (tmp_path / "store" / "photos" / "1.png").touch()
    sentence, hint = refused()
    assert (
        "holds other files than those of `gangline exec`: photos/1.png" in sentence and "its own, empty prefix" in hint
    )


def test_a_bucket_that_is_missing(refused: Ask) -> None:
    sentence, hint = refused(to="s3://no-such-bucket/x")
    assert "there is no bucket no-such-bucket" in sentence and "--to" in hint


def test_a_bucket_that_is_forbidden(refused: Ask, monkeypatch: pytest.MonkeyPatch, bucket: S3Bucket) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    sentence, hint = refused(to=f"s3://{bucket.name}/x")
    assert "rejects the signature" in sentence and "AWS_SECRET_ACCESS_KEY" in hint


def test_nobody_at_the_buckets_address(refused: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    sentence, hint = refused(to="s3://bucket/x")
    assert "does not answer" in sentence and "AWS_ENDPOINT_URL" in hint


@pytest.mark.parametrize("to", ["s3://", "http://host/x", "s3://b/x?y"])
def test_an_address_that_is_none(refused: Ask, to: str) -> None:
    sentence, hint = refused(to=to)
    assert f"--to is {to}, which is not a bucket" in sentence and "s3://BUCKET" in hint


def test_a_checkpoint_of_another_script(line: Line) -> None:
    assert line.start("a", command=("bash", "-c", "true")).end()[0] == 0
    other = line.start("b", command=("touch", "touched"))
    assert other.end()[0] == 2 and not (line.root / "b" / "touched").exists()
    assert "belong to another script: bash, not touch" in other.text and "--any-script" in other.text
    assert line.start("b", command=("touch", "touched"), options=("--any-script",)).end()[0] == 0


def test_a_run_whose_record_is_damaged_was_of_any_script(line: Line, place: S3Objects) -> None:
    place.write("claims/000001.json", b"{}")
    place.write("runs/000001/begun.json", b"half of a rec")
    assert line.start("b", command=("touch", "touched")).end()[0] == 0


def test_a_disk_that_is_too_small_for_a_restore(refused: Ask, place: S3Objects, tmp_path: Path) -> None:
    """Found before a number is taken: who trains elsewhere is not disturbed."""
    files = tuple(
        File(path=f"checkpoint-1/{number}.safetensors", bytes=60 * 2**30, sha256="0" * 64) for number in range(1000)
    )
    manifest = Manifest(step=1, spec_hash="", fingerprint={}, exact=False, files=files)
    record = CommittedCheckpoint(ref=Ref("000001", 1), name="checkpoint-1", manifest=manifest, after_ms=5)
    begun = Begun(run="000001", origin=None, command=("touch", str(tmp_path / "touched")))
    place.write("claims/000001.json", b"{}")
    place.write("runs/000001/begun.json", json.dumps(begun.to_json()).encode())
    place.write(f"{record.ref.key}.json", json.dumps(record.to_json()).encode())
    bucket = place._wire.bucket
    sentence, hint = refused(to=f"s3://{bucket.name}/{bucket.prefix}")
    assert "the disk is too small for the checkpoint checkpoint-1" in sentence and "make room" in hint
    assert list(place.list("claims")) == ["claims/000001.json"]


def test_a_disk_that_is_full_already(line: Line, place: S3Objects, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    words = (*GANGLINE, "exec", "--checkpoints", disk / "out", "--to", line.to, "--", "touch", tmp_path / "touched")
    ran = run_on_a_disk_of("32k", disk, *map(str, words), **line.environment)
    assert ran.returncode == 2 and "No space left on device" in ran.stderr and "hint: free some space" in ran.stderr
    assert not (tmp_path / "touched").exists() and not list(place.list(""))


def test_data_that_are_not_there(refused: Ask, bucket: S3Bucket) -> None:
    sentence, hint = refused("--data", f"s3://{bucket.name}/nothing-here:images")
    assert "there is nothing at" in sentence and "--data" in hint
    sentence, hint = refused("--data", "s3://bucket/photos")
    assert "does not name a folder" in sentence and "ADDRESS:FOLDER" in hint


@pytest.mark.parametrize("url", ["hook", "ftp://host/x", "http://"])
def test_a_webhook_without_an_address(refused: Ask, url: str) -> None:
    sentence, hint = refused("--webhook", url)
    assert f"--webhook {url} is not a URL" in sentence and "https://" in hint


def test_a_secret_that_is_none(refused: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_WEBHOOK_SECRET", "whsec_!")
    sentence, hint = refused("--webhook", "https://host/x")
    assert "is not the secret of a webhook" in sentence and "whsec_" in hint and "whsec_!" not in sentence


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--stop-signal", "NONE", "NONE is not a signal"),
        ("--notice", "no/such/folder/file", "neither a provider nor a file"),
        ("--complete-when", "/absolute", "is not a pattern of paths"),
    ],
)
def test_an_option_that_means_nothing(refused: Ask, option: str, value: str, words: str) -> None:
    assert words in refused(option, value)[0]


def test_a_full_disk_is_said_and_the_store_stays_whole(line: Line, tmp_path: Path) -> None:
    """The command writes until nothing more fits: it ends as it ends, what was complete is safe, what was not is not there."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = [
        *GANGLINE,
        "exec",
        "--checkpoints",
        disk / "out",
        "--to",
        line.to,
        "--",
        "python3",
        CHAIN,
        disk / "out",
        "200",
        "--bytes",
        "900000",
    ]
    ran = run_on_a_disk_of("4m", disk, *map(str, words), **line.environment)
    assert ran.returncode == 1 and "No space left" in ran.stderr
    whole = [words.split()[1] for words in ran.stdout.splitlines() if words.startswith("step ")]
    assert whole and f"checkpoint-{whole[-1]} is safe" in ran.stderr, ran.stderr
    again = line.start("b", chain=(60, "--bytes", 900000))
    assert "from 0" not in again.until("from ", times=2)
    again.kill()
