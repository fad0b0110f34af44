"""Where the server may fetch photos from and deliver results to, with which keys, and how much of it."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le, MaxLen

from gangline.core.errors import BadInput
from gangline.core.places.places import PhotoSource, check_bucket, why_no_target
from gangline.core.places.urls import are_networks
from gangline.core.policy import STRICT, Exact, Switch
from gangline.core.server.limits import Bytes, Seconds

FetchCount = Annotated[int, Ge(1), Le(10**6), Exact()]
Text = Annotated[str, MaxLen(1000), Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchingSettings:
    """What one job may make this server fetch."""

    __pydantic_config__: ClassVar[Any] = STRICT
    networks: Annotated[
        tuple[Text, ...],
        (
            "Users' URLs may lead to these private networks, e.g. 10.1.0.0/16, where http:// is allowed too. By default "
            "all private, loopback and link-local addresses are refused."
        ),
    ] = ()
    file_bytes_max: Annotated[Bytes, "A photo has at most this size."] = 200_000_000
    bytes_max: Annotated[Bytes, "All photos of a job together, and a zip of them, have at most this size."] = (
        10_000_000_000
    )
    files_max: Annotated[
        FetchCount, "A job has at most this many files: photos, captions and other files beside them."
    ] = 10_000
    file_s: Annotated[Seconds, "One file, or one zip, must be fetched within this time."] = 600.0
    job_s: Annotated[
        Seconds,
        (
            "All photos of a job must be fetched within this time, over all tries. Time in which nothing is fetched does "
            "not count."
        ),
    ] = 14_400.0
    tries_max: Annotated[FetchCount, "A job fails after this many failed tries in a row."] = 12
    at_once_max: Annotated[
        FetchCount,
        "The server fetches photos for at most this many jobs at the same time, and delivers results for as many.",
    ] = 4
    at_once_per_project_max: Annotated[
        FetchCount | None,
        (
            "All servers together fetch photos for at most this many jobs of one project at the same time (default: half "
            "of `at_once_max`, at least 1)."
        ),
    ] = None

    def __post_init__(self) -> None:
        assert are_networks(self.networks), "networks are written like 10.1.0.0/16, with zeros after the prefix"

    @property
    def of_one_project_max(self) -> int:
        return self.at_once_per_project_max or max(1, self.at_once_max // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """A place and who may use it. Its secrets are names of variables of the server's environment; without them nothing is signed."""

    __pydantic_config__: ClassVar[Any] = STRICT
    place: Annotated[
        Text,
        (
            "The source has this address: s3://BUCKET/FOLDER/, or, for delivery, hf://ORGANISATION/ or "
            "hf://ORGANISATION/NAME."
        ),
    ] = ""
    projects: Annotated[
        tuple[Text, ...], 'Jobs of these projects may name addresses below it; "*" stands for all projects.'
    ] = ()
    deliver: Annotated[Switch, "Results may be delivered there if this is true."] = False
    key_env: Annotated[
        Text, "This environment variable holds the access key of the bucket, or the token of the hub."
    ] = ""
    secret_env: Annotated[Text, "This environment variable holds the secret key of the bucket."] = ""
    endpoint: Annotated[
        Text, "The object store, or the hub, has this address (default: Amazon's, or huggingface.co)."
    ] = ""
    region: Annotated[Text, "The bucket is in this region."] = "us-east-1"

    def __post_init__(self) -> None:
        assert not self.place or _is_place(self.place), "place looks like s3://BUCKET/FOLDER/ or hf://ORGANISATION/"
        assert bool(self.place) == bool(self.projects), "a source names its place and its projects"
        assert self.deliver or not self.place.startswith("hf://"), (
            "a place on the hub is for delivery alone: set deliver = true"
        )

    def named(self, name: str) -> PhotoSource:
        return PhotoSource(name=name, place=self.place, projects=self.projects, deliver=self.deliver)


def _is_place(place: str) -> bool:
    if place.startswith("hf://"):
        organisation = place.removeprefix("hf://").rstrip("/")
        return not why_no_target(f"hf://{organisation}" if "/" in organisation else f"hf://{organisation}/x")
    try:
        check_bucket(place)
    except BadInput:
        return False
    return True
