"""Buckets and the keys that open them, found where Amazon's own tools find them; and places for data, in a bucket or on a disk."""

import logging
import os
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gangline.compose.settings import needing, strip_secrets
from gangline.core.errors import UserError

if TYPE_CHECKING:
    from gangline.adapters.objects.s3 import S3Objects
    from gangline.adapters.objects.s3_wire import S3Bucket
    from gangline.data.place import DataPlace

S3_OPTIONS = {
    "AWS_ACCESS_KEY_ID": "aws_access_key_id",
    "AWS_SECRET_ACCESS_KEY": "aws_secret_access_key",
    "AWS_SESSION_TOKEN": "aws_session_token",
    "AWS_REGION": "aws_region",
    "AWS_ENDPOINT_URL": "aws_endpoint",
}
KEY_HINT = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; a machine with a role of its own needs neither"
)

OTHER_CLOUDS = {
    "gs": "Google Cloud Storage",
    "gcs": "Google Cloud Storage",
    "az": "Azure Blob Storage",
    "azure": "Azure Blob Storage",
    "adl": "Azure Blob Storage",
    "abfs": "Azure Blob Storage",
    "abfss": "Azure Blob Storage",
}
"""What people type whose buckets are not S3's, by their scheme."""

log = logging.getLogger(__name__)


def open_bucket(place: str, called: str) -> "S3Objects":
    """Open the bucket at `place`, which the user named by `called`. Raises `UserError` where it cannot be used."""
    with needing("s3"):
        from gangline.adapters.objects.s3 import S3Objects
        from gangline.adapters.objects.s3_abilities import find_abilities
        from gangline.adapters.objects.s3_wire import Wire
    wire = Wire(_read_bucket(place, called))
    abilities = find_abilities(wire)
    for lack in abilities.lacking():
        log.warning("the object store at %s lacks %s", wire.place, lack)
    return S3Objects(wire, abilities)


def lacks_of_bucket(place: str, called: str) -> list[str]:
    """Return what the bucket cannot do of what a server asks. A small file is written and removed. Raises `UserError` as above."""
    with needing("s3"):
        from gangline.adapters.objects.s3_abilities import find_abilities
        from gangline.adapters.objects.s3_wire import Wire
    return find_abilities(Wire(_read_bucket(place, called))).lacking()


def open_bucket_to_read(place: str, called: str) -> "S3Objects":
    """Open the bucket for one who writes nothing there, so that nothing is tried. Raises `UserError` where it cannot be used."""
    with needing("s3"):
        from gangline.adapters.objects.s3 import S3Objects
        from gangline.adapters.objects.s3_abilities import NONE, check_abilities
        from gangline.adapters.objects.s3_wire import Wire
    wire = Wire(_read_bucket(place, called))
    check_abilities(wire)
    return S3Objects(wire, NONE)


def _read_bucket(place: str, called: str) -> "S3Bucket":
    """Find the bucket and its key, as Amazon's own tools find one; the key is renewed where it ends."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    from gangline.adapters.objects.s3_wire import S3Bucket

    _refuse_other_clouds(place, called)
    parts = urlsplit(place)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
        raise UserError(f"{called} is {place}, which is not a bucket", hint="write it as s3://BUCKET/PREFIX")
    strip_secrets(*S3_OPTIONS)
    endpoint = (os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")).rstrip("/")
    if endpoint and not (endpoint.startswith(("http://", "https://")) and urlsplit(endpoint).hostname):
        raise UserError(f"AWS_ENDPOINT_URL is not a URL: {endpoint}", hint="write it as https://HOST:PORT")
    try:
        session = Session()
        credentials = session.get_credentials()
        region = os.environ.get("AWS_REGION") or session.get_config_variable("region") or "us-east-1"
    except BotoCoreError as error:
        raise UserError(f"the key of {place} cannot be read: {error}", hint=KEY_HINT) from None
    if credentials is None:
        raise UserError(f"no key was found for {place}", hint=KEY_HINT)
    return S3Bucket(
        name=parts.netloc, prefix=parts.path.strip("/"), region=region, endpoint=endpoint, credentials=credentials
    )


def data_place(address: str) -> "DataPlace":
    """Parse a folder, or s3://BUCKET/PREFIX with the key that the environment names; else the machine's own role is used."""
    from gangline.data.place import DataPlace

    if "://" not in address:
        return DataPlace(str(Path(address).expanduser().absolute()))
    _refuse_other_clouds(address, "the place of data")
    parts = urlsplit(address)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
        raise UserError(f"{address} is not a place for data", hint="give a folder, or s3://BUCKET/PREFIX")
    strip_secrets(*S3_OPTIONS)
    options = {option: value for name, option in S3_OPTIONS.items() if (value := os.environ.get(name, ""))}
    if options.get("aws_endpoint", "").startswith("http://"):
        options["allow_http"] = "true"
    return DataPlace(address.rstrip("/"), {"aws_region": "us-east-1"} | options)


def _refuse_other_clouds(address: str, called: str) -> None:
    """By name: whoever types it believes that it would work."""
    if cloud := OTHER_CLOUDS.get(address.partition("://")[0]):
        raise UserError(
            f"{called} is {address}, and {cloud} is not supported",
            hint="use a bucket with the S3 API (Amazon, Cloudflare R2, Backblaze B2, MinIO, …), or a folder on a persistent disk",
        )


def with_key(place: "DataPlace") -> "DataPlace":
    """Add the key that Amazon's tools would find, where the environment names none."""
    if not place.is_remote:
        return place
    import_module("obstore")  # it is missed now, or never
    if "aws_access_key_id" in place.options:
        return place
    from botocore.session import Session

    credentials = Session().get_credentials()
    if credentials is None:
        return place
    key = credentials.get_frozen_credentials()
    found = {"aws_access_key_id": key.access_key, "aws_secret_access_key": key.secret_key}
    token = {"aws_session_token": key.token} if key.token else {}
    return replace(place, options=place.options | found | token)


def lend_keys_of_data() -> None:
    """Let a trainer that is started here read buckets as its user does, where it was given nothing of its own."""
    strip_secrets(*S3_OPTIONS)
    for name in S3_OPTIONS:
        if name in os.environ:
            os.environ.setdefault(f"GANGLINE_DATA_{name.removeprefix('AWS_')}", os.environ[name])
