"""What every program asks first: the environment's settings, folders that it may use, libraries that an extra brings."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.core.access import as_secret
from gangline.core.errors import BadInput, UserError
from gangline.core.server.settings import ServerSettings, parse_server_settings

DEFAULT_PORT = 8420
DEFAULT_SERVER = f"http://127.0.0.1:{DEFAULT_PORT}"
SETTINGS_FILE = "gangline.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The environment's part: `home` is where this machine keeps everything of Gangline's."""

    home: Path
    server: str | None
    token: str | None
    project: str | None
    database: str | None
    cache_gb: float | None


def read_settings() -> Settings:
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Settings(
        home=Path(os.environ.get("GANGLINE_HOME") or Path(data) / "gangline"),
        server=_text("GANGLINE_SERVER"),
        token=_text("GANGLINE_TOKEN"),
        project=_text("GANGLINE_PROJECT"),
        database=os.environ.get("GANGLINE_DATABASE_URL") or None,
        cache_gb=_number("GANGLINE_CACHE_GB"),
    )


def read_server_settings(file: Path | None, home: Path, **options: Any) -> ServerSettings:
    """Read `file`, else the one that GANGLINE_SETTINGS names, else gangline.toml in the server's home if it is there. `options`:
    sections whose fields override the file's. Raises `BadInput`."""
    named = file or (Path(os.environ["GANGLINE_SETTINGS"]) if os.environ.get("GANGLINE_SETTINGS") else None)
    path = named or home / SETTINGS_FILE
    if not named and not path.exists():
        return parse_server_settings("", "the options", options)
    try:
        return parse_server_settings(path.read_text(), str(path), options)
    except OSError as error:
        hint = "--settings or GANGLINE_SETTINGS names the server's settings file"
        raise BadInput(f"{path} cannot be read: {(error.strerror or str(error)).lower()}", hint=hint) from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a text", hint="a settings file is TOML") from None


def _text(name: str) -> str | None:
    return os.environ.get(name, "").strip() or None


def strip_secrets(*names: str) -> None:
    """Take away what surrounds these secrets of the environment, such as the line break of a mounted file: libraries and trainers
    read them there by themselves. Raises `BadInput` for one that can be none."""
    for name in names:
        if name in os.environ:
            os.environ[name] = as_secret(os.environ[name], name)


def _number(name: str) -> float | None:
    text = os.environ.get(name, "")
    try:
        return float(text) if text else None
    except ValueError:
        raise UserError(f"{name} is {text}, which is no number") from None


def existing(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}", hint="choose another with --home") from None
    return folder


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Raise `UserError` where an import within this context lacks what the extra installs."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is not installed", hint=f"pip install 'gangline[{extra}]'") from None
