"""Check links in folders that strangers may have packed: a file that is uploaded or shown must not come from elsewhere on this machine."""

from pathlib import Path

from gangline.core.errors import BadInput


def refuse_link_out(root: Path, name: str, *, linked_folders: bool = False) -> None:
    """Raise `BadInput` if the file `name` of `root` is a link that leads out of it.

    With `linked_folders`, folders that are links belong to `root`, so a file may be anywhere in such a folder.
    """
    path = root / name
    target = path.resolve()
    allowed = [root.resolve(), _hubs_files(root), *([path.parent.resolve()] if linked_folders else [])]
    if not any(folder and target.is_relative_to(folder) for folder in allowed):
        raise BadInput(
            f"{name} is a link that leads out of {root}, to {target}",
            hint="copy the file into the folder, or remove the link",
        )


def _hubs_files(root: Path) -> Path | None:
    """Return the folder of the Hugging Face cache that the files of a snapshot (`snapshots/COMMIT`) link to, or None."""
    snapshots = root.resolve().parent
    return snapshots.parent / "blobs" if snapshots.name == "snapshots" else None
