"""Places of users that the server reaches: the guarded web, buckets with the keys that the operator named, receivers of notices."""

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.compose.settings import needing, take_secret_files
from gangline.core.access import as_secret
from gangline.core.errors import UserError
from gangline.core.places.places import PhotoSource
from gangline.core.places.urls import parse_networks
from gangline.core.server.mail import MailSettings
from gangline.core.server.notices import NoticeSettings
from gangline.core.server.settings import ServerSettings
from gangline.core.server.sources import SourceSettings

if TYPE_CHECKING:
    from gangline.adapters.notifiers.mail import Mailer
    from gangline.adapters.notifiers.poster import GuardedPoster
    from gangline.adapters.places.bucket import SourceBucket
    from gangline.adapters.places.deliverer import PlacesDeliverer
    from gangline.adapters.places.fetcher import PlacesFetcher
    from gangline.adapters.places.inspector import ProgramInspector

LOOK = (sys.executable, "-m", "gangline.data.images.imported")
INSPECT = (sys.executable, "-m", "gangline.data.images.sets.inspected")


def make_fetcher(home: Path, settings: ServerSettings) -> "PlacesFetcher":
    """Raises `UserError` where a source names a key that the environment does not have."""
    from gangline.adapters.places.fetcher import PlacesFetcher
    from gangline.adapters.places.web import Web

    for name, source in settings.sources.items():
        source_keys(name, source)
    return PlacesFetcher(
        home / "imports",
        settings.fetching,
        sources_of(settings),
        Web(parse_networks(settings.fetching.networks)),
        bucket_opener(settings.sources),
        LOOK,
    )


def make_inspector(home: Path) -> "ProgramInspector":
    from gangline.adapters.places.inspector import ProgramInspector

    return ProgramInspector(home / "inspected", INSPECT)


def make_deliverer(settings: ServerSettings) -> "PlacesDeliverer":
    from gangline.adapters.places.deliverer import PlacesDeliverer
    from gangline.adapters.places.hub_commit import HubRepository

    def opened(source: PhotoSource, repo: str) -> HubRepository:
        of = settings.sources[source.name]
        return HubRepository(repo, source_keys(source.name, of)[0], of.endpoint)

    return PlacesDeliverer(sources_of(settings), bucket_opener(settings.sources), opened)


def make_poster(settings: NoticeSettings) -> "GuardedPoster":
    from gangline.adapters.notifiers.poster import GuardedPoster

    return GuardedPoster(parse_networks(settings.networks), answer_s=settings.answer_s)


def make_mailer(settings: MailSettings, now_ms: Callable[[], int]) -> "Mailer | None":
    """Return what sends mail, if the settings name a mail server."""
    from gangline.adapters.notifiers.mail import Mailer

    return Mailer(settings, now_ms) if settings.host else None


def sources_of(settings: ServerSettings) -> dict[str, PhotoSource]:
    return {name: source.named(name) for name, source in settings.sources.items() if source.place}


def source_keys(name: str, source: SourceSettings) -> tuple[str, str]:
    """The key and the secret of a source; empty where it names none."""
    variables = (source.key_env, source.secret_env)
    take_secret_files(filter(None, variables))
    missing = [variable for variable in variables if variable and not os.environ.get(variable, "").strip()]
    if missing:
        raise UserError(
            f"the source {name} names the variable {missing[0]}, which the environment does not have",
            hint=f"set {missing[0]} where the server starts, or take it out of [sources.{name}]",
        )
    key, secret = (as_secret(os.environ[variable], variable) if variable else "" for variable in variables)
    if source.place.startswith("s3://"):
        if bool(key) != bool(secret):
            raise UserError(
                f"the source {name} names only one half of its key", hint="set both key_env and secret_env, or neither"
            )
        with needing("s3"):
            import obstore  # noqa: F401 - it is missed now, or never
    return key, secret


def bucket_opener(sources: Mapping[str, SourceSettings]) -> "Callable[[PhotoSource, str], SourceBucket]":
    """Buckets by source and name, each opened once."""

    @cache
    def opened(source: str, bucket: str) -> "SourceBucket":
        from gangline.adapters.places.bucket import BucketKey, SourceBucket

        settings = sources[source]
        access, secret = source_keys(source, settings)
        return SourceBucket(
            bucket, BucketKey(access=access, secret=secret, region=settings.region, endpoint=settings.endpoint)
        )

    return lambda source, bucket: opened(source.name, bucket)
