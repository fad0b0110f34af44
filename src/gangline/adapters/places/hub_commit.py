"""The hub's commit API: upload files as one commit to a model repository, large ones through Git LFS's batch API.

https://huggingface.co/docs/hub/api and https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md
"""

import base64
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urljoin

import httpx

from gangline.core.errors import BadInput, Unreachable
from gangline.ports.places.deliverer import Outgoing
from gangline.tls import trusted

ENDPOINT = "https://huggingface.co"
BRANCH = "main"
SUMMARY = "Results of a training job"
TIMEOUT = httpx.Timeout(60, connect=10, write=600)
SAMPLE_BYTES = 512
SINGLE_BYTES_MAX = 5_000_000_000
LFS = "application/vnd.git-lfs+json"
TRY_AGAIN = (408, 409, 412, 425, 429)


class HubRepository:
    """A model repository. Its calls raise `BadInput` for errors that a retry does not repair, else `Unreachable`. The token is in no
    message."""

    def __init__(self, repo: str, token: str, endpoint: str = "") -> None:
        self._repo, self._endpoint = repo, (endpoint or ENDPOINT).rstrip("/")
        self._token = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(verify=trusted(), timeout=TIMEOUT)

    def commit(self, files: Sequence[Outgoing]) -> None:
        """Commit these files to the repository, which is created (private) if it does not exist. Committing them again changes nothing."""
        organisation, name = self._repo.split("/")
        made = {"name": name, "organization": organisation, "visibility": "private"}
        self._ask("POST", "/api/repos/create", json_of(made), allowed=(409,))
        large = self._large(files)
        self._upload([file for file in files if file.path in large])
        lines = [{"key": "header", "value": {"summary": SUMMARY, "description": ""}}]
        lines += [_line(file, large=file.path in large) for file in files]
        content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        self._ask(
            "POST", f"/api/models/{self._repo}/commit/{BRANCH}", content, {"Content-Type": "application/x-ndjson"}
        )

    def _large(self, files: Sequence[Outgoing]) -> set[str]:
        """Return the paths of files that the hub wants by LFS."""
        asked = [
            {"path": file.path, "size": file.bytes, "sample": base64.b64encode(_sample(file)).decode()}
            for file in files
        ]
        answer = self._ask("POST", f"/api/models/{self._repo}/preupload/{BRANCH}", json_of({"files": asked}))
        return {each["path"] for each in self._read(answer)["files"] if each["uploadMode"] == "lfs"}

    def _upload(self, files: Sequence[Outgoing]) -> None:
        if not files:
            return
        too_long = next((file for file in files if file.bytes > SINGLE_BYTES_MAX), None)
        if too_long:
            raise BadInput(
                f"{too_long.path} is larger than 5 GB, the most that is delivered to the hub",
                hint="deliver to a bucket",
            )
        by_content = {file.sha256: file for file in files}
        batch = {
            "operation": "upload",
            "transfers": ["basic"],
            "hash_algo": "sha256",
            "ref": {"name": f"refs/heads/{BRANCH}"},
            "objects": [{"oid": file.sha256, "size": file.bytes} for file in by_content.values()],
        }
        headers = {"Accept": LFS, "Content-Type": LFS}
        answer = self._ask("POST", f"/{self._repo}.git/info/lfs/objects/batch", json_of(batch), headers)
        for each in self._read(answer)["objects"]:
            file = by_content[each["oid"]]
            if "error" in each:
                raise BadInput(f"the hub refuses {file.path}: {str(each['error'].get('message', ''))[:200]}")
            self._put(file, each.get("actions") or {})

    def _put(self, file: Outgoing, actions: dict[str, Any]) -> None:
        """Upload a file by the actions that the hub asks for; a file that it already has comes without any."""
        if upload := actions.get("upload"):
            headers = {"Content-Length": str(file.bytes)} | dict(upload.get("header") or {})
            self._send("PUT", upload["href"], file.read(), headers)
        if verify := actions.get("verify"):
            headers = self._token | {"Accept": LFS, "Content-Type": LFS} | dict(verify.get("header") or {})
            self._send("POST", verify["href"], json_of({"oid": file.sha256, "size": file.bytes}), headers)

    def _ask(
        self,
        method: str,
        path: str,
        content: bytes,
        headers: dict[str, str] | None = None,
        allowed: tuple[int, ...] = (),
    ) -> httpx.Response:
        known = {"Content-Type": "application/json"} | self._token | (headers or {})
        return self._send(method, quote(path, safe="/"), content, known, allowed)

    def _send(
        self, method: str, url: str, content: Any, headers: dict[str, str], allowed: tuple[int, ...] = ()
    ) -> httpx.Response:
        try:
            answer = self._http.request(method, urljoin(self._endpoint, url), content=content, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(f"the hub does not answer ({type(error).__name__})") from None
        status = answer.status_code
        if answer.is_success or status in allowed:
            return answer
        if status in (401, 403):
            hint = "ask the operator of this server to check the token of this source"
            raise BadInput(f"the hub does not let this server write to {self._repo} ({status})", hint=hint)
        if status >= 500 or status in TRY_AGAIN:
            raise Unreachable(f"the hub answered {status}")
        raise BadInput(f"the hub refuses a request for {self._repo} ({status})")

    def _read(self, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except ValueError:
            raise Unreachable("the hub did not answer in JSON") from None


def json_of(value: Any) -> bytes:
    return json.dumps(value).encode()


def _sample(file: Outgoing) -> bytes:
    return next(iter(file.read()), b"")[:SAMPLE_BYTES]


def _line(file: Outgoing, *, large: bool) -> dict[str, Any]:
    if large:
        return {
            "key": "lfsFile",
            "value": {"path": file.path, "algo": "sha256", "oid": file.sha256, "size": file.bytes},
        }
    content = base64.b64encode(b"".join(file.read())).decode()
    return {"key": "file", "value": {"path": file.path, "content": content, "encoding": "base64"}}
