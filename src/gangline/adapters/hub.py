"""The Hugging Face hub over HTTP: resolve a revision to a commit, and locate its files."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import httpx

from gangline.core.canonical import digest
from gangline.core.errors import Denied, GanglineError, NotFound, Unreachable
from gangline.core.files import File, Signed, is_sha256
from gangline.core.models.bases import INDEX, ModelRole, files_needed, files_of_role, is_complete
from gangline.ports.hub import HubFile, HubModel
from gangline.tls import trusted

ENDPOINT = "https://huggingface.co"
HINT = "give ORGANISATION/NAME as on the hub, or the path of a folder"
OFFLINE = "unset HF_HUB_OFFLINE, or give the path of a folder with the model"
REACH = "check this machine's network and HF_ENDPOINT; a folder with the model needs no hub"
LATER = "try again later; a folder with the model needs no hub"
_FAULTS = ((httpx.TimeoutException, "no answer in time"), (httpx.ConnectError, "no connection"))
COMMIT = re.compile("[0-9a-f]{40}")
TIMEOUT = httpx.Timeout(30, connect=10)
REDIRECTS_MAX = 5
LISTS = "hub"


class HuggingFaceHub:
    """The hub at `endpoint`; without one no request is made. `token` gives access to gated repositories."""

    def __init__(self, endpoint: str = ENDPOINT, token: str = "") -> None:
        self._endpoint = endpoint.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(verify=trusted(), timeout=TIMEOUT)

    def pin(self, repo: str, revision: str) -> str:
        return revision if COMMIT.fullmatch(revision) else self.look(repo, revision).commit

    def look(self, repo: str, revision: str) -> HubModel:
        what = f"{repo} at {revision}"
        path = f"/api/models/{quote(repo)}/revision/{quote(revision, safe='')}?blobs=true"
        answer = self._ask("GET", f"{self._endpoint}{path}", what)
        try:
            return _as_model(answer.json())
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Unreachable(f"the hub's answer about the base {what} cannot be read") from None

    def read(self, repo: str, commit: str, path: str, part: range | None = None) -> bytes:
        headers = {"Range": f"bytes={part.start}-{part.stop - 1}"} if part is not None else {}
        signed, what = self.locate(repo, commit, path), f"{repo} at {commit}"
        content = self._ask("GET", signed.url, what, signed.headers | headers, follow=True).content
        return content[part.start : part.stop] if part is not None and len(content) > len(part) else content

    def locate(self, repo: str, commit: str, path: str) -> Signed:
        """Return a URL of the bytes that is valid for a while: the hub redirects large files to other hosts, which must not get its
        token."""
        url, what = f"{self._endpoint}/{quote(repo)}/resolve/{commit}/{quote(path)}", f"{repo} at {commit}"
        for _ in range(REDIRECTS_MAX):
            answer = self._ask("HEAD", url, what, self._headers)
            if not answer.is_redirect:
                return Signed(url=url, headers=self._headers)
            before, url = url, urljoin(url, answer.headers["location"])
            if urlsplit(url).netloc != urlsplit(before).netloc:
                return Signed(url=url)
        raise Unreachable(f"the hub redirected {REDIRECTS_MAX} times for the base {what}")

    def _ask(
        self, method: str, url: str, what: str, headers: dict[str, str] | None = None, *, follow: bool = False
    ) -> httpx.Response:
        if not self._endpoint:
            raise Unreachable(f"the base {what} cannot be looked up on the hub: HF_HUB_OFFLINE is set", hint=OFFLINE)
        try:
            answer = self._client.request(
                method, url, headers=self._headers if headers is None else headers, follow_redirects=follow
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = next((words for kind, words in _FAULTS if isinstance(error, kind)), type(error).__name__)
            raise Unreachable(f"the hub cannot be reached for the base {what}: {why}", hint=REACH) from None
        if answer.status_code >= 400:
            raise _refused(answer, what)
        return answer


class NodesHub:
    """The hub as a node uses it; file lists of commits are cached in `folder`, and read in the cache `read_only`, too. Files that the hub's
    own client has in its cache `users` are not downloaded again."""

    def __init__(
        self, hub: HuggingFaceHub, folder: Path, users: Path | None = None, read_only: Path | None = None
    ) -> None:
        self._hub = hub
        self._lists = folder / LISTS
        self._users = users
        self._read_only = read_only / LISTS if read_only else None

    def files(self, repo: str, commit: str, role: ModelRole) -> tuple[File, ...]:
        """Return the files that a run needs. A base that was asked for before needs no network."""
        name = f"{digest([repo, commit, role])}.json"
        for lists in (self._lists, self._read_only):
            if lists and (lists / name).exists():
                return tuple(File(**each) for each in json.loads((lists / name).read_text()))
        path = self._lists / name
        found = self._users_files(repo, commit, role) or self._listed(repo, commit, role)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(json.dumps([{"path": f.path, "bytes": f.bytes, "sha256": f.sha256} for f in found]))
        partial.rename(path)
        return found

    def locate(self, repo: str, commit: str, path: str) -> Signed:
        return self._hub.locate(repo, commit, path)

    def take_users(self, repo: str, commit: str, file: File, to: Path) -> bool:
        """Put the file from the user's cache at `to`, checked. Return False if the cache does not have it."""
        place = self._snapshot(repo, commit) / file.path if self._users else None
        if place is None or not place.is_file() or _sha256(place) != file.sha256:
            return False
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(place.resolve(), to)
        except OSError:  # the cache is on another disk
            partial = to.with_name(f".{to.name}.{os.getpid()}.copy")
            shutil.copyfile(place, partial)
            partial.rename(to)
        return True

    def _listed(self, repo: str, commit: str, role: ModelRole) -> tuple[File, ...]:
        known = {each.path: each for each in self._hub.look(repo, commit).files}
        wanted = files_of_role(list(known), role)
        if not wanted:
            raise NotFound(f"{repo} at {commit} has no model in safetensors that Gangline can identify", hint=HINT)
        return tuple(self._as_file(repo, commit, known[path]) for path in wanted)

    def _as_file(self, repo: str, commit: str, known: HubFile) -> File:
        sha256 = known.sha256 or hashlib.sha256(self._hub.read(repo, commit, known.path)).hexdigest()
        return File(path=known.path, bytes=known.bytes, sha256=sha256)

    def _users_files(self, repo: str, commit: str, role: ModelRole) -> tuple[File, ...]:
        folder = self._snapshot(repo, commit) if self._users and role == "base" else None
        if folder is None or not folder.is_dir():
            return ()
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        if INDEX not in names or not is_complete(names, json.loads((folder / INDEX).read_text())):
            return ()
        return tuple(_users_file(folder / name, name) for name in files_needed(names))

    def _snapshot(self, repo: str, commit: str) -> Path:
        assert self._users is not None, "only nodes with a user's cache look into it"
        return self._users / f"models--{repo.replace('/', '--')}" / "snapshots" / commit


