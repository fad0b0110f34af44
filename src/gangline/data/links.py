"""Links in folders that strangers may have packed: a text that is sent or shown must not come from elsewhere on this machine."""

from pathlib import Path

from gangline.core.errors import BadInput


def refuse_link_out(root: Path, name: str, *, linked_folders: bool = False) -> None:
    """Raise `BadInput` where the file `name` of `root` is a link that leads out of it.

    `linked_folders`: a linked folder is part of what was asked for, so a file may lie anywhere in that one."""
    path = root / name
    target = path.resolve()
    allowed = [root.resolve(), _hubs_files(root), *([path.parent.resolve()] if linked_folders else [])]
    if not any(folder and target.is_relative_to(folder) for folder in allowed):
        raise BadInput(
            f"{name} is a link that leads out of {root}, to {target}",
            hint="copy the file into the folder, or remove the link",
        )


def _hubs_files(root: Path) -> Path | None:
    """Return where the Hugging Face cache keeps the files that a snapshot (`snapshots/COMMIT`) links to."""
    snapshots = root.resolve().parent
    return snapshots.parent / "blobs" if snapshots.name == "snapshots" else None
