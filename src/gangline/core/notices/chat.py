"""Write a message in the form of a chat's incoming webhook, so that no name in it formats text, pings anybody or hides a link.

Slack-compatible (https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks; Mattermost, Rocket.Chat and others take the
same `text`) and Discord (https://docs.discord.com/developers/resources/webhook#execute-webhook).
"""

import hashlib
import json
import re
from collections.abc import Sequence

from gangline.core.display import printable
from gangline.core.notices.message import NoticeMessage, NoticePicture, NoticeRequest

JSON = (("Content-Type", "application/json"),)
HEADER_MAX, SECTION_MAX, TEXT_MAX = 150, 3000, 3000
"""Slack's limits of a header and of a section; more than this of `text` would be cut by some servers."""
TITLE_MAX, DESCRIPTION_MAX = 256, 3500
"""Discord allows 256 and 4,096, the command included."""
RED, GREEN = 0xD03B3B, 0x2E8B57
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])")
_BEGINS_BLOCK = re.compile(r"^(\d*)([-+=#.)])")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def slack_request(url: str, message: NoticeMessage) -> NoticeRequest:
    """Return the request that posts a message to a Slack-compatible webhook.

    Slack shows the blocks, whose texts are plain: nothing in them is formatted. Others show `text`, which is escaped for the Markdown of
    Mattermost and for Slack's mrkdwn at once, as Slack shows it in notifications.
    """
    lines = _readable(message)
    blocks: list[dict[str, object]] = [{"type": "header", "text": _plain(_title(message), HEADER_MAX)}]
    if lines:
        blocks.append({"type": "section", "text": _plain("\n".join(lines), SECTION_MAX)})
    if message.command:
        blocks.append(
            {"type": "section", "text": {"type": "mrkdwn", "text": f"`{_code(message.command).translate(_ENTITIES)}`"}}
        )
    escaped = [markup_escaped(line) for line in (_title(message), *lines)]
    text = _joined(escaped, TEXT_MAX)
    command = f"\n`{_code(message.command).translate(_ENTITIES)}`" if message.command else ""
    return NoticeRequest(url=url, headers=JSON, body=_json({"text": text + command, "blocks": blocks}))


def discord_request(url: str, message: NoticeMessage) -> NoticeRequest:
    """Return the request that posts a message to a Discord webhook, with its picture as an attachment of its embed."""
    description = _joined([discord_escaped(line) for line in _readable(message)], DESCRIPTION_MAX)
    if message.command:
        description += f"\n```\n{_code(message.command)}\n```"
    embed: dict[str, object] = {
        "title": _joined([discord_escaped(_title(message))], TITLE_MAX),
        "description": description,
        "color": RED if message.urgent else GREEN,
    }
    payload: dict[str, object] = {"embeds": [embed], "allowed_mentions": {"parse": []}}
    if message.picture is None:
        return NoticeRequest(url=url, headers=JSON, body=_json(payload))
    name = safe_file_name(message.picture)
    embed["image"] = {"url": f"attachment://{name}"}
    return _multipart(url, _json(payload), name, message.picture)


def discord_escaped(text: str) -> str:
    """Return a text that Discord's Markdown shows as it is. A mention keeps its look, and `allowed_mentions` its silence."""
    return _PUNCTUATION.sub(r"\\\g<0>", printable(text).strip())


def safe_file_name(picture: NoticePicture) -> str:
    """Return a file name without any character that a header or a URL gives a meaning to."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", picture.name).strip(".-")[-60:] or "picture"


def _title(message: NoticeMessage) -> str:
    return printable(message.title)


def _readable(message: NoticeMessage) -> list[str]:
    return [printable(line) for line in message.lines]


def markup_escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, and mrkdwn, too, which knows no escapes but those of `&`, `<` and `>`.

    An underscore within a word is no markup, and stays readable where nothing interprets it. The at sign becomes a wide one: a Mattermost
    server pings everybody for `@all`, escaped or not.
    """
    escaped = _MARKUP.sub(r"\\\g<0>", printable(text).strip())
    return _BEGINS_BLOCK.sub(r"\1\\\2", escaped).replace("@", "＠").translate(_ENTITIES)


def _joined(lines: Sequence[str], most: int) -> str:
    """Join as many escaped lines as fit. A line that does not fit is cut before the escape that it would break."""
    text = "\n".join(lines)
    if len(text) <= most:
        return text
    return re.sub(r"(\\|&[a-z]*)$", "", text[: most - 1]) + "…"


def _code(command: str) -> str:
    """Return a command for a code span: it cannot end the span."""
    return printable(command).replace("`", "'")


def _plain(text: str, most: int) -> dict[str, object]:
    return {"type": "plain_text", "text": text if len(text) <= most else f"{text[: most - 1]}…", "emoji": False}


def _json(payload: dict[str, object]) -> bytes:
    return json.dumps(payload).encode()


def _multipart(url: str, payload: bytes, name: str, picture: NoticePicture) -> NoticeRequest:
    """Return a form (RFC 7578) with the payload and a file. The boundary is a digest of both, so each try has the same bytes."""
    boundary = hashlib.sha256(payload + picture.content).hexdigest()[:40]
    body = b"".join(
        (
            f'--{boundary}\r\nContent-Disposition: form-data; name="payload_json"\r\n'.encode(),
            b"Content-Type: application/json\r\n\r\n",
            payload,
            f'\r\n--{boundary}\r\nContent-Disposition: form-data; name="files[0]"; filename="{name}"\r\n'.encode(),
            f"Content-Type: {picture.media_type}\r\n\r\n".encode(),
            picture.content,
            f"\r\n--{boundary}--\r\n".encode(),
        )
    )
    return NoticeRequest(url=url, headers=(("Content-Type", f"multipart/form-data; boundary={boundary}"),), body=body)
