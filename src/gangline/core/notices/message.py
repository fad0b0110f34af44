"""A message for people, before and after it has the form of the channel that carries it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticePicture:
    """`name` is a file name, `content` the bytes of a PNG or JPEG that Gangline itself wrote."""

    name: str
    content: bytes
    media_type: str = "image/png"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeMessage:
    """`title` is one line, `lines` are sentences of plain text. `command` is what its reader may type next; it may
    be empty. `urgent`: somebody has to act. Names that users chose stand in it as they are: each channel escapes them in its own way."""

    title: str
    lines: tuple[str, ...]
    command: str = ""
    picture: NoticePicture | None = None
    urgent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRequest:
    """A POST to `url`. It has all headers but Host and Content-Length. `project` is the one that it is sent for: each has its share of
    what all need, such as threads that look up names."""

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    project: str = ""
