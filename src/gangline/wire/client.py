"""The Python client: typed methods for everything that a user may ask for (`from gangline import Client`).

client = Client("http://127.0.0.1:8420", token)          # or `with Client(…) as client:`, which closes its connections
photos = client.upload([Path("photos/1.jpg")], below=Path("photos"))
job = client.submit(LoraSpec(base=HubBase(repo="stabilityai/stable-diffusion-xl-base-1.0"), photos=photos, prompt="…"))
client.job(job.summary.id).summary.state
client.submit({"base": "stabilityai/stable-diffusion-xl-base-1.0", "photos": "s3://bucket/dogs/timber/", "prompt": "…"})
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urljoin
from uuid import uuid4

import httpx

from gangline.core.display import is_text
from gangline.core.errors import Damaged, Unreachable, UserError
from gangline.core.files import File, is_safe_path
from gangline.core.jobs.naming import LAST, SHOWN_MAX, is_job_id, the_one
from gangline.core.jobs.placement import PlacementView
from gangline.core.parsing import to_json
from gangline.core.runs.contract import MANIFEST, checkpoint_name
from gangline.core.runs.extension import ExtensionSchedule, ExtensionView
from gangline.core.runs.kept import CheckpointFilesView, CheckpointView, RemovalView, StorageView, StoredFileView
from gangline.core.specs.fields import Base, base_to_json
from gangline.core.specs.spec import Spec
from gangline.core.views import (
    ArtifactView,
    BaseView,
    BatchLineView,
    EndView,
    EventView,
    JobPage,
    JobSummary,
    JobView,
    LogView,
    MetricsView,
    ProgressView,
)
from gangline.tls import trusted
from gangline.wire.access_calls import AccessCalls
from gangline.wire.fleet_calls import FleetCalls
from gangline.wire.http import Http, parse_answer, parse_lines, path_of, problem_of
from gangline.wire.problem import to_error
from gangline.wire.sender import Sender
from gangline.wire.stream import Waiting, follow_stream, parse_message

CHUNK = 1 << 20
PATIENCE_S = 60.0


class Client(FleetCalls, AccessCalls):
    """A client. Methods raise `UserError` for what the caller can fix, and `Unreachable` if the server does not answer.

    `token` is a key; an operator's key reaches every project, and `project` selects one.
    """

    def __init__(self, server: str, token: str, project: str | None = None) -> None:
        self._http = Http(server, token, project=project, patience_s=PATIENCE_S)
        self._bytes = httpx.Client(verify=trusted(), timeout=httpx.Timeout(60, connect=5))
        self._sender = Sender(self._http, self._bytes)

    def close(self) -> None:
        """Close the connections. Leaving a `with` block does this, too."""
        self._http.close()
        self._bytes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def server(self) -> str:
        """Return the server's URL."""
        return self._http.server

    def upload(self, paths: list[Path], below: Path, tell: Callable[[File], None] = lambda _: None) -> tuple[File, ...]:
        """Upload files by content; a file that is stored already is not uploaded again. Return them as a spec names them."""
        return tuple(self._sender.upload(path, below, tell) for path in paths)

    def place(self, spec: Spec) -> PlacementView:
        """Return where a job could run if it was submitted now. Its files need not be uploaded, and nothing changes."""
        return parse_answer(PlacementView, self._http.ask("POST", "/v1/plans", {"spec": to_json(spec)}))

    def add_base(
        self,
        name: str,
        base: Base,
        *,
        vae: Base | None = None,
        family: str = "",
        prediction_type: str = "",
        licence: str = "",
        because: str = "",
    ) -> BaseView:
        """Add a base. On the hub, the server detects the fields that are left empty; for uploaded files, the caller states them."""
        said = {"family": family, "prediction_type": prediction_type, "licence": licence, "because": because}
        models = {"base": base_to_json(base), "vae": base_to_json(vae) if vae else None}
        return parse_answer(BaseView, self._http.ask("POST", "/v1/bases", {"name": name} | models | said))

    def bases(self) -> list[BaseView]:
        return parse_answer(list[BaseView], self._http.ask("GET", "/v1/bases"))

    def base(self, name: str) -> BaseView:
        return parse_answer(BaseView, self._http.ask("GET", path_of("bases", name)))

    def forget_base(self, name: str) -> None:
        """Delete the name only: jobs refer to bases by content, and what they need stays."""
        self._http.ask("DELETE", path_of("bases", name))

    def submit(self, spec: Spec | Mapping[str, Any], *, name: str = "", key: str = "") -> JobView:
        """Submit a job. A spec may be JSON values whose `photos` say where they are (docs/http.md); the server then downloads them.

        `key` makes a retry safe after a lost answer: the same key returns the same job.
        """
        body = {"spec": dict(spec) if isinstance(spec, Mapping) else to_json(spec), "name": name}
        return parse_answer(JobView, self._http.ask("POST", "/v1/jobs", body, key=key or uuid4().hex))

    def submit_batch(self, specs: Iterable[Spec], *, key: str = "") -> list[BatchLineView]:
        """Submit many jobs in one request; return a job or a problem for each, in order. `key` makes a retry safe after a lost answer."""
        lines = (json.dumps({"spec": to_json(spec)}) for spec in specs)
        answer = self._http.send_lines("/v1/jobs/batch", lines, key=key or uuid4().hex)
        return parse_lines(BatchLineView, answer)

    def jobs(self) -> Iterator[JobSummary]:
        """Yield all jobs, newest first."""
        cursor: str | None = None
        while True:
            params = {"cursor": cursor} if cursor else {}
            page = parse_answer(JobPage, self._http.ask("GET", "/v1/jobs", params=params))
            yield from page.jobs
            cursor = page.next
            if cursor is None:
                return

    def find_job(self, given: str) -> str:
        """Return the id of a job, given its id, the first or last characters of it (at least four), its name, or `last` for the newest.

        Raise `NotFound`, or `BadInput` if several jobs match.
        """
        if is_job_id(given):
            return given
        if not is_text(given):  # no job has such a name
            return the_one(given, [])
        params: dict[str, Any] = {"limit": 1} if given == LAST else {"limit": SHOWN_MAX, "named": given}
        found = parse_answer(JobPage, self._http.ask("GET", "/v1/jobs", params=params)).jobs
        return found[0].id if given == LAST and found else the_one(given, [(job.id, job.name) for job in found])

    def job(self, job: str) -> JobView:
        return parse_answer(JobView, self._http.ask("GET", path_of("jobs", job)))

    def cancel(self, job: str) -> JobView:
        return parse_answer(JobView, self._http.ask("POST", path_of("jobs", job, "cancel")))

    def pause(self, job: str) -> JobView:
        return parse_answer(JobView, self._http.ask("POST", path_of("jobs", job, "pause")))

    def resume(self, job: str) -> JobView:
        return parse_answer(JobView, self._http.ask("POST", path_of("jobs", job, "resume")))

    def save(self, job: str) -> JobView:
        """Have a running job save a checkpoint now. `asked` of the answer has `save` until it is there."""
        return parse_answer(JobView, self._http.ask("POST", path_of("jobs", job, "save")))

    def sample(self, job: str) -> JobView:
        """Have pictures rendered of what a job has now. They come among its artifacts, as those of its rhythm."""
        return parse_answer(JobView, self._http.ask("POST", path_of("jobs", job, "sample")))

    def finish(self, job: str) -> JobView:
        """Have a job end now, with the result of the steps that it has taken."""
        return parse_answer(JobView, self._http.ask("POST", path_of("jobs", job, "finish")))

    def retry(self, job: str, *, from_checkpoint: bool = False, from_step: int | None = None) -> JobView:
        """Submit the same spec as a new job; with `from_checkpoint`, from the old job's newest one, which is kept while it is needed, and
        with `from_step` from that of this step."""
        params = {"from_checkpoint": "true"} if from_checkpoint else {}
        params |= {"from_step": str(from_step)} if from_step is not None else {}
        return parse_answer(JobView, self._http.ask("POST", path_of("jobs", job, "retry"), params=params))

    def extension(self, job: str, steps: int, schedule: ExtensionSchedule = "stretch") -> ExtensionView:
        """Return what `extend` would do: where the new job continues, and its learning rate with each schedule. Nothing changes."""
        params = {"steps": str(steps), "schedule": schedule}
        return parse_answer(ExtensionView, self._http.ask("GET", path_of("jobs", job, "extension"), params=params))

    def extend(self, job: str, steps: int, schedule: ExtensionSchedule = "stretch") -> JobView:
        """Submit a new job that continues one that has ended to `steps` steps in all, from its newest checkpoint."""
        params = {"steps": str(steps), "schedule": schedule}
        return parse_answer(JobView, self._http.ask("POST", path_of("jobs", job, "extend"), params=params))

    def storage(self) -> StorageView:
        """Return what the project keeps in the object store, until when, and what it costs."""
        return parse_answer(StorageView, self._http.ask("GET", "/v1/storage"))

    def checkpoints(self, job: str) -> list[CheckpointView]:
        """Return the checkpoints that a job keeps, newest first."""
        return parse_answer(list[CheckpointView], self._http.ask("GET", path_of("jobs", job, "checkpoints")))

    def checkpoint(self, job: str, step: int) -> CheckpointFilesView:
        """Return the files of a job's checkpoint, each with a URL."""
        return parse_answer(CheckpointFilesView, self._http.ask("GET", path_of("jobs", job, "checkpoints", str(step))))

    def download_checkpoint(self, job: str, step: int, folder: Path) -> Path:
        """Download a checkpoint into a folder of its own below `folder`, and return that. Each file is checked; the manifest comes last."""
        found = self.checkpoint(job, step)
        target = folder / checkpoint_name(found.step)
        for file in found.files:
            self.download(file, target)
        (target / MANIFEST).write_text(json.dumps(found.manifest))
        return target

    def pin_checkpoint(self, job: str, step: int, *, pinned: bool = True) -> list[CheckpointView]:
        """Pin a checkpoint: it is kept until it is unpinned. With `pinned=False`, unpin it: it expires by age again."""
        method = "PUT" if pinned else "DELETE"
        return parse_answer(
            list[CheckpointView], self._http.ask(method, path_of("jobs", job, "checkpoints", str(step), "pin"))
        )

    def what_goes(self, job: str) -> RemovalView:
        """Return what `remove` would delete."""
        return parse_answer(RemovalView, self._http.ask("GET", path_of("jobs", job, "removal")))

    def remove(self, job: str) -> RemovalView:
        """Delete a job that has ended, with its weights and logs and the photos that no other job uses. Its bills stay."""
        return parse_answer(RemovalView, self._http.ask("DELETE", path_of("jobs", job)))

    def events(self, job: str, after: int = 0) -> list[EventView]:
        return parse_answer(
            list[EventView], self._http.ask("GET", path_of("jobs", job, "events"), params={"after": after})
        )

    def logs(self, job: str, after: str | None = None) -> LogView:
        return parse_answer(
            LogView, self._http.ask("GET", path_of("jobs", job, "logs"), params={"after": after} if after else {})
        )

    def metrics(self, job: str, after: int = 0) -> MetricsView:
        """Return what the job's trainers measured, as one run, after a step. To follow it, ask again after the answer's `next`."""
        return parse_answer(
            MetricsView, self._http.ask("GET", path_of("jobs", job, "metrics"), params={"after": after})
        )

    def follow_events(
        self, job: str, after: int = 0, *, waiting: Waiting = lambda _: None
    ) -> Iterator[EventView | ProgressView | EndView]:
        """Yield a job's events as they happen, with its progress in between; the last message is an `EndView`.

        If the server does not answer, the client reconnects; it calls `waiting` each time.
        """
        for told in follow_stream(self._http, path_of("jobs", job, "events", "stream"), str(after), waiting):
            yield parse_message(told, {"event": EventView, "progress": ProgressView, "end": EndView})

    def follow_logs(
        self,
        job: str,
        after: str = "",
        *,
        waiting: Waiting = lambda _: None,
        progress: Callable[[ProgressView], None] | None = None,
    ) -> Iterator[LogView]:
        """Yield what the job's trainers print, until the job has ended. `progress` is called with what the job is doing meanwhile."""
        path = path_of("jobs", job, "logs", "stream") + "?progress=true" * (progress is not None)
        for told in follow_stream(self._http, path, after, waiting):
            if told.event == "log":
                yield parse_message(told, {"log": LogView})
            elif told.event == "progress" and progress is not None:
                progress(parse_message(told, {"progress": ProgressView}))

    def artifacts(self, job: str) -> list[ArtifactView]:
        return parse_answer(list[ArtifactView], self._http.ask("GET", path_of("jobs", job, "artifacts")))

    def download(self, artifact: ArtifactView | StoredFileView, folder: Path) -> Path:
        """Download a result below the folder, complete and with the right SHA-256, or not at all. Return its path."""
        if not is_safe_path(artifact.path):  # a path from the network is never trusted, as a file is written there
            raise Damaged(f"the server calls a result {artifact.path}, which cannot be the name of a file")
        target = folder / artifact.path
        partial = target.with_name(f".{artifact.sha256[:16]}.partial")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            sha256 = self._read_into(partial, artifact)
            if sha256 == artifact.sha256:
                return partial.rename(target)
            partial.unlink()
        except httpx.HTTPError as error:
            raise Unreachable(f"{artifact.path} could not be downloaded: {type(error).__name__}") from None
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise UserError(
                f"{target} cannot be written: {why}", hint="name a folder on a disk with enough space"
            ) from None
        raise Damaged(f"{artifact.path} does not match its SHA-256", hint="try again")

    def _read_into(self, partial: Path, artifact: ArtifactView | StoredFileView) -> str:
        hashed = hashlib.sha256()
        with self._bytes.stream("GET", self._absolute(artifact.url)) as answer, partial.open("wb") as out:
            if not answer.is_success:
                answer.read()
                raise to_error(answer.status_code, problem_of(answer))
            for chunk in answer.iter_bytes(CHUNK):
                hashed.update(chunk)
                out.write(chunk)
        return hashed.hexdigest()

    def _absolute(self, url: str) -> str:
        return urljoin(self._http.server, url)
