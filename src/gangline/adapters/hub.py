"""The Hugging Face hub: names and revisions become commits, and a commit becomes a folder in a cache."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gangline.core.bases import INDEX, files_needed, is_complete
from gangline.core.errors import Denied, GanglineError, NotFound, Unreachable

HINT = "give ORGANISATION/NAME as on the hub, or the path of a folder"


class HuggingFaceHub:
    """Without `cache`, the user's own (`HF_HOME`)."""

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache

    def pin(self, repo: str, revision: str) -> str:
        """The commit. A full commit hash is taken as it is."""
        if len(revision) == 40 and all(char in "0123456789abcdef" for char in revision):
            return revision
        from huggingface_hub import HfApi

        with _our_errors(repo, revision):
            commit = HfApi().model_info(repo, revision=revision).sha
        assert commit is not None, "the hub names the commit of a revision"
        return commit

    def fetch(self, repo: str, commit: str) -> Path:
        """The folder with the files of `commit` that a run needs; blocks until it is complete.

        A base that was fetched before needs no network.
        """
        from huggingface_hub import HfApi, snapshot_download

        with _our_errors(repo, commit):
            known = self._known(repo, commit)
            if known:
                return known
            wanted = files_needed(HfApi().list_repo_files(repo, revision=commit))
            return Path(snapshot_download(repo, revision=commit, cache_dir=self._cache, allow_patterns=wanted))

    def _known(self, repo: str, commit: str) -> Path | None:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            folder = Path(snapshot_download(repo, revision=commit, cache_dir=self._cache, local_files_only=True))
        except LocalEntryNotFoundError:
            return None
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        if INDEX not in names:
            return folder if files_needed(names) else None
        return folder if is_complete(names, json.loads((folder / INDEX).read_text())) else None


@contextmanager
def _our_errors(repo: str, revision: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _translated(error, f"{repo} at {revision}") from None


def _translated(error: Exception, what: str) -> GanglineError:
    from huggingface_hub import errors

    match error:
        case errors.GatedRepoError():
            return Denied(
                f"the base {what} is gated",
                hint="accept its licence on the hub and set HF_TOKEN on the server",
            )
        case errors.RepositoryNotFoundError() | errors.RevisionNotFoundError() | errors.HFValidationError():
            return NotFound(f"the hub has no base {what}", hint=HINT)
        case _:
            return Unreachable(f"the hub did not give the base {what}: {type(error).__name__}", hint=HINT)
