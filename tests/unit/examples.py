"""A job, its attempt, a node and what else decisions look at; tests change what matters to them with `replace`."""

from gangline.core.job import Attempt, Job, Node
from gangline.core.jobs.claim import ClaimCandidate
from gangline.core.money.budget import Purse
from gangline.core.policy import Policy
from gangline.core.runs.proof import kinds_text
from gangline.core.specs.kinds import KINDS

POLICY = Policy()
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
JOB = Job(id="j", project="p", state="running", fencing=1, version=1, attempts_failed=0, attempts_max=3)
NODE = Node(
    id="n",
    machine="m",
    name="node-a",
    pool="default",
    state="ready",
    gpu="A100",
    gpu_memory_gb=40,
    trust=1,
    numerics="bits",
    slots=1,
    slots_free=1,
    price_micro_usd_per_hour=324_000,
    meter_ms=0,
    joined_ms=0,
    kinds=kinds_text(KINDS),
    problems="{}",
)
ATTEMPT = Attempt(
    id="a",
    job="j",
    node="n",
    machine="m",
    gpu="A100",
    gpu_memory_gb=40,
    fencing=1,
    state="live",
    kind="",
    slots=1,
    price_micro_usd_per_hour=324_000,
    from_step=0,
    step=0,
    committed_step=0,
    seconds_per_step=None,
    started_ms=0,
    training_ms=None,
    beat_ms=0,
    ended_ms=None,
)
CANDIDATE = ClaimCandidate(
    id="j",
    project="p",
    kind="lora",
    wanted="lora",
    fencing=0,
    version=1,
    priority=0,
    queued_ms=0,
    ready_ms=0,
    base="base",
    slots=1,
    download_bytes=0,
    gpu="",
    gpu_memory_gb=0,
    pool="",
    trust=0,
    numerics="",
    banned=False,
)
PURSE = Purse(project="p", usage=0, usage_ms=0, share=1, budget=None, spent=0, reserved=0)
