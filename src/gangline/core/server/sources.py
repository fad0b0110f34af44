"""Where the server may fetch photos from and deliver results to, with which keys, and how much of it."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le, MaxLen

from gangline.core.errors import BadInput
from gangline.core.places.places import PhotoSource, check_bucket, why_no_target
from gangline.core.places.urls import parse_networks
from gangline.core.policy import STRICT, Exact
from gangline.core.server.limits import Bytes, Seconds

FetchCount = Annotated[int, Ge(1), Le(10**6), Exact()]
Text = Annotated[str, MaxLen(1000), Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchingSettings:
    """What one job may make this server fetch."""

    __pydantic_config__: ClassVar[Any] = STRICT
    networks: Annotated[
        tuple[Text, ...],
        "Networks that are not public and that users' URLs may lead to, as 10.1.0.0/16; there http:// is allowed, too. "
        "Without one, private, loopback and link-local addresses are refused.",
    ] = ()
    file_bytes_max: Annotated[Bytes, "Size of one photo."] = 200_000_000
    bytes_max: Annotated[Bytes, "Size of all photos of a job, and of a zip of them."] = 10_000_000_000
    files_max: Annotated[FetchCount, "Files of one job: photos, captions and what lies beside them."] = 10_000
    file_s: Annotated[Seconds, "One file, or one zip, comes within this time."] = 600.0
    job_s: Annotated[
        Seconds,
        "All photos of a job come within this time, in all tries together; time in which nothing is fetched does not count.",
    ] = 14_400.0
    tries_max: Annotated[FetchCount, "A job fails after this many tries in a row that came to nothing."] = 12
    at_once_max: Annotated[
        FetchCount,
        "Jobs whose photos are fetched at the same time, and jobs whose results are delivered.",
    ] = 4
    at_once_per_project_max: Annotated[
        FetchCount | None,
        "Jobs of one project whose photos are fetched at the same time, by all servers together; without one, half of "
        "`at_once_max`, at least 1.",
    ] = None

    def __post_init__(self) -> None:
        assert _are_networks(self.networks), "networks are written as 10.1.0.0/16, with zeros behind the prefix"

    @property
    def of_one_project_max(self) -> int:
        return self.at_once_per_project_max or max(1, self.at_once_max // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """A place and who may use it. Its secrets are names of variables of the server's environment; without them nothing is signed."""

    __pydantic_config__: ClassVar[Any] = STRICT
    place: Annotated[
        Text, "Where it lies: s3://BUCKET/FOLDER/, or, to deliver to, hf://ORGANISATION/ or hf://ORGANISATION/NAME."
    ] = ""
    projects: Annotated[tuple[Text, ...], 'Projects whose jobs may name addresses below it; "*" stands for all.'] = ()
    deliver: Annotated[Annotated[bool, Exact()], "Whether results may be delivered there."] = False
    key_env: Annotated[Text, "The variable with the access key of the bucket, or the token of the hub."] = ""
    secret_env: Annotated[Text, "The variable with the secret key of the bucket."] = ""
    endpoint: Annotated[
        Text, "The address of the object store, or of the hub; without it Amazon's, or huggingface.co."
    ] = ""
    region: Annotated[Text, "The region of the bucket."] = "us-east-1"

    def __post_init__(self) -> None:
        assert not self.place or _is_place(self.place), "place is like s3://BUCKET/FOLDER/ or hf://ORGANISATION/"
        assert bool(self.place) == bool(self.projects), "a source names its place and its projects"
        assert self.deliver or not self.place.startswith("hf://"), "a place of the hub is to deliver to: deliver = true"

    def named(self, name: str) -> PhotoSource:
        return PhotoSource(name=name, place=self.place, projects=self.projects, deliver=self.deliver)


def _are_networks(texts: tuple[str, ...]) -> bool:
    try:
        parse_networks(texts)
    except ValueError:
        return False
    return True


def _is_place(place: str) -> bool:
    if place.startswith("hf://"):
        organisation = place.removeprefix("hf://").rstrip("/")
        return not why_no_target(f"hf://{organisation}" if "/" in organisation else f"hf://{organisation}/x")
    try:
        check_bucket(place)
    except BadInput:
        return False
    return True
