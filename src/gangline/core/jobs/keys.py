"""Name objects in the object store. Every key begins with its project, and a key that an attempt writes with the attempt's prefix."""

from gangline.core.runs.contract import checkpoint_name


def blob_key(project: str, sha256: str) -> str:
    return f"projects/{project}/blobs/{sha256}"


def thumbnail_key(project: str, sha256: str) -> str:
    return f"projects/{project}/thumbnails/{sha256}"


def attempt_prefix(project: str, job: str, attempt: str) -> str:
    return f"projects/{project}/jobs/{job}/attempts/{attempt}"


def small_picture_key(attempt: str, sha256: str) -> str:
    """Return the key of a small copy of a picture that an attempt made. No attempt may upload into its folder."""
    return f"{attempt}/thumbnails/{sha256}"


def folder_prefix(attempt: str, folder: str, step: int) -> str:
    """Return the prefix of a folder of an attempt; each checkpoint has a folder named by its step."""
    return f"{attempt}/checkpoints/{checkpoint_name(step)}" if folder == "checkpoints" else f"{attempt}/{folder}"


def prepared_prefix(attempt: str, key: str) -> str:
    return f"{folder_prefix(attempt, 'prepared', 0)}/{key}"


def log_key(attempt: str, first_byte: int) -> str:
    return f"{attempt}/logs/{first_byte:012d}"
