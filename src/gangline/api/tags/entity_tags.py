"""Entity tags (RFC 9110): an answer that has not changed is not sent again, and what was decided on an old one is refused.

A tag is a hash of the answer's bytes. A job's answer changes with every heartbeat and with every cent, and only its reader can say whether
that matters. So a job's tag begins with its version and its id, and `If-Match` compares these alone: it refuses a request about a job whose
state, reason or labels have changed, not one whose step has.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Annotated

from fastapi import Depends, Header, Request, Response

from gangline.core.errors import BadInput
from gangline.core.jobs.lists.seen import ANY_VERSION, Seen

TAGS_MAX = 2000
"""Characters of a header with tags."""
TAG = re.compile(r'[ \t,]*(W/)?"([\x21\x23-\x7e]*)"[ \t]*(?=,|$)')
OF_VERSION = re.compile(r"(\d{1,15})-(.+)-[0-9a-f]{32}")
NOT_MODIFIED = 304


def entity_tag(body: bytes, job: str = "", version: int = 0) -> str:
    """Return the tag of an answer, which may be that of a job."""
    found = blake2b(body, digest_size=16).hexdigest()
    return f'"{version}-{job}-{found}"' if job else f'"{found}"'


def unless_known(request: Request, answer: Response) -> Response:
    """Return the answer of a GET with its tag; without its body where the client has it already."""
    if request.method != "GET" or answer.status_code != 200 or answer.media_type != "application/json":
        return answer
    tag = answer.headers.setdefault("ETag", entity_tag(bytes(answer.body)))
    if not _is_known(tag, request.headers.get("if-none-match", "")):
        return answer
    kept = {name: answer.headers[name] for name in ("ETag", "Vary", "Link") if name in answer.headers}
    return Response(status_code=NOT_MODIFIED, headers=kept)


def _is_known(tag: str, header: str) -> bool:
    """Return whether `If-None-Match` has this tag, weak or not: a proxy that compresses makes tags weak."""
    return header.strip() == "*" or any(f'"{opaque}"' == tag for _, opaque in _tags(header) or ())


def _tags(header: str) -> list[tuple[bool, str]] | None:
    """Return whether each tag is weak, and its text; None for a header that is no list of tags."""
    found, place = list[tuple[bool, str]](), 0
    while place < len(header):
        tag = TAG.match(header, place)
        if tag is None:
            return None
        found.append((tag[1] is not None, tag[2]))
        place = tag.end()
    return found


def _versions(tags: list[tuple[bool, str]]) -> Iterator[tuple[str, int]]:
    """Yield the jobs and versions of strong tags: a weak one equals none here."""
    for weak, opaque in tags:
        version = OF_VERSION.fullmatch(opaque)
        if version and not weak:
            yield version[2], int(version[1])


async def _seen(if_match: Annotated[str | None, Header(max_length=TAGS_MAX)] = None) -> Seen:
    if if_match is None or if_match.strip() == "*":
        return ANY_VERSION
    tags = _tags(if_match)
    if not tags:
        raise BadInput("If-Match has no entity tag", hint="send the ETag of the job, with its quotes")
    return Seen(frozenset(_versions(tags)), weak=any(weak for weak, _ in tags))


AsSeen = Annotated[Seen, Depends(_seen)]
