"""The `slurm` pool driver: a node is a batch job, an offer is a partition with a GPU type. Slurm's own programs are its interface."""

import logging
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock

from gangline.adapters.pools.slurm.answers import SEPARATOR, NodeGroup, SlurmJob, parse_estimate_ms, slurm_refusal
from gangline.adapters.pools.slurm.programs import SlurmPrograms
from gangline.adapters.pools.slurm.script import batch_script
from gangline.adapters.pools.slurm.seen import SeenJobs
from gangline.adapters.pools.slurm.settings import SlurmCluster, SlurmSettings, is_slurm_name
from gangline.core.errors import BadInput, NotFound, Unreachable
from gangline.core.words import listed
from gangline.ports.pool import Instance, NoCapacity, Offer, Rental

FOLDER = ".local/share/gangline/slurm"
NOTICE_S = 120
OUTPUT_KEPT_S = 14 * 86_400
TAIL_BYTES = 64 << 10
NO_TYPE = "gpu"
log = logging.getLogger("gangline.fleet.slurm")


class SlurmPool:
    """Submits jobs as the server's user. `mark` is the comment of its jobs: no other pool or server of this user may have the same one.

    `surroundings` is the server's environment. Slurm's programs get a few variables of it, and a job gets these and the rental's. Several
    threads may call this.
    """

    def __init__(
        self, *, settings: SlurmSettings, cluster: SlurmCluster, mark: str, surroundings: Mapping[str, str]
    ) -> None:
        if not mark or SEPARATOR in mark or not mark.isprintable():
            raise BadInput("the mark of a Slurm pool must be printable text")
        self._settings, self._cluster, self._mark = settings, cluster, mark
        self._folder = cluster.folder or Path(surroundings.get("HOME", "/"), FOLDER)
        self._script = batch_script(cluster, settings.gpus).encode()
        self._slurm = SlurmPrograms(cluster, surroundings)
        self._seen, self._starting = SeenJobs(), Lock()

    def offers(self) -> list[Offer]:
        groups = self._slurm.groups()
        there = sorted({group.partition for group in groups})
        missing = [name for name in self._settings.partitions if name not in there]
        if missing:
            hint = f"it has {listed(there)}" if there else "it has none that this user may see"
            raise BadInput(f"Slurm has no partition {listed(missing)}", hint=hint)
        return [
            self._offer(partition, gpu)
            for partition in self._settings.partitions
            for gpu in self._gpus_of(partition, groups)
        ]

    def start(self, offer: str, rental: Rental) -> None:
        if not is_slurm_name(rental.name):
            raise BadInput(f"{rental.name} cannot be the name of a job")
        partition, request = self._requested(offer)
        with self._starting:
            jobs = self._slurm.jobs()
            if self._seen.has_name(rental.name) or any(job.name == rental.name for job in self._ours(jobs)):
                return
            self._prepare_folder()
            options = self._options(partition, request, rental)
            self._check_room(partition, options, jobs)
            words = ("sbatch", "--parsable", *options)
            ran = self._slurm.run(
                *words, given=self._script, more=rental.environment(), partition=partition, check=True
            )
            job = ran.output.decode(errors="replace").strip().partition(";")[0]  # "ID;CLUSTER" in a federation
            if not job.isdecimal():
                raise Unreachable("sbatch printed no job id")
            self._seen.submit(rental.name, job)
        log.info("node %s is job %s and writes %s", rental.name, job, self._output_of(job))

    def stop(self, instance: str) -> None:
        if not self._is_ours(instance):
            return
        ran = self._slurm.run("scancel", instance)
        if ran.code and "invalid job id" not in ran.errors.lower():
            raise slurm_refusal("scancel", ran)
        self._seen.stop(instance)

    def list(self) -> list[Instance]:
        jobs = self._ours(self._slurm.jobs())
        vanished = self._seen.vanished(jobs)
        recorded = self._slurm.recorded(vanished) if vanished else {}
        exits = {job: self._slurm.exit_of(job) for job in self._seen.unexplained(jobs)}
        return self._seen.note(jobs, exits, recorded)

    def logs(self, instance: str) -> str:
        """Return the end of the job's output. Raises `NotFound` if there is none: the job has not begun, or the folder is not shared."""
        path = self._output_of(instance)
        if not instance.isdecimal() or not path.exists():
            hint = "a job writes it once it runs; the folder must be the same on this server and on the cluster's nodes"
            raise NotFound(f"job {instance} has no output in {self._folder}", hint=hint)
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - TAIL_BYTES))
                return file.read(TAIL_BYTES).decode(errors="replace")
        except OSError as error:
            raise Unreachable(f"{path} cannot be read: {error.strerror}") from None

    def _gpus_of(self, partition: str, groups: "list[NodeGroup]") -> "list[str]":
        """Return the GPU types of which a usable machine of the partition has enough; "" stands for a node without GPUs."""
        usable = [group for group in groups if group.partition == partition and group.usable]
        if not self._settings.gpus:
            return [""] if usable else []
        types = {
            kind or NO_TYPE
            for group in usable
            for kind, count in group.gpus.items()
            if count >= self._settings.gpus and self._settings.gpu_type in ("", kind)
        }
        return sorted(types)

    def _offer(self, partition: str, gpu: str) -> Offer:
        settings = self._settings
        return Offer(
            id=f"{partition}/{gpu}" if gpu else partition,
            gpu=settings.gpu or ("" if gpu == NO_TYPE else gpu),
            gpu_memory_gb=settings.gpu_memory_gb,
            slots=max(1, settings.gpus),
            trust=settings.trust,
            price_micro_usd_per_hour=round((settings.price_usd_per_hour or 0) * 1e6),
            price_known=settings.price_usd_per_hour is not None,
        )

    def _requested(self, offer: str) -> tuple[str, tuple[str, ...]]:
        """Return the partition of an offer, and the options that ask for its GPUs."""
        partition, _, gpu = offer.partition("/")
        known = partition in self._settings.partitions and (is_slurm_name(gpu) if self._settings.gpus else not gpu)
        if not known or self._settings.gpu_type not in ("", gpu):
            raise NoCapacity(f"this pool has no offer {offer}")
        kind = "" if gpu == NO_TYPE else f"{gpu}:"
        return partition, ((f"--gres=gpu:{kind}{self._settings.gpus}",) if gpu else ())

    def _options(self, partition: str, request: tuple[str, ...], rental: Rental) -> tuple[str, ...]:
        """Return the options of sbatch. Other users see them, so the token is not among them: it is in the environment of sbatch, all of
        which the job gets."""
        limit = self._settings.time_limit_minutes
        return (
            f"--job-name={rental.name}",
            f"--comment={self._mark}",
            f"--partition={partition}",
            "--nodes=1",
            "--ntasks=1",
            *request,
            *([f"--time={limit}"] if limit else []),
            f"--signal=B:TERM@{NOTICE_S}",
            "--no-requeue",
            "--export=ALL",
            f"--chdir={self._folder}",
            f"--output={self._folder}/slurm-%j.log",
            "--open-mode=truncate",
            *shlex.split(self._cluster.options),
        )

    def _check_room(self, partition: str, options: tuple[str, ...], jobs: "list[SlurmJob]") -> None:
        """Raise `NoCapacity` if Slurm expects the job to wait too long: another pool's offer may start sooner.

        Slurm's estimate says nothing while its scheduler has not looked at the job before: then every job waits for all of that one's time.
        """
        ran = self._slurm.run("sbatch", "--test-only", *options, given=self._script, partition=partition, check=True)
        starts_ms = parse_estimate_ms(ran.errors)
        minutes = 0 if starts_ms is None else (starts_ms - time.time_ns() // 1_000_000) / 60_000
        fresh = any(job.partition == partition and job.is_unscheduled for job in jobs)
        if minutes > self._settings.queue_minutes_max and not fresh:
            raise NoCapacity(f"partition {partition} has no room: Slurm expects the job to wait {_span(minutes)}")

    def _prepare_folder(self) -> None:
        """Make the folder for output, and delete output that is older than `OUTPUT_KEPT_S`."""
        if "%" in str(self._folder) or not self._folder.is_absolute():  # Slurm expands %j and the like
            raise BadInput(f"the folder of a Slurm cluster must be an absolute path without %, not {self._folder}")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in self._folder.glob("slurm-*.log"):
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime < time.time() - OUTPUT_KEPT_S:
                        path.unlink()
        except OSError as error:
            hint = "choose a folder that this server's user can write, on a disk that the cluster's nodes share"
            raise BadInput(f"the folder {self._folder} cannot be used: {error.strerror}", hint=hint) from None

    def _ours(self, jobs: "list[SlurmJob]") -> "list[SlurmJob]":
        return [job for job in jobs if job.comment == self._mark]

    def _is_ours(self, instance: str) -> bool:
        """Return whether it is a job of this pool. This user's other jobs are never stopped."""
        if not instance.isdecimal():
            return False
        return self._seen.has(instance) or any(job.id == instance for job in self._ours(self._slurm.jobs()))

    def _output_of(self, job: str) -> Path:
        return self._folder / f"slurm-{job}.log"


def _span(minutes: float) -> str:
    hours = minutes / 60
    return f"{minutes:.0f} minutes" if hours < 2 else f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.0f} days"
