"""What every program asks first: its settings, merged of file, environment and options; folders that it may use, libraries that an extra
brings."""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gangline.core.access import as_secret
from gangline.core.errors import BadInput, UserError
from gangline.core.policy import Policy
from gangline.core.server.merging import (
    MergedSettings,
    Override,
    SettingPlace,
    SettingsT,
    find_overrides,
    merge_settings,
    secret_variables,
)
from gangline.core.server.programs import DEFAULT_HOME, SECRETS_OF_BUCKETS, HubSettings
from gangline.core.server.settings import BoxSettings, ServerSettings, WorkerSettings, merge_file

SETTINGS_FILE = "gangline.toml"
Options = Mapping[str, Any]
"""Values of options by the setting's name, such as `policy.lease_s`; None is not given."""
NO_OPTIONS: Options = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The command line's own: `home` is where this machine keeps everything of Gangline's."""

    home: Path
    server: str | None
    token: str | None
    project: str | None


def read_settings() -> Settings:
    """Without pydantic: every command begins here. Raises `BadInput` where the file of the token cannot be read."""
    take_secret_files(("GANGLINE_TOKEN",))
    return Settings(
        home=_home().value,
        server=_text("GANGLINE_SERVER"),
        token=_text("GANGLINE_TOKEN"),
        project=_text("GANGLINE_PROJECT"),
    )


def editor_words() -> list[str]:
    """Return the command that edits a text file, as the environment names it."""
    return shlex.split(_text("VISUAL") or _text("EDITOR") or "vi")


def read_server_settings(options: Options = NO_OPTIONS) -> MergedSettings[ServerSettings]:
    """Merge the file that `server.settings` names, else gangline.toml of the server's home, with what the environment and the options
    say. Raises `BadInput` with everything that is wrong, each with its source."""
    found = _overrides(ServerSettings, options)
    return _merged(ServerSettings, found, "server", Path(found["server", "home"].value))


def read_server_settings_without_file(options: Options) -> ServerSettings:
    """Return what the environment and the options alone say, for a server whose settings file is wrong. Raises `BadInput`."""
    return merge_file(ServerSettings, "", "the environment", _overrides(ServerSettings, options)).settings


def read_worker_settings(options: Options = NO_OPTIONS, beside: Path | None = None) -> MergedSettings[WorkerSettings]:
    """Do the same for a worker. Its home is a folder below this machine's, where the file is looked for, else in the home of a server
    that it runs beside."""
    return _merged(WorkerSettings, _overrides(WorkerSettings, options), "worker", beside or _home().value)


def read_settings_of_box(options: Options) -> MergedSettings[BoxSettings]:
    """Do the same for a server and the workers on its box, which read the server's file."""
    found = _overrides(BoxSettings, options)
    return _merged(BoxSettings, found, "server", Path(found["server", "home"].value))


def _overrides(kind: type, options: Options) -> dict[SettingPlace, Override]:
    """Return what the environment and the options set, and the folders that follow from this user's home."""
    take_secret_files((*secret_variables(kind), *SECRETS_OF_BUCKETS))
    found, home = find_overrides(kind, os.environ, options), _home()
    if options.get("server.home") is None:
        found["server", "home"] = home
    if options.get("worker.home") is None:
        found["worker", "home"] = Override(home.value / "worker", home.source)
    if _text("HF_HOME"):
        found.setdefault(("worker", "hub_cache"), Override(hub_home() / "hub", "HF_HOME"))
    sections = {each.name for each in fields(kind)}
    return {place: each for place, each in found.items() if place[0] in sections}


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfUser:
    hub: HubSettings = field(default_factory=HubSettings)


def read_hub_settings() -> HubSettings:
    """Return how a user's own commands reach the hub: as the environment says. Raises `BadInput`."""
    take_secret_files(secret_variables(_OfUser))
    return merge_settings(_OfUser, {}, "the environment", find_overrides(_OfUser, os.environ, {})).settings.hub


def read_policy(file: Path) -> Policy:
    """Return the policy of a server's settings file. Raises `BadInput` with everything that is wrong in the file."""
    return _merged(ServerSettings, {("server", "settings"): Override(file, "")}, "server", file.parent).settings.policy


def _merged(
    kind: type[SettingsT], found: dict[SettingPlace, Override], program: str, home: Path
) -> MergedSettings[SettingsT]:
    """Read the file of settings, and keep in them which one it was."""
    place = (program, "settings")
    if place not in found and (file := settings_file(home)):
        found[place] = Override(file, "")
    if place not in found:
        return merge_file(kind, "", "the settings", found)
    path = Path(found[place].value)
    try:
        return merge_file(kind, path.read_text(), str(path), found)
    except OSError as error:
        hint = "--settings or GANGLINE_SETTINGS names the settings file"
        raise BadInput(f"{path} cannot be read: {(error.strerror or str(error)).lower()}", hint=hint) from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a text file", hint="a settings file is TOML") from None


def settings_file(home: Path) -> Path | None:
    """Return the file that is read where none is named."""
    return path if (path := home / SETTINGS_FILE).exists() else None


def _home() -> Override:
    for name, below in (("GANGLINE_HOME", ""), ("XDG_DATA_HOME", "gangline")):
        if os.environ.get(name):
            return Override(Path(os.environ[name]) / below, name)
    return Override(DEFAULT_HOME.expanduser(), "")


def hub_home() -> Path:
    """Return where the hub's own client keeps its user's token and what it has downloaded."""
    return Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")


def has_variables_of_server() -> bool:
    """Whether the environment says how a server would run here."""
    return any(map(_text, ("GANGLINE_DATABASE_URL", "GANGLINE_OBJECTS", "GANGLINE_SETTINGS")))


def _text(name: str) -> str | None:
    return os.environ.get(name, "").strip() or None


def strip_secrets(*names: str) -> None:
    """Put these secrets into the environment without what surrounds them, such as the line break of a mounted file: libraries and
    trainers read them there by themselves. Raises `BadInput` for one that can be none."""
    take_secret_files(names)
    for name in names:
        if name in os.environ:
            os.environ[name] = as_secret(os.environ[name], name)


def take_secret_files(names: Iterable[str]) -> None:
    """Read the secrets for which a variable with `_FILE` behind its name says where they lie, as systemd, Docker and Kubernetes mount
    them: what started this process then shows nobody a secret. An empty file is no secret. Raises `BadInput`."""
    for name in names:
        path = _text(f"{name}_FILE")
        if path is None:
            continue
        if _text(name):
            raise BadInput(f"both {name} and {name}_FILE are set", hint="keep one of them")
        try:
            secret = as_secret(Path(path).read_text(), f"{name}_FILE")
        except OSError as error:
            raise BadInput(f"{name}_FILE: {path} cannot be read: {(error.strerror or str(error)).lower()}") from None
        except UnicodeDecodeError:
            raise BadInput(f"{name}_FILE: {path} is not a text file") from None
        del os.environ[f"{name}_FILE"]  # what this process starts finds the secret itself
        if secret:
            os.environ[name] = secret


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
