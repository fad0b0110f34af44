"""Probe at start what an S3 store can do, by requests that it should refuse. Stores differ, and some accept a header and ignore it."""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime

import httpx

from gangline.adapters.objects.s3_wire import Wire, parse_xml, s3_error_code
from gangline.core.errors import UserError

RIGHT, WRONG, LONGER = b"right", b"wrong", b"longer"
CREATE_ONLY = {"If-None-Match": "*"}
CHECKSUM = "x-amz-checksum-sha256"
ALGORITHM = {"x-amz-checksum-algorithm": "SHA256"}
MODE = {"x-amz-checksum-mode": "ENABLED"}
TAKEN = 412
PROBE_S = 60
SKEW_S_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    create_only: bool  # refuses a PUT to a key that is taken
    completes_once: bool  # refuses to complete an upload to a key that is taken
    checks: bool  # refuses bytes with another SHA-256 than the signed one
    attests: bool  # reports the SHA-256 that it checked
    measures: bool  # refuses more bytes than were signed for

    def lacking(self) -> list[str]:
        """Return, for the operator, what the store does not do and what is done instead."""
        instead = {
            "create-only PUT": (self.create_only, "every file is uploaded in parts, which only this server completes"),
            "create-only completion": (self.completes_once, "the server first checks whether the key exists"),
            "SHA-256 checks": (self.checks, "damage is found when bytes are read back"),
            "SHA-256 attestation": (self.attests, "checkpoints are read back before they count as verified"),
            "signed lengths": (
                self.measures,
                "until a URL expires, it can be used to upload more bytes than were signed for",
            ),
        }
        return [f"{what} ({so})" for what, (able, so) in instead.items() if not able]


NONE = Abilities(create_only=False, completes_once=False, checks=False, attests=False, measures=False)
"""The abilities of a store that was not probed, as by a client that only reads."""


def checksum(content: bytes) -> str:
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


def find_abilities(wire: Wire) -> Abilities:
    """Probe the store. Raises `UserError` if the bucket cannot be used, `Unreachable` if the store does not answer."""
    check_abilities(wire)
    probe = f"probes/{secrets.token_hex(8)}"
    taken, checked, wrong, longer = (f"{probe}/{what}" for what in ("taken", "checked", "wrong", "longer"))
    try:
        _must(wire, wire.send("PUT", taken, content=RIGHT), "write")
        found = Abilities(
            create_only=wire.send("PUT", taken, headers=CREATE_ONLY, content=WRONG).status_code == TAKEN,
            completes_once=_completes_once(wire, taken),
            checks=_takes(wire, checked, RIGHT) and not _takes(wire, wrong, WRONG),
            attests=wire.send("HEAD", checked, headers=MODE).headers.get(CHECKSUM) == checksum(RIGHT),
            measures=not _takes_more_than_signed(wire, longer),
        )
        _must(wire, wire.send("DELETE", taken), "delete")
    finally:
        for key in (taken, checked, wrong, longer):
            wire.send("DELETE", key)
    return replace(found, attests=found.attests and found.checks)  # an unverified checksum attests nothing


def _takes(wire: Wire, key: str, content: bytes) -> bool:
    """Return whether the store accepts `content` with the checksum of `RIGHT`."""
    return wire.send("PUT", key, headers={CHECKSUM: checksum(RIGHT)}, content=content).is_success


def _takes_more_than_signed(wire: Wire, key: str) -> bool:
    signed = {"Content-Length": str(len(RIGHT))}
    url = wire.sign("PUT", key, now_ms=wire.now_ms(), seconds=PROBE_S, headers=signed)
    try:
        return httpx.put(url, content=LONGER).is_success
    except httpx.HTTPError:  # closing the connection is a refusal, too
        return False


def _completes_once(wire: Wire, taken: str) -> bool:
    """Probe it with a multipart upload, which every store must support."""
    begun = _must(wire, wire.send("POST", taken, query={"uploads": ""}), "begin a multipart upload")
    upload = {"uploadId": parse_xml(begun).findtext("{*}UploadId") or ""}
    part = _must(wire, wire.send("PUT", taken, query=upload | {"partNumber": "1"}, content=WRONG), "upload a part")
    body = completion([(1, part.headers.get("etag", ""), None)])
    answer = wire.send("POST", taken, query=upload, headers=CREATE_ONLY, content=body)
    wire.send("DELETE", taken, query=upload)
    return answer.status_code == TAKEN


def completion(parts: list[tuple[int, str, str | None]]) -> bytes:
    """Return the body of the request that completes a multipart upload: part number, ETag and, if the store checks them, SHA-256 in
    base64."""
    listed = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{etag.replace('&', '&amp;')}</ETag>"
        + (f"<ChecksumSHA256>{sha256}</ChecksumSHA256>" if sha256 else "")
        + "</Part>"
        for number, etag, sha256 in parts
    )
    return f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()


# What is wrong with a bucket


def check_abilities(wire: Wire) -> None:
    query = {"list-type": "2", "max-keys": "1", "prefix": wire.name("")}
    answer = _must(wire, wire.send("GET", query=query), "list")
    if not parse_xml(answer).tag.endswith("ListBucketResult"):
        raise UserError(
            f"{wire.place} does not answer as an S3 store does",
            hint="AWS_ENDPOINT_URL must have its address, as https://HOST:PORT",
        )


def _must(wire: Wire, answer: httpx.Response, what: str) -> httpx.Response:
    if answer.is_success:
        return answer
    raise _unusable(wire, answer, what)


def _unusable(wire: Wire, answer: httpx.Response, what: str) -> UserError:
    skew_s = _skew_s(wire, answer.headers)
    bucket, place, code = wire.bucket.name, wire.place, s3_error_code(answer)
    if abs(skew_s) > SKEW_S_MAX and answer.status_code in (400, 403):
        which = "ahead of" if skew_s > 0 else "behind"
        return UserError(
            f"the clock of this machine is {abs(skew_s):.0f} s {which} that of the object store at {place}",
            hint="set the clock (NTP does it); until then the store refuses every signature",
        )
    said = {
        "NoSuchBucket": (
            f"there is no bucket {bucket} at {place}",
            "create it, or name another (GANGLINE_OBJECTS, --to)",
        ),
        "InvalidAccessKeyId": (
            f"the object store at {place} does not know the access key",
            "check AWS_ACCESS_KEY_ID",
        ),
        "SignatureDoesNotMatch": (
            f"the object store at {place} rejects the signature",
            "check AWS_SECRET_ACCESS_KEY and AWS_REGION",
        ),
        "AccessDenied": (
            f"the access key may not {what} in the bucket {bucket} at {place}",
            "it must be allowed to list, read, write and delete there",
        ),
    }
    other = f"the object store at {place} refuses to {what} ({answer.status_code} {code})".replace(" )", ")")
    message, hint = said.get(code, (other, "check AWS_ENDPOINT_URL, AWS_REGION and the bucket's name"))
    return UserError(message, hint=hint)


def _skew_s(wire: Wire, headers: Mapping[str, str]) -> float:
    """Return by how many seconds this machine's clock is ahead; 0 if the store does not send its time."""
    try:
        return wire.now_ms() / 1000 - parsedate_to_datetime(headers.get("date", "")).timestamp()
    except ValueError:
        return 0.0
