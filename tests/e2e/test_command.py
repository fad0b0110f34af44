"""A command of a user's on the fleet, as processes: killed on one node, it goes on at another, and ends as if nothing had been."""

import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.cli.admin.box import Box
from gangline.cli.tools.run import upload
from gangline.core.specs.command import parse_command
from gangline.core.views import JobView
from tests.conftest import BASE, ROOT, SUBJECT
from tests.e2e.test_death import has_ended, until
from tests.exec.chain import state_after
from tests.index import VALUE, package_index
from tests.waiting import a_moment

LEASE_S = 3.0
CHAIN = Path(__file__).parents[1] / "exec" / "chain.py"


LIGHTNING = """
import sys, time
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _):
        time.sleep(0.05)
        return (self.layer(batch) ** 2).mean()
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

pl.seed_everything(1)
save = ModelCheckpoint(dirpath="output", every_n_train_steps=10, save_top_k=-1)
trainer = pl.Trainer(
    max_steps=120, callbacks=[save], logger=False, accelerator="cpu", enable_model_summary=False, enable_progress_bar=False
)
found = sys.argv[1] if len(sys.argv) > 1 else None
print("resumes from", found, flush=True)
trainer.fit(Model(), DataLoader(torch.randn(64, 4), batch_size=4), ckpt_path=found)
open("output/result.txt", "w").write(str(trainer.global_step))
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with Box(tmp_path / "box", lease_s=LEASE_S, heartbeat_interval_s=0.3) as made:
        yield made


def submit(box: Box, *command: str, **settings: object) -> str:
    code = upload(box.client, CHAIN.parent, [CHAIN], [])
    spec = parse_command({"command": ["python", "chain.py", *command], **code, **settings}, options=True)
    return box.client.jobs.submit(spec).summary.id


def killed_twice(box: Box, job: str, *, steps: int) -> JobView:
    """Kill the node of a job twice, each time so many committed steps later, and return the job once another node has ended it."""
    for number in (1, 2):
        box.start_node(f"node-{number}")
        until(box, job, lambda found, number=number: found.summary.committed_step >= steps * number)
        box.nodes[f"node-{number}"].kill()
    box.start_node("node-3")
    ended = until(box, job, has_ended)
    assert ended.summary.state == "succeeded", ended.summary.because
    return ended


def test_a_command_that_is_killed_twice_on_two_nodes_ends_as_if_nothing_had_been(box: Box, tmp_path: Path) -> None:
    steps = 120
    job = submit(box, "output", str(steps), "--every", "10", "--step-s", "0.1")
    ended = killed_twice(box, job, steps=30)
    assert [attempt.state for attempt in ended.attempts] == ["interrupted", "interrupted", "succeeded"]
    assert [attempt.from_step for attempt in ended.attempts][1] >= 30
    (result,) = list(box.client.artifacts.list(job))
    assert box.client.files.download(result, tmp_path).read_text() == state_after(steps)
    log = box.client.logs.get(job).text
    assert "run 3 resumes from checkpoint-" in log and "cannot resume" not in log


def as_ended(box: Box, job: str) -> JobView:
    """Return a job that may have failed."""
    while not has_ended(found := box.client.jobs.get(job)):
        a_moment()
    return found


def test_a_secret_reaches_the_command_and_is_masked_in_its_log_and_in_the_reason_of_a_failure(
    box: Box, tmp_path: Path
) -> None:
    secret = "hf_abcdefgh-0123"
    box.client.secrets.set("HF_TOKEN", secret)
    shows = "echo 'Steps: 10%|x| 4/40 [00:01<00:09]'"
    ends = f"test -e again && {shows} && sleep 1 && exit; echo no $HF_TOKEN; exit 3"
    script = f"echo token $HF_TOKEN; printf %s $HF_TOKEN | sha256sum > output/sum; {ends}"
    brought = {"secrets": ["HF_TOKEN"], "attempts_max": 1}
    spec = parse_command({"command": ["sh", "-c", f"mkdir output; {script}"], **brought}, options=True)
    box.start_node("node-1")
    failed = as_ended(box, box.client.jobs.submit(spec).summary.id)
    assert failed.summary.state == "failed" and "its last output: no ***" in failed.summary.because
    (tmp_path / "again").touch()
    code = upload(box.client, tmp_path, [tmp_path / "again"], [])
    spec = parse_command({"command": ["sh", "-c", f"mkdir output; {script}"], **brought, **code}, options=True)
    job = box.client.jobs.submit(spec).summary.id
    succeeded = until(box, job, has_ended).summary
    assert (succeeded.state, succeeded.steps_done) == ("succeeded", "4/40")
    assert "token ***" in box.client.logs.get(job).text
    (result,) = list(box.client.artifacts.list(job))
    assert (
        box.client.files.download(result, tmp_path).read_text().split()[0]
        == hashlib.sha256(secret.encode()).hexdigest()
    )
    seen = [box.client.logs.get(each.id).text + repr(box.client.jobs.get(each.id)) for each in box.client.jobs.list()]
    assert not any(secret in each for each in seen)


@pytest.mark.tenths
def test_packages_are_installed_for_the_first_job_that_wants_them_and_kept_for_the_next(
    box: Box, tmp_path: Path
) -> None:
    with package_index() as index:
        (tmp_path / "packages.txt").write_text(index.requirements())
        brought = upload(box.client, tmp_path, [], [], tmp_path / "packages.txt")
        script = "import os, smallest; os.system('smallest'); import torch"
        box.start_node("node-1")
        logs = []
        for _ in range(2):
            spec = parse_command({"command": ["python", "-c", script], "attempts_max": 1, **brought}, options=True)
            job = box.client.jobs.submit(spec).summary.id
            assert "No module named 'torch'" in as_ended(box, job).summary.because, "it has its packages alone"
            logs.append(box.client.logs.get(job).text)
        assert index.downloads == 1
    assert "Successfully installed smallest-1.0" in logs[0] and "installed" not in logs[1]
    assert all(f"its program says: {VALUE}" in log for log in logs)


@pytest.mark.tenths
def test_packages_that_cannot_be_installed_fail_the_job_with_pips_own_words(box: Box, tmp_path: Path) -> None:
    with package_index() as index:
        (tmp_path / "packages.txt").write_text(index.requirements("nowhere-to-be-found"))
        brought = upload(box.client, tmp_path, [], [], tmp_path / "packages.txt")
        spec = parse_command({"command": ["true"], "attempts_max": 1, **brought}, options=True)
        box.start_node("node-1")
        job = box.client.jobs.submit(spec).summary.id
        because = as_ended(box, job).summary.because
    assert (
        "the requirements cannot be installed: ERROR: No matching distribution found for nowhere-to-be-found" in because
    )
    assert "Could not find a version" in box.client.logs.get(job).text


@pytest.mark.tenths
def test_an_installation_that_gives_no_sign_of_life_is_ended_and_leaves_nothing(box: Box, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        (tmp_path / "packages.txt").write_text(f"--index-url http://127.0.0.1:{deaf.getsockname()[1]}/simple\nany\n")
        brought = upload(box.client, tmp_path, [], [], tmp_path / "packages.txt")
        spec = parse_command({"command": ["true"], "attempts_max": 1, "silent_s": 6, **brought}, options=True)
        box.start_node("node-1")
        job = box.client.jobs.submit(spec).summary.id
        assert "the installation of the requirements has printed nothing for 6 s" in as_ended(box, job).summary.because
    kept = tmp_path / "box" / "node-1" / "environments"
    while [path for path in kept.iterdir() if path.suffix != ".lock"]:
        a_moment()  # until the node has cleaned up


@pytest.mark.tenths
@pytest.mark.timeout(900)
def test_the_stock_script_is_killed_twice_on_two_nodes_and_its_losses_continue(box: Box, tmp_path: Path) -> None:
    """examples/stock_script knows nothing of Gangline: accelerate, diffusers, PEFT, `checkpoint-N`, and `latest`."""
    script = ROOT / "examples" / "stock_script" / "train.py"
    brought = upload(box.client, script.parent, [script], [("photos", SUBJECT), ("tiny", BASE)])
    what = "--base tiny --photos photos --max_train_steps 80 --checkpointing_steps 10 --train_batch_size 4 --output_dir output"
    prompt = ("--prompt", "sks cat face, fluent emoji", "--resume_from_checkpoint", "latest")
    spec = parse_command(
        {"command": ["python", "train.py", *what.split(), *prompt], "steps": 80, **brought}, options=True
    )
    job = box.client.jobs.submit(spec).summary.id
    ended = killed_twice(box, job, steps=20)
    assert ended.summary.step == 80 and len(ended.attempts) == 3
    losses = dict[int, set[float]]()
    for line in box.client.logs.get(job).text.splitlines():
        if line.startswith('{"step"'):
            said = json.loads(line)
            losses.setdefault(said["step"], set()).add(said["loss"])
    again = [each for each in losses.values() if max(each) - min(each) > 2e-5]
    assert not again, "a step that was done again has the same loss"
    assert max(losses) == 80 and any(each.path.endswith(".safetensors") for each in box.client.artifacts.list(job))


@pytest.mark.tenths
def test_a_lightning_script_is_killed_twice_on_two_nodes_and_finishes(box: Box, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    script = tmp_path / "code" / "train.py"
    script.write_text(LIGHTNING)
    brought = upload(box.client, script.parent, [script], [])
    spec = parse_command({"command": ["python", "train.py", "{checkpoint}"], **brought}, options=True)
    job = box.client.jobs.submit(spec).summary.id
    ended = killed_twice(box, job, steps=30)
    assert [attempt.from_step for attempt in ended.attempts][1] >= 30 and ended.attempts[2].from_step >= 60
    (result,) = [each for each in box.client.artifacts.list(job) if each.path.endswith("result.txt")]
    assert box.client.files.download(result, tmp_path).read_text() == "120"
    assert "resumes from /" in box.client.logs.get(job).text, "the newest lines of a node that is killed may be lost"