def _users_file(path: Path, name: str) -> File:
    """Describe a cached file. The hub's client names the bytes of a large file by their SHA-256, so it need not be hashed."""
    blob = path.resolve().name
    return File(path=name, bytes=path.stat().st_size, sha256=blob if is_sha256(blob) else _sha256(path))


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _as_model(said: dict[str, Any]) -> HubModel:
    card = said.get("cardData") or {}
    return HubModel(
        commit=str(said["sha"]),
        gated=bool(said.get("gated")),
        licence=str(card.get("license_name") or card.get("license") or ""),
        files=tuple(_as_file(each) for each in said["siblings"]),
        pipeline=str(((said.get("config") or {}).get("diffusers") or {}).get("_class_name") or ""),
    )


def _as_file(said: dict[str, Any]) -> HubFile:
    large = said.get("lfs") or {}
    return HubFile(path=str(said["rfilename"]), bytes=int(said["size"]), sha256=large.get("sha256"))


def _refused(answer: httpx.Response, what: str) -> GanglineError:
    code = answer.headers.get("x-error-code", "")
    if code == "GatedRepo" or (answer.status_code == 403 and not code):
        hint = "accept its licence on the hub, set HF_TOKEN on the server, and let it fetch the base with `gangline bases add`"
        return Denied(f"the base {what} is gated", hint=hint)
    if code in ("RepoNotFound", "RevisionNotFound", "EntryNotFound") or answer.status_code in (400, 401, 404):
        return NotFound(f"the hub has no base {what}", hint=HINT)
    return Unreachable(f"the hub answered HTTP {answer.status_code} for the base {what}", hint=LATER)
